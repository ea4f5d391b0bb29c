"""Several statistics files of one snapshot, as Impala leaves them: all of them are seen, merged and kept.

Spark and Impala take the counts of the first one, so the first one wins where two have the same blob.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

import sidecar
from sidecar.errors import DamagedFileError, StorageError
from sidecar.iceberg.statistics_files import entry_commits, registering
from sidecar.iceberg.statistics_files.registering import check_mergeable, register, unregister
from sidecar.puffin.types import THETA
from tests.iceberg.cases import local
from tests.iceberg.registering_cases import (
    THETAS,
    Interloper,
    blobs_of,
    create,
    damage,
    head,
    registered,
    set_foreign,
    write_ours,
)
from tests.iceberg.test_repair import register_raw

OTHER = "other-index-v1"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "pause", lambda attempt: None)
    monkeypatch.setattr(entry_commits, "pause", lambda attempt: None)


@pytest.fixture
def table(catalog: Any) -> Table:
    return create(catalog)


def all_entries(table: Table) -> list[StatisticsFile]:
    """The entries of the head, in the order of the metadata."""
    return [entry for entry in table.refresh().metadata.statistics if entry.snapshot_id == head(table)]


def paths(table: Table) -> list[str]:
    return [entry.statistics_path for entry in all_entries(table)]


def put(catalog: Any, table: Table, entries: list[StatisticsFile]) -> None:
    """Another engine commits exactly these entries."""

    def edit(document: dict[str, Any]) -> None:
        document["statistics"] = [json.loads(entry.model_dump_json(by_alias=True)) for entry in entries]

    register_raw(catalog, ".".join(table.name()), edit)
    table.refresh()


def set_two(catalog: Any, table: Table, first: dict[int, str], second: dict[int, str], **second_has: Any) -> list[str]:
    """Two files of another engine for the head; their paths."""
    set_foreign(table, first, [(OTHER, [3], b"of the first")])
    (one,) = all_entries(table)
    set_foreign(table, second, **second_has)
    (other,) = all_entries(table)
    put(catalog, table, [one, other])
    return paths(table)


def test_both_files_are_merged_and_the_first_one_wins(catalog: Any, table: Table) -> None:
    first, second = set_two(
        catalog, table, {1: "11", 2: "12"}, {2: "22", 3: "23"}, others=[(OTHER, [2], b"of the 2nd")]
    )
    theirs = [blobs_of(path) for path in (first, second)]
    done = register(table, head(table), THETAS, write_ours)
    assert registered(table) == {1: "11", 2: "12", 3: "23"}
    stored = blobs_of(done.statistics_path)
    for number, field, kind in ((0, 1, THETA), (0, 2, THETA), (1, 3, THETA), (0, 3, OTHER), (1, 2, OTHER)):
        assert stored[kind, (field,)] == theirs[number][kind, (field,)]
    assert paths(table) == [done.statistics_path]
    assert [note for note in done.notes if "of another writer is kept" in note]


@pytest.mark.parametrize("number", [0, 1])
def test_an_unreadable_file_is_named_whichever_it_is(catalog: Any, table: Table, number: int) -> None:
    bad = set_two(catalog, table, {1: "11"}, {3: "23"})[number]
    before = all_entries(table)
    damage(bad, lambda data: data[:-1] + b"x")
    for _ in range(2):
        with pytest.raises(DamagedFileError, match=f"would lose it.*{Path(bad).name}"):
            register(table, head(table), THETAS, write_ours)
        with pytest.raises(DamagedFileError, match=Path(bad).name):
            check_mergeable(table, head(table))
    assert all_entries(table) == before
    done = register(table, head(table), THETAS, write_ours, force=True)
    assert registered(table) == {1: "11", 2: "30", 3: "23"}, "the entries stay, as before"
    assert [note for note in done.notes if bad in note]


def test_a_missing_first_file_is_named(catalog: Any, table: Table) -> None:
    first, _ = set_two(catalog, table, {1: "11"}, {3: "23"})
    local(first).unlink()
    with pytest.raises(StorageError, match=Path(first).name):
        register(table, head(table), THETAS, write_ours)


def test_files_that_come_between_are_merged_too(catalog: Any, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine leaves two files just before our commit, which takes the place of both."""
    writer = table.catalog.load_table(table.name())
    Interloper(monkeypatch, {0: lambda: set_two(catalog, writer, {1: "11"}, {3: "23"})})
    monkeypatch.setattr(table.catalog, "commit_table", _blind(table.catalog.commit_table))
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "11", 2: "30", 3: "23"}
    assert blobs_of(done.statistics_path)[OTHER, (3,)]


def _blind(commit: Any) -> Any:
    """An SQL catalog refuses a commit to an older version; a REST catalog does not. So does this one."""
    return lambda table, requirements, updates: commit(table.catalog.load_table(table.name()), requirements, updates)


@pytest.fixture
def indexed(catalog: Any) -> Table:
    """A table with a file of another engine and a sidecar for one snapshot."""
    table = create(catalog)
    set_foreign(table, {3: "23"})
    (theirs,) = all_entries(table)
    table.update_statistics().remove_statistics(head(table)).commit()
    sidecar.build(table.refresh(), ["a"], kinds=["bloom", "theta"], engine="local")
    put(catalog, table, [theirs, *all_entries(table)])
    return table


def test_a_sidecar_beside_another_file_is_used_and_seen(catalog: Any, indexed: Table) -> None:
    for number in range(2):
        plan = sidecar.plan(indexed, "a = 77")
        assert (plan.files_kept, list(plan.warnings)) == (0, [])
        assert sidecar.refresh(indexed, engine="local").action != "written"
        status = sidecar.status(indexed)
        assert (status.registered.entries, status.registered.files) == (2, 2)
        assert (status.coverage["a"]["theta"].ndv, status.coverage["c"]["theta"].ndv) == (3, 23)
        assert sum(f"snapshot {head(indexed)} has 2 statistics files" in text for text in status.warnings) == 1
        assert [ref.snapshot_id for ref in status.refs] == [head(indexed)]
        assert len(all_entries(indexed)) == 2
        if not number:
            put(catalog, indexed, all_entries(indexed)[::-1])


@pytest.mark.parametrize("number", [0, 1])
def test_verify_looks_at_both(catalog: Any, indexed: Table, number: int) -> None:
    put(catalog, indexed, all_entries(indexed)[:: 1 if number else -1])
    theirs = paths(indexed)[1 - number]
    problems = [(problem.file, problem.problem) for problem in sidecar.verify(indexed).problems]
    assert [file for file, text in problems if "sketch cannot be read" in text] == [theirs], "it is a text, no sketch"
    damage(theirs, lambda data: data[:-1] + b"x")
    (problem,) = sidecar.verify(indexed).problems
    assert local(theirs).name in problem.problem
    assert "does not end with the magic" in problem.problem
    local(theirs).unlink()
    assert [problem.file for problem in sidecar.verify(indexed).problems] == [theirs]


def test_a_build_of_another_column_merges_both(indexed: Table) -> None:
    sidecar.build(indexed, ["b"], engine="local")
    assert len(all_entries(indexed)) == 1
    assert registered(indexed) == {1: "3", 2: "3", 3: "23"}
    assert sidecar.plan(indexed.refresh(), "a = 77").files_kept == 0
    assert sidecar.plan(indexed, "b = 'no'").files_kept == 0


def test_expire_and_unregister_leave_the_other_file(catalog: Any, indexed: Table) -> None:
    theirs, ours = all_entries(indexed)
    indexed.append(pa.table({"a": [4], "b": ["q"], "c": [4.0]}))
    sidecar.build(indexed.refresh(), ["a"], engine="local")
    kept = sidecar.expire(indexed, older_than=timedelta(0), dry_run=True)
    assert [entry.statistics_path for entry in kept.expired] == [ours.statistics_path]
    sidecar.expire(indexed, older_than=timedelta(0))
    assert theirs in indexed.refresh().metadata.statistics
    assert ours not in indexed.metadata.statistics
    both = [theirs, theirs.model_copy(update={"statistics_path": f"{theirs.statistics_path}2"}), ours]
    put(catalog, indexed, both)
    assert unregister(indexed, [ours]) == (), "a commit could leave one of the others"
    assert sidecar.expire(indexed, older_than=timedelta(0)).expired == []
    assert indexed.refresh().metadata.statistics == both
    put(catalog, indexed, [ours, ours.model_copy(update={"statistics_path": f"{ours.statistics_path}2"})])
    assert len(unregister(indexed, indexed.metadata.statistics)) == 2
    assert indexed.refresh().metadata.statistics == []


def test_repair_sees_both_and_keeps_what_it_does_not_mend(catalog: Any, table: Table) -> None:
    first, second = set_two(catalog, table, {1: "11"}, {3: "23"})
    entries = all_entries(table)
    assert (sidecar.repair(table).repairs, sidecar.repair(table).problems) == ([], [])
    local(first).unlink()
    (found,) = sidecar.repair(table, dry_run=True).repairs
    assert (found.statistics_path, found.action, found.reasons) == (first, "drop", ["the file is gone"])
    assert sidecar.repair(table).repairs == [found]
    assert all_entries(table) == entries[1:]
    local(second).unlink()
    put(catalog, table, entries)
    assert len(sidecar.repair(table).repairs) == 2
    assert all_entries(table) == []


@pytest.mark.parametrize("number", [0, 1])
def test_repair_leaves_two_files_alone_of_which_it_could_keep_one(catalog: Any, table: Table, number: int) -> None:
    set_two(catalog, table, {1: "11"}, {3: "23"})
    entries = all_entries(table)
    entries[number].blob_metadata[0].fields[:] = [99]
    put(catalog, table, entries)
    report = sidecar.repair(table)
    assert report.repairs == []
    assert ["has 2 statistics files" in text and "field 99" in text for text in report.problems] == [True]
    assert len(all_entries(table)) == 2
    register(table, head(table), THETAS, write_ours)
    assert sidecar.repair(table.refresh()).problems == []
    assert len(all_entries(table)) == 1


def test_our_sketch_of_either_file_is_kept(catalog: Any, table: Table) -> None:
    """Two builds at once may leave two files of ours where a catalog joins their entries."""
    register(table, head(table), THETAS[:1], write_ours)
    (one,) = all_entries(table)
    table.update_statistics().remove_statistics(head(table)).commit()
    register(table, head(table), THETAS[1:], write_ours)
    put(catalog, table, [one, *all_entries(table)])
    register(table, head(table), [], write_ours)
    assert registered(table) == {1: "3", 2: "30"}


def test_blobs_that_pyiceberg_refuses_are_known_of_each_file(catalog: Any, table: Table) -> None:
    first, second = set_two(catalog, table, {1: "11"}, {3: "23"})

    def edit(document: dict[str, Any]) -> None:
        for entry in document["statistics"]:
            entry["blob-metadata"].append({**entry["blob-metadata"][0], "type": OTHER})

    register_raw(catalog, ".".join(table.name()), edit)
    opened = sidecar.open_table(".".join(table.name()), catalog.name, **catalog.properties)
    local(first).unlink()
    found = sidecar.repair(opened).repairs
    assert [(one.statistics_path, one.action) for one in found] == [(first, "drop"), (second, "register anew")]
    assert paths(catalog.load_table(table.name())) == [second]


def test_an_entry_that_lists_no_blob_is_of_somebody(table: Table) -> None:
    """It says nothing of its file's blobs, so they may be those of another writer."""
    silent = StatisticsFile(
        snapshot_id=head(table),
        statistics_path="x",
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    assert not entry_commits._may_replace((), silent)
    assert entry_commits._may_replace((silent,), silent)
