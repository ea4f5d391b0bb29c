"""A leaf column of a row group of a Parquet file, whose indexes are compared with its values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.indexes.page_indexes import StoredPageIndex, decode_page_index
from sidecar.data_files.chunk_check import ChunkCheck, GivenIndexes, ask_pages
from sidecar.data_files.open_file import OwnIndex
from sidecar.errors import SidecarError, reason_at
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.probes import AnyEncoding
from sidecar.parquet.arrow_values import check_readable, chunk_values
from sidecar.parquet.footer import LOCKED, ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index
from sidecar.parquet.verify.filters import value_problems
from sidecar.parquet.verify.page_index import chunk_index_problems
from sidecar.questions.value_check import ValueCheck

if TYPE_CHECKING:
    from sidecar.data_files.open_parquet import OpenParquet


@dataclass(frozen=True)
class RestoredPages:
    """The page index of one chunk, ready for the file. ``reason`` says what is missing and why."""

    column_index: bytes | None
    offset_index: bytes | None
    reason: str = ""


class ParquetColumnPart:
    """See :class:`sidecar.data_files.open_file.ColumnPart`."""

    def __init__(self, file: OpenParquet, part: int, index: int) -> None:
        self._source, self._footer = file.source, file.footer
        self._chunk: ColumnChunk | None = file.footer.row_groups[part].columns.get(index)

    def filter_problems(self, unit: int, found: AnyFilter, encoding: AnyEncoding, check: ValueCheck) -> Iterator[str]:
        """See :class:`sidecar.data_files.open_file.ColumnPart`."""
        if self._chunk is None:
            yield LOCKED
        elif isinstance(found, OrcBloomFilter):
            assert isinstance(encoding, OrcEncoding)
            yield from self._orc_filter_problems(self._chunk, found, encoding, check)
        else:
            yield from value_problems(self._source, self._footer, self._chunk, found, check, forms=False)

    def _orc_filter_problems(
        self, chunk: ColumnChunk, found: OrcBloomFilter, encoding: OrcEncoding, check: ValueCheck
    ) -> Iterator[str]:
        """Yield the problems of an ORC filter that was made for the chunk: all its values are looked up."""
        asked = denied = 0
        try:
            check_readable(self._footer, chunk)
            for values in chunk_values(self._source, chunk):
                hashes = hash_orc(values.drop_null(), encoding, twins=False)
                asked, denied = asked + len(hashes), denied + len(hashes) - int(found.check(hashes).sum())
        except SidecarError as error:
            yield f"Bloom filter: values could not be looked up: {reason_at(error)}"
            return
        check.values += asked
        if denied:
            yield f"Bloom filter: denies {denied} of {asked} values that the column chunk has"

    def index_problems(self, unit: int, stored: StoredPageIndex, is_proven: bool, check: ValueCheck) -> Iterator[str]:
        """See :class:`sidecar.data_files.open_file.ColumnPart`."""
        pages = self.restored(stored, is_proven)
        texts = [pages.reason] if pages.reason else []
        if self._chunk is not None and pages.offset_index is not None:
            check.indexes += 1
            column = None if pages.column_index is None else decode_column_index(pages.column_index)
            offset = decode_offset_index(pages.offset_index)
            texts += chunk_index_problems(self._source, self._footer, self._chunk, column, offset, forms=False)
        yield from dict.fromkeys(texts)

    def first_values(self, found: OwnIndex) -> ChunkCheck | None:
        """See :class:`sidecar.data_files.open_file.ColumnPart`."""
        if self._chunk is None:
            return None
        column, offset = found.pieces or (b"", b"")
        given = GivenIndexes(
            found.filter if isinstance(found.filter, BlockFilter) else None,
            decode_column_index(column) if column else None,
            decode_offset_index(offset) if offset else None,
        )
        return ask_pages(self._source, self._footer, self._chunk, given, whole=False)

    def restored(self, stored: StoredPageIndex, is_proven: bool) -> RestoredPages:
        """Return a page index of a sidecar, checked against the footer. Parts that are damaged or contradict it are
        left out.

        A proven file has the indexed pages, so a page index is right if the first page is at the same offset. Then the
        full check, which decodes the page index, is not needed.
        """
        if self._chunk is None:
            return RestoredPages(None, None, LOCKED)
        if is_proven and first_page(stored.offset_index) == self._chunk.data_page_offset:
            return RestoredPages(stored.column_index, stored.offset_index)
        return _checked(self._footer, self._chunk, stored)


def first_page(offset_index: bytes | None) -> int | None:
    """Return the offset of the first page in an OffsetIndex; ``None`` if its bytes do not begin as all writers begin.

    Reads only the first bytes of the Thrift structure: field 1 is a list of structs, and field 1 of its first struct is
    an i64. If the pages are known to be the indexed ones, this offset tells whether they are still at the same place.
    """
    data = offset_index or b""
    if data[:1] != b"\x19" or data[1:2] == b"" or data[1] & 15 != 12 or data[1] < 16:
        return None
    at = 2
    if data[1] >> 4 == 15:  # the number of pages follows
        while data[at : at + 1] >= b"\x80":
            at += 1
        at += 1
    if data[at : at + 1] != b"\x16":
        return None
    number = shift = 0
    for byte in data[at + 1 : at + 11]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number >> 1 if number & 1 == 0 else None
    return None


def _checked(footer: Footer, chunk: ColumnChunk, stored: StoredPageIndex) -> RestoredPages:
    try:
        column, offset, _ = decode_page_index(stored)
    except SidecarError as error:
        return RestoredPages(None, None, error.what)
    if offset is None:
        return RestoredPages(None, None, "no offset index")
    problem = next(offset_index_problems(footer, chunk, offset), "")
    if problem:
        return RestoredPages(None, None, f"it belongs to other pages: {problem}")
    problem = "" if column is None else next(column_index_problems(footer, chunk, column, offset), "")
    if problem:
        return RestoredPages(None, stored.offset_index, f"no column index: {problem}")
    return RestoredPages(stored.column_index, stored.offset_index)
