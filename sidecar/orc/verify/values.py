"""Compares statistics and filters with the values of row groups, stripes and the file.

Values are decoded from their streams (:mod:`sidecar.orc.decode`) and hashed as the file's writer does. Times are probed
with :mod:`sidecar.filters.orc.values` instead, because for some of them writers hash other keys than those of the
decoded value. Filters that are not trusted are checked too: the values that they deny are those that a reader loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.errors import SidecarError, StorageError, UsageError, reason_at
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.orc.decode import LeafCursor, read_row_groups
from sidecar.orc.index_streams import BLOOM_FILTER_UTF8, FoundOrcFilter, StripeIndex
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.column_statistics import ColumnStatistics
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.orc.trust import hashes_wrongly, writer_doubt
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.source import Source

_TIMES = ("TIMESTAMP", "TIMESTAMP_INSTANT")
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass
class ObservedValues:
    """Counts and bounds of a column's decoded values in a row group, a stripe or the file."""

    values: int = 0
    nulls: int = 0
    low: Any = None
    high: Any = None

    def add(self, other: ObservedValues) -> None:
        """Add the counts and bounds of another part of the file."""
        self.values += other.values
        self.nulls += other.nulls
        if other.low is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
            self.high = other.high if self.high is None else max(self.high, other.high)

    def problems(self, found: ColumnStatistics | None, what: str) -> Iterator[str]:
        """Yield problems of statistics that contradict the values; ``what`` is "row group", "stripe" or "file"."""
        if found is None or found.contradiction:
            return
        if found.raw.has(1) and found.raw.varint(1) != self.values:
            yield f"statistics: {found.raw.varint(1)} values, but the {what} has {self.values}"
        if not found.has_null and self.nulls:
            yield f"statistics: no nulls, but the {what} has {self.nulls}"
        if found.min is None or found.max is None or self.low is None:
            return
        if self.low < found.min or self.high > found.max:
            yield f"statistics: {found.min} to {found.max}, but the {what} has {self.low} to {self.high}"


def value_problems(
    source: Source,
    tail: OrcTail,
    footer: StripeFooter,
    index: StripeIndex,
    groups: set[int],
    check: ValueCheck,
    stripe: ObservedValues,
) -> Iterator[tuple[int | None, str]]:
    """Yield problems of statistics and filters that contradict the column's values in ``groups`` of the stripe.

    The counts and bounds of all row groups in ``groups`` are added to ``stripe``.
    """
    column = index.column
    if not groups:
        return
    try:
        cursor = LeafCursor(source, tail, footer, column)
        step = cursor.step
        for group in footer.stripe.row_groups:
            comparison = _RowGroupCheck(index, group.ordinal)
            for start in range(0, group.rows, step):
                entries = cursor.take(min(step, group.rows - start))
                if group.ordinal in groups:
                    comparison.add(entries)
            if group.ordinal in groups:
                check.values += comparison.observed.values
                check.indexes += comparison.has_statistics
                stripe.add(comparison.observed)
                yield from ((group.ordinal, text) for text in comparison.problems())
    except SidecarError as error:
        yield None, f"values could not be read: {reason_at(error)}"


class _RowGroupCheck:
    """A comparison of the statistics and filters of one row group with its values, added step by step."""

    def __init__(self, index: StripeIndex, group: int) -> None:
        self.observed = ObservedValues()
        self._column = index.column
        self._statistics: ColumnStatistics | None = None
        with suppress(SidecarError):  # reported where the bytes of the index are checked
            self._statistics = None if index.claims is None else index.claims.statistics(group)
        self._filters = {f[group].stream_kind: f[group] for f in (index.legacy_filters, index.filters) if f}
        self._denied = dict.fromkeys(self._filters, 0)

    @property
    def has_statistics(self) -> bool:
        """Whether the row group has statistics to compare."""
        return self._statistics is not None

    def add(self, entries: pa.Array[Any]) -> None:
        self.observed.add(observed_in(entries))
        values = entries.drop_null()
        for kind, found in self._filters.items():
            if found.filter is not None and found.encoding is not None:
                self._denied[kind] += count_denied(found.filter, found.encoding, self._column, values) or 0

    def problems(self) -> Iterator[str]:
        yield from self.observed.problems(self._statistics, "row group")
        for kind, denied in self._denied.items():
            if denied:
                yield (f"{kind}: the filter denies {denied} of {self.observed.values} values that the row group has")


def observed_in(entries: pa.Array[Any]) -> ObservedValues:
    """Return the counts and bounds of a column's ``entries``, which may have nulls."""
    return ObservedValues(len(entries) - entries.null_count, entries.null_count, *_extremes(entries.drop_null()))


def _extremes(values: pa.Array[Any]) -> tuple[Any, Any]:
    """Return minimum and maximum without NaN in the unit of bounds, ``None`` without values."""
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


def count_denied(found: OrcBloomFilter, encoding: OrcEncoding, column: OrcColumn, values: pa.Array[Any]) -> int | None:
    """Return how many of ``values`` (without nulls) a filter denies; ``None`` if they do not fit its encoding."""
    try:
        return denied_values(found, encoding, column, values)
    except UsageError:
        return None


def denied_values(found: OrcBloomFilter, encoding: OrcEncoding, column: OrcColumn, values: pa.Array[Any]) -> int:
    """Return how many of a column's ``values`` a filter of ``encoding`` denies, without nulls.

    Raises :class:`UsageError` for values that do not fit the encoding.
    """
    if column.kind in _TIMES:
        return _denied_times(found, encoding, column, values)
    hashes = hash_orc(values, encoding, twins=False)
    return len(hashes) - int(found.check(hashes).sum())


def _denied_times(found: OrcBloomFilter, encoding: OrcEncoding, column: OrcColumn, values: pa.Array[Any]) -> int:
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
    """Return whether filters that may have wrong keys, one for each row group, hold every value of the stripe.

    Some writers may hash keys that are not those of the values (:mod:`sidecar.orc.trust`). Only the values show whether
    they did so in this file, and whether the filters were replaced since, by ``embed`` for example. Returns False for
    filters with another defect, and if the values cannot be read. Reads the column's data in the stripe.
    """
    is_doubted = any(writer_doubt("filters", tail, column, found.encoding) for found in filters)
    if not is_doubted or hashes_wrongly(tail) or column.nested_in_repeated:
        return False
    if any(f.filter is None or f.stream_kind != BLOOM_FILTER_UTF8 for f in filters):
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
