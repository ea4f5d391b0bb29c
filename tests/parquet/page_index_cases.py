"""Page indexes of the files by parquet-java."""

from __future__ import annotations

from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    OffsetIndex,
)
from sidecar.storage.local import LocalSource
from tests.parquet.foreign import DATA
from tests.parquet.single_indexes import read_column_index, read_offset_index


def open_file(name: str) -> tuple[LocalSource, Footer]:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    return source, read_footer(source)


def chunk_of(footer: Footer, path: str, group: int = 0) -> ColumnChunk:
    leaf = footer.leaf(path)
    assert leaf is not None
    return footer.row_groups[group].columns[leaf.index]


def indexes(name: str, path: str, group: int = 0) -> tuple[Footer, ColumnChunk, ColumnIndex, OffsetIndex]:
    source, footer = open_file(name)
    chunk = chunk_of(footer, path, group)
    column, offset = read_column_index(source, footer, chunk), read_offset_index(source, footer, chunk)
    assert column is not None
    assert offset is not None
    return footer, chunk, column, offset
