"""Every order of the steps of two who change statistics entries: no sketch is lost, and no named file deleted.

The functions are the real ones, the catalog is a model: blind as a REST catalog, or strict as an SQL catalog.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import CommitConflictError, StorageError
from sidecar.failpoints import observe
from sidecar.iceberg.statistics_files import entry_commits, registering
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import MARK, KeptSketch
from sidecar.iceberg.statistics_files.registering import register, register_again, register_others_alone, unregister
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.maintenance import garbage
from sidecar.maintenance.garbage import gc
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA, UNITS
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.maintenance.model import FOLDER, LATER, PARENT, SNAPSHOT, Model, ModelIO, Turns, explore
from tests.tables import sketch_metadata, statistics_entry

HOUR = 3600.0
SKETCH = bytes.fromhex("0103030001e00000")
STRICT = pytest.mark.parametrize("strict", [False, True], ids=["rest", "sql"])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Model]:
    """Makes the model of a schedule, whose time is that of the code."""

    def make(turns: Turns, strict: bool = False) -> Model:
        made = Model(turns, strict=strict)
        monkeypatch.setattr(entry_commits, "commit", made.checked_commit)
        monkeypatch.setattr(registering, "time", SimpleNamespace(time=lambda: made.now))
        monkeypatch.setattr(
            garbage, "_is_ours", lambda table, path, size, warnings: "-" in path and "theirs" not in path
        )
        return made

    return make


def write_units(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
    writer.add_blob(UNITS, [], 1, 1, b"units")


def registration(model: Model, field: int, snapshot_id: int = SNAPSHOT) -> Callable[[], object]:
    """A build whose only sketch is that of a field; its ndv is the field's id."""
    table = model.table()
    return lambda: register(table, snapshot_id, [KeptSketch(field, SKETCH, field)], write_units)


def overwrite(model: Model, field: int, snapshot_id: int = SNAPSHOT) -> Callable[[], object]:
    """Spark's compute_table_stats: it sets an entry of its own, merges nothing and checks nothing."""
    path = f"{FOLDER}/theirs-{uuid.uuid4()}.stats"

    def run() -> object:
        table = model.load_table("t")
        with ModelIO(model).new_output(path).create() as stream:
            writer = PuffinWriter(stream, created_by="Another Engine 1.0")
            writer.add_blob(THETA, [field], snapshot_id, 1, b"their sketch", "zstd", {"ndv": str(field)})
            size, footer, _ = writer.finish()
        sketch = sketch_metadata(snapshot_id, [field], {"ndv": str(field)})
        table.update_statistics().set_statistics(statistics_entry(snapshot_id, path, size, footer, [sketch])).commit()
        return path

    return run


def removal(model: Model, entry: StatisticsFile) -> Callable[[], object]:
    table = model.table()
    return lambda: unregister(table, [entry])


def collection(model: Model) -> Callable[[], object]:
    table = model.table()
    return lambda: gc(table, older_than=timedelta(hours=24))


def now_and_again(model: Model, *jobs: Callable[[], object]) -> Callable[[], object]:
    return lambda: [job() for job in jobs]


def fields(model: Model, snapshot_id: int = SNAPSHOT) -> set[int]:
    """The fields whose sketches a snapshot has, in its file and in the table's metadata alike."""
    (entry,) = [e for e in model.current.statistics if e.snapshot_id == snapshot_id] or [None]
    if entry is None:
        return set()
    reader = PuffinReader(BytesSource(model.files[entry.statistics_path][0], entry.statistics_path))
    stored = {blob.fields[0] for blob in reader.metadata.blobs if blob.type == THETA}
    assert stored == {blob.fields[0] for blob in entry.blob_metadata}
    return stored


def is_ours(model: Model, snapshot_id: int = SNAPSHOT) -> bool:
    (entry,) = [e for e in model.current.statistics if e.snapshot_id == snapshot_id]
    return any(MARK in (blob.properties or {}) for blob in entry.blob_metadata)


def every_entry_names_a_file(model: Model) -> None:
    assert set(model.entries().values()) <= set(model.files)


def entry_of(model: Model, snapshot_id: int = SNAPSHOT) -> StatisticsFile:
    (entry,) = [e for e in model.current.statistics if e.snapshot_id == snapshot_id]
    return entry


@pytest.mark.parametrize("before", ["nothing", "theirs", "ours"])
def test_two_registrations(model: Callable[..., Model], before: str) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns)
        if before != "nothing":
            (overwrite if before == "theirs" else registration)(made, 3)()

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert fields(made) == {1, 2} | ({3} if before != "nothing" else set())
            every_entry_names_a_file(made)

        return [registration(made, 1), registration(made, 2)], check

    assert explore(scene, switches=3) > 60


def test_a_registration_and_sparks_overwrite(model: Callable[..., Model]) -> None:
    """Spark's sketch always survives. Ours does not only if Spark's commit came last of all."""

    def scene(turns: Turns) -> Any:
        made = model(turns)

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert fields(made) in ({1, 3}, {3})
            if fields(made) == {3}:
                assert entry_of(made).statistics_path == results[1]
                assert "0: load" not in turns.trace[turns.trace.index("1: commit") :], "nobody looked any more"
            every_entry_names_a_file(made)

        return [registration(made, 1), overwrite(made, 3)], check

    assert explore(scene, switches=3) > 15


@STRICT
@pytest.mark.parametrize("setter", [registration, overwrite])
def test_a_removal_and_somebody_who_sets(model: Callable[..., Model], setter: Any, strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()
        removed = entry_of(made)

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert fields(made) in ({1}, {1, 2}), "what was set last is there"
            assert entry_of(made).statistics_path != removed.statistics_path
            every_entry_names_a_file(made)

        return [removal(made, removed), setter(made, 1)], check

    assert explore(scene, switches=3) >= 10


@STRICT
def test_a_removal_a_registration_and_spark(model: Callable[..., Model], strict: bool) -> None:
    """Three at once, in a sample of orders: their sketch survives, or the removal says that it took it.

    A REST catalog has one such order: the registration comes between the removal and its check.
    """

    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()
        removed = entry_of(made)

        def check(results: list[object]) -> None:
            assert not [r for r in results[1:] if isinstance(r, Exception)]
            if isinstance(results[0], CommitConflictError):
                assert not strict
                assert 3 in fields(made) or results[0].file == results[2]
            else:
                assert 3 in fields(made)
            if is_ours(made) and not isinstance(results[0], Exception):
                assert 1 in fields(made)
            every_entry_names_a_file(made)

        return [removal(made, removed), registration(made, 1), overwrite(made, 3)], check

    assert explore(scene, sample=150) == 150


@STRICT
def test_registering_again_gives_way(model: Callable[..., Model], strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()
        ours, table = entry_of(made), made.table()

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert 3 in fields(made, LATER)
            assert entry_of(made) == ours
            if results[0]:
                assert made.entries()[LATER] in (ours.statistics_path, results[1])

        return [lambda: register_again(table, ours, LATER), overwrite(made, 3, LATER)], check

    assert explore(scene, switches=3) >= 6


@STRICT
@pytest.mark.parametrize("setter", [registration, overwrite])
def test_blobs_of_others_get_a_file_of_their_own(model: Callable[..., Model], setter: Any, strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        overwrite(made, 3)()
        registration(made, 1)()
        whole, table = entry_of(made), made.table()

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert fields(made) in ([{2}] if setter is overwrite else [{2, 3}, {1, 2, 3}]), "no sketch is lost"
            every_entry_names_a_file(made)

        return [lambda: register_others_alone(table, whole), setter(made, 2)], check

    assert explore(scene, switches=3) >= 10


def superseding(model: Model, field: int) -> Callable[[], object]:
    """A refresh: it registers a file for the later snapshot and removes the entry of the one before, in one commit."""
    table, found = model.table(), found_of(model)
    sketches = [KeptSketch(field, SKETCH, field)]
    return lambda: register(table, LATER, sketches, write_units, supersedes=found)


def found_of(model: Model) -> FoundSidecar:
    entry = entry_of(model)
    puffin = PuffinReader(BytesSource(model.files[entry.statistics_path][0], entry.statistics_path))
    return FoundSidecar(entry, SNAPSHOT, SimpleNamespace(puffin=puffin), SidecarFiles([], FOLDER))  # type: ignore[arg-type]


@STRICT
@pytest.mark.parametrize("setter", [registration, overwrite])
def test_a_refresh_that_removes_what_it_supersedes(model: Callable[..., Model], setter: Any, strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert fields(made, LATER) == {1}
            assert fields(made) in ([{3}] if setter is overwrite else [{3}, {2, 3}]), "what somebody set is there"
            every_entry_names_a_file(made)

        return [superseding(made, 1), setter(made, 3)], check

    assert explore(scene, switches=3) >= 10


@STRICT
def test_two_refreshes_that_remove_what_they_supersede(model: Callable[..., Model], strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert (fields(made, LATER), fields(made)) == ({1, 3}, set())
            every_entry_names_a_file(made)

        return [superseding(made, 1), superseding(made, 3)], check

    assert explore(scene, switches=3) >= 10


@STRICT
def test_registering_again_removes_what_it_supersedes(model: Callable[..., Model], strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()
        ours, table, found = entry_of(made), made.table(), found_of(made)

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert fields(made) == {3}, "what somebody set is there"
            if results[0]:
                assert made.entries()[LATER] == ours.statistics_path
            every_entry_names_a_file(made)

        return [lambda: register_again(table, ours, LATER, found), overwrite(made, 3)], check

    assert explore(scene, switches=3) >= 6


@STRICT
def test_two_that_register_a_file_again(model: Callable[..., Model], strict: bool) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns, strict)
        registration(made, 2)()
        ours, table = entry_of(made), made.table()

        def check(results: list[object]) -> None:
            assert results == [True, True]
            assert made.entries() == {SNAPSHOT: ours.statistics_path, LATER: ours.statistics_path}

        return [lambda: register_again(table, ours, LATER)] * 2, check

    assert explore(scene, switches=3) >= 6


def test_a_registration_beside_gc(model: Callable[..., Model]) -> None:
    """A file that is being registered is young, so gc leaves it alone at every moment; what is old and unnamed goes."""

    def scene(turns: Turns) -> Any:
        made = model(turns)
        registration(made, 2)()
        old = made.entries()[SNAPSHOT]
        unregister(made.table(), [entry_of(made)])
        made.tick(30 * HOUR)

        def check(results: list[object]) -> None:
            assert not [r for r in results if isinstance(r, Exception)]
            assert made.deleted == [old]
            assert fields(made) == {1}
            every_entry_names_a_file(made)

        return [registration(made, 1), collection(made)], check

    assert explore(scene, switches=3) > 60


def test_a_file_is_registered_again_while_its_entry_is_removed_and_gc_runs(model: Callable[..., Model]) -> None:
    def scene(turns: Turns) -> Any:
        made = model(turns)
        registration(made, 2, PARENT)()
        ours, table = entry_of(made, PARENT), made.table()
        made.tick(30 * HOUR)

        def check(results: list[object]) -> None:
            every_entry_names_a_file(made)
            assert not isinstance(results[1], Exception)
            if isinstance(results[0], Exception):
                assert isinstance(results[0], CommitConflictError)
                assert ours.statistics_path in made.deleted

        removed_then_collected = now_and_again(made, removal(made, ours), collection(made))
        return [lambda: register_again(table, ours, LATER), removed_then_collected], check

    assert explore(scene, switches=3) > 60


@pytest.mark.parametrize("hours", [13.0, 25.0])
def test_a_stopped_build_goes_on_after_gc(model: Callable[..., Model], hours: float) -> None:
    """Time passes at any moment, and gc runs at any moment: no entry names a file that is gone.

    There is one gap: time passes between the look at the clock and the commit. The build then takes its entry back,
    unless gc deletes after its last look. A build whose file is gone before it has read it back says so.
    """
    outcomes: set[str] = set()

    def scene(turns: Turns) -> Any:
        made = model(turns)

        def clean_up_later() -> None:
            made.tick(hours * HOUR)
            gc(made.table(), older_than=timedelta(hours=24))

        def check(results: list[object]) -> None:
            assert not isinstance(results[1], Exception), results[1]
            dangling = not set(made.entries().values()) <= set(made.files)
            if hours >= 24 and isinstance(results[0], StorageError):
                assert results[0].file in made.deleted
                assert "0: commit" not in turns.trace
                assert not dangling
                outcomes.add("gone")
                return
            if hours >= 24 and stopped_before_its_commit(turns.trace):
                assert dangling <= turns.trace[-1].startswith("1: delete"), "only a deletion after the last look"
                taken_back = isinstance(results[0], CommitConflictError)
                outcomes.add("dangling" if dangling else "taken back" if taken_back else "registered")
                return
            assert not isinstance(results[0], Exception), results[0]
            assert fields(made) == {1}
            assert not dangling

        return [stepwise(turns, registration(made, 1)), clean_up_later], check

    assert explore(scene, switches=3) > 100
    assert outcomes == ({"dangling", "taken back", "registered", "gone"} if hours >= 24 else set())


def stepwise(turns: Turns, job: Callable[[], object]) -> Callable[[], object]:
    """The job, which also waits at each step that it names."""

    def run() -> object:
        with observe(lambda step: turns.wait(step) if step.startswith("register") else None):
            return job()

    return run


def stopped_before_its_commit(trace: Sequence[str]) -> bool:
    """Whether time passed between the look at the clock (after the step) and a commit of the registration."""
    seen = [one for one in trace if one in ("0: register: commit", "0: commit", "1: time passes")]
    return any(pair == ("0: register: commit", "1: time passes") for pair in pairwise(seen))
