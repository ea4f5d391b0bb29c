"""The same work for each of many items on Spark: one task an item, and results in order.

    items -> mapInArrow(work) -> cached -> sorted in as many partitions as the results need -> the driver, one by one

Only the DataFrame API is used, so it runs in a classic session and on Spark Connect. A task that is lost runs again on
another executor. Errors of sidecar are results, so one bad item costs no second try and no other item.

The work travels inside the function that Spark ships, as it may hold keys and the secrets of a ``FileIO``; items and
results, which are columns, hold none.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.results.choices import EngineKind
from sidecar.run import report_progress
from sidecar.spark.frames import ArrowMap, Names, in_order, kept, one_each, partitions_for, sizes_by, spark_errors
from sidecar.spark.same_code import REFUSED, other_code
from sidecar.spark.workers import on_workers

T = TypeVar("T")
R = TypeVar("R")

ANSWERS = pa.schema(Names(number=pa.int32(), answer=pa.binary()))
"""Schema of the results. Bytes are ``binary``, at most 2 GiB an item."""


class SparkWork:
    """Works on a Spark session, classic or Connect. The caller owns the session; it is not stopped here."""

    name: EngineKind = "spark"

    def __init__(self, session: Any, reason: str = "") -> None:
        self.reason = reason
        self._session = session

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R | SidecarError]:
        """See :meth:`sidecar.engines.work.WorkEngine.run`. All items are worked on before the first result comes.

        Raises :class:`StorageError` if Spark fails, and :class:`UsageError` if the work cannot be sent.
        """
        if not items:
            return
        report_progress("files on Spark (starting workers takes a few seconds)", 0, len(items))
        shipped = _shipped(work)
        pickled = [pickle.dumps(item) for item in items]
        done = 0
        with spark_errors():
            stage = one_each(self._session, pickled).mapInArrow(_work_on_rows(shipped), "number int, answer binary")
            with kept(stage):
                # The size is known when all items are done, so this does the work, on all executors at once.
                for row in in_order(stage, partitions_for(sum(sizes_by(stage, "number", "answer").values())), "number"):
                    if row["number"] == REFUSED:
                        raise other_code(row["answer"].decode())
                    if row["number"] != done:
                        break
                    yield pickle.loads(row["answer"])
                    done += 1
                    report_progress("files", done, len(items))
        if done != len(items):
            raise StorageError("Spark returned too few results", expected=len(items), found=done)


def _shipped(work: Callable[[T], R]) -> bytes:
    try:
        return pickle.dumps(work)
    except Exception as error:  # a FileIO may hold anything
        raise UsageError(
            f"the work cannot be sent to Spark's workers: {type(error).__name__}",
            expected="arguments that can be pickled, an io among them",
            hint="Choose the engine 'local'.",
        ) from error


def _work_on_rows(shipped: bytes) -> ArrowMap:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = pickle.loads(shipped)
        for batch in batches:
            for row in batch.to_pylist():
                answer = answer_of(work, pickle.loads(row["item"]))
                yield _row(row["id"], answer)

    return on_workers(run, lambda digest: _row(REFUSED, digest.encode()))


def _row(number: int, answer: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"number": number, "answer": answer}], schema=ANSWERS)


def answer_of(work: Callable[[T], R], item: T) -> bytes:
    """Return what the work gives for an item, pickled: its result, or our error."""
    try:
        return pickle.dumps(work(item))
    except SidecarError as error:  # also of a result that is too large to be sent
        return pickle.dumps(error)
