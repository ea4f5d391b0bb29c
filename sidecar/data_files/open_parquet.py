"""An open Parquet file. Its units and its parts are the row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import xxhash

from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.rules import IndexRule, SplitBlockRule
from sidecar.bundle.indexes.page_indexes import PageIndexKind, page_index_kind
from sidecar.bundle.indexes.row_indexes import EntryKind, RowIndexKind
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import UnitEntry
from sidecar.data_files.open_file import OwnIndex, PartValues
from sidecar.data_files.parquet_column import ParquetColumnPart
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, reason_of
from sidecar.filters.column_types import ColumnType
from sidecar.filters.leaf import ComparedColumn
from sidecar.parquet.arrow_values import ValueReader, check_pages
from sidecar.parquet.bloom import read_bloom_filters
from sidecar.parquet.bounds import find_ordering
from sidecar.parquet.chunk_statistics import stated_bounds
from sidecar.parquet.dictionary import read_dictionary
from sidecar.parquet.embed import check_embeddable
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.identity import is_distinctive, pages_digest, pages_fingerprint
from sidecar.parquet.inspect import find_leaf
from sidecar.parquet.page_indexes.page_bounds import claimed_bounds, offset_index_problems, page_bounds
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, read_indexes_by_leaf, read_page_indexes
from sidecar.parquet.page_indexes.sound_page_index import sound_page_index
from sidecar.parquet.pages import walk_pages, wholly_dictionary
from sidecar.puffin import types
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.storage.source import Source, WrappingSource

_OFFSETS = {BLOOM: "bloom_filter_offset", PAGE_INDEX: "offset_index_offset"}
"""The field of a column chunk that is set where the chunk has an index of the kind."""
PAGE_ROWS = 20_000
"""Rows of a page at most, by default of parquet-java and Arrow: rows are decoded together in runs of this length."""


class LoadedRange(WrappingSource):
    """A source over another one. One range at a time is in memory, and reads inside of it are free."""

    def __init__(self, inner: Source) -> None:
        super().__init__(inner)
        self._offset, self._data = 0, b""

    @contextmanager
    def loaded(self, offset: int, length: int) -> Iterator[None]:
        """Have a range in memory within the block."""
        self._offset, self._data = offset, self.inner.read(offset, length)
        try:
            yield
        finally:
            self._data = b""

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`sidecar.storage.source.Source.read`."""
        at = offset - self._offset
        if at >= 0 and at + length <= len(self._data):
            return self._data[at : at + length]
        return self.inner.read(offset, length)


class OpenParquet:
    """See :class:`sidecar.data_files.open_file.OpenFile`."""

    format: Final = "parquet"
    index_blobs: Final = types.PAGE_INDEX

    def __init__(self, source: Source, footer: Footer) -> None:
        self.source, self.footer = source, footer
        self.name, self.size, self.num_rows = footer.name, footer.size, footer.num_rows
        self.leaves: Sequence[Any] = footer.columns
        self.page_sizes: list[int] = []
        self._source = LoadedRange(source)
        self._reader: ValueReader | None = None

    @cached_property
    def units(self) -> Sequence[UnitEntry]:
        """See :class:`.OpenFile`."""
        return [UnitEntry(group.ordinal, group.first_row, group.num_rows) for group in self.footer.row_groups]

    @property
    def parts(self) -> int:
        """See :class:`.OpenFile`."""
        return len(self.footer.row_groups)

    def part_units(self, part: int) -> range:
        """See :class:`.OpenFile`."""
        return range(part, part + 1)

    def is_encrypted(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`."""
        return leaf.index in self.footer.encrypted

    def is_locked(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`."""
        return leaf.index in self.footer.locked

    def filter_bytes(self, part: int, leaf: Any) -> int | None:
        """See :class:`.OpenFile`. Writers of old versions do not say the length."""
        chunk = self._chunk(part, leaf)
        return None if chunk.bloom_filter_offset is None else chunk.bloom_filter_length or 0

    def part_size(self, part: int) -> int:
        """See :class:`.OpenFile`."""
        return sum(chunk.total_compressed_size for chunk in self.footer.row_groups[part].columns.stored)

    def cost(self, part: int, leaf: Any) -> int:
        """See :class:`.OpenFile`. Of a column that is wholly in its dictionary, only the dictionary is read."""
        chunk = self._chunk(part, leaf)
        return self._dictionary_size(chunk) or chunk.total_compressed_size

    def values(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[PartValues]:
        """See :class:`.OpenFile`."""
        chunk = self._chunk(part, leaf)
        if chunk.file_path is not None:
            raise UnsupportedFeatureError("the column chunk is in another file", file=self._source.name)
        if size := self._dictionary_size(chunk):
            with self._source.loaded(chunk.start, size):
                yield PartValues(0, read_dictionary(self._source, chunk).to_arrow(chunk.leaf), False)
        elif chunk.num_values:
            with self._source.loaded(chunk.start, chunk.total_compressed_size):
                check_pages(self._source, chunk)
                if chunk.offset_index_offset is None:
                    pages = walk_pages(self._source, chunk)
                    self.page_sizes += [page.compressed_size for page in pages if page.is_data]
                if self._reader is None:
                    self._reader = ValueReader(self._source)
                for (values,) in self._reader.batches(part, [leaf.index], PAGE_ROWS):
                    yield PartValues(0, values, True)

    def number_of(self, path: str) -> int:
        """See :class:`.OpenFile`."""
        return find_leaf(self.footer, path).index

    def check_embeddable(self) -> None:
        """See :class:`.OpenFile`."""
        check_embeddable(self.source, self.footer)

    def can_hold(self, rule: IndexRule) -> bool:
        """See :class:`.OpenFile`."""
        return isinstance(rule, SplitBlockRule)

    def may_have_new_filters(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`."""
        return leaf.encoding.not_indexable is None

    def values_size(self, part: int, leaf: Any) -> int:
        """See :class:`.OpenFile`."""
        size: int = self.footer.row_groups[part].columns.stored[leaf.index].total_compressed_size
        return size

    def fits(self, leaf: Any, made: StoredGroup | EntryKind) -> bool:
        """See :class:`.OpenFile`."""
        if isinstance(made, RowIndexKind):
            return False
        return made.encoding == leaf.encoding.name or made.encoding == ColumnType.parse(leaf.iceberg_type).orc_encoding

    def column_part(self, part: int, leaf: Any) -> ParquetColumnPart:
        """See :class:`.OpenFile`."""
        return ParquetColumnPart(self, part, leaf.index)

    def close(self) -> None:
        """See :class:`.OpenFile`."""
        if self._reader is not None:
            self._reader.close()

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """See :class:`.OpenFile`."""
        chunk = self._chunk(part, leaf)
        (column,), (offset,) = read_page_indexes(self._source, self.footer, [chunk], [chunk])
        if not isinstance(offset, OffsetIndex) or any(offset_index_problems(self.footer, chunk, offset)):
            return None
        self.page_sizes += offset.compressed_page_sizes.tolist()
        found = page_bounds(self.footer, chunk, column, offset)
        return found if isinstance(found, Bounds) and not found.reason else None

    def compared(self, leaf: Any, iceberg_type: str) -> ComparedColumn:
        """See :class:`.OpenFile`."""
        compared: ComparedColumn = leaf.compared
        return compared

    def stated_bounds(self, leaf: Any) -> Iterator[tuple[str, Bounds | Unknown]]:
        """See :class:`.OpenFile`."""
        for group in self.footer.row_groups:
            yield "row group statistics", stated_bounds(self.footer, group.columns.stored[leaf.index])
        here = (group.columns.get(leaf.index) for group in self.footer.row_groups)
        chunks = [chunk for chunk in here if chunk is not None]
        columns, _ = read_page_indexes(self.source, self.footer, chunks, [])
        for chunk, column in zip(chunks, columns, strict=True):
            if isinstance(column, ColumnIndex):
                yield "page index", claimed_bounds(find_ordering(self.footer, chunk.leaf), chunk.leaf, column)

    def doubt(self, leaf: Any, iceberg_type: str, values: Iterable[Any]) -> str:
        """See :class:`.OpenFile`."""
        return ""

    def _chunk(self, part: int, leaf: Any) -> ColumnChunk:
        chunk: ColumnChunk = self.footer.row_groups[part].columns[leaf.index]
        return chunk

    def _dictionary_size(self, chunk: ColumnChunk) -> int:
        """Return the size of the dictionary of a chunk whose values are all in it; 0 for other chunks."""
        if chunk.encoding_stats is None or not wholly_dictionary(self._source, chunk):
            return 0
        return max(chunk.data_page_offset - chunk.start, 0)

    def has_index(self, part: int, leaf: Any, kind: IndexKind) -> bool:
        """See :class:`.OpenFile`."""
        chunk = self.footer.row_groups[part].columns.get(leaf.index)
        return chunk is None or bool(getattr(chunk, _OFFSETS[kind]))

    def own_indexes(self, part: int, leaves: Sequence[Any], kinds: Collection[IndexKind]) -> Iterator[OwnIndex]:
        """See :class:`.OpenFile`."""
        chunks = [self._chunk(part, leaf) for leaf in leaves if not self.is_locked(leaf)]
        if BLOOM in kinds:
            yield from self._own_filters([chunk for chunk in chunks if chunk.bloom_filter_offset])
        if PAGE_INDEX in kinds:
            yield from self._own_page_indexes(part, chunks)

    def _own_filters(self, chunks: Sequence[ColumnChunk]) -> Iterator[OwnIndex]:
        for chunk, found in read_bloom_filters(self.source, chunks):
            unit, leaf = chunk.row_group, chunk.leaf
            if isinstance(found, StorageError):
                raise found
            if isinstance(found, SidecarError):
                is_damaged = isinstance(found, DamagedFileError)
                yield OwnIndex(unit, leaf, BLOOM, False, reason=reason_of(found), damaged=is_damaged)
            elif found is not None:
                yield OwnIndex(unit, leaf, BLOOM, found.trusted, found.filter, leaf.encoding.name, reason=found.reason)

    def _own_page_indexes(self, part: int, chunks: Sequence[ColumnChunk]) -> Iterator[OwnIndex]:
        columns, offsets = read_indexes_by_leaf(self.source, self.footer, chunks)
        for index in sorted(columns.keys() | offsets.keys()):
            chunk: ColumnChunk = self.footer.row_groups[part].columns[index]
            sound = sound_page_index(self.footer, chunk, columns.get(index), offsets.get(index))
            pieces = tuple(b"" if one is None else one.raw for one in (sound.column_index, sound.offset_index))
            is_sound = sound.offset_index is not None
            yield OwnIndex(
                part, chunk.leaf, PAGE_INDEX, is_sound, pieces=pieces, reason=sound.reason, damaged=sound.damaged
            )

    def index_kind(self, part: int, leaf: Any, resolution: str) -> PageIndexKind:
        """See :class:`.OpenFile`."""
        return page_index_kind(self.footer, leaf, resolution)

    @property
    def is_unique(self) -> bool:
        """See :class:`.OpenFile`."""
        return self.footer.encryption is not None

    def fingerprint(self) -> bytes:
        """See :class:`.OpenFile`. That of an encrypted file is made of the random bytes that identify it.

        It does not cover what the footer says about values: a hash of secrets must not go into a plaintext sidecar.
        """
        if self.footer.encryption is None:
            return pages_fingerprint(self.footer)
        hashed = b"encrypted" + self.footer.encryption.declaration.aad_file_unique
        hashed += b"".join(group.num_rows.to_bytes(8, "little") for group in self.footer.row_groups)
        return b"".join(xxhash.xxh64_intdigest(hashed, seed).to_bytes(8, "little") for seed in (0, 1))

    def is_distinctive(self) -> bool:
        """See :class:`.OpenFile`."""
        return self.is_unique or is_distinctive(self.footer)

    def digest(self, *, check: bool) -> bytes:
        """See :class:`.OpenFile`."""
        if self.is_unique:
            return b""
        return pages_digest(self.source, self.footer, check=True) if check else self._digest

    @cached_property
    def _digest(self) -> bytes:
        return pages_digest(self.source, self.footer, check=False)
