"""Verifies the indexes that a sidecar has for an ORC file against the file's values.

Every value is looked up in every filter of its row group, split-block and ORC, in all segments. Row indexes must equal
those of the file, and their statistics must not exclude a value. :mod:`sidecar.orc.decode` reads the values, as in a
build. Values inside unions are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa

from sidecar.bundle.indexes.row_indexes import StoredRowIndex, decode_row_index, row_index_kind
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.match import Match
from sidecar.conversion.restore import every_part, locate_orc, stored_row_indexes
from sidecar.data_files.open_orc import OpenOrc, first_units
from sidecar.errors import Problem, SidecarError, UsageError, problem_in
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.orc.decode import has_own_values, read_row_groups
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.orc.verify.values import count_denied, observed_in
from sidecar.parquet.inspect import place_and_reason
from sidecar.parquet.verify.filters import ValueCheck
from sidecar.storage.source import Source


@dataclass(frozen=True)
class _OrcStripe:
    """A stripe that is being verified. ``first`` is the number of row groups before it."""

    source: Source
    tail: OrcTail
    stripe: Stripe
    footer: StripeFooter
    first: int

    @property
    def row_groups(self) -> range:
        """The stripe's row groups, numbered over the whole file."""
        return range(self.first, self.first + self.stripe.num_row_groups)


def orc_value_problems(
    file: OpenOrc, matches: Sequence[Match], pool: FilterPool, check: ValueCheck
) -> Iterator[Problem]:
    """Yield the problems of an ORC file; see :func:`sidecar.conversion.verify_values.value_problems_of`."""
    source, tail = file.source, file.tail
    parts = [part for part in every_part(matches, locate_orc(tail)) if part.units]
    row_indexes = stored_row_indexes(matches, tail)
    columns = sorted({part.column for part in parts} | {column for _, column in row_indexes})
    firsts = first_units(tail)
    for stripe in tail.stripes:
        if not stripe.num_row_groups or not columns:
            continue
        footer = read_stripe_footer(source, tail, stripe)
        work = _OrcStripe(source, tail, stripe, footer, firsts[stripe.ordinal])
        indexes = read_indexes(source, tail, footer, columns, file.statistics, bloom=False)
        for number in columns:
            own = [part for part in parts if part.column == number]
            yield from _column_problems(work, indexes[number], own, row_indexes, pool, check)


def _column_problems(
    work: _OrcStripe,
    index: StripeIndex,
    parts: list[PooledFilters],
    row_indexes: Mapping[tuple[int, int], StoredRowIndex],
    pool: FilterPool,
    check: ValueCheck,
) -> Iterator[Problem]:
    column, name = index.column, work.tail.name
    arrays: Iterable[pa.Array[Any] | None] = repeat(None, len(work.row_groups))
    if has_own_values(work.tail, column):
        arrays = read_row_groups(work.source, work.tail, work.stripe, work.footer, column)
    try:
        for group, (row_group, entries) in enumerate(zip(work.row_groups, arrays, strict=True)):
            texts: list[str] = []
            for part in parts:
                if entries is not None and row_group in part.units and pool.has(part, row_group):
                    texts += _filter_problems(pool, part, row_group, column, entries.drop_null(), check)
            stored = row_indexes.get((row_group, column.id))
            if stored is not None:
                check.indexes += 1
                texts += _row_index_problems(work, index, group, stored, entries)
            for text in texts:
                yield problem_in(name, f"sidecar: {text}", column.path, row_group)
    except SidecarError as error:
        text = f"sidecar: values could not be looked up: {place_and_reason(error)}"
        yield problem_in(name, text, column.path)


def _filter_problems(
    pool: FilterPool,
    part: PooledFilters,
    row_group: int,
    column: OrcColumn,
    values: pa.Array[Any],
    check: ValueCheck,
) -> Iterator[str]:
    found, encoding = pool.get(part, row_group), part.group.rule.parse_encoding(part.group.encoding)
    try:
        if isinstance(found, OrcBloomFilter):
            assert isinstance(encoding, OrcEncoding)
            denied = count_denied(found, encoding, column, values)
        else:
            assert isinstance(encoding, Encoding)
            hashes = hash_arrow(_in_type_of(encoding, values), encoding, twins=False)
            denied = len(hashes) - int(found.check(hashes).sum())
    except (UsageError, pa.ArrowException) as error:
        yield f"Bloom filter: values could not be looked up: {error}"
        return
    if denied is None:
        return  # no reader can ask for such values, so they are always kept
    check.values += len(values)
    if denied:
        yield f"Bloom filter: denies {denied} of {len(values)} values that the row group has"


def _in_type_of(encoding: Encoding, values: pa.Array[Any]) -> pa.Array[Any]:
    """Cast ORC values to the Arrow type that ``encoding`` hashes, if ORC decodes them as a different type."""
    if encoding.name == "int64/time-us":
        return values.cast(pa.time64("us"))
    if encoding.name.startswith("flba:") and pa.types.is_binary(values.type):
        return values.cast(pa.binary(encoding.width or 0))
    return values


def _row_index_problems(
    work: _OrcStripe, index: StripeIndex, group: int, stored: StoredRowIndex, entries: pa.Array[Any] | None
) -> Iterator[str]:
    own = index.row_index
    if own is not None and own.parts[group] != stored.entry:
        yield "row index: it differs from the file's"
    if row_index_kind(work.tail, work.footer, index.column, stored.kind.resolution) != stored.kind:
        yield "row index: its description does not match the file's column"
    try:
        statistics = decode_row_index(stored, work.stripe.row_groups[group].rows).statistics
    except SidecarError as error:
        yield f"row index: {place_and_reason(error)}"
        return
    if statistics is not None and entries is not None:
        false = [statistics.contradiction] if statistics.contradiction else []
        yield from (f"row index: {text}" for text in false or observed_in(entries).problems(statistics, "row group"))
