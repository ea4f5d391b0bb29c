"""Parquet files whose footers and page indexes state what their values are not."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, encode_column_index, read_page_indexes
from sidecar.parquet.thrift import BINARY, I64, STRUCT, Struct, encode_struct
from sidecar.storage.source import BytesSource
from tests.parquet.page_files import attach

WRONG = Path(__file__).resolve().parents[1] / "data" / "wrong_writers"
GROUPS, ROWS = 6, 100


def table() -> pa.Table:
    """Six row groups of 100 rows: rising integers, strings and floats, with nulls, and an integer that is required."""
    count = GROUPS * ROWS
    schema = pa.schema(
        [("i", pa.int64()), ("s", pa.string()), ("f", pa.float64()), pa.field("r", pa.int32(), nullable=False)]
    )
    columns: dict[str, Any] = {
        "i": [None if n % 10 == 3 else n for n in range(count)],
        "s": [None if n % 10 == 3 else f"text {n:05}" for n in range(count)],
        "f": [None if n % 10 == 3 else n / 4 for n in range(count)],
        "r": list(range(count)),
    }
    return pa.table(columns, schema=schema)


def written(rows: pa.Table | None = None, **options: Any) -> bytes:
    """The rows as pyarrow writes them, with a page index and several pages a row group."""
    sink = io.BytesIO()
    defaults: dict[str, Any] = {
        "row_group_size": ROWS,
        "write_page_index": True,
        "data_page_size": 100,
        "write_batch_size": 10,
        "max_rows_per_page": 25,
        "use_dictionary": False,
        "compression": "none",
        "store_schema": False,
    }
    pq.write_table(table() if rows is None else rows, sink, **(defaults | options))
    return sink.getvalue()


def restated(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """The file with a changed footer."""
    footer = read_footer(BytesSource(data))
    change(footer.metadata)
    end = encode_struct(footer.metadata)
    return data[: footer.offset] + end + len(end).to_bytes(4, "little") + b"PAR1"


def by(created_by: str) -> Callable[[Struct], None]:
    """A change: another program wrote the file."""
    return lambda metadata: metadata.fields.update({6: (BINARY, created_by.encode())})


def chunk_meta(metadata: Struct, group: int, column: int) -> Struct:
    """The ColumnMetaData of a chunk."""
    found = (metadata.structs(4) or [])[group].structs(1) or []
    meta = found[column].struct(3)
    assert meta is not None
    return meta


def statistic(group: int, column: int, **fields: Any) -> Callable[[Struct], None]:
    """A change of a chunk's statistics: ``null_count``, ``min_value``, ``max_value``; ``None`` removes one."""
    ids = {"null_count": (3, I64), "max_value": (5, BINARY), "min_value": (6, BINARY)}

    def change(metadata: Struct) -> None:
        meta = chunk_meta(metadata, group, column)
        statistics = meta.struct(12) or Struct()
        for name, value in fields.items():
            field_id, kind = ids[name]
            statistics.fields.pop(field_id, None)
            if value is not None:
                statistics.fields[field_id] = (kind, value)
        statistics.fields = dict(sorted(statistics.fields.items()))
        meta.fields[12] = (STRUCT, statistics)

    return change


def index_of(data: bytes, group: int, column: int) -> tuple[ColumnIndex, OffsetIndex]:
    """The page index of a chunk."""
    source = BytesSource(data)
    footer = read_footer(source)
    chunk = footer.row_groups[group].columns[column]
    columns, offsets = read_page_indexes(source, footer, [chunk], [chunk])
    assert isinstance(columns[0], ColumnIndex)
    assert isinstance(offsets[0], OffsetIndex)
    return columns[0], offsets[0]


def with_index(data: bytes, group: int, column: int, **lists: Any) -> bytes:
    """The file with a ColumnIndex of which some lists are others: ``null_pages``, ``min_values``, ...

    ``null_counts`` may be ``None``.
    """
    index, offsets = index_of(data, group, column)
    names = ("null_pages", "min_values", "max_values", "boundary_order", "null_counts")
    given = {name: lists.get(name, getattr(index, name)) for name in names}
    histogram = lists.get("definition_level_histograms")
    counts = given.pop("null_counts")
    changed = encode_column_index(**given, null_counts=counts or [], definition_level_histograms=histogram)
    if counts is None:
        del changed.tree.fields[5]
    return attach(data, {(group, column): (encode_struct(changed.tree), offsets.raw)})
