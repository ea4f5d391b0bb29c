"""What must hold of every embedded file, and the tables that the tests embed into."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionConfig, SessionContext

from sidecar.filters.array_hash import hash_arrow
from sidecar.parquet.arrow_values import ValueReader
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.thrift import Struct
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from sidecar.storage.source import Source


def opened(path: Path) -> tuple[LocalSource, Footer]:
    source = LocalSource(str(path))
    return source, read_footer(source)


def chunks(footer: Footer) -> list[ColumnChunk]:
    return [chunk for group in footer.row_groups for chunk in group.columns]


def page_bytes(source: Source, chunk: ColumnChunk) -> bytes:
    return source.read(chunk.start, chunk.total_compressed_size)


def assert_same_pages(before: Path, after: Path) -> None:
    """Each chunk's pages are the bytes that they were."""
    (old_source, old), (new_source, new) = opened(before), opened(after)
    assert len(chunks(old)) == len(chunks(new))
    for one, other in zip(chunks(old), chunks(new), strict=True):
        assert page_bytes(old_source, one) == page_bytes(new_source, other)


def bare(footer: Footer, *, moved: bool = False) -> Struct:
    """The footer's own tree, after the places of indexes and, where pages moved, all offsets are taken out of it."""
    tree = footer.metadata
    for group in tree.structs(4) or ():
        for field in (5,) if moved else ():
            group.fields.pop(field, None)
        for chunk in group.structs(1) or ():
            for field in (4, 5, 6, 7, *((2,) if moved else ())):
                chunk.fields.pop(field, None)
            meta = chunk.struct(3)
            assert meta is not None
            for field in (14, 15, *((9, 10, 11) if moved else ())):
                meta.fields.pop(field, None)
    return tree


def assert_same_footer(before: Path, after: Path, *, moved: bool = False) -> None:
    """Everything that the footer says of something else is said as before."""
    assert bare(opened(before)[1], moved=moved) == bare(opened(after)[1], moved=moved)


def assert_sound(path: Path) -> None:
    """Nothing is wrong with the file, and no filter denies a value."""
    source, footer = opened(path)
    assert verify_file(source) == []
    with ValueReader(source) as reader:
        for chunk in chunks(footer):
            found = read_bloom_filter(source, chunk)
            if found is None or chunk.leaf.encoding.not_indexable:
                continue
            for (values,) in reader.batches(chunk.row_group, [chunk.leaf.index]):
                assert found.filter.check(hash_arrow(values, chunk.leaf.encoding)).all()


def assert_same_data(before: Path, after: Path) -> None:
    """pyarrow, DuckDB, polars and DataFusion (the parquet crate) read the same rows from both."""
    arrow, duck, frame, crate = source_rows(before, before.stat().st_mtime_ns)
    assert arrow_rows(after) == arrow
    assert duckdb_rows(after) == duck
    assert pl.read_parquet(after).equals(frame)
    assert datafusion_rows(after) == crate


ExactRows = tuple[str, pa.Table]
"""A schema as text, and rows with the bits of floats in their place: NaN equals NaN, and the zeros differ."""


@lru_cache(maxsize=1)
def source_rows(path: Path, modified: int) -> tuple[ExactRows, ExactRows, pl.DataFrame, ExactRows]:
    """Rows of a file by each engine; kept while tests compare with the same file."""
    return arrow_rows(path), duckdb_rows(path), pl.read_parquet(path, memory_map=False), datafusion_rows(path)


def arrow_rows(path: Path) -> ExactRows:
    return exact(pq.read_table(path))


def duckdb_rows(path: Path) -> ExactRows:
    with duckdb.connect() as connection:
        return exact(connection.execute(f"from read_parquet('{path}')").to_arrow_table())


def datafusion_rows(path: Path) -> ExactRows:
    context = datafusion()
    context.register_parquet("t", str(path))
    return exact(context.sql("select * from t").to_arrow_table())


def exact(table: pa.Table) -> ExactRows:
    kinds = [_with_bits(field.type) for field in table.schema]
    columns = [
        pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind) if kind != column.type else column
        for column, kind in zip(table.columns, kinds, strict=True)
    ]
    return str(table.schema), pa.table(columns, names=table.column_names)


def _with_bits(kind: Any) -> Any:
    """The type with integers in the place of floats, at every depth."""
    if pa.types.is_floating(kind):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_bits(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_bits(kind.key_type), _with_bits(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_bits(kind.value_type)))
    return kind


def datafusion() -> SessionContext:
    """The parquet crate with filters and page indexes on, and one partition, which keeps the order of rows."""
    options = ("bloom_filter_on_read", "enable_page_index", "pruning")
    config = SessionConfig({f"datafusion.execution.parquet.{name}": "true" for name in options})
    return SessionContext(config.with_target_partitions(1))


def flat(rows: int = 4000) -> pa.Table:
    """Every kind of column that gets filters, with nulls, zeros of both signs and NaN."""
    rng = np.random.default_rng(7)
    wide = rng.integers(2**33, 2**40, rows)
    doubles = rng.normal(size=rows)
    doubles[:3] = (0.0, -0.0, np.nan)[:rows]
    return pa.table(
        {
            "k": pa.array(wide),
            "i": pa.array(wide % 100_003, pa.int32(), mask=rng.random(rows) < 0.1),
            "s": pa.array([f"value-{n}" for n in wide]),
            "b": pa.array([n.to_bytes(8, "big") for n in wide.tolist()], pa.binary()),
            "d": doubles,
            "f": pa.array(doubles.astype(np.float32)),
            "t": pa.array(wide, pa.timestamp("us")),
            "day": pa.array((wide % 20_000).astype(np.int32), pa.date32()),
            "dec": pa.array((wide % 1_000_000).tolist(), pa.int64()).cast(pa.decimal128(19, 0)),
            "small": pa.array([f"x{n % 3}" for n in wide]),
            "flag": pa.array((wide % 2).astype(bool)),
            "none": pa.nulls(rows, pa.int64()),
        }
    )


def nested(rows: int = 3000) -> pa.Table:
    """Lists, maps, structs, lists of lists; with nulls and empties at every level."""

    def row(n: int) -> dict[str, Any]:
        return {
            "id": n,
            "tags": None if n % 7 == 0 else [None if k == 1 else f"tag{n * k}" for k in range(n % 4)],
            "map": None if n % 5 == 0 else [(f"key{k}", n * k or None) for k in range(n % 3)],
            "pair": None if n % 11 == 0 else {"x": n * 2**33, "y": None if n % 2 else f"y{n}"},
            "deep": [[n, n + 1], [], None] if n % 2 else [],
        }

    pair = pa.struct([("x", pa.int64()), ("y", pa.string())])
    schema = pa.schema(
        {
            "id": pa.int64(),
            "tags": pa.list_(pa.string()),
            "map": pa.map_(pa.string(), pa.int64()),
            "pair": pair,
            "deep": pa.list_(pa.list_(pa.int64())),
        }
    )
    return pa.Table.from_pylist([row(n) for n in range(rows)], schema)


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def leaf_paths(path: Path) -> list[str]:
    return [leaf.path for leaf in opened(path)[1].columns]
