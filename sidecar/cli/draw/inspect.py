"""The text output of ``inspect``: Parquet files and single filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.draw import orc, puffin
from sidecar.cli.output import escaped, facts, table
from sidecar.cli.shell import pictures

if TYPE_CHECKING:
    from rich.console import Console


def drawing_for(data: Any) -> Callable[[Console, Any], None]:
    """Return the function that draws a file, by its kind."""
    if "bloom_filter" in data:
        return bare_filter
    if "stripes" in data:
        return orc.draw
    return puffin.draw if "blobs" in data else data_file


def _index_row(unit: Any, path: str, column: Any) -> dict[str, Any]:
    found = column["bloom_filter"] or {}
    return {
        "row_group": unit["row_group"],
        "rows": unit["rows"],
        "column": path,
        "filter_bytes": found.get("bytes"),
        **{name: found.get(name) for name in ("fill", "estimated_fpp", "trusted", "reason")},
        "column_index_bytes": (column["column_index"] or {}).get("length"),
        "offset_index_bytes": (column["offset_index"] or {}).get("length"),
    }


def bare_filter(to: Console, data: Any) -> None:
    """Draw a file that is one Bloom filter."""
    found = data["bloom_filter"]
    to.print(
        facts(
            [
                ("file", escaped(data["file"])),
                ("a Bloom filter", escaped(data["form"])),
                ("size", f"{humanize.size(found['bytes'])}, header {found['length'] - found['bytes']} bytes"),
                ("fill", pictures.fill(to, found["fill"])),
                ("false positives", humanize.percent(found["estimated_fpp"])),
                ("column and type", "not stored in the file"),
            ]
        )
    )


def data_file(to: Console, data: Any) -> None:
    """Draw one line for each column chunk that has an index."""
    to.print(
        facts(
            [
                ("file", escaped(data["file"])),
                ("size", humanize.size(data["size"]) + _rows(data["rows"])),
                ("written by", escaped(data["created_by"] or "unknown")),
                *_encryption(data["encryption"]),
                *orc.not_believed(data["not_believed"]),
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

    def lines(unit: Any, path: str, column: Any) -> list[tuple[str, ...]]:
        return [(str(unit["row_group"]), humanize.count(unit["rows"]), escaped(path), *_indexes(to, column))]

    orc.draw_indexes(to, drawn, data["units"], lines)


def _rows(rows: int | None) -> str:
    return "" if rows is None else f", {humanize.count(rows)} rows"


def _encryption(found: Any) -> list[tuple[str, str]]:
    """How a file is encrypted, and which columns cannot be shown."""
    if found is None:
        return []
    footer = found["footer"] + ("" if found["verified"] else ", not verified: no keys were given")
    lines = [("encrypted", f"{found['algorithm']}, footer {footer}")]
    if found["columns"] is None:
        return [*lines, ("columns", "not known: all that the footer says is encrypted")]
    if found["columns"]:
        lines.append(("encrypted columns", escaped(", ".join(found["columns"]))))
    if found["locked"]:
        lines.append(("without key", escaped(", ".join(found["locked"]))))
    return lines


def _indexes(to: Console, column: Any) -> tuple[str, ...]:
    filter_, lengths = column["bloom_filter"], [column["column_index"], column["offset_index"]]
    pages = tuple(humanize.size(found and found["length"]) for found in lengths)
    if filter_ is None:
        return ("–", "–", "–", *pages, "")
    reason = "" if filter_["trusted"] else f"[yellow]not trusted[/]: {escaped(filter_['reason'])}"
    rate = filter_["estimated_fpp"]
    return (
        humanize.size(filter_["bytes"]),
        pictures.fill(to, filter_["fill"]),
        humanize.percent(rate),
        *pages,
        reason,
    )
