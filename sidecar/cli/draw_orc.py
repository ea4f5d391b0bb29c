"""The text output of ``inspect`` for ORC files: stripes with their streams, then the index of every row group."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.output import escaped, facts, table

if TYPE_CHECKING:
    from rich.console import Console

_BOUND = 24
"""How many characters of a minimum or maximum the text output shows; JSON has all of them."""


def orc_file(to: Console, data: Any) -> None:
    """Draw the file, a line for each stripe, and a line for each column of a row group that has an index."""
    version = f"version {data['file_version']}, {data['compression']}"
    if data["compression"] != "NONE":
        version += f" in chunks of {humanize.size(data['block_size'])}"
    pairs = [
        ("file", escaped(data["file"])),
        ("size", f"{humanize.size(data['size'])}, {humanize.count(data['rows'])} rows"),
        ("written by", escaped(data["created_by"])),
        ("ORC", f"{version}, row index every {humanize.count(data['row_index_stride'])} rows"),
    ]
    if data["encrypted"]:
        pairs.append(("encrypted", escaped(", ".join(data["encrypted_columns"]) or "no column")))
    to.print(facts(pairs))
    _stripes(to, data["stripes"])
    _units(to, data["units"])


def _stripes(to: Console, stripes: Any) -> None:
    headings = ("stripe", "rows", "row groups", "offset", "index", "data", "footer", "zone", "streams", "")
    drawn = table(*headings, right=(0, 1, 2, 3, 4, 5, 6))
    for stripe in stripes:
        kinds = Counter(stream["kind"] for stream in stripe["streams"])
        drawn.add_row(
            str(stripe["stripe"]),
            humanize.count(stripe["rows"]),
            humanize.count(stripe["row_groups"]),
            humanize.count(stripe["offset"]),
            humanize.size(stripe["index_length"]),
            humanize.size(stripe["data_length"]),
            humanize.size(stripe["footer_length"]),
            escaped(stripe["writer_timezone"] or ""),
            escaped(", ".join(f"{count} {kind}" for kind, count in kinds.items())),
            f"[yellow]{escaped(stripe['problem'])}[/]" if stripe["problem"] else "",
        )
    if drawn.row_count:
        to.print(drawn)


def _units(to: Console, units: Any) -> None:
    headings = (
        "stripe",
        "row group",
        "rows",
        "column",
        "minimum",
        "maximum",
        "filter",
        "k",
        "m",
        "fill",
        "false positives",
        "keys",
        "",
    )
    drawn = table(*headings, right=(0, 1, 2, 6, 7, 8, 9, 10))
    without_index: dict[str, None] = {}
    for unit in units:
        for path, column in unit["columns"].items():
            if not any(column.values()):
                without_index[path] = None
                continue
            filters = [f for f in (column["bloom_filter"], column["legacy_bloom_filter"]) if f] or [None]
            for found in filters:
                drawn.add_row(
                    str(unit["stripe"]),
                    str(unit["row_group"]),
                    humanize.count(unit["rows"]),
                    escaped(path),
                    *_bounds(column["row_index"]),
                    *_filter(found),
                )
    if drawn.row_count:
        to.print(drawn)
    if without_index:
        to.print(f"no index: {', '.join(without_index)}", markup=False)


def _bounds(row_index: Any) -> tuple[str, str]:
    if row_index is None:
        return "–", "–"
    texts = ("" if bound is None else str(bound) for bound in (row_index["min"], row_index["max"]))
    low, high = (escaped(text if len(text) <= _BOUND else f"{text[: _BOUND - 1]}…") for text in texts)
    return low, high


def _filter(found: Any) -> tuple[str, ...]:
    if found is None:
        return ("–", "–", "–", "–", "–", "", "")
    reason = "" if found["trusted"] else f"[yellow]not trusted[/]: {escaped(found['reason'])}"
    legacy = "" if found["stream"] == "BLOOM_FILTER_UTF8" else f" ({found['stream']})"
    return (
        humanize.size(found["bytes"]),
        humanize.count(found["k"]),
        humanize.count(found["m"]),
        humanize.percent(found["fill"]),
        humanize.percent(found["estimated_fpp"]),
        escaped((found["encoding"] or "unknown") + legacy),
        reason,
    )
