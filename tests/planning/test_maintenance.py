"""Tables that Spark keeps up and sidecar indexes: after each procedure plans are right and say what is covered."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.kinds.declared import USUAL_KINDS
from sidecar.errors import UnsupportedFeatureError
from sidecar.planning.plan import Plan
from sidecar.storage.locations import local_path

pytestmark = pytest.mark.jvm

FILES, ROWS = 4, 40
PRESENT, ABSENT = 2 * 17, 2 * 17 + 1
"""A key that is stored, and one within all bounds that is not: keys are even."""


def values(part: int) -> str:
    """Rows of one file, as SQL: keys of all parts lie within the same bounds."""
    keys = [2 * (part + FILES * row) for row in range(ROWS)]
    return f"select /*+ coalesce(1) */ k, concat('v', k) v from (select explode(array({', '.join(map(str, keys))})) k)"


def create(spark: Any, name: str, properties: str = "") -> None:
    """A table of :data:`FILES` files, as :func:`values` makes them, in two commits."""
    spark.sql(f"create table cat.db.{name} (k bigint, v string) using iceberg {properties}")
    for half in range(2):
        numbers = spark.range(half * FILES * ROWS // 2, (half + 1) * FILES * ROWS // 2, 1, FILES // 2)
        keys = numbers.selectExpr(f"2 * (id % {ROWS} * {FILES} + id div {ROWS}) k")
        keys.selectExpr("k", "concat('v', k) v").writeTo(f"cat.db.{name}").append()


def indexed(catalog: Any, name: str, columns: Sequence[str] = ("k", "v")) -> Any:
    table = catalog.load_table(f"db.{name}")
    kinds = list(USUAL_KINDS)  # named, so that counts of numbers are registered too
    assert not sidecar.build(table, columns, kinds=kinds, engine="local").files_failed
    return table.refresh()


def plan(spark: Any, catalog: Any, name: str, predicate: str, version: str = "", **options: Any) -> Plan:
    """The plan; its rows are those of Spark's own read."""
    found = sidecar.plan(catalog.load_table(f"db.{name}"), predicate, **options)
    rows = [tuple(row.values()) for row in found.to_arrow().to_pylist()]
    theirs = spark.sql(f"select * from cat.db.{name} {version} where {predicate}").collect()
    assert sorted(rows) == sorted(map(tuple, theirs)), predicate
    return found


def after(spark: Any, catalog: Any, name: str, version: str | None = None, **options: Any) -> tuple[int, int, int, int]:
    """Files of the snapshot, those listed, those kept for an absent key, and commits since the sidecar's (-1: none).

    Rows are those that Spark reads where its ``version`` is named, else those that pyiceberg reads.
    """
    table = catalog.load_table(f"db.{name}")
    if version is None:
        everything = [(row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist()]
    else:
        theirs = spark.sql(f"select k, v from cat.db.{name} {version}").collect()
        everything = [(row.k, row.v) for row in theirs]
    for predicate, wanted in (
        (f"k = {PRESENT} or v = 'v{PRESENT + 2}'", {PRESENT, PRESENT + 2}),
        ("k >= 0", {key for key, _ in everything}),
        (f"k = {ABSENT}", set()),
    ):
        found = sidecar.plan(table, predicate, **options)
        rows = [(row["k"], row["v"]) for row in found.to_arrow().to_pylist()]
        assert sorted(rows) == sorted(row for row in everything if row[0] in wanted), predicate
    data = sidecar.status(table, **options)
    assert data.files.live == found.files_total
    behind = found.sidecar.snapshots_behind if found.sidecar else -1
    return found.files_total, data.files.listed, found.files_kept, behind


def ndv(spark: Any, name: str) -> dict[str, int]:
    """Distinct values by column, as Spark's cost-based optimiser sees them; a join is planned with them."""
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        spark.sql(f"select a.k from cat.db.{name} a join cat.db.{name} b on a.k = b.k where a.k = 2").collect()
        relation = spark.table(f"cat.db.{name}")._jdf.queryExecution().optimizedPlan()
        stats, found = relation.stats().attributeStats(), {}
        for attribute in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(relation.output()):
            column = stats.get(attribute)
            if column.isDefined() and column.get().distinctCount().isDefined():
                found[attribute.name()] = int(column.get().distinctCount().get())
        return found
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")


def call(spark: Any, procedure: str) -> list[Any]:
    found: list[Any] = spark.sql(f"call cat.system.{procedure}").collect()
    return found


def copy_table(spark: Any, catalog: Any, catalog_dir: Path, name: str, copy: str) -> str:
    """The table at another place, registered as ``copy``; its new location."""
    old, new = f"file:{catalog_dir}/wh/db/{name}", f"file:{catalog_dir}/elsewhere/{copy}"
    assert catalog.load_table(f"db.{name}").location() == old
    (done,) = call(
        spark,
        f"rewrite_table_path(table => 'db.{name}', source_prefix => '{old}', target_prefix => '{new}', "
        f"staging_location => 'file:{catalog_dir}/staging/{copy}')",
    )
    for source, target in spark.read.csv(done.file_list_location).collect():
        to = Path(local_path(target) or "")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(local_path(source) or "", to)
    call(spark, f"register_table('db.{copy}', '{new}/metadata/{done.latest_version}')")
    return new


def test_statistics_manifests_and_data_written_again(spark: Any, catalog: Any) -> None:
    create(spark, "life")
    indexed(catalog, "life")
    assert after(spark, catalog, "life") == (4, 4, 0, 0)
    assert ndv(spark, "life") == {"k": FILES * ROWS, "v": FILES * ROWS}

    call(spark, "compute_table_stats(table => 'db.life')")  # one statistics file a snapshot: ours is replaced
    assert after(spark, catalog, "life") == (4, 0, 4, -1)
    kept = sidecar.plan(catalog.load_table("db.life"), f"k = {ABSENT}").funnel.kept_because
    assert kept == {"no sidecar": 4}
    table = indexed(catalog, "life")  # and theirs is merged
    assert after(spark, catalog, "life") == (4, 4, 0, 0)
    assert ndv(spark, "life") == {"k": FILES * ROWS, "v": FILES * ROWS}
    built = table.current_snapshot().snapshot_id

    call(spark, "rewrite_manifests('db.life')")
    assert after(spark, catalog, "life") == (4, 4, 0, 1)
    spark.sql(f"insert into cat.db.life {values(1)}")
    assert after(spark, catalog, "life") == (5, 4, 1, 2)
    call(spark, "rewrite_data_files(table => 'db.life', options => map('rewrite-all', 'true'))")
    assert after(spark, catalog, "life") == (1, 0, 1, 3)
    why = sidecar.plan(catalog.load_table("db.life"), f"k = {ABSENT}").funnel.kept_because
    assert why == {"not listed in the sidecar": 1}
    call(spark, f"rollback_to_snapshot('db.life', {built})")
    assert after(spark, catalog, "life", "") == (4, 4, 0, 0)
    assert ndv(spark, "life") == {"k": FILES * ROWS, "v": FILES * ROWS}


def test_rows_deleted_and_overwritten_and_snapshots_expired(spark: Any, catalog: Any) -> None:
    merge_on_read = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"
    create(spark, "rows", f"tblproperties ('format-version'='2', {merge_on_read})")
    indexed(catalog, "rows")
    spark.sql(f"delete from cat.db.rows where k in ({PRESENT}, 2)")
    assert after(spark, catalog, "rows") == (4, 4, 0, 1)  # position deletes: the files are the same
    spark.sql("alter table cat.db.rows set tblproperties ('write.delete.mode'='copy-on-write')")
    spark.sql(f"delete from cat.db.rows where k = {PRESENT + 2}")
    assert after(spark, catalog, "rows", "") == (4, 3, 1, 2)  # the file with that key is a new one
    indexed(catalog, "rows")
    assert after(spark, catalog, "rows") == (4, 4, 0, 0)
    statistics = [Path(local_path(entry.statistics_path) or "") for entry in _entries(catalog, "rows")]

    old = (1.6e9, 1.6e9)
    stray = statistics[-1].with_name("1-stray.stats")
    stray.write_bytes(b"of no snapshot")
    for path in [stray, *statistics]:
        os.utime(path, old)
    call(spark, "remove_orphan_files(table => 'db.rows', older_than => timestamp '2024-01-01 00:00:00')")
    assert not stray.exists()
    assert all(path.exists() for path in statistics)
    assert after(spark, catalog, "rows") == (4, 4, 0, 0)

    spark.sql(f"insert overwrite cat.db.rows {values(2)}")
    assert after(spark, catalog, "rows") == (1, 0, 1, 1)
    now = "timestamp '2099-01-01 00:00:00'"
    (expired,) = call(spark, f"expire_snapshots(table => 'db.rows', older_than => {now}, retain_last => 1)")
    assert expired.deleted_statistics_files_count == len(statistics)
    assert not any(path.exists() for path in statistics)
    assert after(spark, catalog, "rows") == (1, 0, 1, -1)
    indexed(catalog, "rows")
    assert after(spark, catalog, "rows") == (1, 1, 0, 0)


def _entries(catalog: Any, name: str) -> Any:
    return catalog.load_table(f"db.{name}").metadata.statistics


def test_branches_tags_and_a_table_that_is_copied(spark: Any, catalog: Any, catalog_dir: Path) -> None:
    create(spark, "refs_jvm")
    indexed(catalog, "refs_jvm")
    spark.sql("alter table cat.db.refs_jvm create tag t1")
    spark.sql("alter table cat.db.refs_jvm create branch side")
    spark.sql(f"insert into cat.db.refs_jvm.branch_side {values(1)}")
    spark.sql(f"delete from cat.db.refs_jvm where k = {PRESENT}")
    assert after(spark, catalog, "refs_jvm", "") == (4, 3, 1, 1)
    assert after(spark, catalog, "refs_jvm", "version as of 't1'", at="t1") == (4, 4, 0, 0)
    assert after(spark, catalog, "refs_jvm", "version as of 'side'", at="side") == (5, 4, 1, 1)
    sidecar.build(catalog.load_table("db.refs_jvm"), ["k", "v"], engine="local", at="side")
    assert after(spark, catalog, "refs_jvm", "version as of 'side'", at="side") == (5, 5, 0, 0)

    new = copy_table(spark, catalog, catalog_dir, "refs_jvm", "copied_jvm")
    moved = sidecar.plan(catalog.load_table("db.copied_jvm"), f"k = {ABSENT}")
    assert all(path.startswith(new) for path in moved.kept_files)
    assert any("matched by their path within the table" in note for note in moved.notes)
    assert after(spark, catalog, "copied_jvm", "") == (4, 3, 1, 1)
    spark.sql(f"insert into cat.db.copied_jvm {values(0)}")
    assert after(spark, catalog, "copied_jvm") == (5, 3, 2, 2)
    indexed(catalog, "copied_jvm")
    assert after(spark, catalog, "copied_jvm") == (5, 5, 0, 0)
    assert ndv(spark, "copied_jvm")["k"] == FILES * ROWS - 1


@pytest.mark.parametrize("version", [1, 2])
def test_files_keep_who_added_them_until_they_are_added_again(
    spark: Any, catalog: Any, catalog_dir: Path, version: int
) -> None:
    """Manifests written again, an upgrade, branches, and a move; format version 1 has no sequence numbers."""
    name = f"added_v{version}"
    create(spark, name, f"tblproperties ('format-version'='{version}')")
    indexed(catalog, name)
    call(spark, f"rewrite_manifests('db.{name}')")
    assert after(spark, catalog, name) == (4, 4, 0, 1)
    copy_table(spark, catalog, catalog_dir, name, f"{name}_copy")
    assert after(spark, catalog, f"{name}_copy", "") == (4, 4, 0, 1)

    spark.sql(f"alter table cat.db.{name} set tblproperties ('format-version'='2')")
    spark.sql(f"insert into cat.db.{name} {values(1)}")
    call(spark, f"rewrite_manifests('db.{name}')")
    table = catalog.load_table(f"db.{name}")
    assert len(table.current_snapshot().manifests(table.io)) == 1
    assert after(spark, catalog, name) == (5, 4, 1, 3)
    copy_table(spark, catalog, catalog_dir, name, f"{name}_upgraded")
    assert after(spark, catalog, f"{name}_upgraded", "") == (5, 4, 1, 3)

    spark.sql(f"alter table cat.db.{name} create branch side")
    spark.sql(f"insert into cat.db.{name}.branch_side {values(2)}")
    sidecar.build(catalog.load_table(f"db.{name}"), ["k", "v"], engine="local", at="side")
    call(spark, f"fast_forward('db.{name}', 'main', 'side')")
    assert after(spark, catalog, name) == (6, 6, 0, 0)

    spark.sql(f"alter table cat.db.{name} create branch picked")
    spark.sql(f"insert into cat.db.{name}.branch_picked {values(3)}")
    table = catalog.load_table(f"db.{name}")
    sidecar.build(table, ["k", "v"], engine="local", at="picked")
    picked = table.refresh().metadata.refs["picked"].snapshot_id
    spark.sql(f"insert into cat.db.{name} {values(0)}")
    call(spark, f"cherrypick_snapshot('db.{name}', {picked})")
    assert after(spark, catalog, name) == (8, 6, 2, 2)
    indexed(catalog, name)
    assert after(spark, catalog, name) == (8, 8, 0, 0)


def test_files_without_ids_columns_dropped_and_added_and_defaults(spark: Any, catalog: Any, catalog_dir: Path) -> None:
    """Hive-style files: a partition column that no file has, and columns by name."""
    source = f"file:{catalog_dir}/hive_layout"
    for part, letter in enumerate("ab"):
        frame = spark.sql(values(part))
        frame.write.parquet(f"{source}/p={letter}")
    spark.sql("create table cat.db.hive_layout (k bigint, v string, p string) using iceberg partitioned by (p)")
    call(spark, f"add_files(table => 'db.hive_layout', source_table => '`parquet`.`{source}`')")
    indexed(catalog, "hive_layout", ("k", "v", "p"))
    assert after(spark, catalog, "hive_layout") == (2, 2, 0, 0)
    assert plan(spark, catalog, "hive_layout", "p = 'a' and k = 0").files_kept == 1
    assert plan(spark, catalog, "hive_layout", "p = 'a' and k = 1").files_kept == 0
    assert plan(spark, catalog, "hive_layout", "p = 'c' or k = 0").files_kept >= 1
    spark.sql("alter table cat.db.hive_layout drop partition field p")
    assert plan(spark, catalog, "hive_layout", "p = 'b'").files_kept == 1

    assert ndv(spark, "hive_layout")["v"] == 2 * ROWS
    spark.sql("alter table cat.db.hive_layout drop column v")
    with pytest.raises(Exception, match=r"INTERNAL_ERROR|NullPointer|null"):
        ndv(spark, "hive_layout")  # Spark fails on statistics of a dropped column, its own ones too
    assert sidecar.repair(catalog.load_table("db.hive_layout")).repairs[0].reasons == [
        "a theta sketch of field 2, which the table has dropped, is registered"
    ]
    assert "v" not in ndv(spark, "hive_layout")
    spark.sql("alter table cat.db.hive_layout add column v string")  # by name, the files' old values show again
    assert plan(spark, catalog, "hive_layout", f"v = 'v{4 * FILES}'").files_kept == 2
    assert plan(spark, catalog, "hive_layout", f"v = 'v1' or k = {ABSENT}").files_kept == 2

    spark.sql("alter table cat.db.hive_layout set tblproperties ('format-version'='3')")
    jvm = spark._jvm
    java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "cat.db.hive_layout")
    api = jvm.org.apache.iceberg
    long_type = api.types.Types.LongType.get()
    java.updateSchema().addColumn("d", long_type, api.expressions.Literal.of(7)).commit()
    spark.sql("insert into cat.db.hive_layout (k, p, v, d) values (1, 'z', 'z', 8)")
    assert plan(spark, catalog, "hive_layout", "d = 7").files_total == 3
    assert plan(spark, catalog, "hive_layout", "d = 9 or k = 3").files_kept >= 1
    with pytest.raises(UnsupportedFeatureError, match="REST catalog"):
        sidecar.build(catalog.load_table("db.hive_layout"), ["d"], engine="local")


def test_equality_deletes_are_left_to_who_can_read_them(spark: Any, catalog: Any) -> None:
    """Committed with the API for Java, as Flink does it."""
    table = catalog.create_table("db.eq_jvm", pa.schema([("k", pa.int64())]))
    table.append(pa.table({"k": pa.array([2, 4], pa.int64())}))
    table.append(pa.table({"k": pa.array([6, 8], pa.int64())}))
    sidecar.build(table, ["k"], engine="local")
    path = f"{table.location()}/data/equality.parquet"
    schema = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"k": [4]}, schema), local_path(path))
    api = spark._jvm.org.apache.iceberg
    java = api.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "cat.db.eq_jvm")
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
    made = api.FileMetadata.deleteFileBuilder(java.spec()).ofEqualityDeletes(ids).withPath(path)
    size = os.path.getsize(local_path(path) or "")
    made = made.withFormat("parquet").withFileSizeInBytes(size).withRecordCount(1).build()
    java.newRowDelta().addDeletes(made).commit()

    table.refresh()
    with pytest.raises(UnsupportedFeatureError, match=r"Spark \(sidecar.spark_read\), Trino or DuckDB"):
        sidecar.plan(table, "k = 4")
    assert sidecar.plan(table, "k = 5").files_kept == 0
    assert [row.k for row in spark.sql("select k from cat.db.eq_jvm where k < 7 order by k").collect()] == [
        2,
        6,
    ]
