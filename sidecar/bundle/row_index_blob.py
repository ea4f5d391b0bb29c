"""``sidecar-row-index-v1``: the RowIndexEntry messages of one field's units in ORC files, as unchanged bytes.

The bytes are described in ``row_index_toc``. Nothing here checks an entry against its data file;
:mod:`sidecar.orc.statistics` decides whether its statistics can be believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.bundle.index_blob import FieldIndexes, IndexBlob
from sidecar.bundle.row_index_toc import ROW_INDEXES, RowIndexGroup, RowIndexKind


class StoredRowIndex(NamedTuple):
    """The row index of one unit: the protobuf bytes of its RowIndexEntry."""

    entry: bytes
    kind: RowIndexKind


class RowIndexBlob(IndexBlob[RowIndexKind, StoredRowIndex]):
    """The row indexes of one field of one segment."""

    form = ROW_INDEXES

    @staticmethod
    def _stored(parts: Sequence[bytes], kind: RowIndexKind) -> StoredRowIndex:
        return StoredRowIndex(parts[0], kind)


@dataclass(frozen=True)
class FieldRowIndexes(FieldIndexes):
    """The row indexes of one field for :func:`sidecar.bundle.writer.write_segment`.

    ``entries`` has, for each unit of each of ``groups`` in order, a 1-tuple with the RowIndexEntry.
    """

    form = ROW_INDEXES

    field_id: int
    groups: Sequence[RowIndexGroup]
    entries: Iterable[tuple[bytes]]
