"""Conditions asked of the statistics of an ORC file: of a stripe, and of a row group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidecar.bundle.row_index_blob import StoredRowIndex
from sidecar.bundle.row_index_use import row_index_kind
from sidecar.orc.index_streams import StripeIndex
from sidecar.orc.protobuf import decode
from sidecar.orc.statistics import decode_statistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcRowGroup, OrcTail, Stripe
from sidecar.planning.orc_bounds import statistics_bounds, zone_bounds
from sidecar.questions.bounds import Bounds
from sidecar.questions.conditions import AllOf, AnyOf, Condition


class StripeBounds:
    """What the statistics of a stripe say, as of one page."""

    def __init__(self, tail: OrcTail, stripe: Stripe, columns: list[bytes]) -> None:
        self._tail, self._stripe, self._columns = tail, stripe, columns

    def of(self, number: int, leaf: Any) -> Bounds | str:
        """Bounds of a column, or why there are none."""
        column = self._tail.columns[number]
        statistics = decode_statistics(decode(self._columns[number]), column, self._tail)
        return statistics_bounds(
            statistics, column.kind, column.nested_in_repeated, self._stripe.num_rows, leaf
        )


class RowGroupBounds:
    """What the row index of a stripe says of one row group, as of one page."""

    def __init__(
        self, tail: OrcTail, footer: StripeFooter, indexes: Mapping[int, StripeIndex], group: OrcRowGroup
    ) -> None:
        self._tail, self._footer, self._indexes, self._group = tail, footer, indexes, group

    def of(self, number: int, leaf: Any) -> Bounds | str:
        """Bounds of a column, or why there are none."""
        index = self._indexes[number]
        if index.row_index is None:
            return "no row index"
        kind = row_index_kind(self._tail, self._footer, index.column, "")
        stored = StoredRowIndex(index.row_index.parts[self._group.ordinal], kind)
        return zone_bounds(stored, self._group.rows, leaf)


def holds(condition: Condition, bounds: StripeBounds | RowGroupBounds) -> bool:
    """Whether some row may meet the condition; where nothing is proven, it may."""
    if isinstance(condition, AllOf):
        return all(holds(part, bounds) for part in condition.parts)
    if isinstance(condition, AnyOf):
        return any(holds(part, bounds) for part in condition.parts)
    found = bounds.of(condition.leaf.index, condition.leaf)
    return isinstance(found, str) or condition.may_match(found, 0)
