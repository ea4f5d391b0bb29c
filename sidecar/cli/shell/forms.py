"""Rows of results as JSON lines, CSV or Markdown. Every form reads back to the same values.

A cell that is missing is empty, bytes are hexadecimal digits, lists and structs are JSON, and times are ISO 8601.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sidecar.cli.shell.choices import OutputFormat
from sidecar.cli.shell.json_text import plain, to_json
from sidecar.errors import visible


class ResultRows(NamedTuple):
    """A result as a table: the names of its columns, and rows with a value for each."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


def rows_of(columns: str, items: Iterable[Mapping[str, Any]]) -> ResultRows:
    """Rows with the values of ``items`` under the names in ``columns``; a value that an item lacks is empty."""
    names = columns.split()
    return ResultRows(names, ([item.get(name) for name in names] for item in items))


def lines_of(form: OutputFormat, found: ResultRows, *, escape: bool) -> Iterator[str]:
    """The lines of ``found`` in a form, each with its end. ``escape`` makes control characters of CSV visible."""
    return _LINES[form](found, escape)


def _jsonl(found: ResultRows, escape: bool) -> Iterator[str]:
    for row in found.rows:
        yield to_json(dict(zip(found.columns, row, strict=True))) + "\n"


def _csv(found: ResultRows, escape: bool) -> Iterator[str]:
    """RFC 4180: a header, CRLF, quotes where needed. Text without characters is quoted, null is not."""
    show: Callable[[str], str] = visible if escape else str
    yield ",".join(_csv_cell(name, show) for name in found.columns) + "\r\n"
    for row in found.rows:
        yield ",".join(_csv_cell(value, show) for value in row) + "\r\n"


def _csv_cell(value: object, show: Callable[[str], str]) -> str:
    if value is None:
        return ""
    text = show(cell_text(value))
    if text and not _QUOTED.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _markdown(found: ResultRows, escape: bool) -> Iterator[str]:
    yield _markdown_line(map(_markdown_cell, found.columns))
    yield _markdown_line("---" for _ in found.columns)
    for row in found.rows:
        yield _markdown_line(map(_markdown_cell, row))


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _markdown_cell(value: object) -> str:
    """Text without a meaning in Markdown and HTML. Line breaks are ``<br>``, other control characters are visible."""
    if value is None:
        return ""
    lines = re.split(r"\r\n|\r|\n", cell_text(value))
    return "<br>".join(_MARKUP.sub(r"\\\g<0>", visible(line)) for line in lines)


def cell_text(value: object) -> str:
    """A value that is not null as the text of a cell."""
    simple = plain(value)
    if isinstance(simple, str):
        return simple
    return repr(simple) if isinstance(simple, float) else to_json(simple)


_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')
_MARKUP = re.compile(r"[\\|<>`*\[\]]")
_LINES: dict[OutputFormat, Callable[[ResultRows, bool], Iterator[str]]] = {
    OutputFormat.json: _jsonl,
    OutputFormat.jsonl: _jsonl,
    OutputFormat.csv: _csv,
    OutputFormat.markdown: _markdown,
}
