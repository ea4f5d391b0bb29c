"""The text output of ``inspect``: data files, Puffin files and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sidecar.cli import draw_orc, humanize
from sidecar.cli.output import escaped, facts, table

if TYPE_CHECKING:
    from rich.console import Console


def drawing_for(data: Any) -> Callable[[Console, Any], None]:
    """The function that draws a file, chosen by its kind."""
    if "bloom_filter" in data:
        return bare_filter
    if "stripes" in data:
        return draw_orc.orc_file
    return puffin if "blobs" in data else data_file


def bare_filter(to: Console, data: Any) -> None:
    """Draw a file that is one Bloom filter."""
    found = data["bloom_filter"]
    to.print(
        facts(
            [
                ("file", escaped(data["file"])),
                ("a Bloom filter", escaped(data["form"])),
                ("size", f"{humanize.size(found['bytes'])}, header {found['length'] - found['bytes']} bytes"),
                ("fill", humanize.percent(found["fill"])),
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
    for unit in data["units"]:
        for path, column in unit["columns"].items():
            if not any(column.values()):
                without_index[path] = None
                continue
            drawn.add_row(
                str(unit["row_group"]), humanize.count(unit["rows"]), escaped(path), *_indexes(column)
            )
    if drawn.row_count:
        to.print(drawn)
    if without_index:
        to.print(f"no index: {', '.join(without_index)}", markup=False)


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


def _indexes(column: Any) -> tuple[str, ...]:
    filter_, lengths = column["bloom_filter"], [column["column_index"], column["offset_index"]]
    pages = tuple(humanize.size(found and found["length"]) for found in lengths)
    if filter_ is None:
        return ("–", "–", "–", *pages, "")
    reason = "" if filter_["trusted"] else f"[yellow]not trusted[/]: {escaped(filter_['reason'])}"
    rate = filter_["estimated_fpp"]
    return (
        humanize.size(filter_["bytes"]),
        humanize.percent(filter_["fill"]),
        humanize.percent(rate),
        *pages,
        reason,
    )


def puffin(to: Console, data: Any) -> None:
    """Draw the blobs of a Puffin file, then the groups of each segment."""
    properties = data["properties"]
    to.print(
        facts(
            [
                ("file", escaped(data["file"])),
                ("size", f"{humanize.size(data['size'])}, footer {humanize.size(data['footer']['length'])}"),
                ("written by", escaped(properties.get("created-by", "unknown"))),
            ]
        )
    )
    drawn = table("blob", "fields", "snapshot", "offset", "size", "codec", "distinct values", right=(3, 4, 6))
    for blob in data["blobs"]:
        drawn.add_row(
            escaped(blob["type"]),
            ", ".join(map(str, blob["fields"])),
            str(blob["snapshot-id"]),
            humanize.count(blob["offset"]),
            humanize.size(blob["length"]),
            blob.get("compression-codec") or "",
            escaped(blob.get("properties", {}).get("ndv", "")),
        )
    to.print(drawn)
    for segment in data["segments"]:
        _segment(to, segment)


def _segment(to: Console, segment: Any) -> None:
    to.print(
        f"[bold]segment {escaped(segment['id'])}[/]: {humanize.count(segment['files'])} files, "
        f"{humanize.count(segment['units'])} units, snapshot {segment['snapshot_id']}, "
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
        "doubts",
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
                escaped("; ".join(bundle["doubts"])),
            )
    to.print(drawn)


def table_coverage(to: Console, data: Any) -> None:
    """Draw the sidecar of a table, and its coverage by column and kind."""
    used, files = data["sidecar"], data["files"]
    if used is None:
        to.print(f"{escaped(data['table'])}: {humanize.count(files['live'])} files and no sidecar")
        return
    behind = used["snapshots_behind"]
    age = f", {behind} snapshot{'s' * (behind > 1)} behind" if behind else ""
    to.print(
        facts(
            [
                ("table", f"{escaped(data['table'])}, snapshot {data['snapshot_id']}"),
                ("sidecar", f"{escaped(used['path'])} (of snapshot {used['snapshot_id']}{age})"),
                ("size", humanize.size(used["file_size"])),
                ("files", f"{humanize.count(files['listed'])} of {humanize.count(files['live'])} listed"),
                ("segments", humanize.count(len(data["segments"]))),
            ]
        )
    )
    drawn = table(
        "column", "kind", "files", "units", "size", "distinct values", "not indexed", right=(2, 3, 4, 5)
    )
    for column, kinds in data["coverage"].items():
        for kind, entry in kinds.items():
            reasons = ", ".join(
                f"{humanize.count(n)} units: {why}" for why, n in entry.get("not_indexed", {}).items()
            )
            ndv, size = entry.get("ndv"), entry.get("bytes")
            drawn.add_row(
                escaped(column),
                escaped(kind),
                humanize.count(entry.get("files")),
                humanize.count(entry.get("units")),
                "" if size is None else humanize.size(size),
                "" if ndv is None else humanize.count(ndv),
                escaped(reasons),
            )
    to.print(drawn)
