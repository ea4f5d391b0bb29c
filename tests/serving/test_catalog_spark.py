"""Unmodified Spark SQL through a served catalog: the rows of the same statements without it, with fewer files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from tests.serving.served import Served, served
from tests.tables import create_with_rows

pytestmark = pytest.mark.jvm
FILES, ROWS = 6, 20
FIRST = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
INDEXED = ["s", "day", "ts", "price", "code"]


def rows(numbers: list[int]) -> pa.Table:
    """Rows of which every file has values between those of the others, so that no bounds rule a file out."""
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "s": pa.array([f"value-{n:04}" for n in numbers], pa.string()),
            "day": pa.array([FIRST.date() + dt.timedelta(days=n) for n in numbers], pa.date32()),
            "ts": pa.array([FIRST + dt.timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(9, 2)),
            "code": pa.array([(n * 2654435761 % 2**32).to_bytes(4, "big") for n in numbers], pa.binary()),
        }
    )


def files_of(count: int = FILES) -> list[pa.Table]:
    return [rows([2 * n for n in range(at, count * ROWS, count)]) for at in range(count)]


@pytest.fixture(scope="module")
def server(catalog: Any) -> Iterator[Served]:
    with served(catalog, commits=True) as found:
        yield found


@pytest.fixture(scope="module")
def sql(spark: Any, server: Served) -> Any:
    """Runs a statement in which ``{t}`` is a table of the served catalog, or of the catalog itself."""
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": server.url}.items():
        spark.conf.set(f"spark.sql.catalog.served{key}", value)
    spark.conf.set("spark.sql.catalog.served.cache-enabled", "false")

    def run(statement: str, name: str, catalog: str = "served") -> list[Any]:
        found: list[Any] = spark.sql(statement.replace("{t}", f"{catalog}.db.{name}")).collect()
        return found

    return run


def create(catalog: Any, name: str, parts: list[pa.Table] | None = None, **properties: str) -> Table:
    return create_with_rows(
        catalog, f"db.{name}", files_of() if parts is None else parts, columns=INDEXED, **properties
    )


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return create(catalog, "served_reads")


LOOKUPS = [
    "s = 'value-0042'",
    "s in ('value-0042', 'value-0054', 'none')",
    "s <=> 'value-0042' and id > 3",
    "day = date '2024-02-12'",
    "ts = timestamp '2024-01-02 18:00:00'",
    "price = 0.42",
    f"code = X'{(42 * 2654435761 % 2**32).to_bytes(4, 'big').hex()}'",
    "not (s != 'value-0042' or id is null)",
]


@pytest.mark.parametrize("condition", LOOKUPS)
def test_a_lookup_opens_one_file(sql: Any, server: Served, table: Table, condition: str) -> None:
    wanted = sql(f"select s from {{t}} where {condition}", "served_reads", "cat")
    assert sql(f"select s from {{t}} where {condition}", "served_reads") == wanted != []
    assert server.facts[-1].files_kept == 1
    assert not server.facts[-1].fallback


@pytest.mark.parametrize(
    "condition",
    [
        "s like 'value-00%'",
        "s > 'value-0100' or id < 7",
        "s is null",
        "not s in ('value-0042')",
        "upper(s) = 'VALUE-0042'",
    ],
)
def test_wide_predicates_find_the_same_rows(sql: Any, table: Table, condition: str) -> None:
    statement = f"select * from {{t}} where {condition} order by id"
    assert sql(statement, "served_reads") == sql(statement, "served_reads", "cat")


def test_aggregates_by_metadata(sql: Any, table: Table) -> None:
    """Spark answers these from the counts and bounds of the plan."""
    statement = "select count(*), min(id), max(id), count(s), max(day) from {t}"
    assert sql(statement, "served_reads") == sql(statement, "served_reads", "cat")
    assert "LocalTableScan" in sql("explain " + statement, "served_reads")[0][0]


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_statements_that_write(sql: Any, catalog: Any, server: Served, mode: str) -> None:
    """The same statements on two tables, one through the server."""
    names = f"served_{mode[0]}", f"direct_{mode[0]}"
    for name in names:
        create(catalog, name, **{f"write.{what}.mode": mode for what in ("delete", "update", "merge")})
    for statement in (
        "delete from {t} where s = 'value-0042'",
        "update {t} set price = 7 where s in ('value-0044', 'value-0046')",
        "merge into {t} t using (select 48 id, 'new' s union select 1, 'one') u on t.id = u.id and t.s = 'value-0048' "
        "when matched then update set s = u.s "
        "when not matched then insert (id, s) values (u.id, u.s)",
        "delete from {t} where s = 'value-0049'",  # within the bounds, and in no file
        "update {t} set price = 7 where s = 'value-0051'",
    ):
        sql(statement, names[0])
        sql(statement, names[1], "cat")
    found, wanted = (sql("select * from {t} order by id", name, "cat") for name in names)
    assert found == wanted
    assert len(found) == FILES * ROWS
    assert sql("select * from {t} order by id", names[0]) == wanted


def test_a_delete_of_what_wholly_fills_a_file(sql: Any, catalog: Any, server: Served) -> None:
    """Filters leave that file alone. By bounds others may match in part, so Spark must not delete by metadata."""
    filled = rows([43] * ROWS)
    create(catalog, "served_filled", [filled, *files_of()], **{"write.delete.mode": "merge-on-read"})
    sql("delete from {t} where s = 'value-0043'", "served_filled")
    assert any(facts.sentinel for facts in server.facts[-3:])
    assert sql("select count(*) from {t}", "served_filled", "cat")[0][0] == FILES * ROWS


def test_ctas_reads_through_the_server(sql: Any, server: Served, spark: Any, table: Table) -> None:
    spark.sql(
        "create table cat.db.served_copy using iceberg as select * from served.db.served_reads where price = 0.42"
    )
    assert server.facts[-1].files_kept == 1
    assert [row.id for row in spark.table("cat.db.served_copy").collect()] == [42]


def test_renamed_and_swapped_columns(sql: Any, catalog: Any, server: Served) -> None:
    """Spark names columns as in the present schema and pins a snapshot that has other names."""
    table = create(catalog, "served_renamed")
    with table.update_schema() as update:
        update.rename_column("s", "text")
    assert [row.id for row in sql("select id from {t} where text = 'value-0042'", "served_renamed")] == [42]
    assert server.facts[-1].files_kept == 1
    snapshot = table.current_snapshot()
    assert snapshot is not None
    old = f"select id from {{t}} version as of {snapshot.snapshot_id} where s = 'value-0042'"
    assert [row.id for row in sql(old, "served_renamed")] == [42]


def test_swapped_columns(sql: Any, catalog: Any) -> None:
    parts = [pa.table({"a": [f"a{n}" for n in part], "b": [f"b{n}" for n in part]}) for part in ([1, 3], [2, 4])]
    table = create_with_rows(catalog, "db.served_swapped", parts, columns=["a", "b"])
    for old, new in (("a", "between"), ("b", "a"), ("between", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    assert [tuple(row) for row in sql("select b, a from {t} where a = 'b2'", "served_swapped")] == [("a2", "b2")]


def test_time_travel_and_branches(sql: Any, catalog: Any, server: Served) -> None:
    table = create(catalog, "served_refs")
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "side").create_tag(first.snapshot_id, "old").commit()
    table.append(rows([42]))
    lookup = "where s = 'value-0042'"
    assert len(sql(f"select id from {{t}} {lookup}", "served_refs")) == 2
    for place in (f"version as of {first.snapshot_id}", "version as of 'old'", "version as of 'side'"):
        assert len(sql(f"select id from {{t}} {place} {lookup}", "served_refs")) == 1
        assert server.facts[-1].files_kept == 1


def test_partitions_with_null_and_dates(sql: Any, catalog: Any, server: Served) -> None:
    """A residual is there: without one Spark's executors fail on partitioned tables."""
    sql(
        "create table {t} (id bigint, s string, day date) using iceberg partitioned by (day, bucket(4, id))",
        "served_parts",
        "cat",
    )
    sql("insert into {t} values (1, 'a', date '2024-01-02'), (2, 'b', null), (3, 'a', null)", "served_parts", "cat")
    table = catalog.load_table("db.served_parts")
    sidecar.build(table, ["s"], engine="local")
    for condition in ("s = 'a'", "day is null", "day = date '2024-01-02' and s = 'a'", "id = 3"):
        statement = f"select * from {{t}} where {condition} order by id"
        assert sql(statement, "served_parts") == sql(statement, "served_parts", "cat") != []


PARTITION_CONDITIONS = [
    *("p = 1", "p <> 1", "p is null", "not (p <=> 1)", "p in (2, 3) or p is null", "day > date '2024-01-01'"),
    *("not s like 'ab%'", "s like 'a%'", "b = X'41'", "k is null", "p = 1 and k = 3", "p <> 1 and not s like 'ab%'"),
]


def test_files_of_other_partitions_are_not_read(spark: Any, sql: Any, catalog: Any, server: Served) -> None:
    """Spark takes all rows of the files that it gets for conditions like these, and counts them by metadata."""
    name = "served_whole_partitions"
    sql(
        "create table {t} (id bigint, p bigint, day date, s string, b binary, k int) using iceberg "
        "partitioned by (p, day, truncate(2, s), b, bucket(2, k))",
        name,
        "cat",
    )
    sql(
        "insert into {t} select id, if(id % 5 = 4, null, id % 5), date_add(date '2024-01-01', cast(id % 2 as int)), "
        "element_at(array('abc', 'a', 'b', null), cast(id % 4 as int) + 1), if(id % 3 = 0, X'41', X'3431'), "
        "if(id % 7 = 0, null, cast(id % 7 as int)) from range(60)",
        name,
        "cat",
    )
    sidecar.build(catalog.load_table(f"db.{name}"), ["k"], engine="local")
    before = len(server.facts)
    for columns in ("hash(*)", "count(*)"):
        each = (
            f"select {number}, {columns} from {{t}} where {condition}"
            for number, condition in enumerate(PARTITION_CONDITIONS)
        )
        statement = " union all ".join(each)
        found, wanted = (sorted(sql(statement, name, place)) for place in ("served", "cat"))
        assert found == wanted
    assert len(server.facts) >= before + 2 * len(PARTITION_CONDITIONS)
    with pytest.raises(Exception, match="which partitions the filter selects: the predicate eq on bucket"):
        sql("select id from {t} where served.system.bucket(2, k) = 1", name)


@pytest.mark.parametrize(
    ("predicate", "ids"),
    [
        ({"type": "eq", "term": "s", "value": "value-0042"}, [42]),
        ({"type": "lt", "term": "day", "value": "2024-01-05"}, [0, 2]),
        ({"type": "eq", "term": "code", "value": (42 * 2654435761 % 2**32).to_bytes(4, "big").hex()}, [42]),
        ({"type": "not-in", "term": "id", "values": list(range(4, 2 * FILES * ROWS))}, [0, 2]),
    ],
    ids=str,
)
def test_icebergs_java_api_reads_all_columns(spark: Any, table: Table, predicate: Any, ids: list[int]) -> None:
    """It drops rows by nothing but the residuals of tasks."""
    iceberg = spark._jvm.org.apache.iceberg
    native = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "served.db.served_reads")
    expression = iceberg.expressions.ExpressionParser.fromJson(json.dumps(predicate))
    records = iceberg.data.IcebergGenerics.read(native).where(expression).build().iterator()
    found = []
    while records.hasNext():
        found.append(records.next().getField("id"))
    assert sorted(found) == ids


def test_rewrite_data_files_through_the_server(spark: Any, sql: Any, catalog: Any) -> None:
    create(catalog, "served_rewritten")
    spark.sql(
        "call served.system.rewrite_data_files(table => 'db.served_rewritten', where => \"s > 'value-0000'\", "
        "options => map('min-input-files', '2'))"
    )
    assert len(catalog.load_table("db.served_rewritten").inspect.files()) == 1
    assert sql("select count(*), sum(id) from {t}", "served_rewritten", "cat") == sql(
        "select count(*), sum(id) from {t}", "served_reads", "cat"
    )


def test_a_table_without_a_sidecar_is_planned_by_spark(sql: Any, catalog: Any, server: Served) -> None:
    create_with_rows(catalog, "db.served_bare", files_of(2))
    before = len(server.facts)
    assert len(sql("select id from {t} where s = 'value-0042'", "served_bare")) == 1
    assert len(server.facts) == before


@pytest.fixture(scope="module")
def newest(sql: Any, catalog: Any) -> str:
    """A table of format version 3: some files have deletion vectors, two in one Puffin file, and one was replaced."""
    name = "served_vectors"
    create(catalog, name)
    properties = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
    sql(f"alter table {{t}} set tblproperties ({properties})", name, "cat")
    sql("delete from {t} where id in (2, 4, 14)", name, "cat")
    sql("delete from {t} where id in (26, 28)", name, "cat")
    sql("update {t} set s = 'changed' where id = 6", name, "cat")
    return name


def test_deletion_vectors_are_those_of_their_file(catalog: Any, server: Served, sql: Any, newest: str) -> None:
    """pyiceberg's own plan has all vectors of a partition for each file, and loses where they are."""
    scan = server.catalog().load_table(f"db.{newest}").scan()
    assert sorted(len(task.delete_files) for task in scan.plan_files()) == [0, 0, 0, 0, 1, 1, 1]
    wanted = [row.id for row in sql("select id from {t} order by id", newest, "cat")]
    assert len(wanted) == FILES * ROWS - 5
    assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted
    assert scan.count() == len(wanted)


def test_spark_reads_vectors_and_row_ids(
    sql: Any, server: Served, newest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it asks, which the table advises against: the protocol has no sequence numbers."""
    statement = "select id, s, _row_id from {t} order by id"
    planned = len(server.facts)
    wanted = sql(statement, newest)
    assert len(server.facts) == planned
    monkeypatch.setattr(server.planner, "mode", lambda table, identifier: "server")
    assert sql(statement, newest) == wanted
    assert len(server.facts) > planned
    assert all(row[2] is not None for row in wanted)
    assert [row.id for row in sql("select id from {t} where s = 'value-0042'", newest)] == [42]
    assert server.facts[-1].files_kept <= 2  # the update wrote a file that no sidecar lists
