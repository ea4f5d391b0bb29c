"""Filters that select whole partitions are understood or refused: Spark does not look at their rows again."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record

from sidecar import errors
from sidecar.errors import UnsupportedFeatureError
from sidecar.serving.planning import file_selection
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.protocol import filters
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.protocol.requests import parse_plan_request
from tests.iceberg.cases import file_in_manifest
from tests.serving.planning.asking import JAVA, PYICEBERG, ask, equal, name_of
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("p long, s string, b binary, k long, ts timestamp, n long")
SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "p"),
    PartitionField(3, 1001, IdentityTransform(), "b"),
    PartitionField(2, 1002, TruncateTransform(2), "s_2"),
    PartitionField(4, 1003, BucketTransform(4), "k_4"),
    PartitionField(5, 1004, DayTransform(), "day"),
)
PARTITIONS = ((1, b"A", "ab", 0, 0), (2, b"41", "b", 1, 1), (None,) * 5)
"""Of three files. pyiceberg cannot write rows by most transforms, so the files are not there."""


def create(catalog: Catalog, name: str, spec: PartitionSpec = SPEC) -> Table:
    table = catalog.create_table(f"db.{name}", SCHEMA, partition_spec=spec)
    append(table)
    return table


def append(table: Table) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as files:
        for partition in PARTITIONS:
            path = f"{table.location()}/data/{len(table.snapshots())}-{partition[0]}.parquet"
            files.append_data_file(
                file_in_manifest(
                    path, 1, 100, partition=Record(*partition[: len(table.spec().fields)]), spec_id=table.spec().spec_id
                )
            )
    table.refresh()


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return create(catalog, "whole_partitions")


def of_transform(transform: str, name: str, kind: str = "eq", value: Any = 1) -> dict[str, Any]:
    return {"type": kind, "term": {"type": "transform", "transform": transform, "term": name}, "value": value}


REFUSED: list[dict[str, Any]] = [
    of_transform("bucket[4]", "k"),
    of_transform("day", "ts"),
    of_transform("identity", "p"),
    {"type": "near", "term": "p", "value": 1},
    {"type": "near", "term": "k", "value": 1},
    {"type": "near", "term": {"type": "reference", "term": "p"}, "value": 1},
    {"type": "near"},
    {"type": "starts-with", "term": "s", "value": 1},
    {"type": "lt", "term": "ts", "value": "never"},
    {"type": "eq", "term": "of no schema", "value": 1},
    equal("p", 1.5),
]
UNDERSTOOD: list[dict[str, Any]] = [
    of_transform("bucket[8]", "k"),  # not what divides the table: Spark compares the rows
    of_transform("bucket[4]", "n"),
    {"type": "near", "term": "n", "value": 1},
    {"type": "lt", "term": "k", "value": "never"},
    {"type": "eq", "term": "ts", "value": "never"},
    equal("s", 1),
]


@pytest.mark.parametrize("condition", REFUSED, ids=str)
@pytest.mark.parametrize("place", ["alone", "beside", "negated"])
def test_what_is_not_understood_and_may_select_partitions_is_refused(
    table: Table, condition: dict[str, Any], place: str
) -> None:
    if place == "beside":
        condition = {"type": "and", "left": equal("n", 1), "right": condition}
    elif place == "negated":
        condition = {"type": "not", "child": condition}
    with pytest.raises(RefusedRequestError, match="scan-planning-mode to client") as caught:
        ask(ScanPlanner(), table, condition)
    assert caught.value.answer is ErrorType.UNSUPPORTED
    ask(ScanPlanner(), table, condition, PYICEBERG)  # compares all rows


@pytest.mark.parametrize("condition", UNDERSTOOD, ids=str)
def test_what_selects_no_partition_is_planned(table: Table, condition: dict[str, Any]) -> None:
    assert len(ask(ScanPlanner(), table, condition)["file-scan-tasks"]) == 3


@pytest.mark.parametrize(
    ("condition", "partitions"),
    [
        (equal("b", "41"), [1]),  # the digits of the byte A
        (equal("b", "3431"), [2]),
        ({"type": "in", "term": "p", "values": [2, *range(100, 500)]}, [2]),
        ({"type": "not-starts-with", "term": "s", "value": "ab"}, [2, None]),
        ({"type": "lt", "term": "ts", "value": 86_400_000_000}, [1]),
        ({"type": "is-null", "term": "k"}, [None]),
    ],
)
def test_files_of_other_partitions_are_dropped(table: Table, condition: dict[str, Any], partitions: list[Any]) -> None:
    found = ask(ScanPlanner(), table, condition)["file-scan-tasks"]
    assert sorted((task["data-file"]["partition"][0] for task in found), key=str) == partitions


def test_filters_beyond_the_limits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MOST_VALUES", 20)
    listed = {"type": "in", "term": "p", "values": list(range(30))}
    with pytest.raises(RefusedRequestError, match="the predicate in on p"):
        ask(ScanPlanner(), table, listed)
    assert len(ask(ScanPlanner(), table, {**listed, "term": "n"})["file-scan-tasks"]) == 3
    for name in ("p", "n"):
        deep = f'{{"type":"eq","term":"{name}","value":1}}'
        for _ in range(20_000):
            deep = f'{{"type":"not","child":{deep}}}'
        body = f'{{"filter":{deep}}}'.encode()
        assert parse_plan_request(body).filter["terms"] == [name]
        if name == "p":
            with pytest.raises(RefusedRequestError, match="the predicate unreadable on p"):
                ScanPlanner().plan(table, name_of(table), body, JAVA)
        else:
            ScanPlanner().plan(table, name_of(table), body, JAVA)


def test_one_spec_that_does_not_divide_by_a_column_is_enough(catalog: Any) -> None:
    """Spark takes a predicate as one for whole partitions if it is that in every spec."""
    table = create(catalog, "whole_partitions_two", PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p")))
    with pytest.raises(RefusedRequestError):
        ask(ScanPlanner(), table, of_transform("identity", "p"))
    with table.update_spec() as update:
        update.remove_field("p")
    append(table)
    assert len(ask(ScanPlanner(), table, of_transform("identity", "p"))["file-scan-tasks"]) == 6


def test_a_partition_column_whose_name_another_column_had(catalog: Any) -> None:
    table = create(
        catalog, "whole_partitions_names", PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    )
    assert len(ask(ScanPlanner(), table, equal("p", 1))["file-scan-tasks"]) == 1
    for old, new in (("p", "between"), ("k", "p"), ("between", "k")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    for name in ("p", "k"):
        with pytest.raises(RefusedRequestError, match=f"the predicate eq on {name} means several columns"):
            ask(ScanPlanner(), table, equal(name, 1))
        assert ask(ScanPlanner(), table, equal(name, 1), PYICEBERG)["file-scan-tasks"]
    assert len(ask(ScanPlanner(), table, equal("n", 1))["file-scan-tasks"]) == 3


@pytest.mark.parametrize("name", ["by_bounds_in_memory", "as_expression"])
def test_bugs_do_not_keep_files_of_all_partitions(table: Table, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(errors, "reraise_foreign", False)
    monkeypatch.setattr(file_selection, name, fail)
    if name == "by_bounds_in_memory":
        monkeypatch.setattr(file_selection, "Planning", fail)
    with pytest.raises(UnsupportedFeatureError, match="cannot be compared"):
        ask(ScanPlanner(), table, equal("p", 1))
    assert len(ask(ScanPlanner(), table, equal("p", 1), PYICEBERG)["file-scan-tasks"]) == 3
