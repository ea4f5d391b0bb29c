"""How ``inspect`` looks: data files, Puffin files and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humane
from sidecar.cli.output import escaped, facts, table

if TYPE_CHECKING:
    from rich.console import Console


def data_file(to: Console, data: Any) -> None:
    """One line a column chunk that has an index."""
    to.print(
        facts(
            [
                ("file", escaped(data["file"])),
                ("size", f"{humane.size(data['size'])}, {humane.count(data['rows'])} rows"),
                ("written by", escaped(data["created_by"] or "unknown")),
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
    bare: dict[str, None] = {}
    for unit in data["units"]:
        for path, column in unit["columns"].items():
            if not any(column.values()):
                bare[path] = None
                continue
            drawn.add_row(
                str(unit["row_group"]), humane.count(unit["rows"]), escaped(path), *_indexes(column)
            )
    if drawn.row_count:
        to.print(drawn)
    if bare:
        to.print(f"no index: {', '.join(bare)}", markup=False)


def _indexes(column: Any) -> tuple[str, ...]:
    filter_, lengths = column["bloom_filter"], [column["column_index"], column["offset_index"]]
    pages = tuple(humane.size(found and found["length"]) for found in lengths)
    if filter_ is None:
        return ("–", "–", "–", *pages, "")
    reason = "" if filter_["trusted"] else f"[yellow]not trusted[/]: {escaped(filter_['reason'])}"
    rate = filter_["estimated_fpp"]
    return (
        humane.size(filter_["bytes"]),
        humane.percent(filter_["fill"]),
        humane.percent(rate),
        *pages,
        reason,
    )
