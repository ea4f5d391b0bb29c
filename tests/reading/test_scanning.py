"""Scans give the rows of pyiceberg's own scan, deletes applied, whatever the sidecar says."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

import sidecar
from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.reading import table_files
from sidecar.reading.report import TableScanReport
from sidecar.reading.scanning import read, scan
from tests.iceberg.cases import comparable, local, matching_files, oracle, replaced
from tests.tables import create_with_rows

SCHEMA = pa.schema(
    [("k", pa.int64()), ("name", pa.string()), ("st", pa.struct([("x", pa.int64()), ("y", pa.float64())]))]
)


def rows(seed: int, count: int = 50) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 2**50, count)
    nested = [{"x": int(k) % 97, "y": k / 3} for k in keys]
    return pa.table({"k": keys, "name": [f"{seed}-{n}" for n in range(count)], "st": nested}, schema=SCHEMA)


def key(seed: int, row: int = 7) -> int:
    return int(rows(seed)["k"][row].as_py())


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    made = create_with_rows(catalog, "db.scan", map(rows, range(4)), SCHEMA, ["k", "name"])
    made.delete(f"k = {key(2, 3)}")  # rewrites the file
    return made


@pytest.mark.parametrize(
    "text",
    [
        f"k = {key(1)}",
        f"k = {key(2)}",
        f"k = {key(2, 3)}",
        f"k in ({key(0)}, {key(3)}, 5)",
        f"k = {key(0)} or st.x = 3",
        "name = '3-11' and st.x >= 0",
        "k = 5",
        "true",
        "false",
    ],
)
def test_rows_are_those_of_pyiceberg(table: Table, text: str) -> None:
    found = scan(table, text)
    wanted = oracle(table, parse_predicate(text, table.schema()))
    assert comparable(found) == comparable(wanted)
    assert found.schema == wanted.schema


def test_a_scan_makes_its_question_once_and_looks_for_page_indexes_only_where_some_are(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = list[Any](), list[Any]()
    make, ask = FileQuestion.__init__, FileQuestion.helpful_fields
    monkeypatch.setattr(FileQuestion, "__init__", lambda self, *given: (made.append(given), make(self, *given))[1])
    monkeypatch.setattr(FileQuestion, "helpful_fields", lambda *given: (asked.append(given), ask(*given))[1])
    assert scan(table, f"k = {key(1)}").num_rows == 1
    assert (len(made), len(asked)) == (1, 2)  # of each file that is read, whether its own indexes may help


def test_columns_and_limit(table: Table) -> None:
    assert scan(table, f"k = {key(1)}", columns=["name"]).to_pylist() == [{"name": "1-7"}]
    assert scan(table, f"k = {key(1)}", columns=("name", "k")).column_names == ["k", "name"]
    assert scan(table, "name = '1-7'", columns=["st.x"]).to_pylist() == [{"st": {"x": key(1) % 97}}]
    assert scan(table, "k > 0", limit=3).num_rows == 3
    assert scan(table, "k > 0", limit=0).num_rows == 0
    assert scan(table, "k = 5", columns=["name"]).schema.names == ["name"]


def test_a_limit_and_columns_that_make_no_sense(table: Table) -> None:
    with pytest.raises(UsageError, match="negative"):
        scan(table, "k = 1", limit=-1)
    with pytest.raises(UsageError, match="no column 'nope'"):
        scan(table, "k = 1", columns=["k", "nope"])
    with pytest.raises(UsageError, match="no column 'nope'"):
        scan(table, "nope = 1")


def test_two_columns_of_one_name_are_told_apart_by_case_alone(catalog: Any) -> None:
    rows = pa.table({"K": pa.array([1, 2], pa.int64()), "k": ["a", "b"], "other": pa.array([5, 6], pa.int64())})
    table = create_with_rows(catalog, "db.scan_case", [rows])
    assert scan(table, "K = 1", ["k"]).to_pylist() == [{"k": "a"}]
    assert scan(table, "OTHER = 6", ["Other"], case_sensitive=False).to_pylist() == [{"other": 6}]
    refused: list[Any] = [
        lambda: scan(table, "k = 1", case_sensitive=False),
        lambda: scan(table, "other = 5", ["K"], case_sensitive=False),
        lambda: scan(table, "true", keys={"K": [1]}, case_sensitive=False),
        lambda: plan(table, EqualTo("K", 1), case_sensitive=False),
    ]
    for call in refused:
        with pytest.raises(UsageError, match=r"more than one column.*'K' and 'k'"):
            call()


def test_the_file_that_was_pruned_is_not_opened(table: Table) -> None:
    """The pruned files can be gone for all that a scan cares."""
    planned = plan(table, f"k = {key(1)}")
    [kept] = matching_files(table, planned.row_filter)
    others = {task.file.file_path for task in table.scan().plan_files()} - set(planned.kept_files)
    assert kept in planned.kept_files
    assert others
    gone = local(next(iter(others)))
    with replaced(gone, None):
        assert read(planned).num_rows == 1


def test_a_plan_can_be_read_more_than_once(table: Table) -> None:
    planned = plan(table, f"k = {key(1)}")
    assert read(planned).num_rows == read(planned, ["name"]).num_rows == 1


def test_warnings_are_logged(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    path = local(table.metadata.statistics[0].statistics_path)
    with replaced(path, b"PFA1"), caplog.at_level(logging.WARNING, "sidecar.reading.scanning"):
        assert scan(table, f"k = {key(1)}").num_rows == 1
    assert str(path) in caplog.text


def test_data_files_that_cannot_be_read_are_our_errors(table: Table) -> None:
    planned = plan(table, f"k = {key(1)}")
    [kept] = matching_files(table, planned.row_filter)
    path = local(kept)
    data = path.read_bytes()
    with replaced(path, None), pytest.raises(StorageError):
        read(planned)
    for damaged in (b"", data[:100], b"PAR1" + bytes(200) + b"PAR1"):
        # Arrow calls a footer that is no Thrift an OSError, as it does what storage does not give.
        with replaced(path, damaged), pytest.raises((DamagedFileError, StorageError)) as caught:
            read(planned)
        assert caught.value.file is not None
        assert local(caught.value.file) == path


def test_damage_that_no_checksum_shows_gives_what_arrow_reads_or_our_error(table: Table) -> None:
    """pyiceberg writes no page checksums, so other bytes may be other values: those that any reader gets."""
    planned = plan(table, f"k = {key(1)}")
    paths = [local(file) for file in planned.kept_files]
    [kept] = matching_files(table, planned.row_filter)
    path = local(kept)
    data = path.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    outcomes = []
    for at in range(4, pages - 40, pages // 20):
        with replaced(path, data[:at] + bytes(40) + data[at + 40 :]):
            found = rows_or_error(planned)
            if isinstance(found, list):
                whole = pa.concat_tables([pq.read_table(one, columns=["k", "name"]) for one in paths])
                assert found == whole.filter(pc.field("k") == key(1)).to_pylist(), at
            else:
                assert local(found.file or "") == path
        outcomes.append(type(found))
    assert 0 < outcomes.count(list) < len(outcomes)


def rows_or_error(planned: Plan) -> list[Any] | DamagedFileError | StorageError:
    try:
        return read(planned, ["k", "name"]).to_pylist()
    except (DamagedFileError, StorageError) as error:
        return error


def test_no_row_is_a_table_whatever_its_types(catalog: Any) -> None:
    """Arrow makes no empty array of a UUID in a struct or list."""
    uuids: Any = pa.array([bytes(range(16))], pa.uuid())
    nested = [pa.StructArray.from_arrays([uuids], ["u"]), pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), uuids)]
    rows = pa.table({"u": uuids, "st": nested[0], "l": nested[1]})
    made = create_with_rows(catalog, "db.nested_uuids", [rows])
    assert scan(made, "true").num_rows == 1
    none = scan(made, "u is null")
    assert (none.num_rows, none.column_names) == (0, ["u", "st", "l"])


def test_uuids_that_arrow_cannot_compare_are_found(catalog: Any) -> None:
    schema = pa.schema([("u", pa.uuid())])
    made = catalog.create_table("db.scan_uuid", schema)
    value = bytes(range(16))
    made.append(pa.table({"u": pa.array([value], pa.uuid())}, schema=schema))
    assert scan(made, "u = '00010203-0405-0607-0809-0a0b0c0d0e0f'").num_rows == 1
    assert scan(made, "u != '00010203-0405-0607-0809-0a0b0c0d0e0f'").num_rows == 0


@pytest.mark.jvm
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_by_spark(spark: Any, catalog: Any, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Position deletes (v2) and deletion vectors (v3), before and after the build, and a merge."""
    monkeypatch.setattr(table_files, "SMALL", 0)
    monkeypatch.setattr(table_files, "TOO_MUCH", float("inf"))
    report = TableScanReport()
    name = f"db.scan_mor{version}"
    spark.sql(
        f"""create table cat.{name} (k bigint, name string) using iceberg tblproperties (
            'format-version'='{version}', 'write.delete.mode'='merge-on-read',
            'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')"""
    )
    for seed in range(4):
        values = ", ".join(f"({n * 28 + seed * 7}, '{seed}-{n}')" for n in range(30))
        spark.sql(f"insert into cat.{name} values {values}")
    spark.sql(f"delete from cat.{name} where k in (7, 28)")
    made = catalog.load_table(name)
    if version == 2:
        sidecar.build(made, ["k", "name"], kinds=["bloom"], engine="local")
    else:
        with pytest.raises(UnsupportedFeatureError, match="format version 3"):  # pyiceberg cannot write it
            sidecar.build(made, ["k", "name"], kinds=["bloom"], engine="local")
    spark.sql(f"delete from cat.{name} where k in (35, 42, 84)")
    spark.sql(f"update cat.{name} set name = 'new' where k = 63")
    made = catalog.load_table(name)
    pruned = 0
    for text in (
        "k = 7", "k = 35", "k = 56", "k in (28, 42, 91)", "name = '2-2'", "name = '2-3'", "name = 'new'",
        "k = 63", "name = '3-1'", "k = 57",
    ):  # fmt: skip
        planned = plan(made, text)
        assert planned.warnings == ()
        assert comparable(read(planned)) == comparable(oracle(made, planned.row_filter)), text
        theirs = spark.sql(f"select * from cat.{name} where {text}").collect()
        assert sorted(map(tuple, theirs)) == sorted(
            map(tuple, (r.values() for r in read(planned, report=report).to_pylist()))
        )
        pruned += planned.funnel.dropped_by_filter
    assert report.files
    assert set(report.whole_files) <= {"no index can help"}, "deletes are applied by position, to pages"
    assert report.row_groups_read > 8
    if version == 2:
        assert pruned > 10
