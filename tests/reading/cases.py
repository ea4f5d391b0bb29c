"""Files and checks for pruned scans of plain files."""

from __future__ import annotations

import random
import uuid
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource
from tests.reading.random_predicates import Predicates, columns_of, same_rows

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
ROWS = 900


def all_types(rng: random.Random, rows: int = ROWS) -> pa.Table:
    """Every type that Parquet has a place for; values grow with the row number, so that pages differ."""

    def cells(make: Any, nulls: float = 0.15) -> list[Any]:
        hole = range(rows // 3, rows // 2) if rng.random() < 0.5 else range(0)  # pages of nulls alone
        return [
            None if i in hole or rng.random() < nulls else make(max(0, i + rng.randint(-20, 20))) for i in range(rows)
        ]

    floats = [0.0, -0.0, float("nan"), float("inf"), -float("inf")]

    def real(i: int) -> float:
        return rng.choice(floats) if rng.random() < 0.1 else (i - rows / 2) / 8

    day = 86_400_000_000
    text = [f"text {i:06}" + "ż" * (i % 3) for i in range(2 * rows)]
    words = ["", "a", "b'c", "żółw", "z" * 90 + "x"]
    columns: dict[str, pa.Array] = {
        "id": pa.array(range(rows), pa.int64()),
        "flag": pa.array(cells(lambda i: i > rows // 2 or rng.random() < 0.01)),
        "i8": pa.array(cells(lambda i: i * 127 // (2 * rows)), pa.int8()),
        "i16": pa.array(cells(lambda i: i - rows // 2), pa.int16()),
        "i32": pa.array(cells(lambda i: -i * 1000), pa.int32()),
        "i64": pa.array(cells(lambda i: i * 10**12), pa.int64()),
        "u8": pa.array(cells(lambda i: i * 255 // (2 * rows)), pa.uint8()),
        "u32": pa.array(cells(lambda i: 2**31 - rows // 2 + i), pa.uint32()),
        "u64": pa.array(cells(lambda i: 2**63 - rows // 2 + i), pa.uint64()),
        "f16": pa.array([None if v is None else np.float16(v) for v in cells(real)], pa.float16()),
        "f32": pa.array(cells(real), pa.float32()),
        "f64": pa.array(cells(real), pa.float64()),
        "clean": pa.array([float(i) / 4 for i in range(rows)]),
        "d9": pa.array(cells(lambda i: Decimal(i - rows // 2).scaleb(-2)), pa.decimal128(9, 2)),
        "d18": pa.array(cells(lambda i: Decimal(i * 10**9).scaleb(-4)), pa.decimal128(18, 4)),
        "d38": pa.array(cells(lambda i: Decimal(rows - i).scaleb(-10)), pa.decimal128(38, 10)),
        "d50": pa.array(cells(lambda i: Decimal(i)), pa.decimal256(50, 2)),
        "date": pa.array(cells(lambda i: i), pa.date32()),
        "t_ms": pa.array(cells(lambda i: i * 10), pa.time32("ms")),
        "t_us": pa.array(cells(lambda i: i * 10_001), pa.time64("us")),
        "t_ns": pa.array(cells(lambda i: i * 1_000_000), pa.time64("ns")),
        "ts_ms": pa.array(cells(lambda i: i * 977), pa.timestamp("ms")),
        "ts_us": pa.array(cells(lambda i: i * day), pa.timestamp("us")),
        "ts_ns": pa.array(cells(lambda i: i * 1_000_000), pa.timestamp("ns")),
        "tz": pa.array(cells(lambda i: i * day), pa.timestamp("us", "Europe/Warsaw")),
        "s": pa.array(cells(lambda i: text[i]), pa.string()),
        "word": pa.array(cells(lambda i: words[i * 5 // (2 * rows)]), pa.large_string()),
        "dict": pa.array(cells(lambda i: text[i // 40])).dictionary_encode(),
        "bin": pa.array(cells(lambda i: i.to_bytes(3, "big") * (i % 4)), pa.binary()),
        "fixed": pa.array(cells(lambda i: i.to_bytes(5, "big")), pa.binary(5)),
        "uuid": pa.array(cells(lambda i: uuid.UUID(int=i << 90).bytes), pa.uuid()),
        "pair": pa.array(
            cells(
                lambda i: {
                    "a": i if i % 5 else None,
                    "b": None if i % 7 == 0 else {"c": text[i], "d": [i] * (i % 3)},
                }
            ),
            pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.int64()))]))]),
        ),
        "list": pa.array(cells(lambda i: [None if j == 1 else i + j for j in range(i % 4)]), pa.list_(pa.int32())),
        "items": pa.array(
            cells(lambda i: [None if j == 2 else {"x": i, "y": text[i] * j} for j in range(i % 4)]),
            pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ),
        "deep": pa.array(cells(lambda i: [[i] * (j % 3) for j in range(i % 4)]), pa.list_(pa.list_(pa.int16()))),
        "map": pa.array(cells(lambda i: [(text[j], i) for j in range(i % 3)]), pa.map_(pa.string(), pa.int64())),
        "three": pa.array(cells(lambda i: [i, i + 1, None]), pa.list_(pa.int32(), 3)),
    }
    return pa.table(columns)


UNALIGNED = {"data_page_size": 400, "max_rows_per_page": 10_000}
"""Pages of columns end where they are full, not all at one row."""

WRITERS: dict[str, dict[str, Any]] = {
    "v1 none": {"compression": "none", "use_dictionary": False},
    "v1 snappy dictionary": {"compression": "snappy", "dictionary_pagesize_limit": 2000, **UNALIGNED},
    "v1 gzip": {"compression": "gzip", "use_dictionary": ["dict", "word"], "write_page_checksum": True},
    "v1 brotli": {"compression": "brotli", "store_schema": False},
    "v2 zstd": {"compression": "zstd", "data_page_version": "2.0", "write_page_checksum": True},
    "v2 lz4": {"compression": "lz4", "data_page_version": "2.0", "use_dictionary": False, **UNALIGNED},
    "v2 none, integers": {
        "compression": "none",
        "data_page_version": "2.0",
        "store_decimal_as_integer": True,
        "use_dictionary": ["s", "u8"],
    },
    "v1 none, no page index": {"compression": "none", "write_page_index": False},
}


def written(table: pa.Table, **options: Any) -> bytes:
    sink = BytesIO()
    defaults = {
        "row_group_size": 400,
        "max_rows_per_page": 50,
        "write_page_index": True,
        "write_batch_size": 10,
    }
    pq.write_table(table, sink, **(defaults | options))
    return sink.getvalue()


def check(data: bytes, full: pa.Table, seed: int, predicates: int, *, warnings: bool = False) -> dict[str, int]:
    """Random predicates on random columns; the scans' rows, positions and types are those of the full read."""
    rng = random.Random(seed)
    source = Predicates(columns_of(full), rng)
    totals = {"rows": 0, "may_match": 0, "found": 0}
    for _ in range(predicates):
        text, truth = source.next()
        columns = rng.sample(full.column_names, min(rng.randint(1, 4), full.num_columns))
        with open_scan(BytesSource(data), text, columns) as scan:
            found = list(scan.found())
            schema = scan.schema
        positions = np.concatenate([f.positions for f in found]) if found else np.zeros(0, np.int64)
        assert positions.tolist() == np.flatnonzero(truth).tolist(), text
        rows = pa.concat_tables([f.rows for f in found]) if found else schema.empty_table()
        assert same_rows(rows, full.select(schema.names).take(pa.array(positions))), text
        for key, value in scan.report.to_dict()["rows"].items():
            totals["rows" if key == "total" else key] += value
        assert warnings or not scan.report.warnings
    return totals
