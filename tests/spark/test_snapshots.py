"""``spark_read`` of branches, tags, older snapshots and changed schemas: the rows of Spark's own read of that name."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable, Table

import sidecar
from sidecar.errors import UsageError
from tests.spark.frames import collected
from tests.tables import create_with_rows

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("iceberg_in_spark")]

serial = count()


def create(catalog: Any, parts: list[dict[str, list[Any]]], **properties: str) -> tuple[str, Table]:
    """A table with one file for each of ``parts``, all columns indexed; Spark's name of it and pyiceberg's table."""
    name = f"db.snapshots_{next(serial)}"
    build(create_with_rows(catalog, name, map(pa.table, parts), **properties))
    return f"cat.{name}", catalog.load_table(name)


def build(table: Table, **options: Any) -> None:
    columns = [field.name for field in table.schema().fields]
    sidecar.build(table, columns, kinds=["bloom", "page-index"], engine="local", fpp=1e-4, **options)


def both(spark: Any, name: str, table: Table, text: str, **options: Any) -> tuple[list[Any], list[Any]]:
    """Spark's own rows of a predicate that is also SQL, and ours."""
    (answer,) = all_of_both(spark, [(name, text)], table, **options)
    return answer


def all_of_both(
    spark: Any, asked: Sequence[tuple[str, str]], table: Table, **options: Any
) -> list[tuple[list[Any], list[Any]]]:
    """The same for each name and predicate, in one job."""
    frames = []
    with ExitStack() as stack:
        for name, text in asked:
            frames.append(spark.table(name).where(text))
            frames.append(stack.enter_context(sidecar.spark_read(spark, name, table, text, **options)))
        rows = [sorted(tuple(row.values()) for row in found) for found in collected(frames)]
    return list(zip(rows[::2], rows[1::2], strict=True))


def files_read(frame: Any) -> int:
    return len({row[0] for row in frame.select("_file").collect()})


@pytest.fixture(scope="module")
def branched(spark: Any, catalog: Any) -> tuple[str, Table]:
    """``main`` has k = 1 to 4 without 2, the branch ``dev`` 1 to 3 and 50, 51, the tag ``old`` 1 to 3."""
    parts = [{"k": [k], "s": [f"s{k}"]} for k in (1, 2, 3)]
    name, table = create(catalog, parts, **{"write.wap.enabled": "true"})
    spark.sql(f"alter table {name} create tag old")
    spark.sql(f"alter table {name} create branch dev")
    for key in (50, 51):
        spark.sql(f"insert into {name}.branch_dev values ({key}, 's{key}')")
    spark.sql(f"delete from {name} where k = 2")
    spark.sql(f"insert into {name} values (4, 's4')")
    table.refresh()
    for ref in ("dev", "main"):
        build(table, at=ref)
        table.refresh()
    return name, table


HELD = {"": {1, 4}, ".branch_dev": {1, 2, 50}, ".tag_old": {1, 2}, ".branch_main": {1, 4}}
"""Which of the keys 1, 2, 4 and 50 each name has."""


@pytest.fixture(scope="module")
def answers(spark: Any, branched: tuple[str, Table]) -> dict[tuple[str, int], tuple[list[Any], list[Any]]]:
    name, table = branched
    asked = [(suffix, key) for suffix in HELD for key in (1, 2, 4, 50)]
    found = all_of_both(spark, [(name + suffix, f"k = {key}") for suffix, key in asked], table)
    return dict(zip(asked, found, strict=True))


@pytest.mark.parametrize("key", [1, 2, 4, 50])
@pytest.mark.parametrize("suffix", HELD)
def test_branches_and_tags(answers: Any, suffix: str, key: int) -> None:
    wanted, found = answers[suffix, key]
    assert found == wanted
    assert len(found) == (key in HELD[suffix])


def test_the_files_of_a_branch_are_pruned(spark: Any, branched: tuple[str, Table]) -> None:
    name, table = branched
    assert files_read(spark.table(f"{name}.branch_dev")) == 5
    with sidecar.spark_read(spark, f"{name}.branch_dev", table, "s in ('s2', 's50')") as frame:
        assert files_read(frame) == 2
    with sidecar.spark_read(spark, f"{name}.tag_old", table, "k = 50") as frame:
        assert frame.collect() == []
        assert "IcebergStagedScan" not in frame._jdf.queryExecution().toString()
        assert "BatchScan" not in frame._jdf.queryExecution().executedPlan().toString()


def test_snapshots_in_the_identifier(spark: Any, branched: tuple[str, Table]) -> None:
    name, table = branched
    for snapshot in table.metadata.snapshots:
        place = f"{name}.snapshot_id_{snapshot.snapshot_id}"
        asked = [(place, f"k = {key}") for key in (1, 2, 4, 50, 51)]
        for one, (wanted, found) in zip(asked, all_of_both(spark, asked, table), strict=True):
            assert found == wanted, one
    logged = table.metadata.snapshot_log
    times = [entry.timestamp_ms for entry in (logged[0], logged[2], logged[-1])]
    asked = [(f"{name}.at_timestamp_{time}", f"k = {key}") for time in times for key in (1, 2, 4)]
    for one, (wanted, found) in zip(asked, all_of_both(spark, asked, table), strict=True):
        assert found == wanted, one


@pytest.fixture
def setting(spark: Any) -> Iterator[Any]:
    """Settings of the session that are taken back."""
    made: list[str] = []

    def put(key: str, value: str) -> None:
        made.append(key)
        spark.conf.set(key, value)

    yield put
    for key in made:
        spark.conf.unset(key)


def test_the_branch_of_the_session(spark: Any, branched: tuple[str, Table], setting: Any) -> None:
    name, table = branched
    setting("spark.wap.branch", "dev")
    keys = (1, 2, 4, 50)
    answers = all_of_both(spark, [(name, f"k = {key}") for key in keys], table)
    for key, (wanted, found) in zip(keys, answers, strict=True):
        assert (found, len(found)) == (wanted, int(key in {1, 2, 50})), key
    with sidecar.spark_read(spark, name, table, "true", keys={"k": pa.array([4, 51])}) as frame:
        assert [row["k"] for row in frame.collect()] == [51]
    setting("spark.wap.branch", "not_there_yet")
    keys = (2, 4, 50)
    answers = all_of_both(spark, [(name, f"k = {key}") for key in keys], table)
    for key, (wanted, found) in zip(keys, answers, strict=True):
        assert (found, len(found)) == (wanted, int(key == 4)), key


def test_staged_writes_are_not_read(spark: Any, branched: tuple[str, Table], setting: Any) -> None:
    name, table = branched
    setting("spark.wap.id", "audit-1")
    spark.sql(f"insert into {name} values (60, 's60')")
    keys = (4, 60)
    answers = all_of_both(spark, [(name, f"k = {key}") for key in keys], table)
    for key, (wanted, found) in zip(keys, answers, strict=True):
        assert (found, len(found)) == (wanted, int(key == 4)), key


def test_a_view_of_the_same_name_is_read_as_it_is(
    spark: Any, branched: tuple[str, Table], caplog: pytest.LogCaptureFixture
) -> None:
    name, table = branched
    before = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    spark.sql("use cat.db")
    short = name.rsplit(".", 1)[-1]
    try:
        assert both(spark, short, table, "k = 4") == ([(4, "s4")], [(4, "s4")])
        spark.sql(f"create temp view {short} as select * from {name} version as of 'dev'")
        with caplog.at_level(logging.WARNING):
            assert both(spark, short, table, "k = 50") == ([(50, "s50")], [(50, "s50")])
        assert "is read in full: the name is not a table in Spark" in caplog.text
        spark.read.option("versionAsOf", "old").table(name).createOrReplaceTempView(short)
        assert both(spark, short, table, "k = 2") == ([(2, "s2")], [(2, "s2")])
        assert both(spark, short, table, "k = 4") == ([], [])
    finally:
        spark.catalog.dropTempView(short)
        spark.sql(f"use {before[0]}.{before[1]}")


def test_names_of_any_case(spark: Any, branched: tuple[str, Table]) -> None:
    name, table = branched
    wanted, found = both(spark, f"{name}.branch_dev", table, "K = 50", case_sensitive=False)
    assert found == wanted == [(50, "s50")]


def test_metadata_tables_are_other_tables(spark: Any, branched: tuple[str, Table]) -> None:
    name, table = branched
    with (
        pytest.raises(UsageError, match="are different tables"),
        sidecar.spark_read(spark, f"{name}.files", table, "record_count = 1"),
    ):
        pass


SWAPPED = [{"a": [1], "b": [100]}, {"a": [2], "b": [200]}]


def swap(spark: Any, name: str) -> None:
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        spark.sql(f"alter table {name} rename column {old} to {new}")


@pytest.mark.parametrize("text", ["a = 100", "a = 1", "b = 1", "b >= 2", "a < 50"])
def test_columns_swapped_since_the_table_was_loaded(spark: Any, catalog: Any, text: str) -> None:
    name, table = create(catalog, SWAPPED)
    swap(spark, name)
    wanted, found = both(spark, name, table, text)
    assert found == wanted
    with sidecar.spark_read(spark, name, catalog.load_table(name.removeprefix("cat.")), text) as frame:
        assert frame.count() == len(wanted)


def test_keys_and_columns_of_swapped_columns(spark: Any, catalog: Any) -> None:
    name, table = create(catalog, SWAPPED)
    swap(spark, name)
    with sidecar.spark_read(spark, name, table, "true", ["b"], keys={"a": pa.array([100])}) as frame:
        assert [tuple(row) for row in frame.collect()] == [(1,)]


def test_a_column_dropped_and_added_again_since(spark: Any, catalog: Any) -> None:
    name, table = create(catalog, SWAPPED)
    spark.sql(f"alter table {name} drop column b")
    spark.sql(f"alter table {name} add column b bigint")
    texts = ("b is null", "b = 100", "not b = 100")
    answers = all_of_both(spark, [(name, text) for text in texts], table)
    for text, (wanted, found) in zip(texts, answers, strict=True):
        assert found == wanted, text
    assert len(both(spark, name, catalog.load_table(name.removeprefix("cat.")), "b is null")[1]) == 2


def test_a_column_that_the_table_did_not_have(spark: Any, catalog: Any) -> None:
    name, table = create(catalog, SWAPPED)
    spark.sql(f"alter table {name} rename column a to renamed")
    wanted, found = both(spark, name, table, "renamed = 2")
    assert found == wanted == [(2, 200)]
    with pytest.raises(UsageError, match="no column"), sidecar.spark_read(spark, name, table, "a = 2"):
        pass


def test_another_name_mapping_since(spark: Any, catalog: Any) -> None:
    """Files without ids: Spark reads the column by the mapping of today. (Bounds in manifests would be yesterday's.)"""
    name, table = create(catalog, SWAPPED, **{"write.metadata.metrics.default": "none"})
    text = '[{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["b"]}]'
    with table.transaction() as transaction:
        transaction.set_properties(**{"schema.name-mapping.default": text})
    path = f"{table.location()}/data/imported.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table({"a": [7], "b": [700]}), stream)
    table.add_files([path])
    build(table)
    stale = catalog.load_table(name.removeprefix("cat."))
    swapped = text.replace('"a"', '"x"').replace('"b"', '"a"').replace('"x"', '"b"')
    spark.sql(f"alter table {name} set tblproperties ('schema.name-mapping.default' = '{swapped}')")
    predicates = ("a = 700", "a = 7", "b = 7", "b = 700")
    answers = all_of_both(spark, [(name, predicate) for predicate in predicates], stale)
    for predicate, (wanted, found) in zip(predicates, answers, strict=True):
        assert found == wanted, predicate


def test_a_tag_with_an_older_schema_is_read_in_that_schema(
    spark: Any, catalog: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name, table = create(catalog, SWAPPED)
    spark.sql(f"alter table {name} create tag old")
    swap(spark, name)
    spark.sql(f"insert into {name} values (300, 3)")
    with caplog.at_level(logging.WARNING):
        asked = [(f"{name}.tag_old", text) for text in ("a = 1", "b = 100", "a = 100", "b = 1")]
        for one, (wanted, found) in zip(asked, all_of_both(spark, asked, table), strict=True):
            assert found == wanted, one
    assert "older schema than the table" in caplog.text
    assert both(spark, name, table, "a = 1")[1] == []


def test_a_branch_is_read_in_the_present_schema(spark: Any, catalog: Any) -> None:
    """Iceberg 1.12 itself loses rows there: it pushes the filter down in the schema of the branch's snapshot."""
    name, table = create(catalog, SWAPPED)
    spark.sql(f"alter table {name} create branch dev")
    spark.sql(f"insert into {name}.branch_dev values (3, 300)")
    swap(spark, name)
    everything = spark.table(f"{name}.branch_dev").localCheckpoint()
    for text, matching in {"a = 1": 0, "b = 3": 1, "a = 300": 1, "b = 1": 1, "b = 300": 0}.items():
        with sidecar.spark_read(spark, f"{name}.branch_dev", table, text) as frame:
            found = sorted(map(tuple, frame.collect()))
        assert found == sorted(map(tuple, everything.where(text).collect())), text
        assert len(found) == matching, text


def test_a_table_that_cannot_be_refreshed(spark: Any, catalog: Any, caplog: pytest.LogCaptureFixture) -> None:
    name, table = create(catalog, SWAPPED)
    old = StaticTable.from_metadata(table.metadata_location)
    swap(spark, name)
    with caplog.at_level(logging.WARNING):
        wanted, found = both(spark, name, old, "a = 100")
    assert found == wanted
    assert len(found) == 1
    assert "is read in full" in caplog.text
