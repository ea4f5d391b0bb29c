"""The text output of ``inspect`` for Puffin files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.output import escaped, facts, table, without_folder
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_FILES = 5
"""How many data files of a Puffin file the text output names; JSON names all."""


def draw(to: Console, data: Any) -> None:
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
    _columns(to, data)
    _files(to, data)


def _segment(to: Console, segment: Any) -> None:
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


def _columns(to: Console, data: Any) -> None:
    """Draw one line for each column and kind of index."""
    if not data["columns"]:
        return
    headings = ("id", "column", "index", "units", "size", "fill", "false positives", "distinct values", "")
    drawn = table(*headings, right=(0, 3, 4, 5, 6, 7))
    for column in data["columns"]:
        for kind, index in column["kinds"].items():
            ndv = column["distinct_values"] if kind == "theta" else None
            drawn.add_row(
                str(column["id"]),
                escaped(column["name"] or ""),
                kind,
                "" if index["units"] is None else humanize.count(index["units"]),
                humanize.size(index["bytes"]),
                _fill(index),
                _declared_and_estimated(index),
                "" if ndv is None else humanize.distinct(ndv, column),
                escaped(_note(index)),
            )
    to.print(drawn)


def _files(to: Console, data: Any) -> None:
    """Draw the number of data files, the tables and the first files."""
    listed = data["files"]
    if not listed:
        return
    folder, names = without_folder([file["path"] for file in listed])
    of_table = ", ".join(uuid for uuid in data["tables"] if uuid.strip("0-"))
    to.print(
        quantity(len(listed), "data file") + (f" of table {of_table}" if of_table else ""),
        f"in {folder}" if folder else "",
        markup=False,
        soft_wrap=True,
    )
    drawn = table("file", "rows", "row groups", "size", right=(1, 2, 3))
    for file, name in zip(listed[:SHOWN_FILES], names, strict=False):
        rows, groups = humanize.count(file["rows"]), humanize.count(file["row_groups"])
        drawn.add_row(escaped(name), rows, groups, humanize.size(file["size"]))
    to.print(drawn)
    if len(listed) > SHOWN_FILES:
        to.print(f"[dim]and {humanize.count(len(listed) - SHOWN_FILES)} more: --json names all[/]")


def _fill(index: Any) -> str:
    found = (index.get("fill") or {}).get("fill")
    if found is None:
        return ""
    low, mean, high = (humanize.percent(found[key]) for key in ("min", "mean", "max"))
    return mean if low == high else f"{low} – {mean} – {high}"


def _declared_and_estimated(index: Any) -> str:
    """The declared rate, and the mean of those that the bits give."""
    parts = [f"{humanize.percent(rate)} declared" for rate in index.get("declared_fpp", ())]
    found = (index.get("fill") or {}).get("estimated_fpp")
    if found is not None:
        parts.append(f"{humanize.percent(found['mean'])} by fill")
    return ", ".join(parts)


def _note(index: Any) -> str:
    if index.get("sealed"):
        return f"sealed: {index['sealed']}"
    reasons = (index.get("fill") or {}).get("reasons", [])
    if reasons:
        return "; ".join(reasons)
    return "encrypted" if index["encrypted"] else ""
