"""Asks a planner as clients do, without a server."""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.table import Table

from sidecar.serving.answers import Caller, Identifier, PlanAnswer, PlanFacts
from sidecar.serving.planning.scan_planner import ScanPlanner

JAVA = Caller("Apache-HttpClient/5.5 (Java/17)", "Apache Iceberg 1.12.0 (commit 1)")
PYICEBERG = Caller("PyIceberg/0.12.0")


def equal(column: str, value: Any) -> dict[str, Any]:
    """The filter ``column = value``."""
    return {"type": "eq", "term": column, "value": value}


def name_of(table: Table) -> Identifier:
    """The identifier by which a server finds the table."""
    return table.name()


def document(answer: PlanAnswer) -> dict[str, Any]:
    """The JSON of an answer, of which nothing but JSON is read."""
    found: dict[str, Any] = json.loads(b"".join(answer.body), parse_constant=lambda text: 1 / 0)
    return found


def ask(planner: ScanPlanner, table: Table, filter: Any = True, caller: Caller = JAVA, **asked: Any) -> dict[str, Any]:
    """The answer to a plan request as JSON."""
    return ask_for_facts(planner, table, filter, caller, **asked)[0]


def ask_for_facts(
    planner: ScanPlanner, table: Table, filter: Any = True, caller: Caller = JAVA, **asked: Any
) -> tuple[dict[str, Any], PlanFacts]:
    """The answer and what the plan did."""
    request = {"filter": filter, **{name.replace("_", "-"): value for name, value in asked.items()}}
    answer = planner.plan(table, name_of(table), json.dumps(request).encode(), caller)
    return document(answer), answer.facts


def page(planner: ScanPlanner, table: Table, token: str, caller: Caller = JAVA) -> dict[str, Any]:
    """The page that a plan task stands for."""
    return document(planner.tasks(table, name_of(table), json.dumps({"plan-task": token}).encode(), caller))


def paths(found: dict[str, Any]) -> list[str]:
    """The data files of an answer, in order."""
    return [task["data-file"]["file-path"] for task in found["file-scan-tasks"]]


def all_paths(planner: ScanPlanner, table: Table, found: dict[str, Any], caller: Caller = JAVA) -> list[str]:
    """The data files of an answer and of its pages."""
    tokens = found.get("plan-tasks", [])
    return paths(found) + [path for token in tokens for path in paths(page(planner, table, token, caller))]
