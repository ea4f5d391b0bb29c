"""Statistics and filters against the values that they are of, row group by row group.

Values are decoded from their streams (:mod:`sidecar.orc.decode`) and hashed as the file's writer does. Times are asked
for as :mod:`sidecar.filters.orc_values` does instead, because writers hash some of them by other keys than those of
what is read back. Filters that are not to be trusted are looked at too: how much they deny is what a reader loses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.errors import SidecarError, UsageError
from sidecar.filters.orc_bloom import OrcBloomFilter
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.orc_hashing import hash_orc
from sidecar.filters.orc_values import probe_orc
from sidecar.orc.decode import read_row_groups
from sidecar.orc.index_streams import StripeIndex, statistics_of
from sidecar.orc.inspect import reason_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import Bound, ColumnStatistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.source import Source

_TIMES = ("TIMESTAMP", "TIMESTAMP_INSTANT")
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class Sampler(Protocol):
    """Which units are checked, and how many values and indexes were."""

    values: int
    indexes: int

    def choose(self, units: int) -> set[int]:
        """Some of ``units`` numbers from 0 on."""


def value_problems(
    source: Source, tail: OrcTail, footer: StripeFooter, index: StripeIndex, groups: set[int], check: Sampler
) -> Iterator[tuple[int | None, str]]:
    """What the column's statistics and filters deny of its values in ``groups``, row groups of the stripe."""
    column = index.column
    if not groups or column.is_compound or column.encrypted:
        return
    try:
        arrays = read_row_groups(source, tail, footer.stripe, footer, column)
    except SidecarError as error:
        yield None, f"values could not be read: {reason_of(error)}"
        return
    for group in sorted(groups):
        values = arrays[group].drop_null()
        check.values += len(values)
        if index.row_index is not None:
            try:
                found = statistics_of(index.row_index, group, column, tail, footer)
            except SidecarError:
                found = None  # named already, where its bytes are checked
            if found is not None:
                check.indexes += 1
                yield from ((group, text) for text in statistics_problems(found, arrays[group]))
        by_stream = {f[group].stream_kind: f[group] for f in (index.legacy_filters, index.filters) if f}
        for kind, one in by_stream.items():
            denied = 0
            if one.filter is not None and one.encoding is not None:
                denied = count_denied(one.filter, one.encoding, column, values) or 0
            if denied:
                yield (
                    group,
                    f"{kind}: the filter denies {denied} of {len(values)} values that the row group has",
                )


def statistics_problems(found: ColumnStatistics, entries: pa.Array[Any]) -> Iterator[str]:
    """What the statistics of a row group deny of the ``entries`` of its column."""
    values = entries.drop_null()
    if found.num_values is not None and found.num_values != len(values):
        yield f"statistics: {found.num_values} values, the row group has {len(values)}"
    if not found.has_null and entries.null_count:
        yield f"statistics: no nulls, the row group has {entries.null_count}"
    if found.min is None or found.max is None or not len(values):
        return
    low, high = _extremes(values)
    if low is None or high is None:
        return
    if low < found.min or high > found.max:  # type: ignore[operator]
        yield f"statistics: {found.min} to {found.max}, the row group has {low} to {high}"


def _extremes(values: pa.Array[Any]) -> tuple[Bound | None, Bound | None]:
    """Least and greatest in the unit of bounds; NaN is passed over."""
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
