"""``convert --as``: rebuilds the filters of data files as the other kind, for a sidecar.

ORC row groups get split-block filters, or Parquet row groups get ORC filters, on the columns that have filters of their
own. The bits of one kind say nothing about the hash of the other, so each filter is rebuilt
(:mod:`sidecar.conversion.rebuild`). The encodings are the same as in a build of a table
(:mod:`sidecar.orc.iceberg_values`). Page indexes and row indexes keep their format and are copied as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.collection import Collection as Gathered
from sidecar.conversion.collection import keys_of
from sidecar.conversion.extract import AMBIGUOUS, Extractor
from sidecar.conversion.outcome import VALUES, IndexPlace, Outcome, Way
from sidecar.conversion.rebuild import FilterFromArrays, ParquetEvidence, filter_of, rebuild
from sidecar.data_files.open_file import unique_leaves
from sidecar.data_files.open_orc import OpenOrc, OrcLeaf
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, reason_at
from sidecar.filters.column_types import ColumnType
from sidecar.filters.leaf import Leaf
from sidecar.filters.orc.bloom import OrcBloomFilter, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.orc.decode import read_row_groups
from sidecar.orc.iceberg_values import orc_values, zone_doubt
from sidecar.questions.bounds import Unknown
from sidecar.storage.local import check_unchanged


class _NewFilter(NamedTuple):
    """A rebuilt filter."""

    encoding: str
    filter: AnyFilter
    way: Way


def take_rebuilt(
    file: OpenParquet | OpenOrc, into: Gathered, extractor: Extractor, columns: Collection[str] | None, fpp: float
) -> None:
    """Take a data file: copy its page indexes or row indexes, and rebuild its filters as those of the other format.

    ``extractor`` reports them and keeps the reasons of those that cannot be rebuilt. ``fpp`` is the rate.
    """
    first, keys, unique = into.num_units, keys_of(file.leaves), unique_leaves(file.leaves)
    extractor.take(file)
    for part in range(file.parts):
        named = (leaf for leaf in file.leaves if columns is None or leaf.own_path in columns)
        having = [leaf for leaf in named if file.has_index(part, leaf, BLOOM)]
        own = file.own_indexes(part, having, [BLOOM])
        rates = {(one.leaf.index, one.unit): one.filter.estimated_fpp() for one in own if one.filter is not None}
        for leaf in having:
            key = keys[leaf.index]
            # Two columns of one path are told apart by their field ids alone.
            is_unique = leaf.own_path in unique or bool(key.field_id)
            made = _rebuilt(file, part, leaf, fpp) if is_unique else UnsupportedFeatureError(AMBIGUOUS)
            for number, unit in enumerate(file.part_units(part)):
                found = made if isinstance(made, SidecarError) else made[number]
                rate = rates.get((leaf.index, unit))
                place = IndexPlace(file.name, unit, leaf.own_path, BLOOM)
                if isinstance(found, SidecarError):
                    outcome = place.without_index(reason_at(found), isinstance(found, DamagedFileError), rate)
                else:
                    into.add_filter(key, first + unit, found.encoding, found.filter)
                    outcome = Outcome(*place, found.way, found.filter.num_bytes, rate, found.filter.estimated_fpp())
                extractor.note(outcome, key, first + unit)
    check_unchanged(file.source)


def _rebuilt(
    file: OpenParquet | OpenOrc, part: int, leaf: Any, fpp: float
) -> Sequence[_NewFilter | SidecarError] | SidecarError:
    """Return the new filter of each unit of a part, or why there is none. Raises :class:`StorageError`."""
    try:
        return _of_orc(file, part, leaf, fpp) if isinstance(file, OpenOrc) else [_of_parquet(file, part, leaf, fpp)]
    except StorageError:
        raise
    except SidecarError as error:
        return error


def _of_parquet(file: OpenParquet, part: int, leaf: Leaf, fpp: float) -> _NewFilter:
    """Return an ORC filter for a column chunk."""
    encoding = ColumnType.parse(leaf.iceberg_type).orc_encoding
    if encoding is None:
        raise UnsupportedFeatureError(f"no ORC filter can be built for {leaf.encoding.name}")
    group = file.footer.row_groups[part]
    evidence = ParquetEvidence(file.source, file.footer, [group.columns[leaf.index]])
    made, way = rebuild(evidence, _orc_filter_of(OrcEncoding.parse(encoding), group.num_rows, fpp))
    return _NewFilter(encoding, made, way)


def _of_orc(file: OpenOrc, part: int, leaf: OrcLeaf, fpp: float) -> list[_NewFilter | SidecarError]:
    """Return a split-block filter for each row group of a stripe; its values are decoded once."""
    column, footer = leaf.column, file.footer(part)
    if column.encrypted or column.nested_in_repeated:
        raise UnsupportedFeatureError("the column is encrypted, or inside a list or map")
    values = orc_values(column, leaf.iceberg_type, file.tail.writer)
    if isinstance(values, Unknown):
        raise UnsupportedFeatureError(values.reason)
    if reason := zone_doubt(column, footer.writer_timezone) or values.encoding.not_indexable:
        raise UnsupportedFeatureError(reason)
    build = filter_of(SplitBlockBloomFilter, values.encoding, fpp)
    made: list[_NewFilter | SidecarError] = []
    for stored in read_row_groups(file.source, file.tail, file.tail.stripes[part], footer, column):
        try:
            array = values.from_file(stored)
            made.append(_NewFilter(values.encoding.name, build([array], len(array) - array.null_count), VALUES))
        except SidecarError as error:
            made.append(error)
    return made


def _orc_filter_of(encoding: OrcEncoding, entries: int, fpp: float) -> FilterFromArrays[OrcBloomFilter]:
    """Return a builder of ORC filters, sized as writers do for ``entries`` values (or more, if more are distinct)."""

    def build(arrays: Iterable[pa.Array[Any]], distinct: int) -> OrcBloomFilter:
        made = OrcBloomFilter.empty(*size_for(max(entries, distinct), fpp))
        for array in arrays:
            made.insert_arrow(array, encoding)
        return made

    return build
