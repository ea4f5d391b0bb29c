"""Scans of ORC files of odd writers: many stripes, no row index, few or no statistics, zones, far and early times."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyorc
import pytest

from sidecar.embedding.embed import embed
from sidecar.errors import UnsupportedFeatureError
from sidecar.orc.tail import read_tail
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource
from tests.case_counts import cases
from tests.orc_writers import ODDITIES, ZONES, in_zone, odd, random_options
from tests.reading.random_predicates import Predicates, columns_of

ROWS, PREDICATES = 240, 12
EPOCH = datetime(1970, 1, 1)


def table_of(rng: random.Random) -> pa.Table:
    """Values that rise and values that do not, NULLs in runs and alone, times of four centuries."""
    spans = [(-3, 3), (-(10**9), 10**9), (2_000_000_000, 7_000_000_000), (-4_000_000_000, -2_000_000_000)]

    def instants() -> list[datetime | None]:
        low, high = rng.choice(spans)
        seconds = sorted(rng.randrange(low, high) for _ in range(ROWS))
        return some([EPOCH + timedelta(seconds=s, microseconds=rng.choice([0, 1, 500_000, 999_999])) for s in seconds])

    def some(values: list[Any]) -> list[Any]:
        share, first = rng.choice([0.0, 0.2]), rng.randrange(ROWS)
        missing = range(first, first + rng.choice([0, 60]))
        return [None if n in missing or rng.random() < share else value for n, value in enumerate(values)]

    numbers = [n // 3 + rng.randrange(4) for n in range(ROWS)]
    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.int64()),
            "i": pa.array(some(numbers), pa.int32()),
            "tiny": pa.array(some([n % 100 - 50 for n in numbers]), pa.int8()),
            "s": pa.array(some([f"k{n:03}" for n in numbers])),
            "f": pa.array(some([rng.choice([n / 4, 0.0, -0.0, float("nan")]) for n in numbers]), pa.float64()),
            "g": pa.array(some([n / 4 for n in numbers]), pa.float32()),
            "dec": pa.array(some([Decimal(n - 40).scaleb(-2) for n in numbers]), pa.decimal128(9, 2)),
            "day": pa.array(some([n * 300 - 20_000 for n in numbers]), pa.int32()).cast(pa.date32()),
            "ts": pa.array(instants(), pa.timestamp("us")),
            "tz": pa.array(instants(), pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "o": pa.array(some([n > 60 for n in numbers])),
            "st": pa.array(some([{"x": n} for n in numbers]), pa.struct([("x", pa.int64())])),
        }
    )


def read_by_others(data: bytes) -> pa.Table:
    """What C++ readers say. PyORC reads timestamps, of which pyarrow takes some for a second too early."""
    table = pyarrow.orc.ORCFile(BytesIO(data)).read()
    at = table.schema.get_field_index("ts")
    walls = [row[0] for row in pyorc.Reader(BytesIO(data), column_names=["ts"])]
    plain = [None if wall is None else wall.replace(tzinfo=None) for wall in walls]
    return table.set_column(at, "ts", pa.array(plain, pa.timestamp("us")))


def check(data: bytes, table: pa.Table, rng: random.Random) -> tuple[int, int]:
    """Ask predicates; return how many row groups there were to read for all of them, and how many were read."""
    predicates = Predicates(columns_of(table), rng)
    groups = read = 0
    for _ in range(PREDICATES):
        text, truth = predicates.next()
        with open_scan(BytesSource(data), text) as scan:
            found = [place for part in scan.found() for place in part.positions.tolist()]
        assert found == [n for n, is_met in enumerate(truth) if is_met], text
        groups, read = groups + scan.report.row_groups, read + scan.report.row_groups_read
    return groups, read


@pytest.mark.parametrize("seed", cases(2))
@pytest.mark.parametrize("oddity", ODDITIES)
def test_random_predicates_give_the_rows_that_others_read(oddity: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{oddity} {seed}")
    zone = rng.choice([None, *ZONES])
    options: Any = random_options(rng, ROWS)
    if oddity != "another writer":  # filters of C++ are hashed as C++ does
        options["bloom_filter_columns"] = rng.choice([[], [1, 2, 4, 5, 7, 8, 9], list(range(1, 12))])
    sink = BytesIO()
    pyarrow.orc.write_table(table_of(rng), sink, **options)
    data = odd(sink.getvalue() if zone is None else in_zone(sink.getvalue(), zone), oddity)
    table = read_by_others(data)
    groups, read = check(data, table, rng)
    assert groups >= read
    (tmp_path / "a.orc").write_bytes(data)
    names = [name for name in table.column_names if name != "st"]
    try:
        embed(str(tmp_path / "a.orc"), into=str(tmp_path / "b.orc"), bloom=names)
    except UnsupportedFeatureError:
        assert read_tail(BytesSource(data)).row_index_stride == 0
        return
    check((tmp_path / "b.orc").read_bytes(), table, rng)
