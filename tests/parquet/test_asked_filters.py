"""Filters that are there are asked: for dates and times of Python, and of columns that are nothing but NULL."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar

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


def test_an_empty_filter_of_a_column_without_a_type_is_right(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    pq.write_table(pa.table({"n": pa.nulls(3)}), path, bloom_filter_options={"n": True})
    assert not list(sidecar.verify(path).files[0].problems)
