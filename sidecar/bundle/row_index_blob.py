"""``sidecar-row-index-v1``: the RowIndexEntry messages of one field's units in ORC files, the bytes as they were.

What the bytes are stands in ``row_index_toc``; whether what an entry says may be believed is for
:mod:`sidecar.orc.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.bundle.index_blob import FieldIndexes, IndexBlob
from sidecar.bundle.row_index_toc import ROW_INDEXES, RowIndexGroup, RowIndexKind


class StoredRowIndex(NamedTuple):
    """The row index of one unit: the bytes of its RowIndexEntry."""

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
    """Row indexes of one field for :func:`sidecar.bundle.writer.write_segment`.

    ``entries``: for each of ``groups`` and each of its units in order, the RowIndexEntry, as a tuple of one.
    """

    form = ROW_INDEXES

    field_id: int
    groups: Sequence[RowIndexGroup]
    entries: Iterable[tuple[bytes]]
