"""The page index of a single chunk."""

from __future__ import annotations

from sidecar.errors import SidecarError
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, read_page_indexes
from sidecar.storage.source import Source


def read_column_index(source: Source, footer: Footer, chunk: ColumnChunk) -> ColumnIndex | None:
    """The chunk's ColumnIndex, in one read; ``None`` if it has none. Raises the error that is its answer."""
    (found,), _ = read_page_indexes(source, footer, [chunk], [])
    if isinstance(found, SidecarError):
        raise found
    return found


def read_offset_index(source: Source, footer: Footer, chunk: ColumnChunk) -> OffsetIndex | None:
    """The same of its OffsetIndex."""
    _, (found,) = read_page_indexes(source, footer, [], [chunk])
    if isinstance(found, SidecarError):
        raise found
    return found
