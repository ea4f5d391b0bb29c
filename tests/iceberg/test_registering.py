"""Registering and finding sidecars: other people's blobs survive, whatever comes between."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from sidecar.errors import (
    DamagedFileError,
    StorageError,
    UnsupportedFeatureError,
)
from sidecar.iceberg.statistics_files import write_statistics
from sidecar.iceberg.statistics_files.merge import MARK, KeptSketch
from sidecar.iceberg.statistics_files.registering import register
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, THETA, TOC, UNITS
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.iceberg.registering_cases import (
    ROWS,
    SKETCH,
    THETAS,
    blobs_of,
    create,
    damage,
    entry,
    head,
    registered,
    set_foreign,
    stats_files,
    write_ours,
)
from tests.object_store import open_store

pytestmark = pytest.mark.usefixtures("no_pauses")


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
    table = create(catalog)
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
    table = create(catalog, **{"format-version": "1"})
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
    properties = PuffinReader(BytesSource(Path(path.removeprefix("file:")).read_bytes(), path)).metadata.properties
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
    with pytest.raises(DamagedFileError, match=r"a registration would lose it.*theta sketches of fields 1, 3"):
        register(table, head(table), THETAS, write_ours)
    assert entry(table) == before
    assert stats_files(table) == {path}

    done = register(table, head(table), THETAS, write_ours, force=True)
    assert registered(table) == {1: "11", 2: "30", 3: "333"}
    assert any("its blobs are lost" in note for note in done.notes)


def test_sketches_of_ours_in_an_unreadable_file_are_made_again(table: Table) -> None:
    """An entry of ours is no other writer's: it goes if there is a new sketch, and only else keeps its count."""
    old = register(table, head(table), [*THETAS, KeptSketch(3, SKETCH, 300)], write_ours)
    damage(old.statistics_path, lambda data: data[:-5])
    done = register(table, head(table), THETAS, write_ours, force=True)
    assert registered(table) == {1: "3", 2: "30", 3: "300"}
    assert {(THETA, (1,)), (THETA, (2,))} <= blobs_of(done.statistics_path).keys()
    assert not any("of another writer" in note for note in done.notes)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, n: int
) -> None:
    table = open_store(tmp_path).create_table("db.t", ROWS.schema)
    table.append(ROWS)
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
    assert list(tmp_path.rglob("*.stats*")) == []
    assert table.refresh().metadata.statistics == []


def test_a_local_file_gets_its_name_when_it_is_whole(table: Table) -> None:
    """A run that is killed leaves no half of a file under a name that looks like a statistics file."""
    seen: list[set[str]] = []

    def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
        write_ours(writer)
        seen.append(stats_files(table))

    register(table, head(table), THETAS, write)
    assert seen == [set()]


def test_a_file_that_storage_cut_short_is_never_registered(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
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
