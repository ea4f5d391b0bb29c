"""A search of plain files finds exactly the rows that a full read finds, and proves no absence that it has not seen."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from sidecar.errors import UsageError
from tests.cli.running import run
from tests.parquet.encrypted import WRITTEN, keys_of, path_of

ROWS = 600


def rows_of(seed: int) -> pa.Table:
    rng = random.Random(seed)
    numbers = [rng.choice([None, *range(0, 2 * ROWS, 2)]) for _ in range(ROWS)]

    def made(kind: pa.DataType, value: Any) -> pa.Array:
        return pa.array([None if n is None else value(n) for n in numbers], kind)

    return pa.table(
        {
            "n": made(pa.int64(), int),
            "text": made(pa.string(), str),
            "f": made(pa.float32(), lambda n: float("nan") if n == 8 else n / 4),
            "dec": made(pa.decimal128(9, 2), lambda n: Decimal(n) / 4),
            "day": made(pa.date32(), lambda n: date(2020, 1, 1) + timedelta(days=n)),
            "ms": made(pa.timestamp("ms"), lambda n: datetime(2020, 1, 1) + timedelta(seconds=n)),
            "s": pa.array([{"in": n} for n in numbers]),
        }
    )


ASKED = {"n": int, "text": str, "f": lambda n: str(n / 4), "dec": lambda n: str(Decimal(n) / 4)}
ASKED |= {"day": lambda n: str(date(2020, 1, 1) + timedelta(days=n)), "s.in": str}
ASKED["ms"] = lambda n: (datetime(2020, 1, 1) + timedelta(seconds=n)).isoformat()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    pq.write_table(rows_of(1), folder / "a.parquet", row_group_size=200, write_page_index=True)
    pq.write_table(rows_of(2).slice(0, 0), folder / "empty.parquet")
    orc.write_table(rows_of(3), folder / "b.orc", bloom_filter_columns=[1, 2], row_index_stride=1000)
    return folder


@pytest.mark.parametrize("column", ASKED)
def test_it_finds_the_rows_of_a_full_read(lake: Path, column: str) -> None:
    asked = [8, 9, 500, 501, 1198, *random.Random(column).sample(range(2 * ROWS), 6)]
    texts = {str(ASKED[column](n)): n for n in asked}
    held = {name: rows_of(seed)["n"].to_pylist() for name, seed in (("a.parquet", 1), ("b.orc", 3))}
    for options in ({}, {"read_all": True}):
        report = sidecar.find(lake, {column: list(texts)}, **options)
        found = {(Path(one.file).name, one.value): one.rows for one in report.files}
        assert report.not_asked == []
        for name, values in held.items():
            for text, n in texts.items():
                rows = 0 if column == "f" and n == 8 else values.count(n)
                assert found.get((name, text), 0) == rows, (name, text)
        assert len(report.files_read) + len(report.files_ruled_out) == 3
        assert not (options and report.files_ruled_out)
    if column == "f":
        assert sidecar.find(lake, {"f": "nan"}).conditions[0].rows == sum(n.count(8) for n in held.values())


def test_what_the_indexes_of_files_rule_out_is_not_read(lake: Path) -> None:
    report = sidecar.find(str(lake / "*"), {"n": 5000})
    assert report.proven_absent
    assert (report.table, report.metadata_file, report.snapshots) == (str(lake / "*"), "", [])
    assert {Path(one.file).name: one.by for one in report.files_ruled_out} == {
        "a.parquet": "statistics of the file",
        "b.orc": "statistics of the file",
    }
    report = sidecar.find([lake / "a.parquet", lake / "b.orc"], {"n": 0})
    assert {(Path(one.file).suffix, one.kind) for one in report.traces} == {
        (".parquet", "row group statistics"),
        (".parquet", "page index"),
        *((".orc", kind) for kind in ("file statistics", "stripe statistics", "row index")),
    }


def test_more_values_than_a_predicate_takes_are_read_whole(lake: Path) -> None:
    report = sidecar.find(lake, {"n": list(range(-400, 1200))})
    held = {n for seed in (1, 3) for n in rows_of(seed)["n"].to_pylist()} - {None}
    assert {int(one.value) for one in report.conditions if one.answer == "found"} == held


def test_a_file_that_cannot_be_read_proves_nothing(lake: Path, tmp_path: Path) -> None:
    for file in lake.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    data = (lake / "a.parquet").read_bytes()
    (tmp_path / "broken.parquet").write_bytes(data[: len(data) // 2])
    for values in ({"n": 5}, {"n": "3000000000000000000000"}, {"nobody": 1}):
        report = sidecar.find(tmp_path, values)  # the broken file may have the column, and in another type
        assert (report.answer, [Path(one.file).name for one in report.not_asked]) == ("not proven", ["broken.parquet"])
    held = rows_of(1)["n"].drop_null()[0].as_py()
    assert sidecar.find(tmp_path, {"n": held}).found


@pytest.mark.parametrize("name", ["db.mistyped", ["a.parquet", "db.mistyped"]])
def test_a_text_that_may_be_the_name_of_a_table_is_no_file_that_proves_nothing(name: Any) -> None:
    with pytest.raises(UsageError, match=r"open_table\('db\.mistyped', catalog\)\. A file is \./db\.mistyped"):
        sidecar.find(name, {"n": 5})
    assert sidecar.find("./db.mistyped", {"n": 5}).answer == "not proven"


def test_names_in_another_case_and_types_that_differ(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Mail": ["a"], "k": ["3000000000"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"mail": ["b"], "k": pa.array([1], pa.int32())}), tmp_path / "b.parquet")
    report = sidecar.find(tmp_path, {"mail": "c"})
    assert report.answer == "not proven"
    assert report.not_asked[0].reason == "the column has the name in another case: Mail"
    pq.write_table(pa.table({"mail": ["a"], "Email": ["c"]}), tmp_path / "c.parquet")
    assert sidecar.find(tmp_path / "c.parquet", {"mail|email": "c"}).answer == "not proven"
    (tmp_path / "c.parquet").unlink()
    assert sidecar.find(tmp_path, {"mail|Mail": "c"}).proven_absent
    assert sidecar.find(tmp_path, {"mail|Mail": "a"}).found
    report = sidecar.find(tmp_path, {"k": ["3000000000", "word", "1"]})
    assert [one.answer for one in report.conditions] == ["found", "absent", "found"]
    (impossible,) = sidecar.find(tmp_path / "b.parquet", {"k": "3000000000"}).conditions
    assert (impossible.answer, impossible.impossible is None) == ("absent", False)
    with pytest.raises(UsageError, match="no file has the column"):
        sidecar.find(tmp_path, {"other": 1})
    with pytest.raises(UsageError, match="files have no snapshots"):
        sidecar.find(tmp_path, {"k": 1}, all_snapshots=True)


def test_a_value_that_only_other_files_take_is_not_proven(tmp_path: Path) -> None:
    times = pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))
    pq.write_table(pa.table({"t": times.cast(pa.timestamp("us", "UTC"))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": times}), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    report = sidecar.find(tmp_path, {"t": "2024-01-02T00:00:00Z"})
    assert (report.answer, [Path(one.file).name for one in report.not_asked]) == ("not proven", ["b.parquet"])
    pq.write_table(pa.table({"t": [[1]]}), tmp_path / "b.parquet")
    assert sidecar.find(tmp_path, {"t": "2024-01-02T00:00:00Z"}).answer == "not proven"


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "America/New_York"), pa.time64("ns")])
@pytest.mark.parametrize("read_all", [False, True])
def test_times_between_two_microseconds_are_no_value(tmp_path: Path, kind: pa.DataType, read_all: bool) -> None:
    pq.write_table(
        pa.table({"t": pa.array([3_600_000_000_000, 3_600_000_000_001, None], kind)}), tmp_path / "a.parquet"
    )
    early = "" if pa.types.is_time(kind) else "1970-01-01T"
    zone = "+00:00" if pa.types.is_timestamp(kind) and kind.tz else ""
    report = sidecar.find(tmp_path, {"t": [f"{early}01:00:00{zone}", f"{early}01:00:01{zone}"]}, read_all=read_all)
    assert [(one.answer, one.rows) for one in report.conditions] == [("found", 1), ("absent", 0)]


def test_a_time_of_pandas_with_nanoseconds_is_not_cut(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": pa.array([2_000], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    assert sidecar.find(tmp_path, {"t": pd.Timestamp(2_000)}).found
    with pytest.raises(UsageError, match="does not fit the column"):
        sidecar.find(tmp_path, {"t": pd.Timestamp(2_001)})


def test_times_on_which_orc_readers_differ_are_not_proven(tmp_path: Path) -> None:
    times = pa.array([-1], pa.timestamp("us"))
    orc.write_table(pa.table({"t": times}), tmp_path / "a.orc")
    report = sidecar.find(tmp_path / "a.orc", {"t": "1969-12-31T23:59:59.5"})
    assert (report.answer, len(report.not_asked)) == ("not proven", 1)


@pytest.mark.parametrize("name", [WRITTEN[0], WRITTEN[2]])
def test_encrypted_columns_need_their_keys(name: str) -> None:
    path, keys = path_of(name), keys_of(name)
    held = {"str": max(sidecar.scan(path, columns=["str"], encryption_keys=keys)["str"].drop_null().to_pylist())}
    assert sidecar.find(path, held, encryption_keys=keys).found
    assert sidecar.find(path, {"str": "nobody has it"}, encryption_keys=keys).proven_absent
    assert sidecar.find(path, held).answer == "not proven"


def test_the_command_takes_globs_of_files(lake: Path, tmp_path: Path) -> None:
    values = tmp_path / "ids.csv"
    values.write_text("n,text\n5000,\n,nobody\n")
    found = run("find", str(lake / "*"), "--values", str(values), "--json")
    assert (found.exit_code, json.loads(found.stdout)["answer"]) == (0, "absent")
    held = rows_of(1)["text"].drop_null()[0].as_py()
    found = run("find", str(lake / "a.parquet"), f"text={held}", code=1)
    assert "no retained snapshot" not in found.stdout
    assert run("find", str(lake), "n=1", "--orphans").exit_code == 2
