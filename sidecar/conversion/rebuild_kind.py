"""``convert --as``: rebuilds the filters of data files as the other kind, for a sidecar.

ORC row groups get split-block filters, or Parquet row groups get ORC filters, on the columns that have filters of their
own. The bits of one kind say nothing about the hash of the other, so each filter is rebuilt
(:mod:`sidecar.conversion.rebuild`). The encodings are the same as in a build of a table
(:mod:`sidecar.orc.iceberg_values`). Page indexes and row indexes keep their format and are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.collection import Collection as Gathered
from sidecar.conversion.collection import Key, keys_of
from sidecar.conversion.extract import AMBIGUOUS, Extractor
from sidecar.conversion.outcome import VALUES, IndexPlace, Outcome, Way
from sidecar.conversion.rebuild import FilterFromArrays, ParquetEvidence, filter_of, rebuild
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.orc.bloom import OrcBloomFilter, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.orc.decode import read_row_groups
from sidecar.orc.iceberg_values import OrcValues, orc_values, zone_doubt
from sidecar.orc.index_streams import StripeIndex, index_streams_of, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.contradictions import reason_of
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.footer import LOCKED, ColumnChunk
from sidecar.questions.bounds import Unknown
from sidecar.results.choices import RebuiltKind
from sidecar.storage.local import check_unchanged
from sidecar.storage.source import Source

AS_PARQUET: Final = "parquet"
AS_ORC: Final = "orc"
REBUILT_KINDS: tuple[RebuiltKind, ...] = (AS_PARQUET, AS_ORC)
"""The kinds that filters are rebuilt as: split-block filters, ORC filters."""

WantedColumns = Collection[str] | None


@dataclass(frozen=True)
class RebuildTarget:
    """Where rebuilt filters go, and their rate ``fpp``. ``extractor`` reports them and keeps the reasons."""

    gathered: Gathered
    extractor: Extractor
    fpp: float

    def put(
        self,
        place: IndexPlace,
        key: Key,
        unit: int,
        encoding: str,
        rebuilt: Callable[[], tuple[AnyFilter, Way]],
        rate: float | None,
    ) -> None:
        """Rebuild one filter, or report why it cannot be rebuilt."""
        try:
            made, way = rebuilt()
        except StorageError:
            raise
        except SidecarError as error:
            self.refuse(place, key, unit, reason_of(error), rate, isinstance(error, DamagedFileError))
            return
        self.gathered.add_filter(key, unit, encoding, made)
        outcome = Outcome(*place, way, made.num_bytes, rate, made.estimated_fpp())
        self.extractor.note(outcome, key, unit)

    def refuse(
        self,
        place: IndexPlace,
        key: Key,
        unit: int,
        reason: str,
        rate: float | None = None,
        damaged: bool = False,
    ) -> None:
        """Report that a unit gets no filter, and why."""
        self.extractor.note(Outcome(*place, rate_before=rate, reason=reason, damaged=damaged), key, unit)


def take_as_orc(file: OpenParquet, into: RebuildTarget, columns: WantedColumns) -> None:
    """Take a Parquet file: copy its page indexes and rebuild its filters as ORC filters."""
    first = into.gathered.num_units
    into.extractor.take(file)
    source, footer = file.source, file.footer
    keys = keys_of(file.leaves)
    for group in footer.row_groups:
        for chunk in _having_filters(group.columns.locked, columns):
            place: IndexPlace = (source.name, group.ordinal, chunk.leaf.path, BLOOM)
            into.refuse(place, keys[chunk.leaf.index], first + group.ordinal, LOCKED)
        chunks = _having_filters(group.columns, columns)
        for chunk, found in read_bloom_filters(source, chunks):
            if isinstance(found, StorageError):
                raise found
            place = (source.name, group.ordinal, chunk.leaf.path, BLOOM)
            key, unit = keys[chunk.leaf.index], first + group.ordinal
            rate = found.filter.estimated_fpp() if isinstance(found, FoundFilter) else None
            encoding = ColumnType.parse(chunk.leaf.iceberg_type).orc_encoding
            if footer.is_ambiguous(chunk.leaf) and not key.field_id:
                into.refuse(place, key, unit, AMBIGUOUS, rate)
                continue
            if encoding is None:
                into.refuse(place, key, unit, f"no ORC filter can be built for {chunk.leaf.encoding.name}", rate)
                continue
            try:
                evidence = ParquetEvidence(source, footer, [chunk])
            except UnsupportedFeatureError as error:
                into.refuse(place, key, unit, reason_of(error), rate)
                continue
            build = orc_filter_of(OrcEncoding.parse(encoding), group.num_rows, into.fpp)
            into.put(place, key, unit, encoding, partial(rebuild, evidence, build), rate)
    check_unchanged(source)


def _having_filters(chunks: Iterable[ColumnChunk], columns: WantedColumns) -> list[ColumnChunk]:
    return [c for c in chunks if c.bloom_filter_offset and (columns is None or c.leaf.path in columns)]


def take_as_parquet(file: OpenOrc, into: RebuildTarget, columns: WantedColumns) -> None:
    """Take an ORC file: copy its row indexes and rebuild its filters as split-block filters."""
    first = into.gathered.num_units
    into.extractor.take(file)
    source, tail = file.source, file.tail
    firsts, keys = file.first_units, keys_of(file.leaves)
    for stripe in tail.stripes:
        if not stripe.num_rows:
            continue
        footer = read_stripe_footer(source, tail, stripe)
        having = [column for column in tail.columns if _has_filters(footer, column, columns)]
        indexes = read_indexes(source, tail, footer, [column.id for column in having], file.statistics)
        for column in having:
            rebuilt_column = _RebuiltColumn(source, tail, footer, indexes[column.id])
            rebuilt_column.rebuild(into, keys[column.id], first, firsts[stripe.ordinal])
    check_unchanged(source)


def _has_filters(footer: StripeFooter, column: OrcColumn, columns: WantedColumns) -> bool:
    named = columns is None or column.path in columns
    return (
        not column.is_compound
        and named
        and any(stream.kind.startswith("BLOOM") for stream in index_streams_of(footer, column.id))
    )


@dataclass
class _RebuiltColumn:
    """A column of a stripe whose filters are rebuilt; its values are decoded once, if at all."""

    source: Source
    tail: OrcTail
    footer: StripeFooter
    index: StripeIndex

    @cached_property
    def values(self) -> Sequence[pa.Array[Any]]:
        """The values of each row group of the stripe."""
        stripe = self.footer.stripe
        return list(read_row_groups(self.source, self.tail, stripe, self.footer, self.index.column))

    def rebuild(self, into: RebuildTarget, key: Key, first: int, ahead: int) -> None:
        """Rebuild the filters of all row groups. ``ahead`` is the number of row groups before the stripe."""
        column, found = self.index.column, self.index.filters or ()
        conversion = self._conversion()
        for group in range(self.footer.stripe.num_row_groups):
            old = found[group] if group < len(found) else None
            rate = None if old is None or old.filter is None else old.filter.estimated_fpp()
            place: IndexPlace = (self.tail.name, ahead + group, column.path, BLOOM)
            unit = first + ahead + group
            if isinstance(conversion, Unknown):
                into.refuse(place, key, unit, conversion.reason, rate)
                continue
            encoding = conversion.encoding
            into.put(place, key, unit, encoding.name, partial(self._rebuilt, group, conversion, into.fpp), rate)

    def _rebuilt(self, group: int, conversion: OrcValues, fpp: float) -> tuple[SplitBlockBloomFilter, Way]:
        """Build a row group's filter of its values; a dictionary belongs to the stripe."""
        array = conversion.from_file(self.values[group])
        build = filter_of(SplitBlockBloomFilter, conversion.encoding, fpp)
        return build([array], len(array) - array.null_count), VALUES

    def _conversion(self) -> OrcValues | Unknown:
        """Return how values are converted for the filter, or why there can be no filter."""
        column = self.index.column
        if column.encrypted or column.nested_in_repeated:
            return Unknown("the column is encrypted, or inside a list or map")
        if column.iceberg_type is None:
            return Unknown(f"a column of kind {column.kind} has no Iceberg type")
        found = orc_values(column, column.iceberg_type, self.tail.writer)
        if isinstance(found, Unknown):
            return found
        reason = zone_doubt(column, self.footer.writer_timezone) or found.encoding.not_indexable
        return Unknown(reason) if reason else found


def orc_filter_of(encoding: OrcEncoding, entries: int, fpp: float) -> FilterFromArrays[OrcBloomFilter]:
    """Return a builder of ORC filters, sized as writers do for ``entries`` values (or more, if more are distinct)."""

    def build(arrays: Iterable[pa.Array[Any]], distinct: int) -> OrcBloomFilter:
        made = OrcBloomFilter.empty(*size_for(max(entries, distinct), fpp))
        for array in arrays:
            made.insert_arrow(array, encoding)
        return made

    return build
