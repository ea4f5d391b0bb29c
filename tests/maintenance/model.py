"""A table in memory, and participants whose steps are taken in every possible order.

Each participant runs the real functions in a thread of its own. It waits before each request that reads or changes what
all share: loads and commits of the catalog, listings, deletions, and looks at the existence of a file. A schedule says
who goes on. :func:`explore` tries all schedules of a scene, or a sample of them.
"""

from __future__ import annotations

import io
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

FOLDER = "model://t/metadata"
SNAPSHOT = 11
LATER = 12
PARENT = 10


class Turns:
    """Lets one thread run at a time, chosen at each shared request."""

    def __init__(self, choose: Callable[[int, int], int]) -> None:
        """``choose`` gets the number of a decision and how many can go on, and says which of them does."""
        self._choose = choose
        self.taken: list[tuple[int, int]] = []
        """For each decision, the choice and the number of those who could be chosen."""
        self._local = threading.local()
        self._gates: list[threading.Semaphore] = []
        self._free = threading.Semaphore(0)
        self.trace: list[str] = []

    def wait(self, what: str) -> None:
        """Wait for this thread's turn; the main thread never waits."""
        number = getattr(self._local, "number", None)
        if number is None:
            return
        self._free.release()
        self._gates[number].acquire()
        self.trace.append(f"{number}: {what}")

    def run(self, jobs: Sequence[Callable[[], object]]) -> list[object]:
        """Run all jobs to their end; return what each returned or raised."""
        results: list[object] = [None] * len(jobs)
        alive = set(range(len(jobs)))

        def work(number: int) -> None:
            self._local.number = number
            self._gates[number].acquire()
            try:
                results[number] = jobs[number]()
            except Exception as error:
                results[number] = error
            alive.discard(number)
            self._free.release()

        self._gates = [threading.Semaphore(0) for _ in jobs]
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(jobs))]
        for thread in threads:
            thread.start()
        last = -1
        while alive:
            able = sorted(alive)
            choice = self._choose(len(self.taken), len(able))
            self.taken.append((choice, len(able)))
            if last in able:  # choice 0 is to go on with the one who was running
                able.remove(last)
                able.insert(0, last)
            last = able[choice]
            self._gates[last].release()
            assert self._free.acquire(timeout=20), self.trace
        for thread in threads:
            thread.join()
        return results


class Model(NoopCatalog):
    """The catalog and the store of one table. ``strict``: a commit to a version that is not the newest fails."""

    def __init__(self, turns: Turns, *, strict: bool = False) -> None:
        super().__init__("model")
        self.turns, self.strict = turns, strict
        self.now = 1_000_000.0
        self.files: dict[str, tuple[bytes, float]] = {}
        self.deleted: list[str] = []
        schema = Schema(*(NestedField(n, f"c{n}", t()) for n, t in enumerate((LongType, StringType, DoubleType), 1)))
        metadata = new_table_metadata(
            schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "model://t", {}, uuid.UUID(int=7)
        )
        self.current: TableMetadata = metadata
        self.location = ""
        self._store(metadata)
        for sequence, (snapshot_id, parent) in enumerate([(PARENT, None), (SNAPSHOT, PARENT), (LATER, SNAPSHOT)], 1):
            snapshot = Snapshot(
                snapshot_id=snapshot_id,
                parent_snapshot_id=parent,
                sequence_number=sequence,
                manifest_list="none",
                summary=Summary(Operation.APPEND),
                schema_id=0,
            )
            head = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
            self._apply((AddSnapshotUpdate(snapshot=snapshot), head))

    def table(self) -> Table:
        """The table as it is."""
        return Table(("t",), self.current, self.location, ModelIO(self), self)

    def load_table(self, identifier: Any) -> Table:
        self.turns.wait("load")
        return self.table()

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> CommitTableResponse:
        return self.commit(None, updates)

    def commit(self, base: Table | None, updates: Any) -> CommitTableResponse:
        """Make a new version; ``base`` must be the newest one if it is given."""
        self.turns.wait("commit")
        if base is not None and base.metadata_location != self.location:
            raise CommitFailedException("not the newest version")
        self._apply(updates)
        return CommitTableResponse.model_validate({"metadata": self.current, "metadata-location": self.location})

    def checked_commit(self, table: Table, requirements: Any, updates: Any) -> None:
        """Stands for :func:`sidecar.iceberg.partial_loading.commit`."""
        self.commit(table if self.strict else None, updates)

    def tick(self, seconds: float) -> None:
        """Time passes, and somebody writes a metadata file then, so that the store's clock shows it."""
        self.turns.wait("time passes")
        self.now += seconds
        self._apply(())

    def _apply(self, updates: Any) -> None:
        changed = update_table_metadata(self.current, updates) if updates else self.current
        logged = MetadataLogEntry(metadata_file=self.location, timestamp_ms=int(self.now * 1000))
        self._store(changed.model_copy(update={"metadata_log": [*self.current.metadata_log, logged]}))

    def _store(self, metadata: TableMetadata) -> None:
        self.current = metadata
        self.location = f"{FOLDER}/{len(self.files):05}-{uuid.uuid4()}.metadata.json"
        self.files[self.location] = metadata.model_dump_json().encode(), self.now

    def entries(self) -> dict[int, str]:
        return {entry.snapshot_id: entry.statistics_path for entry in self.current.statistics}

    def _delete_old_metadata(self, *_: Any) -> None:
        """Keep all versions."""


class ModelIO(FileIO):
    """The store, as files and as a file system of fsspec."""

    def __init__(self, model: Model) -> None:
        super().__init__({})
        self.model = model

    def new_input(self, location: str) -> Any:
        return ModelFile(self.model, location)

    def new_output(self, location: str) -> Any:
        return ModelFile(self.model, location)

    def delete(self, location: Any) -> None:
        self.model.turns.wait(f"delete {location}")
        self.model.deleted.append(str(location))
        if self.model.files.pop(str(location), None) is None:
            raise FileNotFoundError(location)


class ModelFile:
    """A file of the store, to read or to write."""

    def __init__(self, model: Model, location: str) -> None:
        self.model, self.location, self._fs = model, location, ModelSystem(model)

    def __len__(self) -> int:
        return len(self.model.files[self.location][0])

    def open(self) -> io.BytesIO:
        if self.location not in self.model.files:
            raise FileNotFoundError(self.location)
        return io.BytesIO(self.model.files[self.location][0])

    def create(self, overwrite: bool = False) -> Any:
        model, location, began = self.model, self.location, self.model.now

        class Stream(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    model.files[location] = self.getvalue(), began
                super().close()

        return Stream()


class ModelSystem:
    """What sidecar uses of an fsspec file system."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def _strip_protocol(self, location: str) -> str:
        return location

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        if path not in self.model.files:
            raise FileNotFoundError(path)
        return self.model.files[path][0][start:end]

    def invalidate_cache(self, path: str | None = None) -> None:
        """Nothing is remembered."""

    def info(self, path: str) -> dict[str, Any]:
        self.model.turns.wait("exists")
        return {"name": path, "size": len(self.cat_file(path))}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        self.model.turns.wait("list")
        return [
            {"name": name, "size": len(data), "type": "file", "mtime": written}
            for name, (data, written) in self.model.files.items()
            if name.startswith(path)
        ]


Scene = Callable[[Turns], tuple[Sequence[Callable[[], object]], Callable[[list[object]], object]]]
"""Makes a model, the participants, and a check of what they returned."""


def explore(scene: Scene, *, switches: int | None = None, sample: int | None = None) -> int:
    """Run a scene in every order, and return how many there are. A failing order is named.

    ``switches`` is the most often that a participant is interrupted; without it, two who undo each other's work have
    orders without number. ``sample`` is the number of random orders to run instead.
    """
    count = 0
    for turns in _every_order(switches) if sample is None else _random_orders(sample):
        jobs, check = scene(turns)
        results = turns.run(jobs)
        try:
            check(results)
        except Exception as error:
            raise AssertionError(f"order {turns.trace}, results {results}") from error
        count += 1
    return count


def _random_orders(count: int) -> Iterator[Turns]:
    for seed in range(count):
        rng = random.Random(seed)
        yield Turns(lambda at, able, rng=rng: rng.randrange(able))  # type: ignore[misc]


def _every_order(switches: int | None) -> Iterator[Turns]:
    """Yield turns whose choices differ; each must have run before the next is asked for."""
    choices: list[int] | None = []
    while choices is not None:
        turns = Turns(lambda at, able, given=choices: given[at] if at < len(given) else 0)  # type: ignore[misc]
        yield turns
        choices = _following(turns.taken, switches)


def _following(taken: Sequence[tuple[int, int]], switches: int | None) -> list[int] | None:
    """The choices of the next order: the last decision that had another choice takes it."""
    for at in reversed(range(len(taken))):
        choice, able = taken[at]
        before = [one for one, _ in taken[:at]]
        may_switch = switches is None or sum(map(bool, before)) < switches
        if choice + 1 < able and may_switch:
            return [*before, choice + 1]
    return None
