"""What the processes of ``scripts/torture commits`` do. Each writes a log of what was acknowledged, in JSON lines."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

import sidecar
from sidecar.failpoints import observe
from sidecar.puffin.writer import PuffinWriter

NAME = "events"
COLUMNS = ("k", "s")
KEYS = 500
"""Values of ``k`` are below this; a key is in several files."""
TOKEN = "another-engine-token-v1"
"""Type of the blobs that the other engine registers; each has a ``token`` of its own."""
KEPT_SNAPSHOTS = 12
OLD = timedelta(days=3)
TRIES = 8


class Job(NamedTuple):
    """What all processes of a run share.

    Attributes:
        properties: the catalog's.
        table: the table's name, with its namespace.
        logs: the folder of the logs.
        seed: of all choices.
    """

    properties: dict[str, str]
    table: str
    logs: Path
    seed: int

    def open(self) -> Table:
        return load_catalog("torture", **self.properties).load_table(self.table)


def rows(rng: random.Random, count: int = 40) -> pa.Table:
    keys = [rng.randrange(KEYS) for _ in range(count)]
    return pa.table({"k": pa.array(keys, pa.int64()), "s": [f"value-{key * 7919 % KEYS}" for key in keys]})


def make_table(job: Job) -> Table:
    """The table, with some rows, and with the columns declared that are indexed."""
    catalog = load_catalog("torture", **job.properties)
    namespace = job.table.rpartition(".")[0]
    catalog.create_namespace(namespace)
    rng = random.Random(job.seed)
    first = rows(rng)
    table = catalog.create_table(job.table, first.schema)
    for _ in range(4):
        table.append(rows(rng))
    sidecar.build(table, list(COLUMNS), engine="local", save=True)
    return table.refresh()


class Log:
    """The log of a process. A line is in the file when it is written."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a", buffering=1)
        self.counts: Counter[str] = Counter()

    def write(self, **facts: Any) -> None:
        self._file.write(json.dumps(facts) + "\n")

    def count_retries_of_pyiceberg(self) -> None:
        """Count the attempts that pyiceberg makes again by itself: it warns of each."""
        logger = logging.getLogger("pyiceberg.table")
        logger.propagate = False
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.counts.update(["conflicts", "retries"])  # type: ignore[method-assign]
        logger.addHandler(handler)

    def close(self) -> None:
        self.write(counts=dict(self.counts))
        self._file.close()


class Writer:
    """Does random operations on the table."""

    def __init__(self, job: Job, number: int, log: Log) -> None:
        self.rng = random.Random(f"{job.seed} {number}")
        self.job, self.log = job, log
        self.table = job.open()
        self.operations: dict[str, tuple[int, Callable[[], None]]] = {
            "append": (10, self.append),
            "delete": (2, self.delete),
            "compact data": (1, self.compact_data),
            "other statistics": (6, self.other_statistics),
            "build": (5, self.build),
            "refresh": (6, self.refresh),
            "expire snapshots": (2, self.expire_snapshots),
            "expire": (2, self.expire),
            "gc": (1, self.collect_garbage),
        }

    def step(self) -> None:
        """Do one operation."""
        names = list(self.operations)
        (name,) = self.rng.choices(names, [self.operations[name][0] for name in names])
        self.log.counts["operations"] += 1
        steps: Counter[str] = Counter()
        try:
            with observe(lambda step: steps.update([step])):
                self.operations[name][1]()
            self.log.counts[f"op {name}"] += 1
        except (CommitFailedException, sidecar.errors.CommitConflictError) as error:
            self.log.counts["given up"] += 1
            self.log.write(given_up=name, what=str(error), file=getattr(error, "file", None))
        except Exception:
            self.log.write(error=f"{name}: {traceback.format_exc()}")
        again = max(steps["register: write"] - 1, 0)
        self.log.counts["conflicts"] += again
        self.log.counts["retries"] += again

    def _change(self, change: Callable[[Table], None]) -> None:
        """Make a change of the rows, again after a conflict."""
        for attempt in range(TRIES):
            time.sleep(self.rng.uniform(0, 0.05 * attempt))
            try:
                change(self.table.refresh())
                return
            except (CommitFailedException, ValidationException):  # somebody else has added or deleted files
                self.log.counts["conflicts"] += 1
                self.log.counts["retries"] += 1
        raise CommitFailedException(f"{TRIES} tries")

    def append(self) -> None:
        new = rows(self.rng)
        self._change(lambda table: table.append(new))

    def delete(self) -> None:
        key = self.rng.randrange(KEYS)
        self._change(lambda table: table.delete(f"k = {key}"))

    def compact_data(self) -> None:
        self._change(lambda table: table.overwrite(table.scan().to_arrow()))

    def expire_snapshots(self) -> None:
        """Keep the newest snapshots, and those that refs name."""

        def change(table: Table) -> None:
            times = sorted(snapshot.timestamp_ms for snapshot in table.snapshots())
            if len(times) > KEPT_SNAPSHOTS:
                latest = datetime.fromtimestamp(times[-KEPT_SNAPSHOTS] / 1000, timezone.utc).replace(tzinfo=None)
                table.maintenance.expire_snapshots().older_than(latest).commit()

        self._change(change)

    def other_statistics(self) -> None:
        """Set a file of its own, as Spark does: it merges nothing, checks nothing, and commits until it is taken."""

        def change(table: Table) -> None:
            token = uuid.uuid4().hex
            snapshot = table.current_snapshot()
            assert snapshot is not None
            path = f"{table.location()}/metadata/{snapshot.snapshot_id}-{token}.stats"
            with table.io.new_output(path).create() as stream:
                writer = PuffinWriter(stream, created_by="Another Engine 1.0")
                writer.add_blob(TOKEN, [1], snapshot.snapshot_id, 1, token.encode(), None, {"token": token})
                size, footer, _ = writer.finish()
            entry = StatisticsFile(
                snapshot_id=snapshot.snapshot_id,
                statistics_path=path,
                file_size_in_bytes=size,
                file_footer_size_in_bytes=footer,
                blob_metadata=[],
            )
            table.update_statistics().set_statistics(entry).commit()
            self.log.write(by="other", snapshot=snapshot.snapshot_id, path=path)

        self._change(change)

    def build(self) -> None:
        columns = self.rng.sample(COLUMNS, self.rng.choice([1, 2]))
        report = sidecar.build(self.table.refresh(), columns, engine="local")
        if report.statistics_path is not None:
            self.log.write(by="ours", snapshot=report.snapshot_id, path=report.statistics_path)

    def refresh(self) -> None:
        report = sidecar.refresh(self.table.refresh(), engine="local")
        if report.unregistered:
            self.log.write(superseded=list(report.unregistered))
        if report.statistics_path is not None:
            self.log.write(by="ours", snapshot=report.snapshot_id, path=report.statistics_path)

    def expire(self) -> None:
        """Remove entries. An expiry that gives up may have removed them, before another commit interfered."""
        now = timedelta(0)
        decided = sidecar.expire(self.table.refresh(), older_than=now, dry_run=True).expired
        try:
            decided = sidecar.expire(self.table, older_than=now).expired
        finally:
            self.log.write(expired=[entry.statistics_path for entry in decided])

    def collect_garbage(self) -> None:
        """Leave a file behind as a killed run would, three days ago, and delete what nothing names."""
        folder = Path(self.table.location().removeprefix("file:")) / "metadata"
        ours = [entry.statistics_path for entry in self.table.refresh().metadata.statistics]
        if ours:
            left = folder / f"1-{uuid.uuid4()}.stats"
            try:
                shutil.copyfile(self.rng.choice(ours).removeprefix("file:"), left)
                old = time.time() - OLD.total_seconds()
                os.utime(left, (old, old))
            except FileNotFoundError:
                self.log.write(error="an entry of the current metadata names a file that is gone")
        report = sidecar.gc(self.table)
        self.log.counts["files deleted"] += len(report.files)
        self.log.write(deleted=[file.path for file in report.files])


def write(job: Job, number: int, stop: Any) -> None:
    """Be a writer until ``stop`` is set."""
    log = Log(job.logs / f"writer-{number}.jsonl")
    log.count_retries_of_pyiceberg()
    pa.set_cpu_count(1)
    writer = Writer(job, number, log)
    while not stop.is_set():
        writer.step()
    log.close()


def read_and_compare(job: Job, stop: Any) -> None:
    """Compare plans with full scans of the same snapshot, which pyiceberg reads without sidecars, until ``stop``."""
    log = Log(job.logs / "reader.jsonl")
    rng = random.Random(f"{job.seed} reader")
    table = job.open()
    while not stop.is_set():
        try:
            compare(table.refresh(), rng, log)
        except Exception:
            log.write(error=f"reader: {traceback.format_exc()}")
    log.close()


def compare(table: Table, rng: random.Random, log: Log) -> None:
    """Compare the rows of four predicates in one snapshot."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    everything = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    for _ in range(4):
        key, other = rng.randrange(KEYS), rng.randrange(KEYS)
        text, matches = rng.choice(
            [
                (f"k = {key}", lambda row, key=key: row["k"] == key),
                (f"k IN ({key}, {other})", lambda row, keys=(key, other): row["k"] in keys),
                (f"s = 'value-{key}'", lambda row, key=key: row["s"] == f"value-{key}"),
                (f"k = {key} AND s = 'value-{key * 7919 % KEYS}'", lambda row, key=key: row["k"] == key),
            ]
        )
        plan = sidecar.plan(table, text, at=snapshot.snapshot_id)
        found = sorted((row["k"], row["s"]) for row in plan.to_arrow().to_pylist())
        log.counts["checks"] += 1
        log.counts["files dropped"] += plan.funnel.dropped_by_filter
        if found != sorted((row["k"], row["s"]) for row in everything if matches(row)):
            log.counts["wrong answers"] += 1
            log.write(error=f"wrong rows: {text} at snapshot {snapshot.snapshot_id}, {table.metadata_location}")
