"""What a plan may cost: predicates are bound once, comparisons are counted, and no plan goes on for who has left."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField
from starlette.requests import Request

from sidecar.planning.budget import Budget, OutOfTime, limited_by, present_budget
from sidecar.planning.evaluators import evaluators_of
from sidecar.serving.planning import limits
from sidecar.serving.planning.limits import run_while_wanted, within_limits
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from tests.serving.planning.asking import JAVA, PYICEBERG, ask, paths

PARTITIONS, PREDICATES = 8, 30


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """A file for each value of ``p``, in a table that has a second partition field ``q`` of NULL."""
    schema = Schema(*(NestedField(at, name, LongType()) for at, name in ((1, "p"), (2, "q"))))
    fields = (PartitionField(at, 1000 + at, IdentityTransform(), name) for at, name in ((1, "p"), (2, "q")))
    made: Table = catalog.create_table("db.served_limits", schema, partition_spec=PartitionSpec(*fields))
    made.append(pa.table({"p": list(range(PARTITIONS)), "q": pa.nulls(PARTITIONS, pa.int64())}))
    return made


def none_of(count: int) -> Any:
    """``p`` is none of so many values, one predicate for each."""
    found: Any = True
    for value in range(count):
        found = {"type": "and", "left": found, "right": {"type": "not-eq", "term": "p", "value": 100 + value}}
    return found


@pytest.mark.parametrize("caller", [JAVA, PYICEBERG])
def test_predicates_are_projected_once_and_not_for_each_partition(
    table: Table, caller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    projected, project = list[Any](), IdentityTransform.strict_project
    monkeypatch.setattr(IdentityTransform, "strict_project", lambda *given: projected.append(given) or project(*given))
    assert len(paths(ask(ScanPlanner(), table, none_of(PREDICATES), caller))) == PARTITIONS
    assert len(projected) <= 2 * PREDICATES


@pytest.mark.parametrize("caller", [JAVA, PYICEBERG])
def test_a_plan_that_compares_too_much_is_refused(table: Table, caller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_COMPARISONS", PARTITIONS * PREDICATES)
    with pytest.raises(RefusedRequestError, match=r"too many predicates.*scan-planning-mode") as caught:
        ask(ScanPlanner(), table, none_of(PREDICATES), caller)
    assert caught.value.answer is ErrorType.UNSUPPORTED
    assert len(paths(ask(ScanPlanner(), table, none_of(2), caller))) == PARTITIONS


def test_a_plan_ends_after_its_seconds(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLAN_SECONDS", -1.0)
    with pytest.raises(RefusedRequestError, match="too long") as caught:
        ask(ScanPlanner(), table)
    assert caught.value.answer is ErrorType.UNAVAILABLE


def test_the_residual_of_a_partition_that_lacks_fields_is_not_that_of_null(table: Table) -> None:
    evaluators = evaluators_of(table.scan("q IS NULL"))
    whole, short = (DataFile.from_args(partition=Record(*values)) for values in ((1, None), (1,)))
    assert str(evaluators.residual(whole, 0)) == "AlwaysTrue()"
    assert "IsNull" in str(evaluators.residual(short, 0))


def test_plans_without_limits_are_not_counted(table: Table) -> None:
    assert present_budget() is None
    with limited_by(Budget(0, 60)), within_limits(), pytest.raises(BaseException, match="too many"):
        evaluators_of(table.scan("p = 1")).residual(DataFile.from_args(partition=Record(1, None)), 0)
    evaluators_of(table.scan("p = 1")).residual(DataFile.from_args(partition=Record(1, None)), 0)


def test_nothing_goes_on_for_a_client_that_has_left() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    def work() -> None:
        with within_limits():
            while (budget := present_budget()) is not None:
                budget.check_time()

    async def asked() -> None:
        await run_while_wanted(Request({"type": "http", "headers": []}, receive), work)

    with pytest.raises(RefusedRequestError, match="has left") as caught:
        asyncio.run(asked())
    assert isinstance(caught.value.__cause__, OutOfTime)
