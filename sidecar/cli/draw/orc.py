"""The text output of ``inspect`` for ORC files: stripes with their streams, then the index of every row group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sidecar.cli import humanize
from sidecar.cli.output import escaped, facts, table
from sidecar.cli.shell import pictures
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sidecar.errors import Problem
    from sidecar.results import OrcFileInfo, OrcFilterInfo, OrcRowGroupInfo, OrcRowIndexInfo, OrcStripeInfo

MOST_FINDINGS = 10

_NO_FILTER = ("–", "–", "–", "–", "–", "", "")
_BOUND = 24
"""How many characters of a minimum or maximum the text output shows; JSON has all of them."""


def draw(to: Console, file: OrcFileInfo, *, statistics: bool) -> None:
    """Draw the file, a line for each stripe, and a line for each column of a row group that has an index."""
    version = f"version {file.file_version}, {file.compression}"
    if file.compression != "NONE":
        version += f" in chunks of {humanize.size(file.block_size)}"
    pairs = [
        ("file", escaped(file.file)),
        ("size", f"{humanize.size(file.size)}, {humanize.count(file.rows)} rows"),
        ("written by", escaped(file.created_by)),
        ("ORC", f"{version}, row index every {humanize.count(file.row_index_stride)} rows"),
    ]
    if file.encrypted:
        pairs.append(("encrypted", escaped(", ".join(file.encrypted_columns) or "no column")))
    pairs += not_believed(file.not_believed)
    to.print(facts(pairs))
    _stripes(to, file.stripes)
    _units(to, file.units, statistics=statistics)


def not_believed(found: Sequence[Problem]) -> list[tuple[str, str]]:
    """Statements of the file that are not used, as rows of facts; at most :data:`MOST_FINDINGS`."""
    lines = []
    for number, finding in enumerate(found[:MOST_FINDINGS]):
        unit = "" if finding.unit is None else f"row group {finding.unit}, "
        column = "" if finding.column is None else f"{finding.column}: "
        lines.append(("" if number else "not believed", f"[yellow]{escaped(unit + column + finding.problem)}[/]"))
    left = len(found) - len(lines)
    return [*lines, ("", f"and {quantity(left, 'more finding')}: see --json")] if left else lines


def _stripes(to: Console, stripes: Sequence[OrcStripeInfo]) -> None:
    headings = ("stripe", "rows", "row groups", "offset", "index", "data", "footer", "zone", "streams", "")
    drawn = table(*headings, right=(0, 1, 2, 3, 4, 5, 6))
    for stripe in stripes:
        kinds = Counter(stream.kind for stream in stripe.streams)
        drawn.add_row(
            str(stripe.stripe),
            humanize.count(stripe.rows),
            humanize.count(stripe.row_groups),
            humanize.count(stripe.offset),
            humanize.size(stripe.index_length),
            humanize.size(stripe.data_length),
            humanize.size(stripe.footer_length),
            escaped(stripe.writer_timezone or ""),
            escaped(", ".join(f"{count} {kind}" for kind, count in kinds.items())),
            f"[yellow]{escaped(stripe.problem)}[/]" if stripe.problem else "",
        )
    if drawn.row_count:
        to.print(drawn)


def _units(to: Console, units: Sequence[OrcRowGroupInfo], *, statistics: bool) -> None:
    indexes = [column.row_index for unit in units for column in unit.columns.values()]
    bounds = ("minimum", "maximum") if statistics and any(indexes) else ()
    headings = ("stripe", "row group", "rows", "column", *bounds, "filter", "k", "m", "fill")
    numbers = range(4 + len(bounds), 9 + len(bounds))
    drawn = table(*headings, "false positives", "keys", "", right=(0, 1, 2, *numbers))
    without_index: dict[str, None] = {}
    for unit in units:
        for path, column in unit.columns.items():
            filters = [found for found in (column.bloom_filter, column.legacy_bloom_filter) if found is not None]
            if not filters and column.row_index is None:
                without_index[path] = None
                continue
            place = str(unit.stripe), str(unit.row_group), humanize.count(unit.rows), escaped(path)
            limits = _bounds(column.row_index) if bounds else ()
            for cells in [_filter(to, found) for found in filters] or [_NO_FILTER]:
                drawn.add_row(*place, *limits, *cells)
    draw_indexes(to, drawn, without_index)


def draw_indexes(to: Console, drawn: Table, without_index: Iterable[str]) -> None:
    """Draw the indexes of the row groups, then the columns that lack one in some row group."""
    if drawn.row_count:
        to.print(drawn)
    if paths := ", ".join(without_index):
        to.print(f"no index: {paths}", markup=False)


def _bounds(row_index: OrcRowIndexInfo | None) -> tuple[str, str]:
    if row_index is None:
        return "–", "–"
    texts = ("" if bound is None else str(bound) for bound in (row_index.min, row_index.max))
    low, high = (escaped(text if len(text) <= _BOUND else f"{text[: _BOUND - 1]}…") for text in texts)
    return low, high


def _filter(to: Console, found: OrcFilterInfo) -> tuple[str, ...]:
    reason = "" if found.trusted else f"[yellow]not trusted[/]: {escaped(found.reason)}"
    legacy = "" if found.stream == "BLOOM_FILTER_UTF8" else f" ({found.stream})"
    return (
        humanize.size(found.bytes),
        humanize.count(found.k),
        humanize.count(found.m),
        pictures.fill(to, found.fill),
        humanize.percent(found.estimated_fpp),
        escaped((found.encoding or "unknown") + legacy),
        reason,
    )
