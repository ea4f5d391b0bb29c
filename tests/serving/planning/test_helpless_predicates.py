"""A large table is not asked again what its sidecar has no filters for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo, In, Or

import sidecar
from sidecar.serving.planning import file_selection
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.planning.unindexed_predicates import form_of
from tests.iceberg.cases import local, replaced
from tests.serving.planning.asking import PYICEBERG, ask_for_facts, equal, paths
from tests.tables import create_with_rows


def test_forms_have_no_literals() -> None:
    assert form_of(EqualTo("a", 1)) == form_of(EqualTo("a", 2)) != form_of(EqualTo("b", 1))
    both = EqualTo("a", 1), EqualTo("b", 2)
    assert form_of(And(*both)) != form_of(Or(*both))
    assert form_of(In("a", range(2))) == form_of(In("a", range(100))) != form_of(In("a", range(101)))


def test_a_large_table_is_asked_once(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [pa.table({"a": [f"v{n}", "z"], "b": [f"v{n}", "z"]}) for n in range(4)]
    table = create_with_rows(catalog, "db.served_helpless", parts, columns=["a"])
    monkeypatch.setattr(file_selection, "BROAD", 1)
    planner = ScanPlanner()

    def ask(condition: Any) -> tuple[int, str]:
        found, facts = ask_for_facts(planner, table, condition, PYICEBERG)
        return len(paths(found)), facts.fallback

    assert ask(equal("b", "v3")) == (4, "")
    assert ask(equal("b", "v2")) == (3, file_selection.NO_INDEX_HELPS)  # by bounds
    assert ask(equal("a", "v3")) == (1, "")
    assert ask({"type": "and", "left": equal("a", "v3"), "right": equal("b", "v3")}) == (1, "")
    with replaced(local(table.metadata.statistics[0].statistics_path), None):
        assert ScanPlanner().mode(table, table.name()) == "client"
        condition = {"type": "in", "term": "a", "values": ["v3", "v4"]}
        assert ask(condition) == (4, file_selection.UNREADABLE)
    assert ask(condition) == (1, "")  # nothing is learned from a sidecar that cannot be read
    sidecar.build(table, ["b"], engine="local")
    table.refresh()
    assert ask(equal("b", "v3")) == (1, "")
