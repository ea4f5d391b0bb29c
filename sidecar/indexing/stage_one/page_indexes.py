"""Makes the page indexes of a unit for the sidecar.

For a Parquet file they are its own, byte for byte, or built from the pages. For an ORC file they are the entries of its
own row indexes.
"""

from __future__ import annotations

from sidecar.bundle.indexes.page_indexes import page_index_kind
from sidecar.bundle.indexes.row_indexes import RowIndexKind, row_index_kind
from sidecar.bundle.model import UnitState
from sidecar.conversion.reuse import NEVER
from sidecar.errors import SidecarError
from sidecar.indexing.stage_one.data_file import PagesResult
from sidecar.indexing.stage_one.fault import DAMAGE, fault_of, reason_of
from sidecar.orc.index_streams import StripeIndex
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.page_indexes.page_index import read_page_indexes
from sidecar.parquet.page_indexes.sound_page_index import sound_page_index
from sidecar.storage.source import CountingSource, Source

REUSED, BUILT = "reused", "built"
NO_ROW_INDEX = "the file has no row index for the column"


def page_index_of(source: Source, footer: Footer, chunk: ColumnChunk, resolution: str, reuse: str) -> PagesResult:
    """Return the page index of a chunk. Problems of the file are a reason in the result, not an exception.

    ``reuse`` = ``never`` always builds it. If the file's page index lacks its ColumnIndex, it is built anew; if that
    gives no ColumnIndex either, the result has only the file's OffsetIndex.
    """
    kind = page_index_kind(footer, chunk.leaf, resolution)
    if chunk.file_path is not None:
        return PagesResult(kind, reason="the column chunk is in another file")
    counting = CountingSource(source)
    own = None
    try:
        if reuse != NEVER:
            columns, offsets = read_page_indexes(counting, footer, [chunk], [chunk])
            own = sound_page_index(footer, chunk, columns[0], offsets[0])
            if own.column_index is not None and own.offset_index is not None:
                raw = own.column_index.raw, own.offset_index.raw
                return PagesResult(kind, raw, REUSED, bytes_read=counting.bytes_read)
        built = build_page_index(counting, footer, chunk)
    except SidecarError as error:
        return PagesResult(kind, reason=reason_of(error), fault=fault_of(error), bytes_read=counting.bytes_read)
    read = counting.bytes_read
    if built.offset_index is None:
        return PagesResult(kind, reason=built.reason or "no page index can be built", bytes_read=read)
    if built.column_index is None and own is not None and own.offset_index is not None:
        return PagesResult(kind, (b"", own.offset_index.raw), REUSED, bytes_read=read)
    column = built.column_index.raw if built.column_index is not None else b""
    return PagesResult(kind, (column, built.offset_index.raw), BUILT, bytes_read=read)


def row_indexes(tail: OrcTail, footer: StripeFooter, index: StripeIndex, resolution: str) -> list[PagesResult]:
    """Return the row index of a stripe's column: one result for each row group."""
    if index.column.encrypted:
        return no_row_indexes(footer.stripe, resolution, UnitState.ENCRYPTED)
    if index.row_index_problem is not None:
        problem = index.row_index_problem
        return no_row_indexes(footer.stripe, resolution, reason_of(problem), fault_of(problem))
    if index.row_index is None:
        return no_row_indexes(footer.stripe, resolution, NO_ROW_INDEX)
    kind = row_index_kind(tail, footer, index.column, resolution)
    found = []
    for group, part in enumerate(index.row_index.parts):
        if doubt := index.contradictions.of(group):
            found.append(PagesResult(kind, reason=doubt, fault=DAMAGE))
        else:
            found.append(PagesResult(kind, (part,), REUSED) if part else PagesResult(kind, reason=NO_ROW_INDEX))
    return found


def no_row_indexes(stripe: Stripe, resolution: str, reason: str, fault: str = "") -> list[PagesResult]:
    """Return a result without an index for each row group of the stripe, all with the same reason."""
    kind = RowIndexKind(resolution, "", "", False, False, 0, 0)
    return [PagesResult(kind, reason=reason, fault=fault)] * stripe.num_row_groups
