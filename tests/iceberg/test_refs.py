"""Branches and tags: the rows are those that the branch or tag has, by the sidecar of an ancestor."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

import sidecar
from sidecar.errors import UsageError
from tests.cli.running import run
from tests.iceberg.cases import comparable
from tests.tables import create_with_rows

ROWS = pa.schema([("k", pa.int64()), ("old", pa.string())])


def rows(part: int) -> pa.Table:
    """Odd and even keys of all parts within the same bounds."""
    keys = [2 * (part + 10 * n) for n in range(60)]
    return pa.table({"k": keys, "old": [f"o{key}" for key in keys]}, schema=ROWS)


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Three files, indexed and tagged; then one file more on each of ``main`` and a branch; then another schema."""
    made = create_with_rows(catalog, "db.refs", map(rows, range(3)), ROWS, **{"format-version": "2"})
    before = made.current_snapshot()
    assert before is not None
    sidecar.build(made, ["k", "old"], engine="local")
    made.refresh()
    with made.manage_snapshots() as manage:
        manage.create_branch(before.snapshot_id, "side").create_tag(before.snapshot_id, "before")
    made.append(rows(3), branch="side")
    with made.update_schema() as update:
        update.rename_column("old", "renamed")
        update.add_column("fresh", StringType())
    made.append(rows(4).rename_columns(["k", "renamed"]))
    made.delete("k = 0")
    return made


@pytest.mark.parametrize(("ref", "parts"), [("before", (0, 1, 2)), ("side", (0, 1, 2, 3)), ("main", (0, 1, 2, 4))])
def test_a_branch_is_read_in_the_present_schema_and_a_tag_in_its_own(
    table: Table, ref: str, parts: tuple[int, ...]
) -> None:
    name, chance = "old" if ref == "before" else "renamed", random.Random(ref)
    everything = [row for part in parts for row in rows(part).to_pylist() if ref != "main" or row["k"]]
    for key in (0, *(chance.randrange(1200) for _ in range(4))):
        for predicate, keys in (
            (f"k = {key}", {key}),
            (f"{name} = 'o{key}' or k in ({key + 2}, 7)", {key, key + 2, 7}),
        ):
            expected: list[dict[str, Any]] = [{"k": r["k"], name: r["old"]} for r in everything if r["k"] in keys]
            if ref != "before":
                expected = [row | {"fresh": None} for row in expected]
            plan = sidecar.plan(table, predicate, at=ref)
            found = plan.to_arrow()
            assert found.schema.names == (["k", "old"] if ref == "before" else ["k", "renamed", "fresh"])
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected)), (ref, predicate)
            assert plan.files_total == len(parts)
            assert comparable(sidecar.scan(table, predicate, at=ref)) == comparable(found)
            assert comparable(sidecar.scan_batches(table, predicate, at=ref).read_all()) == comparable(found)


def test_a_branch_uses_the_sidecar_of_its_ancestor_for_files_that_are_live(table: Table) -> None:
    plan = sidecar.plan(table, "k = 41", at="side")
    assert plan.sidecar is not None
    assert plan.sidecar.snapshots_behind == 1
    assert (plan.funnel.listed, plan.funnel.dropped_by_filter, plan.files_kept) == (3, 3, 1)
    status = sidecar.status(table, at="side")
    assert status.files.to_dict() == {"live": 4, "listed": 3}
    assert sidecar.verify(table, at="before").problems == []
    found = sidecar.open_sidecar(table, at="side")
    assert len(found.segments) == 1
    found.close()


def test_what_is_listed_decides_and_not_age(table: Table, catalog: Any) -> None:
    """A tag that is older than every sidecar: a later one answers, and lists more than the tag has."""
    rolled = table.metadata.snapshot_by_name("before")
    assert rolled is not None
    assert rolled.parent_snapshot_id is not None
    with table.manage_snapshots() as manage:
        manage.create_tag(rolled.parent_snapshot_id, "earlier")
    before = sidecar.plan(table, "k = 41", at="earlier")
    assert before.sidecar is not None
    assert (before.sidecar.snapshots_behind, before.files_kept) == (0, 0)
    report = sidecar.build(table, ["k"], engine="local", at="earlier")
    assert report.snapshot_id == rolled.parent_snapshot_id
    table.refresh()
    plan = sidecar.plan(table, "k = 41", at="earlier")
    assert (plan.files_total, plan.files_kept) == (2, 0)
    assert sidecar.plan(table, "k = 41", at=rolled.parent_snapshot_id).files_kept == 0


def test_wrong_names_are_told(table: Table) -> None:
    with pytest.raises(UsageError, match=r"no branch or tag 'sied'.*It has side"):
        sidecar.plan(table, "k = 1", at="sied")
    with pytest.raises(UsageError, match="only a branch can be refreshed"):
        sidecar.refresh(table, at="before")


def test_digits_are_a_snapshot_id_unless_a_tag_has_that_name(table: Table) -> None:
    """On a command line everything is a text."""
    side, main = (table.metadata.refs[name].snapshot_id for name in ("side", "main"))
    assert sidecar.plan(table, "k = 1", at=str(main)).snapshot_id == main
    with table.manage_snapshots() as manage:
        manage.create_tag(side, str(main)).create_tag(main, "5")
    table.refresh()
    assert sidecar.plan(table, "k = 1", at=str(main)).snapshot_id == side
    assert sidecar.plan(table, "k = 1", at=main).snapshot_id == main
    assert sidecar.plan(table, "k = 1", at="5").snapshot_id == main
    with pytest.raises(UsageError, match="17"):
        sidecar.plan(table, "k = 1", at="17")


def test_the_command_line_takes_a_ref(table: Table, catalog_dir: Path) -> None:
    path = table.metadata_location
    for command in (["plan", path, "k = 41"], ["scan", path, "k = 46"], ["probe", path, "k", "41"]):
        done = run(*command, "--at", "side", "--json")
        if command[0] == "scan":
            assert json.loads(done.stdout) == {"k": 46, "renamed": "o46", "fresh": None}
        elif command[0] == "plan":
            assert json.loads(done.stdout)["files"] == {"total": 4, "covered": 3, "kept": 1}
    assert run("plan", path, "k = 1", "--at", "nope").exit_code == 2
