"""Values of column chunks as flat Arrow arrays, read through pyarrow.

One leaf of the Parquet schema gives one array a batch: lists, maps and structs are flattened to the values
of their leaf, and a parent that is null hides what lies below it. Page checksums are verified where the
writer left them. A local file is opened by pyarrow itself; any other source through its ranged reads.

Whatever pyarrow raises while it decodes is about the column chunks that were asked for, so callers may ask
for several leaves at once and, upon an error, for each leaf alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import IOBase
from types import TracebackType
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, first_line, located
from sidecar.filters.leaves import flatten
from sidecar.parquet.compression import check_page_size
from sidecar.parquet.decoded_size import DELTA_BYTE_ARRAY, MAX_PREFIXED, prefix_bytes_a_value
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.pages import PageHeader, walk_pages
from sidecar.source import BytesSource, Source, SourceFile, local_path

BATCH_ROWS = 32 * 1024
"""Rows decoded at a time: few enough that hashes stay in the cache, enough to hide the cost of a call."""

OPTIONS: dict[str, Any] = {
    "page_checksum_verification": True,
    "pre_buffer": False,
    "coerce_int96_timestamp_unit": "us",
    "arrow_extensions_enabled": False,
}
"""How pyarrow opens files: checksums count, and nothing is read that was not asked for."""


def check_pages(source: Source, chunk: ColumnChunk) -> None:
    """Raise for a column chunk whose pages pyarrow must not be handed: it inflates a page whatever its size.

    Nor must it be handed strings with prefixes that unfold into more than :data:`MAX_PREFIXED` bytes a batch.
    Errors are :class:`UnsupportedFeatureError` and :class:`DamagedFileError`. Headers of pages are read, and pages in
    the encoding DELTA_BYTE_ARRAY.
    """
    for page in walk_pages(source, chunk):
        with located(source.name, chunk.leaf.path, page.offset):
            check_page_size(page.compressed_size, page.uncompressed_size)
            if page.encoding == DELTA_BYTE_ARRAY and chunk.leaf.physical == "BYTE_ARRAY":
                _check_batch(source, chunk, page)


def _check_batch(source: Source, chunk: ColumnChunk, page: PageHeader) -> None:
    raw = source.read(page.offset, page.header_length + page.compressed_size)
    size = BATCH_ROWS * prefix_bytes_a_value(chunk, page, raw)
    if size > MAX_PREFIXED:
        raise UnsupportedFeatureError(
            "the values of a page are too large to be decoded in batches",
            expected=f"at most {MAX_PREFIXED} bytes",
            found=size,
        )


class ValueReader:
    """Leaf values of one Parquet file.

    Not to be shared between threads: each task opens its own.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.name
        local = None if isinstance(source, BytesSource) else local_path(source.name)
        handle = local if local is not None else pa.PythonFile(cast(IOBase, SourceFile(source)), mode="r")
        try:
            self._file: Any = pq.ParquetFile(handle, **OPTIONS)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFileError(
                f"pyarrow cannot open the file: {first_line(error)}", file=self.name
            ) from error

    def batches(
        self, row_group: int, leaves: Sequence[int], batch_rows: int = BATCH_ROWS
    ) -> Iterator[list[pa.Array[Any]]]:
        """Arrays of the leaf columns ``leaves`` (ascending ordinals in the file's schema), batch by batch.

        Each array has the file's own Arrow type; the arrays of a batch differ in length where lists are
        involved, and nulls may remain. Raises :class:`DamagedFileError` for anything that pyarrow cannot
        decode.
        """
        reader = self._file.reader
        missing = self._file.metadata.row_group(row_group).num_rows
        try:
            for batch in reader.iter_batches(
                batch_rows, row_groups=[row_group], column_indices=list(leaves), use_threads=False
            ):
                arrays = [leaf for column in batch.columns for leaf in flatten(column)]
                if len(arrays) != len(leaves):
                    raise pa.ArrowInvalid(f"{len(arrays)} arrays for {len(leaves)} leaf columns")
                missing -= batch.num_rows
                yield arrays
            if missing:
                raise pa.ArrowInvalid(f"the row group has {missing} rows less than its footer says")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFileError(f"pyarrow cannot decode: {first_line(error)}", file=self.name) from error

    def path(self, leaf: int) -> str | None:
        """Dotted path of a leaf column as pyarrow sees it, ``None`` if there is no such leaf."""
        schema = self._file.schema
        return schema.column(leaf).path if leaf < len(schema) else None

    def close(self) -> None:
        """Close pyarrow's handle; the source stays open."""
        self._file.close()

    def __enter__(self) -> ValueReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
