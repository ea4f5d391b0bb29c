"""Compares filters with the values of an ORC stripe before they are put into it; see ``witness``.

It decodes either one row group of the column, from its positions in the row index, or all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sidecar.data_files.chunk_check import ChunkCheck
from sidecar.errors import SidecarError, StorageError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.orc.decode import read_row_group, read_row_groups
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.orc.verify.values import denied_values
from sidecar.storage.source import Source

if TYPE_CHECKING:
    import pyarrow as pa

    Array = pa.Array[Any]


def ask_row_groups(
    source: Source,
    tail: OrcTail,
    footer: StripeFooter,
    column: OrcColumn,
    filters: Sequence[tuple[OrcBloomFilter, OrcEncoding]],
    statistics: FileStatistics,
    *,
    whole: bool,
) -> ChunkCheck:
    """Look up values of a stripe's column in ``filters``, one filter for each row group.

    ``statistics`` are those of the file.
    ``whole`` looks up all values, otherwise those of the first row group that has some. Raises :class:`StorageError`.
    If values cannot be decoded or hashed, the result's ``not_compared`` says why.
    """
    groups = values = denied = 0
    try:
        for group, array in _arrays(source, tail, footer, column, None if whole else statistics):
            there = array.drop_null()
            groups, values = groups + 1, values + len(there)
            denied += denied_values(*filters[group], column, there)
            if denied or (len(there) and not whole):
                break
    except StorageError:
        raise
    except SidecarError as error:
        return ChunkCheck(groups, values, not_compared=error.what)
    return ChunkCheck(groups, values, f"the filter denies {denied} of {values} values" if denied else "")


def _arrays(
    source: Source, tail: OrcTail, footer: StripeFooter, column: OrcColumn, statistics: FileStatistics | None
) -> Iterator[tuple[int, Array]]:
    """Yield the row groups of the stripe: decoded in one pass, or with ``statistics`` by their positions, if they can.

    By its position, a row group is decoded alone, so that the caller can stop early.
    """
    stripe = footer.stripe
    if statistics is None:
        yield from enumerate(read_row_groups(source, tail, stripe, footer, column))
        return
    # A row group of a nested column also needs the positions of its parents' streams.
    above = column
    chain = [column.id]
    while above.parent:
        above = tail.columns[above.parent]
        chain.append(above.id)
    found = read_indexes(source, tail, footer, chain, statistics, bloom=False)
    if any(index.is_misplaced(group) for index in found.values() for group in range(stripe.num_row_groups)):
        yield from enumerate(read_row_groups(source, tail, stripe, footer, column))
        return
    indexes = {id: index.row_index for id, index in found.items() if index.row_index is not None}
    for group in range(stripe.num_row_groups):
        yield group, read_row_group(source, tail, stripe, footer, indexes, group, column)
