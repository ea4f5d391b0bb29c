"""Page indexes of a unit for the sidecar: the file's own, byte for byte, or new ones where it has none."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.convert.harvest import NEVER
from sidecar.convert.protection import ENCRYPTED
from sidecar.convert.sound_page_index import sound_page_index
from sidecar.errors import SidecarError
from sidecar.indexing.fault import fault_of, reason_of
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_index import read_page_indexes
from sidecar.parquet.page_index_build import build_page_index
from sidecar.source import CountingSource, Source

HARVESTED, BUILT = "harvested", "built"


@dataclass(frozen=True)
class UnitPageIndex:
    """The page index of a chunk, ``None`` for a structure that it cannot have; ``reason`` if it has none at all."""

    column_index: bytes | None = None
    offset_index: bytes | None = None
    how: str = ""
    reason: str = ""
    fault: str = ""
    bytes_read: int = 0


def index_pages(source: Source, footer: Footer, chunk: ColumnChunk, harvest: str) -> UnitPageIndex:
    """The page index of a chunk; never raises for what the file holds.

    ``harvest`` is ``never`` to build it in any case. One that lacks its ColumnIndex is built anew, if that gives one.
    """
    if chunk.encrypted or chunk.file_path is not None:
        where = ENCRYPTED if chunk.encrypted else "the column chunk lies in another file"
        return UnitPageIndex(reason=where)
    counting = CountingSource(source)
    own = None
    try:
        if harvest != NEVER:
            columns, offsets = read_page_indexes(counting, footer, [chunk], [chunk])
            own = sound_page_index(footer, chunk, columns[0], offsets[0])
            if own.column_index is not None and own.offset_index is not None:
                raw = own.column_index.raw, own.offset_index.raw
                return UnitPageIndex(*raw, HARVESTED, bytes_read=counting.bytes_read)
        built = build_page_index(counting, footer, chunk)
    except SidecarError as error:
        return UnitPageIndex(reason=reason_of(error), fault=fault_of(error), bytes_read=counting.bytes_read)
    read = counting.bytes_read
    if built.offset_index is None:
        return UnitPageIndex(reason=built.reason or "no page index can be built", bytes_read=read)
    if built.column_index is None and own is not None and own.offset_index is not None:
        return UnitPageIndex(None, own.offset_index.raw, HARVESTED, bytes_read=read)
    column = built.column_index.raw if built.column_index is not None else None
    return UnitPageIndex(column, built.offset_index.raw, BUILT, bytes_read=read)
