"""``sidecar report``: a page about tables and their sidecars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import warn_of_tables
from sidecar.cli.many.targets import Tables
from sidecar.cli.options import chosen_catalog
from sidecar.cli.output import escaped, facts, output

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import PageReport


def report(
    tables: Tables,
    to: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="The HTML file, in the place of an older one."),
    ] = "report.html",
    advice: Annotated[
        bool,
        typer.Option("--advice/--no-advice", help="Read a sample of the data and advise on each column."),
    ] = True,
) -> None:
    """Write a page about tables and their sidecars.

    It has coverage, example lookups, sizes, the fill of filters, distinct counts, history and advice: one HTML file
    without scripts that needs nothing else, with the facts as JSON in it. It shows names and numbers, no values. A
    table that fails is on the page with its error, and the exit code is 1.

    \b
    Examples:
      sidecar report db.lineitem
      sidecar report 'db.*' --no-advice -o lake.html
    """
    out = output()
    from sidecar import report as write_report

    page = write_report(tables, to, catalog=chosen_catalog(), advice=advice)
    warn_of_tables((one.table, text) for one in page.tables for text in [*one.warnings, one.error] if text)
    out.result(page, draw, failed=any(one.error for one in page.tables))


def draw(to: Console, page: PageReport) -> None:
    """Draw where the page is."""
    failed = sum(one.error is not None for one in page.tables)
    tables = humanize.count(len(page.tables)) + (f", {humanize.count(failed)} failed" if failed else "")
    to.print(facts([("page", f"{escaped(page.path)} ({humanize.size(page.bytes)})"), ("tables", tables)]))
