"""Statistics and filters against the values that they are of: of row groups, stripes and the file.

Values are decoded from their streams (:mod:`sidecar.orc.decode`) and hashed as the file's writer does. Times are asked
for as :mod:`sidecar.filters.orc_values` does instead, because writers hash some of them by other keys than those of
what is read back. Filters that are not to be trusted are looked at too: how much they deny is what a reader loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.filters.orc_array_hash import hash_orc
from sidecar.filters.orc_bloom import OrcBloomFilter
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.orc_values import probe_orc
from sidecar.orc.decode import LeafCursor, read_row_groups
from sidecar.orc.index_streams import BLOOM_FILTER_UTF8, FoundOrcFilter, StripeIndex, statistics_of
from sidecar.orc.inspect import reason_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import ColumnStatistics
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import CPP, OrcTail, Stripe
from sidecar.source import Source

_TIMES = ("TIMESTAMP", "TIMESTAMP_INSTANT")
_DOUBTED = ("BYTE", "CHAR", "FLOAT")
"""Kinds whose filters by C++ writers are doubted."""
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class RowGroupSampler(Protocol):
    """Which units are checked, and how many values and indexes were."""

    values: int
    indexes: int

    def choose(self, units: int) -> set[int]:
        """Some of ``units`` numbers from 0 on."""


@dataclass
class ObservedValues:
    """Counts and bounds of a column's values in a row group, a stripe or the whole file, to compare with statistics."""

    values: int = 0
    nulls: int = 0
    low: Any = None
    high: Any = None

    def add(self, other: ObservedValues) -> None:
        """Count what another part of the file has, too."""
        self.values += other.values
        self.nulls += other.nulls
        if other.low is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
            self.high = other.high if self.high is None else max(self.high, other.high)

    def problems(self, found: ColumnStatistics | None, what: str) -> Iterator[str]:
        """Problems where statistics of ``what`` (a row group, a stripe, the file) contradict the observed values."""
        if found is None:
            return
        if found.num_values is not None and found.num_values != self.values:
            yield f"statistics: {found.num_values} values, the {what} has {self.values}"
        if not found.has_null and self.nulls:
            yield f"statistics: no nulls, the {what} has {self.nulls}"
        if found.min is None or found.max is None or self.low is None:
            return
        if self.low < found.min or self.high > found.max:
            yield f"statistics: {found.min} to {found.max}, the {what} has {self.low} to {self.high}"


def value_problems(
    source: Source,
    tail: OrcTail,
    footer: StripeFooter,
    index: StripeIndex,
    groups: set[int],
    check: RowGroupSampler,
    stripe: ObservedValues,
) -> Iterator[tuple[int | None, str]]:
    """Problems where the column's statistics or filters contradict its values in ``groups``, row groups of the stripe.

    The counts and bounds of all row groups in ``groups`` are added to ``stripe``.
    """
    column = index.column
    if not groups or column.is_compound or column.encrypted:
        return
    try:
        cursor = LeafCursor(source, tail, footer, column)
        step = cursor.step
        for group in footer.stripe.row_groups:
            one = _RowGroupCheck(tail, footer, index, group.ordinal)
            for start in range(0, group.rows, step):
                entries = cursor.take(min(step, group.rows - start))
                if group.ordinal in groups:
                    one.add(entries)
            if group.ordinal in groups:
                check.values += one.observed.values
                check.indexes += one.has_statistics
                stripe.add(one.observed)
                yield from ((group.ordinal, text) for text in one.problems())
    except SidecarError as error:
        yield None, f"values could not be read: {reason_of(error)}"


class _RowGroupCheck:
    """Statistics and filters of one row group, shown its values step by step."""

    def __init__(self, tail: OrcTail, footer: StripeFooter, index: StripeIndex, group: int) -> None:
        self.observed = ObservedValues()
        self._column = index.column
        self._statistics: ColumnStatistics | None = None
        if index.row_index is not None:
            with suppress(SidecarError):  # named already, where its bytes are checked
                self._statistics = statistics_of(index.row_index, group, index.column, tail, footer)
        self._filters = {f[group].stream_kind: f[group] for f in (index.legacy_filters, index.filters) if f}
        self._denied = dict.fromkeys(self._filters, 0)

    @property
    def has_statistics(self) -> bool:
        """Whether the row group has statistics that are compared."""
        return self._statistics is not None

    def add(self, entries: pa.Array[Any]) -> None:
        self.observed.add(observed_in(entries))
        values = entries.drop_null()
        for kind, one in self._filters.items():
            if one.filter is not None and one.encoding is not None:
                self._denied[kind] += count_denied(one.filter, one.encoding, self._column, values) or 0

    def problems(self) -> Iterator[str]:
        yield from self.observed.problems(self._statistics, "row group")
        for kind, denied in self._denied.items():
            if denied:
                yield (
                    f"{kind}: the filter denies {denied} of {self.observed.values} values"
                    " that the row group has"
                )


def observed_in(entries: pa.Array[Any]) -> ObservedValues:
    """Counts and bounds of a column's ``entries``, nulls among them."""
    return ObservedValues(
        len(entries) - entries.null_count, entries.null_count, *_extremes(entries.drop_null())
    )


def _extremes(values: pa.Array[Any]) -> tuple[Any, Any]:
    """Least and greatest in the unit of bounds, ``None`` without any; NaN is passed over."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    factor = 1
    if pa.types.is_timestamp(values.type):
        factor, values = _NANOSECONDS[values.type.unit], values.cast(pa.int64())
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    return (low, high) if factor == 1 or low is None else (low * factor, high * factor)


def count_denied(
    found: OrcBloomFilter, encoding: OrcEncoding, column: OrcColumn, values: pa.Array[Any]
) -> int | None:
    """How many of the ``values`` (no nulls) a filter denies; ``None`` where it cannot be asked for all of them."""
    try:
        return denied_values(found, encoding, column, values)
    except UsageError:
        return None


def denied_values(
    found: OrcBloomFilter, encoding: OrcEncoding, column: OrcColumn, values: pa.Array[Any]
) -> int:
    """How many of a column's values, nulls left out, a filter of an encoding denies.

    Raises :class:`UsageError` for values that are not of the encoding.
    """
    if column.kind in _TIMES:
        return _denied_times(found, encoding, column, values)
    hashes = hash_orc(values, encoding, twins=False)
    return len(hashes) - int(found.check(hashes).sum())


def _denied_times(
    found: OrcBloomFilter, encoding: OrcEncoding, column: OrcColumn, values: pa.Array[Any]
) -> int:
    iceberg_type = "timestamptz_ns" if column.kind == "TIMESTAMP_INSTANT" else "timestamp_ns"
    factor, denied = _NANOSECONDS[values.type.unit], 0
    for value in values.cast(pa.int64()).to_pylist():
        assert value is not None
        probe = probe_orc(value * factor, iceberg_type, encoding)
        if probe.verdict == "probe":
            denied += not any(found.might_contain_hash(h) for h in probe.hashes)
    return denied


def deny_nothing(
    source: Source, tail: OrcTail, stripe: Stripe, column: OrcColumn, filters: Sequence[FoundOrcFilter]
) -> bool:
    """Whether doubted filters of a column, one a row group, hold every value of the stripe by the right key.

    C++ writers hash tinyint, char and float by keys that may be others than the values' (:mod:`sidecar.orc.trust`).
    Whether they did so in this file, and whether somebody has replaced its filters since, only the values tell. False
    for filters with another defect, and where the values cannot be read. Reads the column's data in the stripe.
    """
    doubted = tail.writer == CPP and column.kind in _DOUBTED and not column.nested_in_repeated
    if not doubted or any(f.filter is None or f.stream_kind != BLOOM_FILTER_UTF8 for f in filters):
        return False
    try:
        groups = read_row_groups(source, tail, stripe, read_stripe_footer(source, tail, stripe), column)
        for found, values in zip(filters, groups, strict=True):
            if found.filter is None or found.encoding is None:
                return False
            if not found.filter.check(hash_orc(values, found.encoding, twins=False)).all():
                return False
    except StorageError:
        raise
    except SidecarError:
        return False
    return True
