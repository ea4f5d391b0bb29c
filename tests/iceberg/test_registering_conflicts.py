"""Registering while others commit and catalogs fail: no sketch is lost, and nothing is left behind."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import (
    CommitConflictError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from sidecar.iceberg.metadata_log import Commit, NoCommit, find_commit
from sidecar.iceberg.statistics_files import registering
from sidecar.iceberg.statistics_files.merge import KeptSketch
from sidecar.iceberg.statistics_files.registering import register
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, THETA, TOC, UNITS
from sidecar.storage.source import BytesSource
from tests.iceberg.registering_cases import (
    ROWS,
    SKETCH,
    THETAS,
    Interloper,
    blobs_of,
    damage,
    entry,
    head,
    registered,
    set_foreign,
    stats_files,
    write_ours,
)

pytestmark = pytest.mark.usefixtures("no_pauses")


def other(table: Table) -> Table:
    """Another writer's handle."""
    loaded: Table = table.catalog.load_table(table.name())
    return loaded


def test_statistics_set_between_merge_and_commit_are_merged_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_foreign(table, {}, [("their-index-v1", [1], b"old")])
    writer = other(table)
    Interloper(monkeypatch, {0: lambda: set_foreign(writer, {3: "333"}, [("their-index-v1", [1], b"new")])})
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "3", 2: "30", 3: "333"}
    reader = PuffinReader(
        BytesSource(Path(done.statistics_path.removeprefix("file:")).read_bytes(), done.statistics_path)
    )
    theirs = [reader.read_blob(b) for b in reader.metadata.blobs if b.type == "their-index-v1"]
    assert theirs == [b"new"]  # the other writer replaced its own old one


def test_every_one_of_several_writers_between_survives(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = other(table)
    Interloper(
        monkeypatch,
        {
            0: lambda: set_foreign(writer, {}, [("first-v1", [], b"1")]),
            1: lambda: set_foreign(writer, {}, [("second-v1", [], b"2")]),
        },
    )
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 3
    assert {t for t, _ in blobs_of(done.statistics_path)} == {
        THETA,
        UNITS,
        SBBF,
        TOC,
        "first-v1",
        "second-v1",
    }


def test_statistics_set_right_after_our_commit_are_merged_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = other(table)
    Interloper(monkeypatch, after={0: lambda: set_foreign(writer, {3: "333"})})
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "3", 2: "30", 3: "333"}


def test_writers_on_both_sides_of_our_commit_both_survive(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What our commit displaced is carried on, although another file stands there meanwhile."""
    writer = other(table)
    Interloper(
        monkeypatch,
        before={0: lambda: set_foreign(writer, {}, [("before-v1", [], b"1")])},
        after={0: lambda: set_foreign(writer, {}, [("after-v1", [], b"2")])},
    )
    done = register(table, head(table), THETAS, write_ours)
    assert {"before-v1", "after-v1"} <= {t for t, _ in blobs_of(done.statistics_path)}


def test_two_registrations_at_the_same_time_lose_no_sketch(table: Table) -> None:
    sid = head(table)
    for round_ in range(3):
        handles = [(other(table), [KeptSketch(field, SKETCH, 10 * field + round_)]) for field in (1, 2)]
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda job: register(job[0], sid, job[1], write_ours), handles))
        assert registered(table) == {1: str(10 + round_), 2: str(20 + round_)}
        assert entry(table).statistics_path in {d.statistics_path for d in done}


def test_an_append_between_does_not_matter(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sid, writer = head(table), other(table)
    Interloper(monkeypatch, {0: lambda: writer.append(ROWS)})
    done = register(table, sid, THETAS, write_ours)
    assert done.attempts == 1
    assert head(table) != sid
    assert entry(table, sid).statistics_path == done.statistics_path
    assert len(table.scan().to_arrow()) == 6


def expire(table: Table, snapshot_id: int) -> None:
    table.refresh().maintenance.expire_snapshots().by_id(snapshot_id).commit()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_snapshot_that_expires_meanwhile_leaves_nothing_behind(
    table: Table, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    sid = head(table)
    table.append(ROWS)
    writer = other(table)
    Interloper(monkeypatch, **{moment: {0: lambda: expire(writer, sid)}})
    with pytest.raises(CommitConflictError, match=f"the snapshot {sid} expired meanwhile"):
        register(table, sid, THETAS, write_ours)
    assert table.refresh().metadata.statistics == []
    assert stats_files(table) == set()


def test_an_unknown_snapshot_is_wrong_usage(table: Table) -> None:
    with pytest.raises(UsageError, match="has no snapshot 5"):
        register(table, 5, THETAS, write_ours)
    assert stats_files(table) == set()


def test_a_failed_commit_is_tried_again_and_its_file_deleted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sid = head(table)
    fail_commits(table, monkeypatch, 1, CommitFailedException("another process"))
    done = register(table, sid, THETAS, write_ours)
    assert done.attempts == 2
    assert stats_files(table) == {done.statistics_path}


def test_commits_that_keep_failing_end_in_a_conflict(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sid = head(table)
    fail_commits(table, monkeypatch, 1000, CommitFailedException("another process"))
    with pytest.raises(CommitConflictError, match="other commits interfered with all 6 attempts"):
        register(table, sid, THETAS, write_ours)
    assert stats_files(table) == set()


def test_a_refused_commit_leaves_nothing_behind(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sid = head(table)
    fail_commits(table, monkeypatch, 1, ForbiddenError("not you"))
    with pytest.raises(StorageError, match="the catalog refused the commit: ForbiddenError: not you"):
        register(table, sid, THETAS, write_ours)
    assert stats_files(table) == set()


def fail_commits(table: Table, monkeypatch: pytest.MonkeyPatch, times: int, error: Exception) -> None:
    """The catalog's next commits fail without doing anything."""
    with table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    real, left = table.catalog.commit_table, [times]

    def commit(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return real(*args, **named)

    monkeypatch.setattr(table.catalog, "commit_table", commit)


def test_a_commit_of_unknown_outcome_is_looked_up(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the catalog is lost: once after it committed, once before."""
    sid, real, done = head(table), table.catalog.commit_table, []

    def commit(*args: Any, **named: Any) -> Any:
        if done:
            done.append(real(*args, **named))
        raise ConnectionError("no answer")

    monkeypatch.setattr(table.catalog, "commit_table", commit)
    with pytest.raises(StorageError, match="may still take effect, so the file was kept: ConnectionError: no answer"):
        register(table, sid, THETAS, write_ours)
    (left,) = stats_files(table)
    done.append(None)
    registration = register(table, sid, THETAS, write_ours)
    assert registration.attempts == 1
    assert stats_files(table) == {left, registration.statistics_path}
    assert registered(table) == {1: "3", 2: "30"}


def test_version_3_through_a_catalog_that_cannot_write_it_is_unsupported(
    catalog: Any, table: Table, tmp_path: Path
) -> None:
    metadata = json.loads(Path(table.metadata_location.removeprefix("file:")).read_text())
    path = tmp_path / "v3.metadata.json"
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    version_3 = StaticTable.from_metadata(str(path))
    version_3.catalog = catalog
    with pytest.raises(UnsupportedFeatureError, match="format version 3 through this catalog"):
        register(version_3, head(table), THETAS, write_ours)
    assert stats_files(table) == set()


def test_a_catalog_that_loses_other_statistics_is_found_out(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = head(table)
    set_foreign(table, {})
    table.append(ROWS)
    sid, real = head(table), registering._commit

    def commit(table: Table, entry: StatisticsFile, *rest: Any) -> bool:
        with table.catalog.load_table(table.name()).transaction() as change:
            change.update_statistics().remove_statistics(first).commit()
            change.update_statistics().set_statistics(entry).commit()
        return True

    assert real is not commit
    monkeypatch.setattr(registering, "_commit", commit)
    with pytest.raises(CommitConflictError, match=f"changed the statistics of other snapshots too: {first}"):
        register(table, sid, THETAS, write_ours)


def test_an_entry_that_is_removed_and_set_again_meanwhile_is_a_conflict(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_foreign(table, {})
    (old,) = table.refresh().metadata.statistics
    table.append(ROWS)

    def refuse(*_: object) -> None:
        raise ValueError(f"Statistics with snapshot id {old.snapshot_id} does not exist")

    monkeypatch.setattr(type(table.catalog), "commit_table", refuse)
    entry = old.model_copy(update={"snapshot_id": head(table), "statistics_path": f"{table.location()}/no.puffin"})
    assert not registering._commit(table, entry, registering._Attempts(), old), "another attempt follows"
    with pytest.raises(StorageError, match="may still take effect"):  # of an error that says nothing of an entry
        registering._commit(table, entry, registering._Attempts(), None)


def test_without_its_history_a_commit_is_reported_as_unchecked(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    writer = other(table)
    Interloper(monkeypatch, after={0: lambda: (writer.append(ROWS), writer.append(ROWS))})
    done = register(table, head(table), THETAS, write_ours)
    assert [note for note in done.notes if "could not be checked" in note]


def test_the_commit_is_found_in_the_metadata_log(table: Table) -> None:
    sid, earlier = head(table), other(table)
    theirs = set_foreign(table, {3: "333"})
    before = other(table).metadata.statistics
    ours = register(table, sid, THETAS, write_ours).statistics_path
    table.append(ROWS)
    later = other(table)
    commit = find_commit(earlier, later, ours, sid)
    assert isinstance(commit, Commit)
    assert list(commit.before.values()) == [tuple(before)]
    assert [e.statistics_path for (e,) in commit.after.values()] == [ours]
    first = find_commit(earlier, later, theirs, sid)
    assert isinstance(first, Commit)
    assert first.before == {}
    assert find_commit(earlier, later, "file:/never.stats", sid) is NoCommit.NEVER
    for logged in later.metadata.metadata_log[1:]:
        damage(logged.metadata_file, gzip.compress)
    assert find_commit(earlier, later, ours, sid) is NoCommit.UNKNOWN
