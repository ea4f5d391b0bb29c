"""Opens data files for a sample: their row groups, what a column of one would cost to read, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from pyiceberg.manifest import FileFormat

from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.layouts import ArrayLike
from sidecar.iceberg.resolve import FileLeaf
from sidecar.indexing.stage_one.formats import read_metadata
from sidecar.indexing.stage_one.orc_file import DATA_STREAMS, leaves_of
from sidecar.orc.decode import read_row_groups
from sidecar.orc.iceberg_values import OrcValues, orc_values, zone_doubt
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.parquet.arrow_values import ValueReader, check_pages
from sidecar.parquet.dictionary import read_dictionary
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_bounds import offset_index_problems, page_bounds
from sidecar.parquet.page_indexes.page_index import OffsetIndex, read_page_indexes
from sidecar.parquet.pages import walk_pages, wholly_dictionary
from sidecar.questions.bounds import Bounds
from sidecar.storage.source import Source, WrappingSource

PAGE_ROWS = 20_000
"""Rows of a page at most, by default of parquet-java and Arrow: rows are decoded together in runs of this length."""


@dataclass(frozen=True)
class ReadValues:
    """Some values of a row group (in ORC: of a stripe)."""

    unit: int
    """The stride of an ORC stripe; 0 in Parquet."""
    values: ArrayLike
    is_run_of_rows: bool
    """Whether they are the values of consecutive rows, and as many as a page may have."""


class SampleFile(Protocol):
    """An open data file. Its parts are row groups in Parquet, stripes in ORC."""

    leaves: Sequence[FileLeaf]
    page_sizes: list[int]
    """The sizes of the pages that were met, in bytes as stored."""

    @property
    def parts(self) -> int:
        """The number of parts."""

    @property
    def units(self) -> int:
        """The number of parts that get a filter each: row groups in Parquet, strides in ORC."""

    def is_encrypted(self, leaf: Any) -> bool:
        """Whether a column is encrypted."""

    def has_filter(self, part: int, leaf: Any) -> bool:
        """Whether the file has a filter of its own for a column of a part."""

    def size(self, part: int) -> int:
        """The size of a part in bytes, as stored."""

    def cost(self, part: int, leaf: Any) -> int:
        """The bytes that :meth:`read` reads of a column of a part."""

    def read(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[ReadValues]:
        """Yield the values of a column of a part. Raises the errors of reading."""

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """Return the bounds of the pages of a column of a part, if the file has a page index for it."""

    def close(self) -> None:
        """Close what was opened for decoding; the source stays open."""


def open_sample_file(source: Source, kind: FileFormat) -> SampleFile:
    """Read the metadata of a data file. Raises as :func:`sidecar.indexing.stage_one.formats.read_metadata`."""
    metadata = read_metadata(source, kind)
    return OrcSample(source, metadata) if isinstance(metadata, OrcTail) else ParquetSample(source, metadata)


class LoadedRange(WrappingSource):
    """Another source, of which one range at a time is in memory: reads inside that range cost nothing more."""

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


class ParquetSample:
    """See :class:`SampleFile`."""

    def __init__(self, source: Source, footer: Footer) -> None:
        self._source = LoadedRange(source)
        self._footer = footer
        self._reader: ValueReader | None = None
        self.leaves: Sequence[Any] = footer.columns
        self.page_sizes: list[int] = []

    @property
    def parts(self) -> int:
        """See :class:`SampleFile`."""
        return len(self._footer.row_groups)

    units = parts

    def is_encrypted(self, leaf: Any) -> bool:
        """See :class:`SampleFile`."""
        return leaf.index in self._footer.encrypted

    def has_filter(self, part: int, leaf: Any) -> bool:
        """See :class:`SampleFile`."""
        return self._chunk(part, leaf).bloom_filter_offset is not None

    def size(self, part: int) -> int:
        """See :class:`SampleFile`."""
        return sum(chunk.total_compressed_size for chunk in self._footer.row_groups[part].columns.stored)

    def cost(self, part: int, leaf: Any) -> int:
        """See :class:`SampleFile`. Of a column that is wholly in its dictionary, only the dictionary is read."""
        chunk = self._chunk(part, leaf)
        return self._dictionary_size(chunk) or chunk.total_compressed_size

    def read(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[ReadValues]:
        """See :class:`SampleFile`."""
        chunk = self._chunk(part, leaf)
        if chunk.file_path is not None:
            raise UnsupportedFeatureError("the column chunk is in another file", file=self._source.name)
        if size := self._dictionary_size(chunk):
            with self._source.loaded(chunk.start, size):
                yield ReadValues(0, read_dictionary(self._source, chunk).to_arrow(chunk.leaf), False)
        elif chunk.num_values:
            with self._source.loaded(chunk.start, chunk.total_compressed_size):
                check_pages(self._source, chunk)
                if chunk.offset_index_offset is None:
                    pages = walk_pages(self._source, chunk)
                    self.page_sizes += [page.compressed_size for page in pages if page.is_data]
                if self._reader is None:
                    self._reader = ValueReader(self._source)
                for (values,) in self._reader.batches(part, [leaf.index], PAGE_ROWS):
                    yield ReadValues(0, values, True)

    def close(self) -> None:
        """See :class:`SampleFile`."""
        if self._reader is not None:
            self._reader.close()

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """See :class:`SampleFile`."""
        chunk = self._chunk(part, leaf)
        (column,), (offset,) = read_page_indexes(self._source, self._footer, [chunk], [chunk])
        if not isinstance(offset, OffsetIndex) or any(offset_index_problems(self._footer, chunk, offset)):
            return None
        self.page_sizes += offset.compressed_page_sizes.tolist()
        found = page_bounds(self._footer, chunk, column, offset)
        return found if isinstance(found, Bounds) and not found.reason else None

    def _chunk(self, part: int, leaf: Any) -> ColumnChunk:
        chunk: ColumnChunk = self._footer.row_groups[part].columns[leaf.index]
        return chunk

    def _dictionary_size(self, chunk: ColumnChunk) -> int:
        """Return the size of the dictionary of a chunk whose values are all in it; 0 for other chunks."""
        if chunk.encoding_stats is None or not wholly_dictionary(self._source, chunk):
            return 0
        return max(chunk.data_page_offset - chunk.start, 0)


class OrcSample:
    """See :class:`SampleFile`."""

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self._source = source
        self._tail = tail
        self._footers: dict[int, StripeFooter] = {}
        self.leaves: Sequence[Any] = leaves_of(tail)
        self.page_sizes: list[int] = []

    @property
    def parts(self) -> int:
        """See :class:`SampleFile`."""
        return len(self._tail.stripes)

    @cached_property
    def units(self) -> int:
        """See :class:`SampleFile`."""
        return sum(len(stripe.row_groups) for stripe in self._tail.stripes)

    def is_encrypted(self, leaf: Any) -> bool:
        """See :class:`SampleFile`."""
        return bool(leaf.column.encrypted)

    def has_filter(self, part: int, leaf: Any) -> bool:
        """See :class:`SampleFile`."""
        streams = self._footer(part).streams_of(leaf.column.id)
        return any(stream.kind.startswith("BLOOM_FILTER") for stream in streams)

    def size(self, part: int) -> int:
        """See :class:`SampleFile`."""
        stripe = self._tail.stripes[part]
        return stripe.end - stripe.offset

    def cost(self, part: int, leaf: Any) -> int:
        """See :class:`SampleFile`."""
        streams = self._footer(part).streams_of(leaf.column.id)
        return sum(stream.length for stream in streams if stream.kind in DATA_STREAMS)

    def read(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[ReadValues]:
        """See :class:`SampleFile`."""
        stripe, footer = self._tail.stripes[part], self._footer(part)
        values = orc_values(leaf.column, iceberg_type, self._tail.writer)
        doubt = values if isinstance(values, str) else zone_doubt(leaf.column, footer.writer_timezone)
        if doubt or not isinstance(values, OrcValues):
            raise UnsupportedFeatureError(doubt, file=self._tail.name, column=leaf.path)
        for unit, array in enumerate(read_row_groups(self._source, self._tail, stripe, footer, leaf.column)):
            yield ReadValues(unit, values.from_file(array), False)

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """See :class:`SampleFile`. Row indexes of ORC are not looked at."""
        return None

    def close(self) -> None:
        """See :class:`SampleFile`."""

    def _footer(self, part: int) -> StripeFooter:
        if part not in self._footers:
            self._footers[part] = read_stripe_footer(self._source, self._tail, self._tail.stripes[part])
        return self._footers[part]
