"""Check a column's index in a stripe: the row index against streams and statistics, filters against statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sidecar.errors import SidecarError
from sidecar.filters.orc_values import probe_orc
from sidecar.orc.chunk_map import ChunkMap
from sidecar.orc.index_streams import FoundOrcFilter, StripeIndex, positions_of
from sidecar.orc.inspect import reason_of
from sidecar.orc.protobuf import decode
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import Bound, ColumnStatistics, decode_statistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import JAVA, OrcTail

Found = Iterator[tuple["int | None", str]]
"""Pairs of a row group of the stripe (``None`` for all of them, or the stripe) and its problem."""

LEGACY_TEXT = "text is in the charset of the writing machine, so readers with another charset lose text beyond ASCII"


def index_problems(
    tail: OrcTail, footer: StripeFooter, index: StripeIndex, maps: dict[str, ChunkMap], whole: bytes | None
) -> Found:
    """Yield the problems of row index and filters.

    ``maps`` has the chunks of the column's readable data streams. ``whole`` has the column's encoded statistics of the
    stripe.
    """
    if index.row_index_problem is not None:
        yield None, f"ROW_INDEX: {reason_of(index.row_index_problem)}"
    statistics: dict[int, ColumnStatistics] = {}
    if index.row_index is not None:
        yield from _position_problems(tail, footer, index, maps)
        for group in range(len(index.row_index)):
            try:
                message = index.row_index.entry(group).statistics
                if message is not None:
                    statistics[group] = decode_statistics(message, index.column, tail, footer.writer_timezone)
            except SidecarError as error:
                yield group, f"statistics: {reason_of(error)}"
        yield from _statistics_problems(footer, index.column, statistics)
        yield from _stripe_problems(tail, footer, index, statistics, whole)
    if index.filters_problem is not None:
        yield None, f"Bloom filter: {reason_of(index.filters_problem)}"
    by_stream = {found[0].stream_kind: found for found in (index.legacy_filters, index.filters) if found}
    for kind, found in by_stream.items():
        yield from _filter_problems(tail, index.column, kind, found, statistics, alone=len(by_stream) == 1)


def _position_problems(tail: OrcTail, footer: StripeFooter, index: StripeIndex, maps: dict[str, ChunkMap]) -> Found:
    """Yield problems of positions that are not in the column's streams, or before those of the row group in front."""
    assert index.row_index is not None
    column, last = index.column, dict.fromkeys(maps, 0)
    for group in range(len(index.row_index)):
        try:
            positions = positions_of(index.row_index, group, column, tail, footer)
        except SidecarError as error:
            yield group, f"ROW_INDEX: {reason_of(error)}"
            continue
        for kind, numbers in positions.items():
            if kind not in maps:
                continue  # the column has no values, or the stream is damaged and already reported
            if misplaced := maps[kind].misplaced(numbers):
                yield group, f"ROW_INDEX: the position in {kind} is wrong: {misplaced}"
            if numbers[0] < last[kind]:
                yield group, f"ROW_INDEX: the position in {kind} is before that of the previous row group"
            last[kind] = numbers[0]


def _statistics_problems(footer: StripeFooter, column: OrcColumn, statistics: dict[int, ColumnStatistics]) -> Found:
    rows = {group.ordinal: group.rows for group in footer.stripe.row_groups}
    for group, found in statistics.items():
        if found.inverted:
            yield group, f"statistics: {found.reason}"
        if column.nested_in_repeated or found.num_values is None:
            continue
        if found.num_values > rows[group]:
            yield group, f"statistics: {found.num_values} values in {rows[group]} rows"
        elif found.num_values < rows[group] and not found.has_null and not column.nullable_parent:
            yield group, f"statistics: {found.num_values} values in {rows[group]} rows, but no nulls"


def _stripe_problems(
    tail: OrcTail,
    footer: StripeFooter,
    index: StripeIndex,
    statistics: dict[int, ColumnStatistics],
    data: bytes | None,
) -> Found:
    """Yield problems of statistics of the stripe that differ from those of its row groups together."""
    if data is None or len(statistics) != footer.stripe.num_row_groups:
        return
    try:
        whole = decode_statistics(decode(data), index.column, tail, footer.writer_timezone)
    except SidecarError as error:
        yield None, f"statistics of the stripe: {reason_of(error)}"
        return
    counts = [found.num_values for found in statistics.values() if found.num_values is not None]
    if len(counts) == len(statistics) and whole.num_values not in (None, sum(counts)):
        yield (
            None,
            f"statistics of the stripe: {whole.num_values} values, but its row groups have {sum(counts)}",
        )
    if whole.min is None or whole.max is None:
        return
    for group, found in statistics.items():
        if found.min is None or found.max is None:
            continue
        if found.min < whole.min or found.max > whole.max:  # type: ignore[operator]
            yield group, "statistics: minimum or maximum is outside those of the stripe"


def _filter_problems(
    tail: OrcTail,
    column: OrcColumn,
    kind: str,
    filters: Sequence[FoundOrcFilter],
    statistics: dict[int, ColumnStatistics],
    *,
    alone: bool,
) -> Found:
    """Yield problems of damaged filters and filters that deny values; a reason of all row groups comes once."""
    if _is_harmless(tail, column) and all(found.filter is not None for found in filters):
        return
    shared = Counter(found.reason for found in filters if found.reason)
    for reason, count in shared.items():
        if count == len(filters):
            yield None, f"{kind}: {reason}"
    for group, found in enumerate(filters):
        if found.reason and shared[found.reason] < len(filters):
            yield group, f"{kind}: {found.reason}"
        elif found.trusted and (bound := _denied_bound(found, column, statistics.get(group))) is not None:
            yield group, f"{kind}: the filter denies {bound}, which is a value of the row group"
    first = filters[0]
    if first.trusted and first.encoding is not None and first.encoding.family == "ascii" and alone:
        yield None, f"{kind}: {LEGACY_TEXT}"


def _is_harmless(tail: OrcTail, column: OrcColumn) -> bool:
    """Return whether no reader probes the column's filters, so that a wrong one does no harm."""
    return column.is_compound or column.nested_in_repeated or (column.kind == "BOOLEAN" and tail.writer == JAVA)


def _denied_bound(found: FoundOrcFilter, column: OrcColumn, statistics: ColumnStatistics | None) -> Bound | None:
    """Return the minimum or maximum if it is a value that occurs but the filter denies, else ``None``."""
    if statistics is None or not statistics.exact or found.filter is None or found.encoding is None:
        return None
    for bound in (statistics.min, statistics.max):
        probe = probe_orc(bound, column.iceberg_type or "", found.encoding)
        if probe.verdict == "probe" and not any(found.filter.might_contain_hash(h) for h in probe.hashes):
            return bound
    return None
