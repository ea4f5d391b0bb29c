"""The text output of ``inspect`` for Puffin files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.output import escaped, facts, table, without_folder
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import PuffinFileInfo, StoredFiltersInfo, StoredIndexInfo

SHOWN_FILES = 5
"""How many data files of a Puffin file the text output names; JSON names all."""


def draw(to: Console, file: PuffinFileInfo) -> None:
    """Draw the blobs of a Puffin file, then the groups of each segment."""
    to.print(
        facts(
            [
                ("file", escaped(file.file)),
                ("size", f"{humanize.size(file.size)}, footer {humanize.size(file.footer.length)}"),
                ("written by", escaped(file.properties.get("created-by", "unknown"))),
            ]
        )
    )
    drawn = table("blob", "fields", "snapshot", "offset", "size", "codec", "distinct values", right=(3, 4, 6))
    for blob in file.blobs:
        drawn.add_row(
            escaped(blob.type),
            ", ".join(map(str, blob.fields)),
            str(blob.snapshot_id),
            humanize.count(blob.offset),
            humanize.size(blob.length),
            blob.compression_codec or "",
            escaped(blob.properties.get("ndv", "")),
        )
    to.print(drawn)
    for segment in file.segments:
        _segment(to, segment)
    _columns(to, file)
    _files(to, file)


def _segment(to: Console, segment: Mapping[str, Any]) -> None:
    to.print(
        f"[bold]segment {escaped(segment['id'])}[/]: {quantity(segment['files'], 'file')}, "
        f"{quantity(segment['units'], 'unit')}, snapshot {segment['snapshot_id']}, "
        f"{escaped(segment['created_at'])}"
    )
    headings = (
        "field",
        "encoding",
        "found by",
        "layout",
        "units",
        "filter",
        "size",
        "read by a lookup",
        "damage",
    )
    drawn = table(*headings, right=(4, 5, 6, 7))
    for bundle in segment["bundles"]:
        for group in bundle["groups"]:
            drawn.add_row(
                str(bundle["field"]),
                escaped(group["encoding"]),
                escaped(group["resolution"]),
                escaped(group["layout"]),
                humanize.count(group["units"]),
                humanize.size(group["filter_bytes"]),
                humanize.size(group["length"]),
                humanize.size(group["lookup_bytes"]),
                escaped("; ".join(bundle["damage"])),
            )
    to.print(drawn)


def _columns(to: Console, puffin: PuffinFileInfo) -> None:
    """Draw one line for each column and kind of index."""
    if not puffin.columns:
        return
    headings = ("id", "column", "index", "units", "size", "fill", "false positives", "distinct values", "")
    drawn = table(*headings, right=(0, 3, 4, 5, 6, 7))
    for column in puffin.columns:
        for kind, index in column.kinds.items():
            ndv = column.distinct_values if kind == "theta" else None
            drawn.add_row(
                str(column.id),
                escaped(column.name or ""),
                kind,
                "" if index.units is None else humanize.count(index.units),
                humanize.size(index.bytes),
                _fill(index),
                _declared_and_estimated(index),
                "" if ndv is None else humanize.distinct(ndv, column),
                escaped(_note(index)),
            )
    to.print(drawn)


def _files(to: Console, puffin: PuffinFileInfo) -> None:
    """Draw the number of data files, the tables and the first files."""
    listed = puffin.files
    if not listed:
        return
    folder, names = without_folder([file.path for file in listed])
    of_table = ", ".join(uuid for uuid in puffin.tables if uuid.strip("0-"))
    to.print(
        quantity(len(listed), "data file") + (f" of table {of_table}" if of_table else ""),
        f"in {folder}" if folder else "",
        markup=False,
        soft_wrap=True,
    )
    drawn = table("file", "rows", "row groups", "size", right=(1, 2, 3))
    for file, name in zip(listed[:SHOWN_FILES], names, strict=False):
        rows, groups = humanize.count(file.rows), humanize.count(file.row_groups)
        drawn.add_row(escaped(name), rows, groups, humanize.size(file.size))
    to.print(drawn)
    if len(listed) > SHOWN_FILES:
        to.print(f"[dim]and {humanize.count(len(listed) - SHOWN_FILES)} more: --json names all[/]")


def _filters(index: StoredIndexInfo) -> StoredFiltersInfo | None:
    """The index as filters, if it is one of filters."""
    from sidecar.results import StoredFiltersInfo

    return index if isinstance(index, StoredFiltersInfo) else None


def _fill(index: StoredIndexInfo) -> str:
    filters = _filters(index)
    found = None if filters is None or filters.fill is None else filters.fill.fill
    if found is None:
        return ""
    low, mean, high = map(humanize.percent, (found.min, found.mean, found.max))
    return mean if low == high else f"{low} – {mean} – {high}"


def _declared_and_estimated(index: StoredIndexInfo) -> str:
    """The declared rate, and the mean of those that the bits give."""
    filters = _filters(index)
    if filters is None:
        return ""
    parts = [f"{humanize.percent(rate)} declared" for rate in filters.declared_fpp]
    if filters.fill is not None and filters.fill.estimated_fpp is not None:
        parts.append(f"{humanize.percent(filters.fill.estimated_fpp.mean)} by fill")
    return ", ".join(parts)


def _note(index: StoredIndexInfo) -> str:
    filters = _filters(index)
    if filters is not None and filters.locked:
        return f"locked: {filters.locked}"
    if filters is not None and filters.fill is not None and filters.fill.reasons:
        return "; ".join(filters.fill.reasons)
    return "encrypted" if index.encrypted else ""
