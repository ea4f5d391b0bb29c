"""A refresh is done when the kinds that are asked for are complete, whatever another kind of the column lacks."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.bundle.runs import intact_state_of
from tests.tables import create_with_rows

serial = itertools.count()


def rows(start: int) -> pa.Table:
    return pa.table({"k": list(range(start, start + 40))})


@pytest.fixture
def table(catalog: Any) -> Any:
    return create_with_rows(catalog, f"db.kinds_{next(serial)}", [rows(0)])


def test_another_kind_that_is_behind_costs_no_manifests(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar.build(table, ["k"], kinds=["page-index"], engine="local")
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local", save=True)
    table.append(rows(100))
    report = sidecar.refresh(table, engine="local")
    assert (report.action, report.files_indexed, report.behind) == ("written", 1, {"k": 1})
    monkeypatch.setattr("sidecar.indexing.preparing.list_snapshot", None)
    assert sidecar.refresh(table, engine="local").action == "current"


def test_what_is_left_is_counted_by_kind(table: Any) -> None:
    sidecar.build(table, ["k"], kinds=["page-index"], engine="local")
    table.append(rows(100))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    with closing(sidecar.open_sidecar(table)) as opened:
        state = intact_state_of(opened.puffin.metadata.properties)
    assert state is not None
    assert state.columns[1].left == {"page-index": 1}
    assert state.lacking({(1, "bloom"): 2}).columns[1].left == {"page-index": 1, "bloom": 2}


def test_a_limit_is_left_work_of_each_kind(table: Any) -> None:
    table.append(rows(100))
    sidecar.build(table, ["k"], kinds=["bloom", "theta"], engine="local", save=True)
    for start in (200, 300):
        table.append(rows(start))
    assert sidecar.refresh(table, engine="local", max_new_files=1).files_left == 1
    assert sidecar.refresh(table, engine="local").files_indexed == 1
    assert sidecar.refresh(table, engine="local").action == "current"
