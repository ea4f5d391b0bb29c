"""The text output of ``inspect``: Parquet files and single filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.cli import humanize
from sidecar.cli.draw import orc, puffin
from sidecar.cli.output import escaped, facts, table
from sidecar.cli.shell import pictures

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import FileInfo, FilterFileInfo, ParquetColumnInfo, ParquetEncryptionInfo, ParquetFileInfo


def draw_file(to: Console, file: FileInfo, *, statistics: bool) -> None:
    """Draw a file, by its kind; of an ORC file with ``statistics`` also minimum and maximum."""
    if file.format == "bloom-filter":
        bare_filter(to, file)
    elif file.format == "orc":
        orc.draw(to, file, statistics=statistics)
    elif file.format == "puffin":
        puffin.draw(to, file)
    else:
        data_file(to, file)


def bare_filter(to: Console, file: FilterFileInfo) -> None:
    """Draw a file that is one Bloom filter."""
    found = file.bloom_filter
    to.print(
        facts(
            [
                ("file", escaped(file.file)),
                ("a Bloom filter", escaped(file.form)),
                ("size", f"{humanize.size(found.bytes)}, header {(found.length or 0) - (found.bytes or 0)} bytes"),
                ("fill", pictures.fill(to, found.fill)),
                ("false positives", humanize.percent(found.estimated_fpp)),
                ("column and type", "not stored in the file"),
            ]
        )
    )


def data_file(to: Console, file: ParquetFileInfo) -> None:
    """Draw one line for each column chunk that has an index."""
    to.print(
        facts(
            [
                ("file", escaped(file.file)),
                ("size", humanize.size(file.size) + _rows(file.rows)),
                ("written by", escaped(file.created_by or "unknown")),
                *_encryption(file.encryption),
                *orc.not_believed(file.not_believed),
            ]
        )
    )
    headings = (
        "row group",
        "rows",
        "column",
        "filter",
        "fill",
        "false positives",
        "column index",
        "offset index",
    )
    drawn = table(*headings, "", right=(0, 1, 3, 4, 5, 6, 7))

    without_index: dict[str, None] = {}
    for unit in file.units:
        for path, column in unit.columns.items():
            if not (column.bloom_filter or column.column_index or column.offset_index):
                without_index[path] = None
            else:
                place = str(unit.row_group), humanize.count(unit.rows), escaped(path)
                drawn.add_row(*place, *_indexes(to, column))
    orc.draw_indexes(to, drawn, without_index)


def _rows(rows: int | None) -> str:
    return "" if rows is None else f", {humanize.count(rows)} rows"


def _encryption(found: ParquetEncryptionInfo | None) -> list[tuple[str, str]]:
    """How a file is encrypted, and which columns cannot be shown."""
    if found is None:
        return []
    footer = found.footer + ("" if found.verified else ", not verified: no keys were given")
    lines = [("encrypted", f"{found.algorithm}, footer {footer}")]
    if found.columns is None:
        return [*lines, ("columns", "not known: all that the footer says is encrypted")]
    if found.columns:
        lines.append(("encrypted columns", escaped(", ".join(found.columns))))
    if found.locked:
        lines.append(("without key", escaped(", ".join(found.locked))))
    return lines


def _indexes(to: Console, column: ParquetColumnInfo) -> tuple[str, ...]:
    filter_, places = column.bloom_filter, (column.column_index, column.offset_index)
    pages = tuple(humanize.size(None if place is None else place.length) for place in places)
    if filter_ is None:
        return ("–", "–", "–", *pages, "")
    reason = "" if filter_.trusted else f"[yellow]not trusted[/]: {escaped(filter_.reason)}"
    rate = filter_.estimated_fpp
    return (
        humanize.size(filter_.bytes),
        pictures.fill(to, filter_.fill),
        humanize.percent(rate),
        *pages,
        reason,
    )
