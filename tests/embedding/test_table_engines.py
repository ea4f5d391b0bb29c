"""Spark and DuckDB read a table with embedded indexes: the same rows, deletes and sane entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from sidecar.errors import (
    CommitConflictError,
    UnsupportedFeatureError,
)
from sidecar.iceberg.deletes.delete_index import POSITION
from sidecar.storage.locations import local_path
from tests.embedding.table_cases import (
    before_commit,
    embed,
    on_disk,
    once,
    rows,
    table_numbers,
)

pytestmark = pytest.mark.usefixtures("no_pauses")


def as_text(found: Any) -> list[str]:
    """Rows of Spark or DuckDB, in no order."""
    return sorted(repr(tuple(row)) for row in found)


SPARK_SCHEMA = "(k bigint, s string, part string, day date, f double)"


def fill(spark: Any, name: str, part: int) -> None:
    spark.sql(
        f"""insert into {name} select id * 7 + {part}, concat('text ', id), if(id % 3 = 0, null, concat('p/', id % 3)),
        date_add(date '2024-01-01', cast(id % 2 as int)), if(id % 2 = 0, double('nan'), 1.5)
        from range({part * 1000}, {part * 1000 + 400}, 1, 1)"""
    )


@pytest.mark.jvm
def test_spark_sees_the_same_rows_a_replace_and_sane_entries(spark: Any, catalog: Any, duckdb_iceberg: Any) -> None:
    name = f"db.spark{next(table_numbers)}"
    spark.sql(
        f"create table cat.{name} {SPARK_SCHEMA} using iceberg partitioned by (part, f) "
        "tblproperties ('format-version' = '2')"
    )
    fill(spark, f"cat.{name}", 0)
    spark.sql(f"alter table cat.{name} drop partition field f")
    spark.sql(f"alter table cat.{name} replace partition field part with bucket(2, k)")
    spark.sql(f"alter table cat.{name} add partition field days(day)")
    fill(spark, f"cat.{name}", 1)
    spark.sql(f"alter table cat.{name} add partition field truncate(6, s)")
    spark.sql(f"alter table cat.{name} write ordered by k")
    fill(spark, f"cat.{name}", 2)
    spark.sql(f"alter table cat.{name} drop column f")
    before = as_text(spark.table(f"cat.{name}").collect())
    in_order = orders(spark, name)
    metrics = (
        "select spec_id, record_count, partition, sort_order_id, column_sizes, value_counts, null_value_counts, "
        f"nan_value_counts, lower_bounds, upper_bounds, split_offsets from cat.{name}.files"
    )
    files = as_text(spark.sql(metrics).collect())
    table = catalog.load_table(name)
    old = table.current_snapshot().snapshot_id
    report = embed(table, bloom=["k", "s", "part"], page_index=True)
    assert len(report.replaced) == len(files)
    assert not report.left_alone

    assert as_text(spark.table(f"cat.{name}").collect()) == before
    assert as_text(spark.sql(metrics).collect()) == files
    assert orders(spark, name) == in_order
    assert (
        as_text(spark.sql(f"select * from cat.{name} version as of {old}").select("k", "s", "part", "day").collect())
        == before
    )
    snapshots = spark.sql(
        f"select operation, parent_id, summary from cat.{name}.snapshots order by committed_at"
    ).collect()
    assert [row.operation for row in snapshots] == ["append"] * 3 + ["replace"]
    assert snapshots[-1].parent_id == old
    assert snapshots[-1].summary["total-records"] == snapshots[-2].summary["total-records"] == "1200"
    listed = spark.sql(
        f"select status, snapshot_id, sequence_number, file_sequence_number from cat.{name}.entries"
    ).collect()
    assert {(row.status, row.snapshot_id) for row in listed} == {
        (1, report.snapshot_id),
        (2, report.snapshot_id),
    }
    added = sorted(row.sequence_number for row in listed if row.status == 1)
    assert added == sorted(row.sequence_number for row in listed if row.status == 2)
    assert set(added) == {1, 2, 3}
    assert {row.file_sequence_number for row in listed if row.status == 1} == {4}
    history = spark.sql(f"select snapshot_id from cat.{name}.history order by made_current_at").collect()
    assert [row.snapshot_id for row in history][-2:] == [old, report.snapshot_id]
    for predicate in (
        "k = 7 * 1005 + 1", "s = 'text 2010'", "part is null", "day = date '2024-01-02'", "part = 'p/1'"
    ):  # fmt: skip
        now = as_text(spark.table(f"cat.{name}").where(predicate).collect())
        past = spark.sql(f"select k, s, part, day from cat.{name} version as of {old}").where(predicate)
        assert now == as_text(past.collect())
        assert now
    assert duck_count(duckdb_iceberg, table) == 1200

    # maintenance goes on from here
    result = spark.sql(
        f"call cat.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()[0]
    assert result.rewritten_data_files_count == len(files)
    assert as_text(spark.table(f"cat.{name}").collect()) == before
    spark.sql(
        f"call cat.system.expire_snapshots(table => '{name}', older_than => timestamp '2100-01-01', retain_last => 1)"
    )
    assert as_text(spark.table(f"cat.{name}").collect()) == before
    table.refresh()
    assert len(on_disk(table)) == spark.table(f"cat.{name}.files").count()
    assert not [file for file in report.replaced if Path(local_path(file.new_path) or "").exists()]


def orders(spark: Any, name: str) -> list[str]:
    """The values of each file, in the order of the file, whatever its path."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in spark.sql(f"select k, _file, _pos from cat.{name}").collect():
        found.setdefault(row["_file"], []).append((row["_pos"], row["k"]))
    return sorted(repr([k for _, k in sorted(rows)]) for rows in found.values())


def duck_count(duckdb_iceberg: Any, table: Table) -> int:
    path = local_path(table.metadata_location)
    found: int = duckdb_iceberg.execute(f"select count(*) from iceberg_scan('{path}')").fetchone()[0]
    return found


@pytest.mark.jvm
def test_files_with_position_deletes_are_left_alone_and_keep_them(
    spark: Any, catalog: Any, duckdb_iceberg: Any
) -> None:
    name = f"db.spark{next(table_numbers)}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string, part string) using iceberg partitioned by (part) "
        "tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    for part in range(3):
        spark.sql(
            f"insert into cat.{name} select id, concat('text ', id), concat('p', id % 2) "
            f"from range({part * 100}, {part * 100 + 100}, 1, 1)"
        )
    spark.sql(f"delete from cat.{name} where k in (3, 104)")
    spark.sql(f"insert into cat.{name} select id, 'late', 'p0' from range(300, 350, 1, 1)")
    before = as_text(spark.table(f"cat.{name}").collect())
    assert len(before) == 348
    table = catalog.load_table(name)
    with_deletes = {t.file.file_path for t in table.scan().plan_files() if t.delete_files}
    assert len(with_deletes) == 2
    report = embed(table)
    assert {file.path: file.reason for file in report.left_alone} == dict.fromkeys(with_deletes, POSITION)
    assert len(report.replaced) == 5
    assert as_text(spark.table(f"cat.{name}").collect()) == before
    assert sorted(repr(tuple(row.values())) for row in table.scan().to_arrow().to_pylist()) == before
    assert table.scan().to_arrow().num_rows == duck_count(duckdb_iceberg, table) == 348
    summary = table.current_snapshot().summary
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("2", "2")

    # deletes that come later apply to the new files, and then those are left alone as well
    spark.sql(f"delete from cat.{name} where k = 205")
    table.refresh()
    again = embed(table, reuse="never")
    assert len(again.left_alone) == 3
    assert spark.table(f"cat.{name}").count() == 347 == table.scan().to_arrow().num_rows


@pytest.mark.jvm
def test_of_a_partitions_files_only_those_that_deletes_name_are_left_alone(spark: Any, catalog: Any) -> None:
    """One delete file names the first and the last file by path; what lies between them has no deletes."""
    name = f"db.spark{next(table_numbers)}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string) using iceberg tblproperties ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    for part in range(5):
        spark.sql(
            f"insert into cat.{name} select /*+ coalesce(1) */ id, concat('text ', id) "
            f"from range({part * 100}, {part * 100 + 100}, 1, 1)"
        )
    table = catalog.load_table(name)
    files = sorted(task.file.file_path for task in table.scan().plan_files())
    first = {path: pq.read_table(local_path(path))["k"][7].as_py() for path in (files[0], files[-1])}
    spark.sql(f"delete from cat.{name} where k in ({', '.join(map(str, first.values()))})")
    table.refresh()
    assert table.current_snapshot().summary["added-delete-files"] == "1"
    report = embed(table)
    assert {file.path for file in report.left_alone} == set(first)
    assert len(report.replaced) == 3
    assert spark.table(f"cat.{name}").count() == table.scan().to_arrow().num_rows == 498


@pytest.mark.jvm
def test_position_deletes_that_come_meanwhile_abort(spark: Any, catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"db.spark{next(table_numbers)}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string) using iceberg tblproperties "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(f"insert into cat.{name} select id, concat('text ', id) from range(0, 100, 1, 1)")
    table = catalog.load_table(name)
    before_commit(monkeypatch, once(lambda: spark.sql(f"delete from cat.{name} where k = 5")))
    with pytest.raises(CommitConflictError, match="position deletes apply to it"):
        embed(table)
    assert not [path for path in on_disk(table) if "-sidecar-" in path.name]
    assert spark.table(f"cat.{name}").count() == 99


@pytest.mark.jvm
def test_version_3_is_refused_with_the_reason(spark: Any, catalog: Any) -> None:
    name = f"db.spark{next(table_numbers)}"
    spark.sql(f"create table cat.{name} (k bigint) using iceberg tblproperties ('format-version' = '3')")
    spark.sql(f"insert into cat.{name} values (1)")
    with pytest.raises(UnsupportedFeatureError, match=r"format version 3: .* row ids of replaced files"):
        embed(catalog.load_table(name), bloom=["k"])


def test_duckdb_reads_the_table(table: Table, duckdb_iceberg: Any) -> None:
    embed(table, page_index=True)
    path = local_path(table.metadata_location)
    found = duckdb_iceberg.execute(f"select k, s from iceberg_scan('{path}') order by k").to_arrow_table()
    assert found.to_pylist() == table.scan().to_arrow().sort_by("k").to_pylist()
    key = rows(2)["k"][5].as_py()
    hits = duckdb_iceberg.execute(f"select s from iceberg_scan('{path}') where k = {key}").fetchall()
    assert hits == [(f"text {key}",)]
