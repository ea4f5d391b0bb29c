"""The text output of ``inspect`` for ORC files: stripes with their streams, then the index of every row group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.output import escaped, facts, table
from sidecar.cli.shell import pictures
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_FINDINGS = 10

_BOUND = 24
"""How many characters of a minimum or maximum the text output shows; JSON has all of them."""


def draw(to: Console, data: Any) -> None:
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
    pairs += not_believed(data["not_believed"])
    to.print(facts(pairs))
    _stripes(to, data["stripes"])
    _units(to, data["units"])


def not_believed(found: Any) -> list[tuple[str, str]]:
    """What the file states and is not used, as rows of facts; at most :data:`MOST_FINDINGS`."""
    lines = []
    for number, finding in enumerate(found[:MOST_FINDINGS]):
        unit = "" if finding["unit"] is None else f"row group {finding['unit']}, "
        column = "" if finding["column"] is None else f"{finding['column']}: "
        lines.append(("" if number else "not believed", f"[yellow]{escaped(unit + column + finding['problem'])}[/]"))
    left = len(found) - len(lines)
    return [*lines, ("", f"and {quantity(left, 'more finding')}: see --json")] if left else lines


def _filters(column: Any) -> list[Any]:
    return [f for f in (column["bloom_filter"], column["legacy_bloom_filter"]) if f] or [{}]


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
    bounds = ("minimum", "maximum") if _with_statistics(units) else ()
    headings = ("stripe", "row group", "rows", "column", *bounds, "filter", "k", "m", "fill")
    numbers = range(4 + len(bounds), 9 + len(bounds))
    drawn = table(*headings, "false positives", "keys", "", right=(0, 1, 2, *numbers))

    def lines(unit: Any, path: str, column: Any) -> Iterator[tuple[str, ...]]:
        place = str(unit["stripe"]), str(unit["row_group"]), humanize.count(unit["rows"]), escaped(path)
        for found in _filters(column):
            yield (*place, *(_bounds(column["row_index"]) if bounds else ()), *_filter(to, found))

    draw_indexes(to, drawn, units, lines)


def draw_indexes(
    to: Console, drawn: Table, units: Any, lines: Callable[[Any, str, Any], Iterable[tuple[str, ...]]]
) -> None:
    """Draw the ``lines`` of a unit, a path and a column where these have an index, then the columns without one."""
    without_index: dict[str, None] = {}
    for unit in units:
        for path, column in unit["columns"].items():
            if not any(column.values()):
                without_index[path] = None
                continue
            for line in lines(unit, path, column):
                drawn.add_row(*line)
    if drawn.row_count:
        to.print(drawn)
    if without_index:
        to.print(f"no index: {', '.join(without_index)}", markup=False)


def _with_statistics(units: Any) -> bool:
    indexes = (column["row_index"] for unit in units for column in unit["columns"].values())
    return any(index and "min" in index for index in indexes)


def _bounds(row_index: Any) -> tuple[str, str]:
    if row_index is None:
        return "–", "–"
    texts = ("" if bound is None else str(bound) for bound in (row_index["min"], row_index["max"]))
    low, high = (escaped(text if len(text) <= _BOUND else f"{text[: _BOUND - 1]}…") for text in texts)
    return low, high


def _filter(to: Console, found: Any) -> tuple[str, ...]:
    if not found:
        return ("–", "–", "–", "–", "–", "", "")
    reason = "" if found["trusted"] else f"[yellow]not trusted[/]: {escaped(found['reason'])}"
    legacy = "" if found["stream"] == "BLOOM_FILTER_UTF8" else f" ({found['stream']})"
    return (
        humanize.size(found["bytes"]),
        humanize.count(found["k"]),
        humanize.count(found["m"]),
        pictures.fill(to, found["fill"]),
        humanize.percent(found["estimated_fpp"]),
        escaped((found["encoding"] or "unknown") + legacy),
        reason,
    )
