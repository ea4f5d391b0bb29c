"""``sidecar-page-index-v1``: ColumnIndex and OffsetIndex of one field's units, as unchanged Thrift bytes.

The bytes are described in ``page_index_toc``. Nothing here checks an entry against its data file;
:mod:`sidecar.parquet.page_bounds` decides whether its bounds can be believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.bundle.index_blob import FieldIndexes, IndexBlob
from sidecar.bundle.page_index_toc import PAGE_INDEXES, PageIndexGroup, PageIndexKind


class StoredPageIndex(NamedTuple):
    """The page index of one unit: Thrift bytes, ``None`` for a structure that the file lacks."""

    column_index: bytes | None
    offset_index: bytes | None
    kind: PageIndexKind


class PageIndexBlob(IndexBlob[PageIndexKind, StoredPageIndex]):
    """The page indexes of one field of one segment."""

    form = PAGE_INDEXES

    @staticmethod
    def _stored(parts: Sequence[bytes], kind: PageIndexKind) -> StoredPageIndex:
        column, offset = parts
        return StoredPageIndex(column or None, offset or None, kind)


@dataclass(frozen=True)
class FieldPageIndexes(FieldIndexes):
    """The page indexes of one field for :func:`sidecar.bundle.writer.write_segment`.

    ``entries`` has, for each unit of each of ``groups`` in order, ColumnIndex and OffsetIndex.
    """

    form = PAGE_INDEXES

    field_id: int
    groups: Sequence[PageIndexGroup]
    entries: Iterable[tuple[bytes, bytes]]
