"""Registering and finding sidecars: other people's blobs survive, whatever comes between."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import (
    CommitConflictError,
    DamagedFileError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from sidecar.iceberg import find_sidecar as finding
from sidecar.iceberg import registering, write_statistics
from sidecar.iceberg.find_sidecar import find_sidecar
from sidecar.iceberg.merge import MARK, KeptSketch
from sidecar.iceberg.metadata_log import Commit, NoCommit, find_commit
from sidecar.iceberg.registering import Registration, register
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, THETA, TOC, UNITS
from sidecar.puffin.writer import PuffinWriter
from sidecar.source import BytesSource

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": ["x", "y", "z"], "c": [1.0, 2.0, 3.0]})
SKETCH = bytes.fromhex("010303000 01e0000".replace(" ", ""))
THETAS = [KeptSketch(1, SKETCH, 3), KeptSketch(2, SKETCH, 30)]
serial = itertools.count()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "FIRST_PAUSE", 0.0)


@pytest.fixture
def table(catalog: Any) -> Table:
    table: Table = catalog.create_table(f"db.statistics_{next(serial)}", ROWS.schema)
    table.append(ROWS)
    return table


def head(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def write_ours(writer: PuffinWriter, replaced: Sequence[PuffinReader] = ()) -> None:
    """Stands for the bundle: plain blobs of our types, the table of contents last."""
    for blob_type in (UNITS, SBBF, TOC):
        writer.add_blob(blob_type, [1], 1, 1, f"ours {blob_type}".encode())


def blobs_of(path: str) -> dict[tuple[str, tuple[int, ...]], bytes]:
    reader = PuffinReader(BytesSource(Path(path.removeprefix("file:")).read_bytes(), path))
    return {(blob.type, blob.fields): reader.read_raw(blob) for blob in reader.metadata.blobs}


def entry(table: Table, snapshot_id: int | None = None) -> StatisticsFile:
    snapshot_id = snapshot_id or head(table)
    (found,) = [s for s in table.refresh().metadata.statistics if s.snapshot_id == snapshot_id]
    return found


def registered(table: Table) -> dict[int, str]:
    """NDV by field id, as an engine's planner sees it."""
    blobs = entry(table).blob_metadata
    assert all(blob.type == THETA for blob in blobs)
    return {blob.fields[0]: (blob.properties or {})["ndv"] for blob in blobs}


def set_foreign(
    table: Table,
    thetas: dict[int, str],
    others: list[tuple[str, list[int], bytes]] | None = None,
    codec: str | None = "zstd",
) -> str:
    """Another writer registers a statistics file for the head: its thetas are registered, the rest is not."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    sid, sequence = snapshot.snapshot_id, snapshot.sequence_number or 0
    path = f"{table.location()}/metadata/{sid}-foreign-{next(serial)}.stats"
    with table.io.new_output(path).create() as stream:
        writer = PuffinWriter(stream, created_by="Another Engine 1.0", properties={"engine": "yes"})
        for field, ndv in thetas.items():
            writer.add_blob(THETA, [field], sid, sequence, b"their sketch %d" % field, codec, {"ndv": ndv})
        for blob_type, fields, data in others or []:
            writer.add_blob(blob_type, fields, sid, sequence, data, codec)
        size, footer, metadata = writer.finish()
    document = {
        "snapshot-id": sid,
        "statistics-path": path,
        "file-size-in-bytes": size,
        "file-footer-size-in-bytes": footer,
        "blob-metadata": [
            {
                "type": THETA,
                "snapshot-id": sid,
                "sequence-number": sequence,
                "fields": list(blob.fields),
                "properties": dict(blob.properties),
            }
            for blob in metadata.blobs
            if blob.type == THETA
        ],
    }
    table.update_statistics().set_statistics(StatisticsFile.model_validate(document)).commit()
    return path


def stats_files(table: Table) -> set[str]:
    return {f"file:{p}" for p in Path(table.location().removeprefix("file:")).rglob("*.stats")}


def test_a_sidecar_is_registered_with_its_thetas_alone(table: Table) -> None:
    done = register(table, head(table), THETAS, write_ours)
    found = entry(table)
    assert found.statistics_path == done.statistics_path
    assert (found.file_size_in_bytes, found.file_footer_size_in_bytes) == (done.file_size, done.footer_size)
    assert registered(table) == {1: "3", 2: "30"}
    assert [b.type for b in done.blobs] == [THETA, THETA, UNITS, SBBF, TOC]
    assert (done.attempts, done.notes) == (1, ())
    assert table.refresh().scan().to_arrow() == ROWS


def test_the_file_lies_by_the_metadata_as_the_table_spells_it(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table(f"db.statistics_{next(serial)}", ROWS.schema)
    table.append(ROWS)
    sid = head(table)
    path = register(table, sid, [], write_ours).statistics_path
    assert path.startswith(f"{table.location()}/metadata/{sid}-")
    assert path.endswith(".stats")
    assert entry(table).blob_metadata == []
    with table.transaction() as change:
        change.set_properties({"write.metadata.path": f"file:{tmp_path}/elsewhere"})
    moved = register(table, sid, [], write_ours).statistics_path
    assert moved.startswith(f"file:{tmp_path}/elsewhere/{sid}-")


def test_thetas_are_one_zstd_frame_and_ndv_is_digits(table: Table) -> None:
    done = register(table, head(table), THETAS, write_ours)
    reader = PuffinReader(
        BytesSource(Path(done.statistics_path.removeprefix("file:")).read_bytes(), "x"),
        footer_length=done.footer_size,
    )
    theta = reader.metadata.blobs[0]
    assert (theta.compression_codec, reader.read_blob(theta)) == ("zstd", SKETCH)
    assert theta.properties == {"ndv": "3", MARK: "theta"}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert (theta.snapshot_id, theta.sequence_number) == (snapshot.snapshot_id, snapshot.sequence_number)


def test_version_1_tables_are_registered_at_sequence_number_0(catalog: Any) -> None:
    table = catalog.create_table(
        f"db.statistics_{next(serial)}", ROWS.schema, properties={"format-version": "1"}
    )
    table.append(ROWS)
    done = register(table, head(table), THETAS, write_ours)
    assert {blob.sequence_number for blob in done.blobs if blob.type == THETA} == {0}
    assert registered(table) == {1: "3", 2: "30"}


def test_foreign_blobs_are_copied_byte_for_byte(table: Table) -> None:
    others = [("their-index-v1", [1, 2], b"index" * 100), ("their-empty-v1", [], b"")]
    theirs = blobs_of(set_foreign(table, {3: "333"}, others))
    ours = blobs_of(register(table, head(table), THETAS, write_ours).statistics_path)
    assert {key: ours[key] for key in theirs} == theirs
    assert registered(table) == {1: "3", 2: "30", 3: "333"}


def test_keys_that_the_footer_specification_does_not_know_survive(table: Table) -> None:
    path = set_foreign(table, {}, [("their-index-v1", [1], b"index")], codec=None)
    local = Path(path.removeprefix("file:"))
    data = local.read_bytes()
    reader = PuffinReader(BytesSource(data, path))
    payload = json.loads(data[reader.footer_offset + 4 : -12])
    payload["blobs"][0]["their-key"] = {"deep": [1, "x"]}
    text = json.dumps(payload).encode()
    trailer = len(text).to_bytes(4, "little") + bytes(4) + b"PFA1"
    local.write_bytes(data[: reader.footer_offset + 4] + text + trailer)
    old = entry(table)
    changed = old.model_copy(
        update={"file_size_in_bytes": local.stat().st_size, "file_footer_size_in_bytes": len(text) + 16}
    )
    table.update_statistics().set_statistics(changed).commit()
    done = register(table, head(table), [], write_ours)
    assert done.blobs[0].extra == {"their-key": {"deep": [1, "x"]}}


def test_the_theta_of_another_writer_stays_and_ours_is_left_out(table: Table) -> None:
    theirs = blobs_of(set_foreign(table, {1: "777"}))
    done = register(table, head(table), THETAS, write_ours)
    assert registered(table) == {1: "777", 2: "30"}
    assert blobs_of(done.statistics_path)[THETA, (1,)] == theirs[THETA, (1,)]
    assert done.notes == ("field 1: the theta sketch of another writer is kept, ours is left out",)


def test_our_blobs_of_an_earlier_build_are_replaced_but_for_other_sketches(table: Table) -> None:
    register(table, head(table), THETAS, write_ours)

    def write_anew(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
        writer.add_blob(TOC, [1], 1, 1, b"new")

    done = register(table, head(table), [KeptSketch(2, SKETCH, 31)], write_anew)
    assert [(b.type, b.fields) for b in done.blobs] == [(THETA, (1,)), (THETA, (2,)), (TOC, (1,))]
    assert registered(table) == {1: "3", 2: "31"}
    assert blobs_of(done.statistics_path)[TOC, (1,)] == b"new"


def test_properties_of_the_replaced_file_survive_but_for_its_creator(table: Table) -> None:
    set_foreign(table, {})
    path = register(table, head(table), [], write_ours).statistics_path
    properties = PuffinReader(
        BytesSource(Path(path.removeprefix("file:")).read_bytes(), path)
    ).metadata.properties
    assert properties["engine"] == "yes"
    assert properties["created-by"].startswith("sidecar")


def test_sketches_of_dropped_columns_are_not_registered(table: Table) -> None:
    """Spark's planner fails on a registered entry whose column is gone; the blob itself survives."""
    set_foreign(table, {3: "333"})
    with table.update_schema() as update:
        update.delete_column("b")
        update.delete_column("c")
    done = register(table, head(table), THETAS, write_ours)
    assert registered(table) == {1: "3"}
    assert (THETA, (3,)) in blobs_of(done.statistics_path)
    assert (THETA, (2,)) not in blobs_of(done.statistics_path)
    assert [note for note in done.notes if "dropped" in note] == [
        f"field {field}: the table has dropped it, so no sketch of it is registered" for field in (2, 3)
    ]


def test_an_older_snapshot_can_be_registered(table: Table) -> None:
    first = head(table)
    set_foreign(table, {3: "333"})
    table.append(ROWS)
    set_foreign(table, {2: "22"})
    before = entry(table)
    register(table, first, THETAS, write_ours)
    assert entry(table) == before
    assert {b.fields[0] for b in entry(table, first).blob_metadata} == {1, 2, 3}


def damage(path: str, how: Callable[[bytes], bytes]) -> None:
    local = Path(path.removeprefix("file:"))
    local.write_bytes(how(local.read_bytes()))


@pytest.mark.parametrize(
    "how",
    [lambda data: data[:-5], lambda data: b"", lambda data: data.replace(b'"blobs"', b'"blubs"')],
    ids=["truncated", "empty", "footer"],
)
def test_an_unreadable_statistics_file_refuses_with_what_would_be_lost(
    table: Table, how: Callable[[bytes], bytes]
) -> None:
    path = set_foreign(table, {1: "11", 3: "333"})
    damage(path, how)
    before = entry(table)
    with pytest.raises(
        DamagedFileError, match=r"a registration would lose it.*theta sketches of fields 1, 3"
    ):
        register(table, head(table), THETAS, write_ours)
    assert entry(table) == before
    assert stats_files(table) == {path}

    done = register(table, head(table), THETAS, write_ours, force=True)
    assert registered(table) == {1: "11", 2: "30", 3: "333"}
    assert any("its blobs are lost" in note for note in done.notes)


def test_a_missing_statistics_file_refuses_as_a_storage_error(table: Table) -> None:
    path = set_foreign(table, {})
    Path(path.removeprefix("file:")).unlink()
    with pytest.raises(StorageError, match="It has unknown blobs"):
        register(table, head(table), THETAS, write_ours)
    register(table, head(table), THETAS, write_ours, force=True)
    assert registered(table) == {1: "3", 2: "30"}


def test_an_encrypted_statistics_file_is_refused(table: Table) -> None:
    set_foreign(table, {})
    encrypted = entry(table).model_copy(update={"key_metadata": "AAAA"})
    table.update_statistics().set_statistics(encrypted).commit()
    with pytest.raises(UnsupportedFeatureError, match="is encrypted"):
        register(table, head(table), THETAS, write_ours)


class FailingStream:
    """A stream that fails at the ``n``-th call of write or close."""

    def __init__(self, inner: Any, method: str, n: int) -> None:
        self.inner, self.method, self.left = inner, method, n

    def _count(self, method: str) -> None:
        if method == self.method:
            self.left -= 1
            if self.left < 0:
                raise OSError("the disk is full, key hunter2")

    def write(self, data: Any) -> Any:
        self._count("write")
        return self.inner.write(data)

    def close(self) -> None:
        self.inner.close()
        self._count("close")


@pytest.mark.parametrize(("method", "n"), [("write", 0), ("write", 3), ("write", 6), ("close", 0)])
def test_failing_storage_leaves_nothing_behind(
    table: Table, monkeypatch: pytest.MonkeyPatch, method: str, n: int
) -> None:
    sid = head(table)
    real = type(table.io).new_output

    def failing(io: Any, location: str) -> Any:
        output = real(io, location)
        if location.endswith(".stats"):
            create = output.create
            output.create = lambda overwrite=False: FailingStream(create(overwrite), method, n)
        return output

    monkeypatch.setattr(type(table.io), "new_output", failing)
    with pytest.raises(StorageError, match="the disk is full"):
        register(table, sid, THETAS, write_ours)
    assert stats_files(table) == set()
    assert table.refresh().metadata.statistics == []


def test_a_file_that_storage_cut_short_is_never_registered(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = head(table)
    real = write_statistics._read_back

    def cut(table: Table, path: str, written: Any) -> None:
        damage(path, lambda data: data[:-1])
        real(table, path, written)

    monkeypatch.setattr(write_statistics, "_read_back", cut)
    with pytest.raises(DamagedFileError, match="not stored completely"):
        register(table, sid, THETAS, write_ours)
    assert stats_files(table) == set()


def test_an_error_while_our_blobs_are_written_leaves_nothing_behind(table: Table) -> None:
    def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
        write_ours(writer)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        register(table, head(table), THETAS, write)
    assert stats_files(table) == set()


class Interloper:
    """Lets others act at chosen moments: just before the ``n``-th commit of a registration, or after it."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        before: dict[int, Callable[[], object]] | None = None,
        after: dict[int, Callable[[], object]] | None = None,
    ) -> None:
        self.count = 0
        real = registering._commit

        def commit(table: Table, entry: StatisticsFile) -> bool:
            turn, self.count = self.count, self.count + 1
            (before or {}).get(turn, lambda: None)()
            done = real(table, entry)
            (after or {}).get(turn, lambda: None)()
            return done

        monkeypatch.setattr(registering, "_commit", commit)


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


def test_statistics_set_right_after_our_commit_are_merged_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = other(table)
    Interloper(monkeypatch, after={0: lambda: set_foreign(writer, {3: "333"})})
    done = register(table, head(table), THETAS, write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "3", 2: "30", 3: "333"}


def test_writers_on_both_sides_of_our_commit_both_survive(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_failed_commit_is_tried_again_and_its_file_deleted(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(
        StorageError, match="may still take effect, so the file was kept: ConnectionError: no answer"
    ):
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


def test_a_catalog_that_loses_other_statistics_is_found_out(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = head(table)
    set_foreign(table, {})
    table.append(ROWS)
    sid, real = head(table), registering._commit

    def commit(table: Table, entry: StatisticsFile) -> bool:
        with table.catalog.load_table(table.name()).transaction() as change:
            change.update_statistics().remove_statistics(first).commit()
            change.update_statistics().set_statistics(entry).commit()
        return True

    assert real is not commit
    monkeypatch.setattr(registering, "_commit", commit)
    with pytest.raises(CommitConflictError, match=f"changed the statistics of other snapshots too: {first}"):
        register(table, sid, THETAS, write_ours)


def test_without_its_history_a_commit_is_reported_as_unchecked(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert list(commit.before.values()) == before
    assert [e.statistics_path for e in commit.after.values()] == [ours]
    first = find_commit(earlier, later, theirs, sid)
    assert isinstance(first, Commit)
    assert first.before == {}
    assert find_commit(earlier, later, "file:/never.stats", sid) is NoCommit.NEVER
    for logged in later.metadata.metadata_log[1:]:
        damage(logged.metadata_file, gzip.compress)
    assert find_commit(earlier, later, ours, sid) is NoCommit.UNKNOWN


class FakeSidecarFile:
    """Stands for the bundle's reader: a Puffin file with a table of contents is a sidecar of one segment."""

    warnings: tuple[str, ...] = ()

    def __init__(self, source: Any, segments: list[BlobMetadata]) -> None:
        self.source, self.segments = source, segments

    @classmethod
    def open(cls, source: Any, *, file_size: int, footer_length: int, table_uuid: str, columns: Any) -> Any:
        reader = PuffinReader(source, footer_length=footer_length)
        return cls(source, [blob for blob in reader.metadata.blobs if blob.type == TOC])

    def close(self) -> None:
        self.source.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SidecarFile", FakeSidecarFile)


@pytest.mark.usefixtures("opened")
class TestFindSidecar:
    """The sidecar of the snapshot, else of the nearest ancestor that has one."""

    def test_the_snapshots_own_is_found(self, table: Table) -> None:
        done = register(table, head(table), [], write_ours)
        found = find_sidecar(table.refresh())
        assert found is not None
        assert (found.snapshot_id, found.statistics.statistics_path) == (head(table), done.statistics_path)

    def test_the_nearest_ancestors_is_found(self, table: Table) -> None:
        first = head(table)
        register(table, first, [], write_ours)
        table.append(ROWS)
        second = head(table)
        register(table, second, [], write_ours)
        table.append(ROWS)
        set_foreign(table, {1: "1"})
        warnings: list[str] = []
        for asked, expected in ((None, second), (second, second), (first, first)):
            found = find_sidecar(table.refresh(), asked, warnings=warnings)
            assert found is not None
            assert found.snapshot_id == expected
        assert warnings == []

    def test_damage_is_a_warning_and_the_ancestor_is_taken(self, table: Table) -> None:
        first = head(table)
        register(table, first, [], write_ours)
        table.append(ROWS)
        done = register(table, head(table), [], write_ours)
        for how in (lambda data: data[:-1], lambda data: data[:-12] + b"\xff" * 12):
            damage(done.statistics_path, how)
            warnings: list[str] = []
            found = find_sidecar(table.refresh(), warnings=warnings)
            assert found is not None
            assert found.snapshot_id == first
            assert len(warnings) == 1
            assert done.statistics_path.removeprefix("file:") in warnings[0]

    def test_without_any_there_is_none(self, table: Table, catalog: Any) -> None:
        assert find_sidecar(table) is None
        set_foreign(table, {1: "1"})
        assert find_sidecar(table.refresh()) is None
        assert find_sidecar(table.refresh(), 5) is None
        assert find_sidecar(catalog.create_table(f"db.statistics_{next(serial)}", ROWS.schema)) is None


def test_a_file_of_foreign_blobs_is_no_sidecar_and_one_of_broken_ones_is_a_warning(table: Table) -> None:
    """With the bundle's own reader."""
    set_foreign(table, {1: "1"}, [("their-index-v1", [1], b"index")])
    warnings: list[str] = []
    assert find_sidecar(table.refresh(), warnings=warnings) is None
    assert warnings == []
    register(table, head(table), [], write_ours)
    assert find_sidecar(table.refresh(), warnings=warnings) is None
    assert warnings
    assert all(f"snapshot {head(table)} is not used" in warning for warning in warnings)
    for how in (lambda data: data[:-1], lambda data: b""):
        damage(entry(table).statistics_path, how)
        warnings.clear()
        assert find_sidecar(table.refresh(), warnings=warnings) is None
        assert len(warnings) == 1
    Path(entry(table).statistics_path.removeprefix("file:")).unlink()
    warnings.clear()
    assert find_sidecar(table.refresh(), warnings=warnings) is None
    assert "cannot open the file" in warnings[0]


def spark_table(spark: Any, catalog: Any, rows: int = 1000) -> Table:
    name = f"db.statistics_spark_{next(serial)}"
    spark.sql(
        f"CREATE TABLE cat.{name} USING iceberg AS "
        f"SELECT id AS a, CAST(id % 7 AS STRING) AS b, CAST(id AS DOUBLE) AS c FROM range({rows})"
    )
    table: Table = catalog.load_table(name)
    return table


def spark_sees_ndv(spark: Any, table: Table) -> dict[str, int]:
    """Distinct counts by column that Spark's cost-based optimiser plans a join with; it must plan at all."""
    name = "cat." + ".".join(table.name())
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        query = f"SELECT * FROM {name} x JOIN {name} y ON x.a = y.a WHERE x.b = '3'"
        assert spark.sql(query).count() > 0
        plan = spark.table(name)._jdf.queryExecution().optimizedPlan()
        seen = plan.collectLeaves().head().stats().attributeStats().iterator()
        counts = {}
        while seen.hasNext():
            column = seen.next()
            if column._2().distinctCount().isDefined():
                counts[column._1().name()] = int(str(column._2().distinctCount().get()))
        return counts
    finally:
        spark.conf.set("spark.sql.cbo.enabled", "false")


def assert_every_reader_loads(spark: Any, duckdb_iceberg: Any, table: Table, rows: int) -> None:
    fresh = table.catalog.load_table(table.name())
    assert len(fresh.scan().to_arrow()) == rows
    assert spark.table("cat." + ".".join(table.name())).count() == rows
    location = fresh.metadata_location.removeprefix("file:")
    assert duckdb_iceberg.execute(f"SELECT count(*) FROM iceberg_scan('{location}')").fetchone() == (rows,)


@pytest.mark.jvm
def test_sparks_sketches_survive_ours(spark: Any, catalog: Any, duckdb_iceberg: Any) -> None:
    table = spark_table(spark, catalog)
    spark.sql(
        f"CALL cat.system.compute_table_stats(table => '{'.'.join(table.name())}', columns => array('b'))"
    )
    theirs = blobs_of(entry(table).statistics_path)
    assert list(theirs) == [(THETA, (2,))]
    done = register(table, head(table), [KeptSketch(1, SKETCH, 1000), KeptSketch(2, SKETCH, 99)], write_ours)
    assert blobs_of(done.statistics_path)[THETA, (2,)] == theirs[THETA, (2,)]
    assert registered(table) == {1: "1000", 2: "7"}
    assert spark_sees_ndv(spark, table) == {"a": 1000, "b": 7}
    assert_every_reader_loads(spark, duckdb_iceberg, table, 1000)


@pytest.mark.jvm
def test_spark_after_ours_replaces_it_and_ours_after_spark_merges(
    spark: Any, catalog: Any, duckdb_iceberg: Any
) -> None:
    table = spark_table(spark, catalog)
    ours: Registration = register(table, head(table), [KeptSketch(2, SKETCH, 5)], write_ours)
    assert spark_sees_ndv(spark, table) == {"b": 5}
    assert_every_reader_loads(spark, duckdb_iceberg, table, 1000)
    spark.sql(f"CALL cat.system.compute_table_stats('{'.'.join(table.name())}')")
    assert entry(table).statistics_path != ours.statistics_path
    register(table, head(table), [KeptSketch(2, SKETCH, 5)], write_ours)
    assert registered(table) == {1: "1000", 2: "7", 3: "1000"}
    assert spark_sees_ndv(spark, table) == {"a": 1000, "b": 7, "c": 1000}
    assert_every_reader_loads(spark, duckdb_iceberg, table, 1000)


@pytest.mark.jvm
def test_spark_between_our_merge_and_our_commit_survives(
    spark: Any, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spark_table(spark, catalog)
    call = f"CALL cat.system.compute_table_stats('{'.'.join(table.name())}')"
    Interloper(monkeypatch, {0: lambda: spark.sql(call)})
    done = register(table, head(table), [KeptSketch(1, SKETCH, 5)], write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "1000", 2: "7", 3: "1000"}


@pytest.mark.jvm
def test_spark_plans_after_a_column_with_a_sketch_is_dropped(spark: Any, catalog: Any) -> None:
    """Without registering again, Spark's planner fails on the entry of the dropped column."""
    table = spark_table(spark, catalog)
    register(table, head(table), [KeptSketch(2, SKETCH, 7), KeptSketch(3, SKETCH, 1000)], write_ours)
    spark.sql(f"ALTER TABLE cat.{'.'.join(table.name())} DROP COLUMN c")
    register(table, head(table), [KeptSketch(2, SKETCH, 7)], write_ours)
    assert registered(table) == {2: "7"}
    assert spark_sees_ndv(spark, table) == {"b": 7}
