"""Filters that are there are asked: for dates and times of Python, and of columns that are nothing but NULL."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar

FOREIGN = Path(__file__).resolve().parents[1] / "data" / "parquet"
UTC = dt.timezone.utc
DAYS = [dt.date(2020, 1, n) for n in range(1, 4)]
MOMENTS = [dt.datetime(2020, 1, n, 3, 4, 5, 6) for n in range(1, 4)]
COLUMNS: dict[str, Any] = {
    "d": DAYS,
    "t": pa.array(MOMENTS, pa.timestamp("us")),
    "z": pa.array([one.replace(tzinfo=UTC) for one in MOMENTS], pa.timestamp("us", "UTC")),
    "c": pa.array([one.time().replace(second=n) for n, one in enumerate(MOMENTS)], pa.time64("us")),
    "s": [str(day) for day in DAYS],
}


def answer(path: Path, column: str, value: Any) -> bool | None:
    return sidecar.probe(path, column, value).files[0].might_contain


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_dates_and_times_of_python_are_asked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    table = pa.table(COLUMNS)
    if kind == "parquet":
        pq.write_table(table, path, bloom_filter_options=dict.fromkeys(COLUMNS, True))
    else:
        table = table.drop_columns(["c"])
        orc.write_table(table, path, bloom_filter_columns=[1, 2, 3])
    for name in table.column_names[:-1]:
        for value in table[name].to_pylist():
            assert answer(path, name, value) is True, (name, value)
    assert answer(path, "d", dt.date(2021, 1, 1)) is False
    assert answer(path, "t", dt.datetime(2020, 1, 1, 3, 4, 5, 9_000)) is False
    assert answer(path, "z", dt.datetime(2020, 1, 1, 4, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=1)))) is True
    assert answer(path, "z", dt.datetime(2020, 1, 1, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=1)))) is False
    if kind == "parquet":
        assert answer(path, "c", dt.time(23, 59)) is False
        assert answer(path, "s", DAYS[0]) is None, "a text is no date"


UNSIGNED = {
    **{f"u{bits}": pa.array([0, 5, (1 << bits) - 1], f"uint{bits}") for bits in (8, 16, 32, 64)},
    "n": pa.array([1, 2, 86_399_999_999_999], pa.time64("ns")),
}


def test_unsigned_columns_are_asked_and_times_in_nanoseconds_get_no_filters(tmp_path: Path) -> None:
    arrow, duck, ours = tmp_path / "arrow.parquet", tmp_path / "duck.parquet", tmp_path / "ours.parquet"
    table = pa.table(UNSIGNED)
    pq.write_table(table, arrow, bloom_filter_options=dict.fromkeys(list(UNSIGNED)[:4], True))
    duckdb.sql(f"COPY (SELECT u8, u16, u32, u64 FROM '{arrow}', range(200)) TO '{duck}' (FORMAT parquet)")
    pq.write_table(table, tmp_path / "bare.parquet")
    report = sidecar.embed(tmp_path / "bare.parquet", into=ours, bloom=list(UNSIGNED)).only
    assert [o.column for o in report.outcomes if o.way == "none"] == ["n"]
    for path in (arrow, duck, ours):
        for name in list(UNSIGNED)[:4]:
            for value in table[name].to_pylist():
                assert answer(path, name, value) is answer(path, name, str(value)) is True, (path.name, name, value)
            assert answer(path, name, 77) is False, (path.name, name)
        assert answer(path, "u64", 1 << 64) is answer(path, "u32", 1 << 32) is False
        assert answer(path, "u32", -1) is True, "readers without unsigned integers show the largest one so"


@pytest.mark.parametrize("name", ["j118_v2_zstd", "pa26_v1_none", "rs60_v1_none_afterrg"])
def test_unsigned_columns_of_foreign_writers_deny_nothing(name: str) -> None:
    path = FOREIGN / f"{name}.parquet"
    for column in ("u32", "u64"):
        values = pq.read_table(path, columns=[column])[column].drop_null().unique().to_pylist()
        assert all(answer(path, column, value) is True for value in values[:: max(1, len(values) // 40)])
        assert not all(answer(path, column, value) for value in range(123_456_789, 123_456_999))


def test_an_empty_filter_of_a_column_without_a_type_is_right(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    pq.write_table(pa.table({"n": pa.nulls(3)}), path, bloom_filter_options={"n": True})
    assert not list(sidecar.verify(path).files[0].problems)
