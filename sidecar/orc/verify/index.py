"""Checks a column's index in a stripe: the row index against streams and statistics, filters against statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sidecar.errors import reason_at
from sidecar.orc.chunk_map import ChunkMap
from sidecar.orc.index_streams import FoundOrcFilter, StripeIndex
from sidecar.orc.row_index import positions_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import JAVA, OrcTail

Found = Iterator[tuple["int | None", str]]
"""Pairs of a row group of the stripe (``None`` for all of them, or the stripe) and its problem."""

LEGACY_TEXT = "text is in the charset of the writing machine, so readers with another charset lose text beyond ASCII"


def index_problems(tail: OrcTail, footer: StripeFooter, index: StripeIndex, maps: dict[str, ChunkMap]) -> Found:
    """Yield the problems of row index and filters; ``maps`` has the chunks of the column's readable data streams."""
    if index.row_index_problem is not None:
        yield None, f"ROW_INDEX: {reason_at(index.row_index_problem)}"
    if index.row_index is not None:
        contradictions = index.contradictions
        if contradictions.of_all:
            yield None, contradictions.of_all
        yield from contradictions.of_part.items()
        yield from _position_problems(tail, footer, index, maps)
    if index.filters_problem is not None:
        yield None, f"Bloom filter: {reason_at(index.filters_problem)}"
    by_stream = {found[0].stream_kind: found for found in (index.legacy_filters, index.filters) if found}
    for kind, found in by_stream.items():
        yield from _filter_problems(tail, index.column, kind, found, alone=len(by_stream) == 1)


def _position_problems(tail: OrcTail, footer: StripeFooter, index: StripeIndex, maps: dict[str, ChunkMap]) -> Found:
    """Yield problems of positions that only the content of the column's streams shows."""
    assert index.row_index is not None
    for group in range(len(index.row_index)):
        if index.contradictions.of_part.get(group):
            continue
        for kind, numbers in positions_of(index.row_index, group, index.column, tail, footer).items():
            # without a map the column has no values, or the stream is damaged and already reported
            if kind in maps and (misplaced := maps[kind].misplaced(numbers)):
                yield group, f"ROW_INDEX: the position in {kind} is wrong: {misplaced}"


def _filter_problems(
    tail: OrcTail,
    column: OrcColumn,
    kind: str,
    filters: Sequence[FoundOrcFilter],
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
    first = filters[0]
    if first.trusted and first.encoding is not None and first.encoding.family == "ascii" and alone:
        yield None, f"{kind}: {LEGACY_TEXT}"


def _is_harmless(tail: OrcTail, column: OrcColumn) -> bool:
    """Return whether no reader probes the column's filters, so that a wrong one does no harm."""
    return column.is_compound or column.nested_in_repeated or (column.kind == "BOOLEAN" and tail.writer == JAVA)
