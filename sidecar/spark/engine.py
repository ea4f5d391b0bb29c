"""Stage 1 of a build on Spark, as one short DataFrame pipeline.

    tasks -> mapInArrow(stage 1) -> cached -> the driver, in partitions of some megabytes

A task gives its records and, beside them, its filters and page indexes. These travel once, from the worker to the
driver, which slices them while it writes the sidecar (:mod:`sidecar.indexing.slices`). Nothing is shuffled, but for
results of a task that are too large to be handed over at once.

Only the DataFrame API is used, so the same code runs in a classic session and on Spark Connect. Workers run the same
functions as the in-process engine. Properties of a FileIO may hold secrets: they are sent inside the functions that
Spark ships, never in a column, a log line or an error.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sidecar.errors import StorageError
from sidecar.indexing.slices import KeptIndexes
from sidecar.indexing.stage_one.tasks import BuildPlan, StageResult, UnitsTask, index_units
from sidecar.results.choices import EngineKind
from sidecar.run import report_progress
from sidecar.spark.costs import FLUSH_BYTES, FLUSH_RECORDS
from sidecar.spark.frames import ArrowMap, Names, kept, one_each, rows_of_tasks, sizes_by, spark_errors
from sidecar.spark.same_code import REFUSED, other_code
from sidecar.spark.workers import on_workers

RESULTS = pa.schema(Names(task=pa.int32(), part=pa.int32(), last=pa.bool_(), records=pa.binary(), indexes=pa.binary()))
RESULTS_DDL = "task int, part int, last boolean, records binary, indexes binary"
"""Schema of the results. The records of a task are divided into parts, of which the last one is marked. Each part has
the filters and page indexes of its own records, one after the other. Bytes are at most 2 GiB a row."""


class SparkEngine:
    """Runs stage 1 on a Spark session, classic or Connect, see :class:`sidecar.indexing.engine_choice.Engine`.

    The caller owns the session; it is not stopped here.
    """

    name: EngineKind = "spark"

    def __init__(self, session: Any) -> None:
        self.kept = KeptIndexes(os.cpu_count() or 1)
        self._session = session

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan) -> list[StageResult]:
        """See :meth:`sidecar.indexing.engine_choice.Engine.index`."""
        if not tasks:
            return []
        report_progress("indexing on Spark (starting workers takes a few seconds)", None, len(tasks))
        items = [pickle.dumps(task) for task in tasks]
        done: set[int] = set()
        parts: dict[tuple[int, int], list[StageResult]] = {}
        with spark_errors():
            stage = one_each(self._session, items).mapInArrow(_stage_one(plan), RESULTS_DDL)
            with kept(stage):
                # The size is known when all tasks are done, so this does the work, on all executors at once.
                sizes = sizes_by(stage, "task", "records", "indexes")
                for row in rows_of_tasks(stage, sizes.values(), "task", "part"):
                    if row["task"] == REFUSED:
                        raise other_code(row["records"].decode())
                    records = pickle.loads(row["records"])
                    parts[row["task"], row["part"]] = self.kept.keep_all(records, row["indexes"])
                    if row["last"]:
                        done.add(row["task"])
                        report_progress("fetching indexes from Spark", len(done), len(tasks))
        if len(done) != len(tasks):
            raise StorageError("Spark returned the results of too few tasks", expected=len(tasks), found=len(done))
        return [record for _, records in sorted(parts.items()) for record in records]

    def close(self) -> None:
        """Free the temporary file."""
        self.kept.close()


def _stage_one(plan: BuildPlan) -> ArrowMap:
    from pyspark import cloudpickle  # keys may have a rule for prefixes that is a function of a program

    # Tasks go as bytes: another version of sidecar may lack their classes, and must still be able to say so.
    shipped = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = pickle.loads(shipped)
        for batch in batches:
            for row in batch.to_pylist():
                yield from _parts(row["id"], index_units(pickle.loads(row["item"]), plan))

    return on_workers(run, lambda digest: _row(REFUSED, 0, True, digest.encode(), b""))


def _row(task: int, part: int, last: bool, records: bytes, indexes: bytes) -> pa.RecordBatch:
    values = (task, part, last, records, indexes)
    return pa.RecordBatch.from_pylist([dict(zip(RESULTS.names, values, strict=True))], RESULTS)


def _parts(task: int, found: Iterator[StageResult]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, each as a batch."""
    part = held = 0
    records: list[StageResult] = []
    indexes: list[bytes] = []

    def batch(last: bool) -> pa.RecordBatch:
        return _row(task, part, last, pickle.dumps(records), b"".join(indexes))

    for record in found:
        if record.kept_bytes:
            indexes.append(record.data or b"")
            held += record.kept_bytes
            record = record._replace(data=None)
        records.append(record)
        if held > FLUSH_BYTES or len(records) >= FLUSH_RECORDS:
            yield batch(last=False)
            part, held, records, indexes = part + 1, 0, [], []
    yield batch(last=True)
