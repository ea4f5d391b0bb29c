"""Writes a page about tables and their sidecars: one file that needs nothing else, and runs no script."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from sidecar.errors import UsageError
from sidecar.iceberg.many_tables import each_table
from sidecar.many_files.find import has_data_ending
from sidecar.reports.page.collecting import collect_facts
from sidecar.reports.page.elements import as_html, element
from sidecar.reports.page.facts import TableOnPage
from sidecar.reports.page.sections import overview, section
from sidecar.reports.page.style import STYLE
from sidecar.reports.page.wording import moment
from sidecar.results.base import Result
from sidecar.run_log import log_run, quantity
from sidecar.storage.locations import check_file_url, local_path
from sidecar.storage.source import AnyPath
from sidecar.storage.target import check_folder, write_whole

log = logging.getLogger(__name__)

DOCTYPE = "<!DOCTYPE html>"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What browsers may load for the page: nothing."""


@dataclass(frozen=True, repr=False, slots=True)
class ReportedTable(Result):
    """A table on a page."""

    table: str
    """Its name."""
    error: str | None
    """Why the page has no facts about it; ``None`` if it has."""
    warnings: list[str]
    """What the page does not know."""


@dataclass(frozen=True, repr=False, slots=True)
class PageReport(Result):
    """What :func:`sidecar.report` wrote."""

    path: str
    """The page."""
    bytes: int
    """Its size."""
    tables: list[ReportedTable]
    """The tables on it."""
    seconds: float
    """The time that it took."""

    def log_line(self) -> str:
        """The report as a line of the log."""
        failed = sum(one.error is not None for one in self.tables)
        return f"page of {quantity(len(self.tables), 'table')}, {failed} failed: {self.path}; {self.seconds:.3f} s"


def report(
    tables: str | Table | Iterable[str | Table],
    output: AnyPath,
    *,
    catalog: str | Catalog | None = None,
    advice: bool = True,
) -> PageReport:
    """Write a page about the sidecars of tables: coverage, lookups, sizes, filters, distinct counts, history, advice.

    Example: ``sidecar.report("sales.*", "page.html")``
    ``tables``: open tables, names or globs of names, one or several.
    ``output``: the HTML file to write or replace.
    ``catalog``: the catalog of names, as for :func:`sidecar.open_table`.
    ``advice``: whether a sample of the data is read, for :func:`sidecar.advise`.

    The page has no scripts and no values of columns. Its facts are JSON in the element ``facts``. A table that fails is
    on the page with its error; if all fail, the first is raised. Raises :class:`UsageError` for a file that is no
    page, :class:`sidecar.errors.StorageError` if it cannot be written.
    """
    start = time.monotonic()
    name = os.fspath(output)
    _check(name)  # what would not be written in the end is refused before the work
    work = partial(collect_facts, with_advice=advice)
    found = [TableOnPage(one.table, one.result, one.error) for one in each_table(tables, work, catalog)]
    if all(one.error is not None for one in found) and found[0].error is not None:
        raise found[0].error
    data = page(found, time.time()).encode()
    write_whole(name, data)
    written = PageReport(name, len(data), [_reported(one) for one in found], time.monotonic() - start)
    log_run(log, written.log_line)
    return written


def _check(path: str) -> None:
    """Raise the error of writing a page to ``path`` as far as it shows. Only an older page is replaced."""
    local = local_path(path)
    if has_data_ending(path):
        raise UsageError("a page is no data file and no sidecar", found=path, hint="Name it FILE.html.")
    if local is None:
        check_file_url(path, None)
        return
    check_folder(local)
    with suppress(FileNotFoundError), open(local, "rb") as older:
        if not older.read(len(DOCTYPE)).startswith(DOCTYPE.encode()):
            raise UsageError("the file exists already, and it is no page", file=local, hint="Choose another name.")


def page(tables: list[TableOnPage], now: float) -> str:
    """Return the text of a page about ``tables``. ``now``: when it was made, in seconds since 1970."""
    title = tables[0].name if len(tables) == 1 else f"{len(tables)} tables"
    facts = {
        "at": now,
        "tables": [
            {"table": one.name, **({"error": str(one.error)} if one.facts is None else one.facts.to_dict())}
            for one in tables
        ],
    }
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("title", f"sidecar: {title}"),
        element("style", STYLE),
    )
    body = element(
        "body",
        element("h1", f"Sidecars of {title}"),
        element("p", f"Made {moment(now)} by sidecar.", class_="dim"),
        overview(tables),
        *(section(at, one) for at, one in enumerate(tables)),
        element("script", _json(facts), type="application/json", id="facts"),
    )
    return f"{DOCTYPE}\n{as_html(element('html', head, body, lang='en'))}\n"


def _json(facts: Any) -> str:
    """Return JSON that does not end the element it is in, whatever the names in it are."""
    text = json.dumps(facts)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _reported(one: TableOnPage) -> ReportedTable:
    if one.facts is None:
        return ReportedTable(one.name, str(one.error), [])
    return ReportedTable(one.name, None, list(dict.fromkeys([*one.facts.status.warnings, *one.facts.warnings])))
