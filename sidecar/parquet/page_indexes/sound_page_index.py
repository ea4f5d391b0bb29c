"""Decides which structures of a chunk's page index may be copied: those that nothing contradicts."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.errors import DamagedFileError, reason_of
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    ColumnIndexAnswer,
    OffsetIndex,
    OffsetIndexAnswer,
)


@dataclass(frozen=True)
class SoundPageIndex:
    """The structures of a chunk that nothing contradicts. ``reason`` says why one of them is missing."""

    column_index: ColumnIndex | None
    offset_index: OffsetIndex | None
    reason: str = ""
    damaged: bool = False


def sound_page_index(
    footer: Footer, chunk: ColumnChunk, columns: ColumnIndexAnswer, offsets: OffsetIndexAnswer
) -> SoundPageIndex:
    """Return the sound structures: the OffsetIndex if it has no problems, and with it the ColumnIndex if sound too."""
    if offsets is None:
        return SoundPageIndex(None, None, "a column index without an offset index")
    if not isinstance(offsets, OffsetIndex):
        return SoundPageIndex(None, None, reason_of(offsets), isinstance(offsets, DamagedFileError))
    problem = next(offset_index_problems(footer, chunk, offsets), "")
    if problem:
        return SoundPageIndex(None, None, problem, damaged=True)
    if columns is None:
        return SoundPageIndex(None, offsets)
    if not isinstance(columns, ColumnIndex):
        damaged = isinstance(columns, DamagedFileError)
        return SoundPageIndex(None, offsets, f"no column index: {reason_of(columns)}", damaged)
    problem = next(column_index_problems(footer, chunk, columns, offsets), "")
    if problem:
        return SoundPageIndex(None, offsets, f"no column index: {problem}", damaged=True)
    return SoundPageIndex(columns, offsets)
