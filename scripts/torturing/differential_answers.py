"""Asks the cases of :mod:`scripts.torturing.differential_tables` of the code that is on the path.

Run as a program by ``scripts/torture differential``, with each of two checkouts on the path; so it imports nothing of
this folder, and of the package little but what users do: ``differential_answers.py CASES OUT``. A line of OUT is one
answer: the files, row groups, rows, notes, warnings, funnel and tasks of a plan, or its error; the document and facts
of a plan server's answer; the report of a search.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

import sidecar

COSTS = ("sidecar.planning.files.cheapest", "sidecar.planning.listed_files", "sidecar.planning.file_pruner")
"""Modules with the measured costs of stages, in the versions of the code."""
COMPARISONS = (
    ("sidecar.planning.files.cheapest", "columns_are_cheaper"),
    ("sidecar.planning.listed_files", "ListedFiles._columns_are_cheaper"),
)
"""The question whether columns of bounds are fewer bytes than records."""
WAYS: dict[str, dict[str, Any]] = {
    "usual": {},
    "columns": {"FEW": 0, "BROAD": 0},
    "opened": {"FEW": 0, "BROAD": 0, "OPENING": 0.0},
    "walked": {"FEW": 0, "BROAD": 0, "WALKED": 0},
}
"""Costs by which a small table is planned as large ones are."""
PYICEBERG, JAVA = "PyIceberg/0.12.0", "Apache-HttpClient/5.5 (Java/17)"
Answer = dict[str, Any]


def main(cases: Path, out: Path) -> None:
    """Write the answers to all cases."""
    with out.open("w") as lines:
        for line in cases.read_text().splitlines():
            case = json.loads(line)
            for key, answer in answers_to(case):
                lines.write(json.dumps([[case["name"], *key], answer], default=str) + "\n")


def answers_to(case: Any) -> Iterator[tuple[list[Any], Answer]]:
    """Yield what was asked, and the answer."""
    tables = {what: load(place) for what, place in case["metadata"].items()}
    table, others = tables["whole"], [what for what in tables if what != "whole"]
    given: dict[str, Any] = {}
    if case["is_encrypted"]:
        given["encryption_keys"] = import_module("tests.iceberg.encrypted_tables").bundle_keys("ssn")
    for at, (text, snapshot_id) in enumerate(case["asked"]):
        for way in WAYS:
            yield [text, snapshot_id, way, "whole"], planned(table, text, way, at=snapshot_id, **given)
        turn = [*WAYS][at % len(WAYS)]
        for what in others:
            yield [text, snapshot_id, turn, what], planned(tables[what], text, turn, at=snapshot_id, **given)
        if given and at % 3 == 0:
            yield [text, snapshot_id, turn, "without keys"], planned(table, text, turn, at=snapshot_id)
        if at % 6 == 0:
            for way in WAYS:
                yield [text, snapshot_id, way, "twice"], planned(table, text, way, True, at=snapshot_id)
        if case["is_served_often"] or at % 5 == 0:
            for agent in (PYICEBERG, JAVA):
                for most in (1, 500):
                    yield [text, "served", agent, most], served(table, text, agent, most, turn)
            for what in others[at % len(others) :][:1] if others else ():
                yield [text, "served", what], served(tables[what], text, JAVA, 1, turn)
    for keys in case["keys"]:
        for text in ("v < 30", "s = 'aaa'", "k is not null"):
            for at, way in enumerate(WAYS):
                yield [text, keys[:9], way, "whole"], planned(table, text, way, keys={"k": keys})
                for what in others[at : at + 1]:
                    yield [text, keys[:9], way, what], planned(tables[what], text, way, keys={"k": keys})
    for column, value in case["searched"]:
        for what in tables:
            yield [column, value, what], searched(tables[what], column, value)


@contextmanager
def costs(way: str, twice: bool = False) -> Iterator[None]:
    """Plan in a way; ``twice`` has each manifest twice in the list of a snapshot."""
    with ExitStack() as patches:
        for module in filter(None, map(_module, COSTS if WAYS[way] else ())):
            for name in WAYS[way].keys() & vars(module).keys():
                patches.enter_context(mock.patch.object(module, name, WAYS[way][name]))
        for name, attribute in COMPARISONS if WAYS[way] else ():
            if _module(name) is not None:
                patches.enter_context(mock.patch(f"{name}.{attribute}", return_value=True))
        if twice:
            planner: Any = import_module("sidecar.planning.planner")
            read = planner.read_manifests
            patches.enter_context(mock.patch.object(planner, "read_manifests", lambda *asked: 2 * read(*asked)))
        yield


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


def planned(table: Table, text: str, way: str, twice: bool = False, **asked: Any) -> Answer:
    """A plan."""
    with costs(way, twice):
        return _told(lambda: _of_plan(sidecar.plan(table, text, allow_equality_deletes=True, **asked)))


def served(table: Table, text: str, agent: str, most: int, way: str) -> Answer:
    """A plan of the server, whose files come from memory if there are more than ``most``."""
    from sidecar.iceberg.predicates.predicate import parse_predicate
    from sidecar.serving.answers import Caller
    from sidecar.serving.planning import file_selection
    from sidecar.serving.planning.scan_planner import ScanPlanner

    def ask() -> Answer:
        asked = {"filter": json.loads(parse_predicate(text, table.schema()).model_dump_json())}
        caller = Caller(agent, "Apache Iceberg 1.12.0 (commit 1)" if agent == JAVA else "")
        answer = ScanPlanner().plan(table, table.name(), json.dumps(asked).encode(), caller)
        facts = {name: value for name, value in vars(answer.facts).items() if "seconds" not in name}
        return {"document": json.loads(b"".join(answer.body)), "facts": facts}

    with costs(way), mock.patch.object(file_selection, "DIRECT_FILES", most):
        return _told(ask)


def searched(table: Table, column: str, value: str) -> Answer:
    """A search in all snapshots."""

    def ask() -> Answer:
        found = sidecar.find(table, {column: [value]}, all_snapshots=True).to_dict()
        return {name: value for name, value in found.items() if "seconds" not in name}

    return _told(ask)


def _told(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _of_plan(plan: Any) -> Answer:
    funnel = plan.funnel.to_dict()
    return {
        "kept": plan.kept_files,
        "tasks": list(map(_of_task, plan.tasks)),
        "row_groups": {
            path: [list(kept.kept), kept.total, kept.by_filter, [rows.pairs.tolist() for rows in kept.rows]]
            for path, kept in plan.row_groups.items()
        },
        "funnel": funnel | {"kept_because": sorted(plan.funnel.kept_because.items())},
        "notes": plan.notes,
        "warnings": plan.warnings,
        "answered": sorted(plan.answered),
        "is_locked": plan.is_locked,
        "equality_deletes": sorted(plan.equality_deletes),
        "sequence_numbers": dict(sorted(plan.sequence_numbers.items())),
        "manifests": plan.manifests.to_dict(),
        "sidecar": None if plan.sidecar is None else vars(plan.sidecar),
        "reads": [plan.index_reads, plan.index_bytes_read],
    }


def _of_task(task: Any) -> list[Any]:
    """A task field by field: pyiceberg compares paths alone."""
    deletes = sorted(map(_of_file, task.delete_files))
    return [_of_file(task.file), deletes, repr(task.residual)]


def _of_file(file: Any) -> str:
    parts = (dict(part) if hasattr(part, "items") else repr(part) for part in file._data)
    return repr((*parts, file.spec_id))


def load(place: str) -> Table:
    """The table of a metadata file."""
    io = load_file_io({}, place)
    metadata = FromInputFile.table_metadata(io.new_input(place))
    name = tuple(metadata.location.split("/")[-2:])
    return Table(name, metadata, place, io, NoopCatalog("lake"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
