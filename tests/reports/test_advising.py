"""What ``advise`` predicts is what builds and plans come to: a log of events, TPC-H's lineitem, a constant column."""

from __future__ import annotations

import random
import shutil
import subprocess
import sysconfig
from copy import copy
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table

import sidecar
from sidecar.reports.advising.advise import columns_that_deserve_filters
from sidecar.reports.advising.report import Advice, AdvisedColumn
from tests.iceberg.cases import local
from tests.reports.measuring import Lookups, create_events, factor

FILES, ROWS = 12, 300
RATE = 0.1
"""High enough that a few lookups of absent values meet false positives."""
LEAST = 0.25
"""Means below so many files are only seen in many more lookups than a test can make."""
LOOKUPS = 24


def by_name(advice: Advice) -> dict[str, AdvisedColumn]:
    return {column.name: column for column in advice.columns}


def assert_predicted(table: Table, column: AdvisedColumn) -> None:
    """The prediction for a column that has filters is within a factor of two of what plans of lookups keep."""
    assert column.evidence is not None
    existing, absent = Lookups(table, column.name).measure(LOOKUPS, 5)
    pairs = [(column.evidence.existing, existing)]
    if column.evidence.absent is not None and absent is not None:
        pairs.append((column.evidence.absent, absent))
    for predicted, measured in pairs:
        assert factor(predicted.by_bounds, measured.by_bounds, LEAST) <= 2, (column.name, predicted, measured)
        assert factor(predicted.with_filters, measured.with_filters, LEAST) <= 2, (column.name, predicted, measured)


@pytest.fixture(scope="module")
def events(catalog: Any) -> Table:
    return create_events(catalog, "db.advised_events", FILES, ROWS)


@pytest.fixture(scope="module")
def before(events: Table) -> Advice:
    """The advice before anything is built, by a sample of two thirds of the row groups."""
    return sidecar.advise(events, fpp=RATE, row_groups=8)


@pytest.fixture(scope="module")
def built(events: Table, before: Advice) -> Table:
    names = [column.name for column in before.columns]
    report = sidecar.build(events, names, kinds=["bloom"], fpp=RATE, engine="local")
    for column in report.columns:
        evidence = by_name(before)[column.name].evidence
        assert evidence is not None
        assert factor(evidence.filter_bytes, column.filter_bytes, 1) <= 1.3
    return events


def test_verdicts_on_events(before: Advice) -> None:
    assert {column.name: column.filters for column in before.columns} == {
        "id": "no",  # clustered: in the order of time
        "user_id": "yes",
        "status": "no",  # each file has each of its values
        "url": "yes",
        "message": "yes",
        "constant": "no",
    }
    columns = by_name(before)
    assert columns["constant"].evidence is not None
    assert columns["constant"].evidence.distinct_in_table == 1
    assert "constant" in columns["constant"].reason
    assert columns["id"].evidence is not None
    assert (columns["id"].evidence.bounds_overlap, columns["id"].evidence.existing.by_bounds) == (0, 1)
    assert all(column.reason for column in before.columns)
    assert before.commands == ["sidecar build db.advised_events --columns user_id,url,message --catalog cat"]


@pytest.mark.parametrize("name", ["id", "user_id", "status", "url", "message", "constant"])
def test_lookups_of_events_keep_the_predicted_files(name: str, before: Advice, built: Table) -> None:
    assert_predicted(built, by_name(before)[name])


def test_bounds_alone_leave_what_pyiceberg_plans(events: Table) -> None:
    column = by_name(sidecar.advise(events, ["message"], row_groups=FILES))["message"]
    lookups, rng = Lookups(events, "message"), random.Random(2)
    planned = [len(list(events.scan(EqualTo("message", lookups.existing(rng))).plan_files())) for _ in range(10)]
    assert column.evidence is not None
    assert column.evidence.existing.by_bounds == pytest.approx(fmean(planned), rel=0.1)


def test_distinct_values_of_files_and_of_the_table(events: Table, before: Advice) -> None:
    whole = by_name(sidecar.advise(events))
    for name in ("user_id", "url", "status", "message"):
        columns = [pq.read_table(local(task.file.file_path))[name] for task in events.scan().plan_files()]
        in_table = len(pa.chunked_array([chunk for column in columns for chunk in column.chunks]).unique())
        each = fmean(len(column.unique()) for column in columns)
        for found, tolerance in ((whole[name].evidence, 0.02), (by_name(before)[name].evidence, 0.35)):
            assert found is not None
            assert found.distinct_in_table == pytest.approx(in_table, rel=tolerance), name
            assert found.distinct_per_file == pytest.approx(each, rel=0.05), name


def test_a_few_files_stand_for_the_table(events: Table) -> None:
    message = by_name(sidecar.advise(events, ["message"], fpp=RATE, row_groups=3))["message"].evidence
    assert message is not None
    assert message.distinct_in_table == pytest.approx(FILES * ROWS, rel=0.02)
    false = (message.existing.by_bounds - 1) * message.filter_rate
    assert message.existing.with_filters == pytest.approx(1 + false)
    assert false > 0.05


def test_files_of_many_row_groups(catalog: Any) -> None:
    """A few row groups stand for files of many: most files that have a value do not have it in a sampled one."""
    limit = {"write.parquet.row-group-limit": "100"}
    table = create_events(catalog, "db.advised_groups", 6, 1000, **limit)
    columns = by_name(sidecar.advise(table, ["user_id", "url"], fpp=RATE, row_groups=12))
    sidecar.build(table, ["user_id", "url"], kinds=["bloom"], fpp=RATE, engine="local")
    for column in columns.values():
        assert_predicted(table, column)


def test_the_columns_of_a_build_that_chooses_them(events: Table) -> None:
    assert columns_that_deserve_filters(events, None) == ["user_id", "url", "message"]
    current = events.current_snapshot()
    assert current is not None
    fields = [field.model_copy(update={"name": field.name.replace("url", "link")}) for field in events.schema().fields]
    renamed, schema = copy(events), Schema(*fields, schema_id=events.schema().schema_id + 1)
    update = {"schemas": [*events.metadata.schemas, schema], "current_schema_id": schema.schema_id}
    renamed.metadata = events.metadata.model_copy(update=update)
    assert columns_that_deserve_filters(renamed, None) == ["user_id", "link", "message"]
    assert columns_that_deserve_filters(renamed, current.snapshot_id) == ["user_id", "url", "message"]


@pytest.fixture(scope="module")
def lineitem(catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Some thousands of lines of TPC-H, in the order of their keys, in twelve files."""
    folder = tmp_path_factory.mktemp("tpch")
    tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or "tpchgen-cli"
    command = [tool, "parquet", "-s", "0.001", "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    rows = pq.read_table(next(Path(folder).rglob("*.parquet")))
    views = {pa.string_view(): pa.string()}
    rows = rows.cast(pa.schema([(field.name, views.get(field.type, field.type)) for field in rows.schema]))
    table = catalog.create_table("db.advised_lineitem", rows.schema)
    step = -(-len(rows) // FILES)
    with table.transaction() as transaction:
        for start in range(0, len(rows), step):
            transaction.append(rows.slice(start, step))
    return catalog.load_table("db.advised_lineitem")


def test_lineitem(lineitem: Table) -> None:
    advice = sidecar.advise(lineitem, fpp=RATE, row_groups=8)
    columns = by_name(advice)
    verdicts = {name: column.filters for name, column in columns.items()}
    expected = {"l_orderkey": "no", "l_linenumber": "no", "l_returnflag": "no", "l_shipmode": "no"}
    expected |= {"l_extendedprice": "yes", "l_comment": "yes"}
    assert verdicts.items() >= expected.items()
    measured = ["l_orderkey", "l_partkey", "l_extendedprice", "l_shipdate", "l_comment"]
    sidecar.build(lineitem, measured, kinds=["bloom"], fpp=RATE, engine="local")
    for name in measured:
        assert_predicted(lineitem, columns[name])
