"""Filters that deny values, and whether DuckDB, which believes filters, loses those."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource


def empty_filters(path: Path, column: str) -> None:
    """Write zeros over the bits of a column's filters, which then deny every value; their headers stay."""
    change_filters(path, column, lambda bits: bytes(len(bits)))


def change_filters(path: Path, column: str, change: Callable[[bytes], bytes]) -> None:
    """Change the bits of a column's filters; their headers stay."""
    source = LocalSource(str(path))
    footer = read_footer(source)
    data = bytearray(path.read_bytes())
    for group in footer.row_groups:
        (chunk,) = [chunk for chunk in group.columns if chunk.leaf.path == column]
        found = read_bloom_filter(source, chunk)
        assert found is not None
        start = found.offset + found.header_length
        data[start : found.offset + found.length] = change(bytes(data[start : found.offset + found.length]))
    source.close()
    path.write_bytes(data)


def duckdb_finds(path: Path, column: str, values: list[Any]) -> int:
    """How many of these values DuckDB finds, each looked for alone, which is when it asks filters."""
    with duckdb.connect() as connection:
        query = f"select count(*) from read_parquet('{path}') where {column} = ?"
        return sum((connection.execute(query, [value]).fetchone() or (0,))[0] > 0 for value in values)
