"""Operations on a table by Spark, whose driver is killed: at each step, and while executors work.

The driver is a forked child that works in a new thread, for which py4j opens a connection of its own to the JVM. The
JVM and its Python workers are not killed. They go on without their driver, as the executors of a cluster do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

import sidecar
from sidecar.failpoints import hit
from tests.faults.harness import OPERATIONS, Operation
from tests.faults.kill_grid import kill_everywhere
from tests.faults.killed_tables import TableOperation
from tests.faults.killing import LONGEST, killed_when, put

SPARK_ROWS = ("build, Spark", "embed TABLE, Spark")
"""The rows of the grid whose work runs on Spark."""
BEGINS, RESULT, AT_WORK = "spark: work begins", "spark: result", "spark: executors work"
"""Steps of a driver: before it sends work, at each result that comes back, and, at any moment, in between."""


class SparkOperation(TableOperation):
    """An operation whose work runs on a session; ``is_at_work`` says whether executors do what is to be interrupted."""

    def __init__(self, session: Any, operation: Operation, is_at_work: Callable[[Path], bool]) -> None:
        super().__init__(operation)
        self.session = session
        self.is_at_work = is_at_work

    def run(self, place: Path) -> None:
        """Run the operation. The test kills the process that does."""
        with ThreadPoolExecutor(1) as pool:
            pool.submit(super().run, place).result()

    def check(self, place: Path) -> None:
        """Wait for the executors of a driver that is gone; then see :class:`TableOperation`."""
        deadline = time.monotonic() + LONGEST
        while is_busy(self.session):
            assert time.monotonic() < deadline, "executors go on for too long"
            time.sleep(0.02)
        super().check(place)


def spark_operation(name: str, session: Any) -> SparkOperation:
    """The operation of one of :data:`SPARK_ROWS`."""
    options: dict[str, Any] = {"engine": "spark", "spark": session}

    def build(table: Table) -> object:
        with sidecar.progress(announce):
            return sidecar.build(table, ["k"], save=True, **options)

    def embed(table: Table) -> object:
        with sidecar.progress(announce):
            return sidecar.embed(table, bloom=["k"], **options)

    if name == "build, Spark":
        return SparkOperation(session, Operation(build, OPERATIONS["build"].is_done), lambda place: is_busy(session))
    return SparkOperation(session, Operation(embed, OPERATIONS["embed"].is_done), has_new_file)


def announce(what: str, done: int | None = None, total: int | None = None) -> None:
    """Make steps of what the driver reports as its progress on Spark."""
    if "on Spark" in what:
        hit(BEGINS)
    elif done and what in ("fetching indexes from Spark", "files"):
        hit(RESULT)


def is_busy(session: Any) -> bool:
    """Whether a stage has tasks that run."""
    tracker = session.sparkContext.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return any(stage is not None and stage.numActiveTasks for stage in stages)


def has_new_file(place: Path) -> bool:
    """Whether an executor has begun to write a data file."""
    return any("-sidecar-" in path.name for path in place.rglob("*.parquet*"))


def kill_drivers(name: str, session: Any, folder: Path) -> list[str]:
    """Kill the driver of an operation at each of its steps and while executors work. Check what is left. The steps."""
    operation = spark_operation(name, session)
    killed = kill_everywhere([operation], folder, is_thorough=True)
    place = folder / "place"
    put(folder / "0", place)
    kill_at_work(operation, place)
    return [*killed, AT_WORK]


def kill_at_work(operation: SparkOperation, place: Path) -> None:
    """Kill the driver while executors work, and check what is left when they are done."""
    assert killed_when(partial(operation.run, place), lambda: operation.is_at_work(place)), "nobody worked"
    operation.check(place)
