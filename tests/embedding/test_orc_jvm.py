"""ORC Java reads embedded files whole, and skips row groups by their filters; those of its own writer lose rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.embedding.orc_cases import (
    BARE,
    COMPRESSIONS,
    NATIVE,
    PYARROW,
    copied,
    embedded,
    found_filters,
    numbers,
    opened,
    written,
)
from tests.embedding.orc_peers import OrcJava

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def java(spark: Any) -> OrcJava:
    return OrcJava(spark._jvm, spark._sc._gateway)


@COMPRESSIONS
def test_row_groups_are_skipped(java: OrcJava, tmp_path: Path, compression: str) -> None:
    """Absent keys between the smallest and the largest: the statistics keep every row group, the filters few."""
    table = numbers()
    path = written(tmp_path / "flat.orc", table, compression=compression)
    target, _ = embedded(path)
    assert java.rows(target) == len(table)
    keys = table["k"].to_pylist()
    for key in keys[17::2000]:
        assert 250 <= java.rows(target, "k", "LONG", key) <= 1500
        assert 250 <= java.rows(target, "s", "STRING", f"value-{key}") <= 1500
    assert java.rows(path, "k", "LONG", keys[0] + 1) == len(table)
    left = sum(java.rows(target, "k", "LONG", key + 1) for key in keys[:10])
    assert left <= len(table) // 2, "of ten lookups: more than 5 % false"
    for column, kind, value in present(java, table):
        assert java.rows(target, column, kind, value) >= 250, column
    assert 250 <= java.rows(target, "pair.x", "LONG", 2**33 * 4321) <= 1500
    assert 250 <= java.rows(target, "pair.y", "STRING", "y4321") <= 1500


@COMPRESSIONS
def test_java_finds_every_filter_as_it_was_written(java: OrcJava, tmp_path: Path, compression: str) -> None:
    target, _ = embedded(written(tmp_path / "flat.orc", numbers(), compression=compression))
    _, tail = opened(target)
    assert java.filters(target) == [
        {
            column.id: [
                (one.filter.k, one.filter.to_bytes())
                for one in found_filters(target, column.path, stripe.ordinal)
                if one.filter is not None
            ]
            for column in tail.columns
            if found_filters(target, column.path, stripe.ordinal)
        }
        for stripe in tail.stripes
    ]


def present(java: OrcJava, table: pa.Table) -> list[tuple[str, str, Any]]:
    """A value of each kind of column, as Java's literals have it."""
    row = {name: table[name][4321].as_py() for name in table.column_names}
    sql = java.jvm.java.sql
    decimal = java.jvm.org.apache.hadoop.hive.serde2.io.HiveDecimalWritable(str(row["dec"]))
    return [
        ("tiny", "LONG", row["tiny"]),
        ("small", "LONG", table["small"].drop_null()[0].as_py()),
        ("word", "STRING", row["word"]),
        ("d", "FLOAT", row["d"]),
        ("d", "FLOAT", 0.0),
        ("f", "FLOAT", row["f"]),
        ("day", "DATE", sql.Date.valueOf(str(row["day"]))),
        ("dec", "DECIMAL", decimal),
        ("t", "TIMESTAMP", sql.Timestamp.valueOf(str(row["t"]))),
    ]


def test_java_prunes_as_on_its_own_file(java: OrcJava, tmp_path: Path) -> None:
    target, _ = embedded(copied(BARE, tmp_path))
    date = java.jvm.java.sql.Date.valueOf
    decimal = java.jvm.org.apache.hadoop.hive.serde2.io.HiveDecimalWritable
    questions = [
        *(("c_int", "LONG", value) for value in (1, 3, 1803, 4000, 12345)),
        *(("c_big", "LONG", value) for value in (3000, 803000, 77)),
        *(("c_null", "LONG", value) for value in (7, 8)),
        *(("c_sdir", "STRING", value) for value in ("k6ij", "k79w", "absent")),
        *(("c_double", "FLOAT", value) for value in (0.0, 95.6, 1.25)),
        *(("c_dec10", "DECIMAL", decimal(value)) for value in ("-968.07", "-376.43", "1.01")),
        *(("c_char", "STRING", value) for value in ("ckzd    ", "c8ta    ", "absent  ")),
        *(("c_date", "DATE", date(value)) for value in ("2020-12-17", "1970-01-01", "1999-01-02")),
    ]
    left = [java.rows(target, *question) for question in questions]
    assert left == [java.rows(NATIVE, *question) for question in questions]
    assert sum(left) < sum(java.rows(BARE, *question) for question in questions) / 2


def test_old_days_are_found_unlike_in_native_files(java: OrcJava, tmp_path: Path) -> None:
    """1582-10-04 is in the file: Java asks for the proleptic number of the day, its writer hashes the stored one."""
    target, _ = embedded(copied(BARE, tmp_path), ["c_date"])
    day = java.jvm.java.sql.Date.valueOf("1582-10-04")
    assert java.rows(BARE, "c_date", "DATE", day) == 2300
    assert java.rows(NATIVE, "c_date", "DATE", day) == 0
    assert java.rows(target, "c_date", "DATE", day) > 0


def test_why_instants_get_no_filter(java: OrcJava) -> None:
    """In a JVM of another zone than UTC a present instant is lost, but for the filter it would be found."""
    zones = java.jvm.java.util.TimeZone
    before = zones.getDefault()
    instant = java.jvm.java.sql.Timestamp(1255877696 * 1000)
    instant.setNanos(420829923)
    try:
        zones.setDefault(zones.getTimeZone("America/Los_Angeles"))
        assert java.rows(BARE, "c_tsi", "TIMESTAMP", instant) == 2300
        assert java.rows(NATIVE, "c_tsi", "TIMESTAMP", instant) == 0
    finally:
        zones.setDefault(before)


def test_corrupt_filters_lose_rows_until_they_are_replaced(java: OrcJava, tmp_path: Path) -> None:
    target, _ = embedded(copied(PYARROW, tmp_path), ["c_tiny"])
    assert java.rows(PYARROW, "c_tiny", "LONG", 87) == 0
    assert java.rows(target, "c_tiny", "LONG", 87) > 0
