"""Files for the tests of rewriting footers, and what must hold of every rewritten file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.parquet.bloom import encode_header
from sidecar.parquet.embed import GroupIndexes, WrittenParquet, embed
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_indexes.extents import Range
from sidecar.storage.source import BytesSource, Source

FILTER = encode_header(64) + bytes(range(64))


class MemoryTarget:
    """A target in memory."""

    def __init__(self) -> None:
        self.name = "<memory>"
        self.data = bytearray()

    @property
    def position(self) -> int:
        return len(self.data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def copy(self, source: Source, offset: int, length: int) -> None:
        self.data += source.read(offset, length)

    def flush(self) -> None:
        """Nothing waits anywhere."""


def chunks(footer: Footer) -> list[ColumnChunk]:
    return [chunk for group in footer.row_groups for chunk in group.columns]


def rewritten(
    source: Source, indexes: Callable[[Footer], Sequence[GroupIndexes]], placement: str = "end"
) -> tuple[BytesSource, Footer, WrittenParquet]:
    target, footer = MemoryTarget(), read_footer(source)
    done = embed(source, footer, target, indexes(footer), placement=placement)  # type: ignore[arg-type]
    assert done.size == len(target.data)
    result = BytesSource(bytes(target.data))
    return result, read_footer(result), done


def nothing(footer: Footer) -> list[GroupIndexes]:
    return [GroupIndexes() for _ in footer.row_groups]


def everything_kept(footer: Footer) -> list[GroupIndexes]:
    """All that the file has, by its own lengths."""

    def place(offset: int | None, length: int | None) -> Range | None:
        return Range(offset, length) if offset and length else None

    def group_indexes(columns: Sequence[ColumnChunk]) -> GroupIndexes:
        parts = [
            (
                chunk.leaf.index,
                place(chunk.bloom_filter_offset, chunk.bloom_filter_length),
                place(chunk.column_index_offset, chunk.column_index_length),
                place(chunk.offset_index_offset, chunk.offset_index_length),
            )
            for chunk in columns
        ]
        kinds = [{leaf: kind[k] for leaf, *kind in parts if kind[k] is not None} for k in range(3)]
        return GroupIndexes(*kinds)  # type: ignore[arg-type]

    return [group_indexes(group.columns) for group in footer.row_groups]


def written(rows: int = 1000, groups: int = 4, **options: object) -> BytesSource:
    table = pa.table({"a": np.arange(rows), "b": [f"text {n}" for n in range(rows)]})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows // groups, **options)
    return BytesSource(out.getvalue())


def assert_same_pages(before: Source, old: Footer, after: Source, new: Footer) -> None:
    for one, other in zip(chunks(old), chunks(new), strict=True):
        length = one.total_compressed_size
        assert other.total_compressed_size == length
        if length:
            assert before.read(one.start, length) == after.read(other.start, length)
