"""Removing entries and registering a file for another snapshot: an entry that somebody sets meanwhile survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import CommitConflictError, StorageError, UsageError
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.statistics_files import entry_commits, registering, superseding
from sidecar.iceberg.statistics_files.registering import register, register_again, unregister
from tests.iceberg.cases import local
from tests.iceberg.registering_cases import (
    ROWS,
    THETAS,
    Interloper,
    entry,
    head,
    registered,
    serial,
    set_foreign,
    stats_files,
    write_ours,
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)


@pytest.fixture
def table(catalog: Any) -> Table:
    table: Table = catalog.create_table(f"db.unregister_{next(serial)}", ROWS.schema)
    table.append(ROWS)
    return table


def build(table: Table) -> StatisticsFile:
    register(table, head(table), THETAS, write_ours)
    return entry(table)


def other(table: Table) -> Table:
    loaded: Table = table.catalog.load_table(table.name())
    return loaded


class Blind:
    """Commits as a REST catalog makes them, whatever version was read; others act before or after the ``n``-th."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        before: dict[int, Callable[[], object]] | None = None,
        after: dict[int, Callable[[], object]] | None = None,
    ) -> None:
        self.count = 0

        def commit(table: Table, requirements: Any, updates: Any) -> None:
            turn, self.count = self.count, self.count + 1
            (before or {}).get(turn, lambda: None)()
            table.catalog.commit_table(table, requirements, updates)
            (after or {}).get(turn, lambda: None)()

        monkeypatch.setattr(entry_commits, "commit", commit)


def test_several_entries_go_in_one_commit_and_files_stay(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [build(table)]
    for _ in range(2):
        table.append(ROWS)
        entries.append(build(table))
    commits = Blind(monkeypatch)
    assert unregister(table, entries[:2]) == tuple(entries[:2])
    assert commits.count == 1
    assert list(statistics_of(table.refresh()).values()) == [(entry,) for entry in entries[2:]]
    assert stats_files(table) == {e.statistics_path for e in entries}


def test_an_entry_with_another_file_stays(table: Table) -> None:
    old = build(table)
    new = build(table)
    assert unregister(table, [old]) == ()
    assert entry(table) == new


@pytest.mark.parametrize("blind", [False, True], ids=["sql", "rest"])
def test_an_entry_that_is_set_just_before_the_removal_survives(
    table: Table, monkeypatch: pytest.MonkeyPatch, blind: bool
) -> None:
    ours, writer = build(table), other(table)
    if blind:
        commits = Blind(monkeypatch, {0: lambda: set_foreign(writer, {3: "333"})})
        unregister(table, [ours])
        assert commits.count == 2  # the removal, and the entry again
    else:
        real = entry_commits.commit

        def commit(*args: Any) -> None:
            monkeypatch.setattr(entry_commits, "commit", real)
            set_foreign(writer, {3: "333"})
            real(*args)

        monkeypatch.setattr(entry_commits, "commit", commit)
        assert unregister(table, [ours]) == (ours,)
    assert registered(table) == {3: "333"}


def test_an_entry_that_replaces_the_restored_one_survives(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, writer = build(table), other(table)
    Blind(monkeypatch, {n: lambda n=n: set_foreign(writer, {3: str(n)}) for n in range(3)})  # type: ignore[misc]
    unregister(table, [ours])
    assert registered(table) == {3: "2"}


def test_others_that_never_stop_are_a_conflict_that_names_their_file(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, writer, paths = build(table), other(table), []
    Blind(monkeypatch, {n: lambda: paths.append(set_foreign(writer, {3: "3"})) for n in range(9)})
    with pytest.raises(CommitConflictError, match="all 6 attempts") as error:
        unregister(table, [ours])
    assert error.value.file == paths[-1]


def test_a_removal_of_unknown_outcome_is_looked_up(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, real, does = build(table), table.catalog.commit_table, [False]

    def commit(*args: Any, **named: Any) -> Any:
        if does[0]:
            real(*args, **named)
        raise ConnectionError("no answer")

    monkeypatch.setattr(entry_commits, "commit", commit)
    with pytest.raises(StorageError, match="may still take effect: ConnectionError: no answer"):
        unregister(table, [ours])
    assert entry(table) == ours
    does[0] = True
    assert unregister(table, [ours]) == (ours,)
    assert table.refresh().metadata.statistics == []


@pytest.mark.parametrize(
    ("error", "raised"), [(ForbiddenError("not you"), StorageError), (CommitFailedException("x"), CommitConflictError)]
)
def test_a_removal_that_fails_changes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    ours = build(table)

    def commit(*_: Any) -> None:
        raise error

    monkeypatch.setattr(entry_commits, "commit", commit)
    with pytest.raises(raised):
        unregister(table, [ours])
    assert entry(table) == ours


def test_a_file_is_registered_for_a_second_snapshot(table: Table) -> None:
    ours, first = build(table), head(table)
    table.append(ROWS)
    assert register_again(table, ours, head(table))
    assert entry(table).statistics_path == entry(table, first).statistics_path == ours.statistics_path
    assert entry(table).blob_metadata == ours.blob_metadata
    commits = len(table.metadata.metadata_log)
    assert register_again(table, ours, head(table))
    assert len(table.refresh().metadata.metadata_log) == commits, "it has it already: no commit"


def test_sketches_of_dropped_columns_are_not_registered_again(table: Table) -> None:
    ours = build(table)
    with table.update_schema() as update:
        update.delete_column("b")
    table.append(ROWS.drop(["b"]))
    assert register_again(table, ours, head(table))
    assert registered(table) == {1: "3"}


@pytest.mark.parametrize("blind", [False, True], ids=["before", "just-before"])
def test_the_entry_of_another_stays_instead(table: Table, monkeypatch: pytest.MonkeyPatch, blind: bool) -> None:
    ours = build(table)
    table.append(ROWS)
    writer = other(table)
    if blind:
        Blind(monkeypatch, {0: lambda: set_foreign(writer, {3: "333"})})
    else:
        set_foreign(writer, {3: "333"})
    assert not register_again(table, ours, head(table))
    assert registered(table) == {3: "333"}


def test_a_file_that_nothing_names_any_more_is_not_registered(table: Table) -> None:
    ours = build(table)
    table.append(ROWS)
    unregister(table, [ours])
    assert not register_again(table, ours, head(table))
    assert table.refresh().metadata.statistics == []


def test_a_file_that_is_deleted_meanwhile_is_taken_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = build(table)
    table.append(ROWS)
    Blind(monkeypatch, {0: local(ours.statistics_path).unlink})
    with pytest.raises(CommitConflictError, match="its entry was taken back"):
        register_again(table, ours, head(table))
    assert head(table) not in statistics_of(table.refresh())


def test_an_unknown_snapshot_and_one_that_expires(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, first = build(table), head(table)
    table.append(ROWS)
    second = head(table)
    table.append(ROWS)
    with pytest.raises(UsageError, match="no snapshot 5"):
        register_again(table, ours, 5)

    def expire() -> None:
        other(table).maintenance.expire_snapshots().by_id(second).commit()

    Blind(monkeypatch, {0: expire})
    with pytest.raises(CommitConflictError, match=f"the snapshot {second} expired meanwhile"):
        register_again(table, ours, second)
    assert list(statistics_of(table.refresh())) == [first]


def test_a_file_that_gc_took_before_its_commit_gives_the_earlier_entry_back(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was stopped between its file and its commit, and somebody deleted the file."""
    set_foreign(table, {3: "333"})
    before = stats_files(table)

    def clean_up() -> None:
        for path in stats_files(table) - before:
            Path(path.removeprefix("file:")).unlink()

    Interloper(monkeypatch, {0: clean_up})
    with pytest.raises(CommitConflictError, match="deleted before it was registered"):
        register(table, head(table), THETAS, write_ours)
    assert registered(table) == {3: "333"}


def test_a_file_is_not_registered_long_after_it_was_begun(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, registering.REGISTRABLE_FOR + 1, 1e6, 1e6])
    monkeypatch.setattr(registering, "time", SimpleNamespace(time=lambda: next(clock)))
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 2
    assert stats_files(table) == {done.statistics_path}


def test_what_was_merged_into_a_removed_entry_is_merged_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three at once: a removal that read an older version takes a registration that merged another's blobs."""
    set_foreign(table, {3: "333"})
    writer = other(table)

    def remove() -> None:
        writer.refresh().update_statistics().remove_statistics(head(writer)).commit()

    Interloper(monkeypatch, after={0: remove})
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "3", 2: "30", 3: "333"}


@pytest.mark.parametrize(("refs", "needed"), [({"main": 3}, False), ({"main": 3, "tag": 1}, True), ({"tag": 2}, True)])
def test_an_older_sidecar_is_needed_by_each_ref_that_meets_it_first(
    refs: dict[str, int], needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another ref meets the newer one before."""
    monkeypatch.setattr(superseding, "lineage", lambda _, snapshot_id: range(snapshot_id, 0, -1))
    named = {name: SimpleNamespace(snapshot_id=snapshot_id) for name, snapshot_id in refs.items()}
    table: Any = SimpleNamespace(metadata=SimpleNamespace(refs=named))
    assert superseding._is_needed(table, 1, 3) is needed
