"""Reads the values of column chunks as flat Arrow arrays, through pyarrow.

Each leaf of the Parquet schema gives one array a batch: lists, maps and structs are flattened to the values of their
leaves, and a null parent hides its children. Page checksums are verified if there are any. pyarrow opens local files
itself, and reads all other sources through :class:`sidecar.storage.source.SourceFile`.

An error of pyarrow concerns only the requested column chunks. So callers may request several leaves at once and, after
an error, each leaf alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import IOBase
from types import TracebackType
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.errors import UnsupportedFeatureError, first_line, located, undecodable
from sidecar.parquet.compression import check_codec, check_page_size
from sidecar.parquet.decoded_size import DELTA_BYTE_ARRAY, MAX_PREFIXED, prefix_bytes_a_value
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.pages import PageHeader, has_bit_packed_levels, walk_pages, with_single_blocks
from sidecar.parquet.schema import is_wide_decimal
from sidecar.storage.locations import local_path
from sidecar.storage.source import BytesSource, Source, SourceFile

BATCH_ROWS = 32 * 1024
"""Rows of a batch: few enough that hashes stay in the CPU cache, enough to hide the cost of a call."""

OPTIONS: dict[str, Any] = {
    "page_checksum_verification": True,
    "pre_buffer": False,
    "coerce_int96_timestamp_unit": "us",
    "arrow_extensions_enabled": False,
}
"""Options for pyarrow: checksums are verified, and only the requested columns are read."""


def check_pages(source: Source, chunk: ColumnChunk) -> None:
    """Check that pyarrow can decode a column chunk without too much memory, because pyarrow has no limits itself.

    Raises :class:`UnsupportedFeatureError` for a page that is too large, or whose prefixes decode to more than
    :data:`MAX_PREFIXED` bytes a batch, and :class:`DamagedFileError`. Reads page headers and DELTA_BYTE_ARRAY
    and LZ4 pages.
    """
    with located(source.name, chunk.leaf.path):
        check_codec(chunk.codec)
        if is_wide_decimal(chunk.leaf):
            raise UnsupportedFeatureError("pyarrow does not decode decimals in so many bytes")
    for page in walk_pages(source, chunk):
        with located(source.name, chunk.leaf.path, page.offset):
            check_page_size(page.compressed_size, page.uncompressed_size)
            if has_bit_packed_levels(chunk.leaf, page):
                raise UnsupportedFeatureError("pyarrow decodes BIT_PACKED levels wrong")
            if chunk.codec == "LZ4" and with_single_blocks(chunk, page, raw := _raw(source, page)) is not raw:
                raise UnsupportedFeatureError("pyarrow does not read LZ4 frames of several blocks")
            if page.encoding == DELTA_BYTE_ARRAY and chunk.leaf.physical == "BYTE_ARRAY":
                _check_batch(source, chunk, page)


def _raw(source: Source, page: PageHeader) -> bytes:
    return source.read(page.offset, page.header_length + page.compressed_size)


def _check_batch(source: Source, chunk: ColumnChunk, page: PageHeader) -> None:
    size = BATCH_ROWS * prefix_bytes_a_value(chunk, page, _raw(source, page))
    if size > MAX_PREFIXED:
        raise UnsupportedFeatureError(
            "the values of a page are too large to decode in batches",
            expected=f"at most {MAX_PREFIXED} bytes",
            found=size,
        )


class ValueReader:
    """Reads leaf values of one Parquet file. Threads must not share it: each task opens its own."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        local = None if isinstance(source, BytesSource) else local_path(source.name)
        handle = local if local is not None else pa.PythonFile(cast(IOBase, SourceFile(source)), mode="r")
        try:
            self._file: Any = pq.ParquetFile(handle, **OPTIONS)
        except (pa.ArrowException, OSError, ValueError) as error:
            read_footer(source)  # raises for a file that is damaged
            raise UnsupportedFeatureError(
                f"pyarrow cannot open the file: {first_line(error)}", file=self.name
            ) from error

    def batches(
        self, row_group: int, leaves: Sequence[int], batch_rows: int = BATCH_ROWS
    ) -> Iterator[list[pa.Array[Any]]]:
        """Yield one array for each leaf of ``leaves`` (ascending ordinals in the file's schema), batch by batch.

        Each array has the file's own Arrow type and may have nulls. Lists make the arrays of a batch differ in length.
        Raises :class:`DamagedFileError` or :class:`UnsupportedFeatureError` for anything that pyarrow cannot decode.
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
                raise pa.ArrowInvalid(f"the row group has {missing} fewer rows than the footer says")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise undecodable("pyarrow cannot decode", error, file=self.name) from error

    def path(self, leaf: int) -> str | None:
        """Return the dotted path of a leaf in pyarrow's schema; ``None`` if there is no such leaf."""
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


def check_readable(footer: Footer, chunk: ColumnChunk) -> None:
    """Raise :class:`UnsupportedFeatureError` for a chunk in another file, and for a type without filters."""
    reason = "the column chunk is in another file" if chunk.file_path else ""
    if reason or chunk.leaf.encoding.not_indexable:
        raise UnsupportedFeatureError(
            reason or f"no filter for {chunk.leaf.encoding}: {chunk.leaf.encoding.not_indexable}",
            file=footer.name,
            column=chunk.leaf.path,
        )


def chunk_values(source: Source, chunk: ColumnChunk) -> Iterator[pa.Array[Any]]:
    """Yield all values of a chunk. Raises the errors of :func:`check_pages` and :meth:`ValueReader.batches`."""
    check_pages(source, chunk)
    with ValueReader(source) as reader:
        for (values,) in reader.batches(chunk.row_group, [chunk.leaf.index]):
            yield values


def flatten(array: Any) -> list[pa.Array[Any]]:
    """Return the leaf arrays below ``array`` in the order of the schema, without values whose parent is null.

    Arrow's ``flatten`` skips the elements of null lists, and for structs it makes the children of a null struct null.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return flatten(array.storage)
    if pa.types.is_struct(kind):
        return [leaf for child in array.flatten() for leaf in flatten(child)]
    if pa.types.is_map(kind):  # Arrow flattens lists, but not maps
        return flatten(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_nested(kind):
        return flatten(array.flatten())
    if pa.types.is_dictionary(kind):
        return [_used_values(array)]
    return [array]


def _used_values(array: Any) -> pa.Array[Any]:
    """Return the distinct values that a dictionary array uses: a sketch must not count entries without a row."""
    used: pa.Array[Any] = array.dictionary.take(pc.unique(array.indices).drop_null())
    return used
