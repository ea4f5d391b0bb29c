"""ORC files by Iceberg's own writer in Spark: indexed by both engines alike, no row lost to Spark or pyiceberg."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import sidecar
from sidecar.access import Access
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.planning.planner import plan
from sidecar.reading.scanning import read
from tests.indexing.cases import filters_of, sketches_of
from tests.tables import iceberg_schema

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("iceberg_in_spark")]

NAME = "db.spark_orc"
COLUMNS = ["i", "l", "f", "d", "dec9", "dec18", "dec38", "s", "b", "day", "ts", "tz", "st.x", "li.element"]
FILTERS = "i,l,f,d,dec9,dec18,dec38,s,b,day,ts,tz"
SELECT = """
    select /*+ coalesce(1) */ cast(id as int) i, k * 1000000007 l, cast(k / 4 as float) f, k / 8 d,
        cast(k / 4 as decimal(9, 2)) dec9, cast(k as decimal(18, 3)) dec18, cast(k as decimal(38, 4)) dec38,
        concat('värde ', k) s, cast(concat('b', k) as binary) b, date_add(date'1960-01-01', cast(k as int)) day,
        timestampadd(SECOND, k * 25200, timestamp_ntz'1960-01-01 00:00:00.123456') ts,
        timestampadd(SECOND, k * 25200, timestamp'1960-01-01 00:00:00.123456') tz,
        case when k % 9 > 0 then named_struct('x', k) end st, array(k, k + 1) li
    from (select id, pmod(id * 7919, 17011) k from range({start}, {stop}))
"""


def k(row: int) -> int:
    """The value of a row: spread, so that bounds of all files meet."""
    return row * 7919 % 17011


def moment(row: int) -> str:
    return str(dt.datetime(1960, 1, 1, microsecond=123456) + dt.timedelta(seconds=k(row) * 25200))


@pytest.fixture(scope="module")
def table(catalog: Any, spark: Any) -> Any:
    """Three ORC files (the second without filters), one Parquet file; some rows deleted by position."""
    spark.sql(
        f"""create table cat.{NAME} using iceberg tblproperties ('write.format.default'='orc',
            'write.orc.bloom.filter.columns'='{FILTERS}', 'write.orc.bloom.filter.fpp'='0.01',
            'write.delete.mode'='merge-on-read', 'format-version'='2')
            as {SELECT.format(start=0, stop=12000)}"""
    )
    change = f"alter table cat.{NAME} set tblproperties"
    spark.sql(f"{change} ('write.orc.bloom.filter.columns'='')")
    spark.sql(f"insert into cat.{NAME} {SELECT.format(start=12000, stop=15000)}")
    spark.sql(f"{change} ('write.orc.bloom.filter.columns'='{FILTERS}')")
    spark.sql(f"insert into cat.{NAME} {SELECT.format(start=15000, stop=16000)}")
    spark.sql(f"{change} ('write.format.default'='parquet')")
    spark.sql(f"insert into cat.{NAME} {SELECT.format(start=16000, stop=17000)}")
    spark.sql(f"{change} ('write.format.default'='orc')")
    spark.sql(f"delete from cat.{NAME} where i in (5, 12345, 16500)")
    return catalog.load_table(NAME)


def test_both_engines_build_the_same(catalog: Any, table: Any, spark: Any) -> None:
    made = []
    for options in ({"engine": "local"}, {"engine": "spark", "spark": spark}):
        report = sidecar.build(table, COLUMNS, kinds=["bloom", "theta", "page-index"], full=True, **options)
        now = catalog.load_table(NAME)
        found = find_sidecar(now, Access())
        assert found is not None
        segment = found.sidecar.segments[-1]
        rows = {
            (field_id, unit): stored
            for field_id in segment.row_index_blobs
            for unit, stored in segment.row_indexes(field_id, range(segment.num_units)).items()
        }
        found.sidecar.close()
        made.append((report.units, report.columns, filters_of(now), sketches_of(now), rows))
    here, there = made
    assert here == there
    assert here[0] == 2 + 1 + 1 + 1
    ways = {column.name: column.filters for column in here[1]}
    assert ways["l"] == {"reused": 3, "scanned": 2}, "Iceberg's filters are good, and one file has none"
    assert ways["st.x"]["scanned"] == 5
    assert len(here[4]) == len(COLUMNS) * 4


PREDICATES = [
    "i = 77",
    "i = 12345",
    f"l = {k(15500) * 1000000007}",
    f"f = {k(13) / 4}",
    f"d = {k(8001) / 8}",
    f"dec9 = {k(121) / 4}",
    f"dec18 = {k(14999)}",
    f"dec38 = {k(16999)}",
    f"s = 'värde {k(11999)}'",
    f"b = '0x{f'b{k(1200)}'.encode().hex()}'",
    f"day = '{dt.date(1960, 1, 1) + dt.timedelta(days=k(3715))}'",
    f"ts = '{moment(37)}'",
    f"tz = '{moment(15001)}Z'",
    f"st.x = {k(16001)}",
    "i in (1, 13000, 16000, 99999)",
    "i = 99999",
    "s = 'absent'",
    f"l in ({k(3) * 1000000007}, 5)",
    "i between 11990 and 12010",
    f"day < '1960-02-01' or s = 'värde {k(15999)}'",
]


@pytest.mark.parametrize("form", ["auto", "orc", "parquet"])
def test_rows_are_those_of_spark_and_pyiceberg(catalog: Any, table: Any, spark: Any, form: str) -> None:
    sidecar.build(table, COLUMNS, kinds=["bloom", "page-index"], full=True, engine="local", as_=form)
    table = catalog.load_table(NAME)
    dropped = 0
    for text in PREDICATES:
        planned = plan(table, text)
        assert not planned.warnings
        found = sorted(read(planned, ["i"])["i"].to_pylist())
        assert found == sorted(table.scan(planned.row_filter, selected_fields=("i",)).to_arrow()["i"].to_pylist()), text
        dropped += planned.funnel.dropped_by_filter + planned.funnel.dropped_by_page_index
    spelled = f"i = 77 or s = 'värde {k(12001)}' or tz = {{}}'{moment(16100)}{{}}'"
    where = spelled.format("timestamp", "")
    theirs = sorted(row["i"] for row in spark.sql(f"select i from cat.{NAME} where {where}").collect())
    assert theirs == [77, 12001, 16100]
    ours = spelled.format("", "Z")
    assert sorted(read(plan(table, ours), ["i"])["i"].to_pylist()) == theirs
    assert dropped > len(PREDICATES)


def test_uuids_and_fixed_which_pyiceberg_cannot_read_from_orc(catalog: Any, spark: Any) -> None:
    """The plan is right all the same: every file in which Spark finds the row is kept, and others are dropped."""

    schema = iceberg_schema("id long, u uuid, fx fixed[4]")
    catalog.create_table("db.spark_orc_bytes", schema, properties={"write.format.default": "orc"})
    for start in (0, 1000):
        spark.sql(
            f"""insert into cat.db.spark_orc_bytes select /*+ coalesce(1) */ id,
                concat('00000000-0000-0000-0000-', lpad(cast(id as string), 12, '0')),
                cast(lpad(cast(id as string), 4, '0') as binary) from range({start}, {start + 1000})"""
        )
    table = catalog.load_table("db.spark_orc_bytes")
    report = sidecar.build(table, ["u", "fx"], kinds=["bloom", "theta"], engine="local")
    assert [column.uncovered for column in report.columns] == [{"bloom": {}, "theta": {}}] * 2
    table = catalog.load_table("db.spark_orc_bytes")
    for text, sql in (
        ("u = '00000000-0000-0000-0000-000000001234'", "u = '00000000-0000-0000-0000-000000001234'"),
        ("fx = '0x30303737'", "fx = cast('0077' as binary)"),
    ):
        query = f"select distinct _file f from cat.db.spark_orc_bytes where {sql}"
        (path,) = (row["f"] for row in spark.sql(query).collect())
        assert [kept.rpartition("/")[2] for kept in plan(table, text).kept_files] == [path.rpartition("/")[2]]
