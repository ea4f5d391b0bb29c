"""Keys of a join's other side on plain Parquet files: the rows of a semi-join, and what they leave unread."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource
from tests.reading.cases import WRITERS, all_types, written
from tests.reading.random_predicates import same_rows

COLUMNS = [
    "id", "flag", "i8", "i32", "i64", "u8", "u32", "f32", "f64", "d9", "d18", "d38", "date", "ts_us", "tz", "s", "word",
    "dict", "bin", "fixed", "uuid",
]  # fmt: skip


def normal(value: Any) -> Any:
    return "NaN" if value != value else value


@pytest.mark.parametrize("writer", ["v1 snappy dictionary", "v2 zstd", "v1 none, no page index"])
def test_rows_are_those_of_a_semi_join(writer: str) -> None:
    rng = random.Random(writer)
    full = all_types(rng)
    data = written(full, **WRITERS[writer])
    unread = 0
    for column in COLUMNS:
        cells = full[column].combine_chunks()
        start, count = rng.randrange(full.num_rows), rng.choice([1, 3, 30, 300])
        near = range(start, min(start + count, full.num_rows))
        keys = cells.take(pa.array(near if rng.random() < 0.6 else rng.choices(range(full.num_rows), k=count)))
        if pa.types.is_uint32(keys.type) or pa.types.is_uint8(keys.type):
            keys = keys.cast(pa.int64())
        wanted = {normal(key) for key in keys.to_pylist()} - {None}
        truth = [cell is not None and normal(cell) in wanted for cell in cells.to_pylist()]
        text = rng.choice(["true", "id >= 100 and id < 700"])
        if text != "true":
            truth = [meets and 100 <= at < 700 for at, meets in enumerate(truth)]
        with open_scan(BytesSource(data), text, ["id", "s"], keys={column: keys}) as scan:
            found = scan.to_table()
            unread += scan.report.to_dict()["rows"]["may_match"] < full.num_rows
        assert same_rows(found, full.select(["id", "s"]).filter(pa.array(truth))), (column, text, keys)
        limited = sidecar.scan(BytesSource(data), text, ["id"], 2, keys={column: keys})
        assert limited.num_rows == min(2, sum(truth))
    assert unread > len(COLUMNS) / 2


def test_what_keys_are_not_compared_with() -> None:
    full = all_types(random.Random(1)).slice(0, 50)
    data = written(full)
    for column, keys in (
        ("t_ns", pa.array([0, 10**9], pa.time64("us"))),
        ("ts_ns", pa.array([0, 10**9], pa.timestamp("us"))),
    ):
        with pytest.raises(UnsupportedFeatureError, match="cannot be compared with nanoseconds"):
            sidecar.scan(BytesSource(data), "true", keys={column: keys})
    for column in ("list", "pair", "nowhere"):
        with pytest.raises(SidecarError):
            sidecar.scan(BytesSource(data), "true", keys={column: pa.array([1])})
    with pytest.raises(UsageError, match="one column"):
        sidecar.scan(BytesSource(data), "true", keys={})
