"""Pages of plans: every kept file once, whatever happens between two pages."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from tests.iceberg.cases import local, replaced
from tests.serving.planning.asking import JAVA, PYICEBERG, all_paths, ask, equal, page, paths
from tests.tables import create_with_rows

FILES = 7
KEY = bytes(16)


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest) -> Table:
    parts = [pa.table({"n": [at, 100], "s": [f"v{at}", "z"]}) for at in range(FILES)]
    return create_with_rows(catalog, f"db.served_pages_{re.sub('[^a-z0-9]', '_', request.node.name)}", parts)


def everything(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 100])
def test_pages_have_every_file_once(table: Table, size: int) -> None:
    planner = ScanPlanner(page_files=size)
    found = ask(planner, table)
    assert len(found.get("plan-tasks", [])) == -(-FILES // size) - 1
    assert all(len(paths(page(planner, table, token))) <= size for token in found.get("plan-tasks", []))
    assert all_paths(planner, table, found) == everything(table)


def test_another_worker_answers_the_pages(table: Table) -> None:
    found = ask(ScanPlanner(KEY, page_files=2), table)
    assert all_paths(ScanPlanner(KEY, page_files=3), table, found) == everything(table)


def test_a_sidecar_is_built_between_two_pages(table: Table) -> None:
    """The later pages are planned with it, by another worker. Their ranges are of the snapshot's files."""
    condition = {"type": "in", "term": "s", "values": ["v0", "v1", "v6"]}
    found = ask(ScanPlanner(KEY, page_files=2), table, condition)
    assert len(paths(found)) == 2
    sidecar.build(table, ["s"], engine="local")
    table.refresh()
    rest = {path for token in found["plan-tasks"] for path in paths(page(ScanPlanner(KEY), table, token))}
    wanted = {*paths(ask(ScanPlanner(), table, condition))}
    assert len(wanted) == 3
    assert wanted <= {*paths(found)} | rest
    assert not rest & {*paths(found)}
    assert len(rest) < FILES - 2


def test_a_sidecar_is_lost_between_two_pages(table: Table) -> None:
    """Then the later pages keep all of their files. What the first page had is in none of them."""
    sidecar.build(table, ["s"], engine="local")
    table.refresh()
    condition = {"type": "in", "term": "s", "values": ["v0", "v2", "v5", "v6"]}
    found = ask(ScanPlanner(KEY, page_files=2), table, condition)
    with replaced(local(table.metadata.statistics[0].statistics_path), None):
        later = [paths(page(ScanPlanner(KEY), table, token)) for token in found["plan-tasks"]]
    together = paths(found) + [path for one in later for path in one]
    assert len(together) == len({*together})
    assert {*paths(ask(ScanPlanner(), table, condition))} <= {*together}


def test_a_sentinel_is_in_no_later_page(catalog: Any) -> None:
    """It is returned at once, though its place is in the range of a page."""
    whole = [pa.table({"s": ["m"] * 2}) for _ in range(3)]
    table = create_with_rows(catalog, "db.served_pages_sentinel", [pa.table({"s": ["a", "z"]}), *whole], columns=["s"])
    planner = ScanPlanner(KEY, page_files=2)
    found = ask(planner, table, equal("s", "m"))
    assert all_paths(planner, table, found).count(everything(table)[-1]) == 1
    with replaced(local(table.metadata.statistics[0].statistics_path), None):
        again = [path for token in found["plan-tasks"] for path in paths(page(ScanPlanner(KEY), table, token))]
    assert sorted(paths(found) + again) == sorted(everything(table))


def test_a_plan_that_is_kept_is_that_of_one_version_of_the_metadata(catalog: Any) -> None:
    """The same request for the same snapshot, after two columns have swapped their names: it means other rows, too."""
    files = [pa.table({"a": [f"v{n}"] * 2, "b": [f"v{9 - n}"] * 2}) for n in range(FILES)]
    table = create_with_rows(catalog, "db.served_pages_versions", files)
    condition = {"type": "in", "term": "a", "values": ["v0", "v1", "v5"]}
    planner = ScanPlanner(page_files=1)
    before = all_paths(planner, table, ask(planner, table, condition))
    assert len(before) == 3
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    after = all_paths(planner, table, ask(planner, table, condition))
    assert {*before} < {*after}
    assert sorted(after) == sorted(all_paths(ScanPlanner(), table, ask(ScanPlanner(), table, condition)))


def test_a_plan_that_is_kept_is_that_of_one_kind_of_client(catalog: Any) -> None:
    """Hexadecimal digits are bytes for Java. pyiceberg may mean the text, so its plan has more files."""
    files = [
        pa.table({"b": pa.array([bytes.fromhex(text), text.encode()][at % 2 :][:1])})
        for at in range(4)
        for text in ("a1", "b2")
    ]
    table = create_with_rows(catalog, "db.served_pages_clients", files)
    condition = {"type": "in", "term": "b", "values": ["a1", "b2"]}
    planner = ScanPlanner(page_files=1)
    assert len(all_paths(planner, table, ask(planner, table, condition, JAVA), JAVA)) == 4
    assert len(all_paths(planner, table, ask(planner, table, condition, PYICEBERG), PYICEBERG)) == 8


def test_long_requests_are_answered_in_one_piece(table: Table) -> None:
    condition = {"type": "not-in", "term": "n", "values": list(range(1000, 13_000))}
    found = ask(ScanPlanner(page_files=2), table, condition)
    assert paths(found) == everything(table)
    assert "plan-tasks" not in found


def test_tokens_of_other_tables_are_refused(table: Table, catalog: Any) -> None:
    other = create_with_rows(catalog, "db.served_pages_other", [pa.table({"s": ["a"]})])
    planner = ScanPlanner(page_files=2)
    token = ask(planner, table)["plan-tasks"][0]
    with pytest.raises(RefusedRequestError) as caught:
        page(planner, other, token)
    assert caught.value.answer is ErrorType.NO_SUCH_PLAN_TASK
