"""The shared parts of all stages on Spark: errors, cached frames, and how many partitions data is divided into."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sidecar.errors import SidecarError, StorageError, foreign_reason
from sidecar.spark.costs import MOST_OF_A_TASK, MOST_PARTITIONS, PARTITION_BYTES

Names = dict[str, pa.DataType]
"""Column types by name, of which a schema is made."""

ArrowMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for ``mapInArrow``."""


def partitions_for(size: int) -> int:
    """Return how many partitions ``size`` bytes go to the driver in: Spark's own 200 cost more than small data does."""
    return min(-(-size // PARTITION_BYTES) or 1, MOST_PARTITIONS)


def one_each(session: Any, items: Sequence[bytes]) -> Any:
    """Return a frame of ``id`` and ``item`` with one item a partition, or evenly divided if there are too many.

    Nothing is shuffled: a range has as many partitions as it is told, and gets its items by a broadcast. Spark's
    ``repartition`` deals rows unevenly, so that some tasks would have two items and others none.
    """
    numbered = pa.table({"id": pa.array(range(len(items)), pa.int64()), "item": pa.array(items, pa.binary())})
    numbers = session.range(0, len(items), 1, min(len(items), MOST_PARTITIONS))
    return numbers.join(session.createDataFrame(numbered).hint("broadcast"), "id")


def sizes_by(frame: Any, key: str, *columns: str) -> dict[int, int]:
    """Return the bytes that columns of bytes have in the rows of each value of ``key``, a column of integers.

    This computes a cached frame, all parts at once.
    """
    total = " + ".join(f"length({column})" for column in columns)
    found = frame.selectExpr(f"{key} AS key", f"{total} AS bytes").toArrow()
    sums = found.group_by("key").aggregate([("bytes", "sum")])
    return dict(zip(sums["key"].to_pylist(), sums["bytes_sum"].to_pylist(), strict=True))


def rows_of_tasks(frame: Any, sizes: Collection[int], *keys: str) -> Iterator[Any]:
    """Yield the rows of a cached frame in no order, of which the driver holds two partitions at a time.

    ``sizes`` are the bytes of each task's rows. ``keys`` are columns by which rows are divided if one task has too many
    of them for a partition; nothing else is shuffled.
    """
    partitions = partitions_for(sum(sizes))
    if partitions == 1:  # as Arrow batches: rows for an iterator would be pickled, bytes as text
        return (row for batch in frame.toArrow().to_batches() for row in batch.to_pylist())
    if max(sizes) > MOST_OF_A_TASK:
        return rows_of(frame.repartition(partitions, *keys))
    return rows_of(frame.coalesce(partitions))


def in_order(frame: Any, partitions: int, column: str) -> Iterator[Any]:
    """Yield the rows in the order of a column. The driver holds two of the ``partitions`` at a time."""
    divided = frame.coalesce(1) if partitions == 1 else frame.repartitionByRange(partitions, column)
    return rows_of(divided.sortWithinPartitions(column))


def rows_of(frame: Any) -> Iterator[Any]:
    """Yield the rows of a frame. The driver holds two of its partitions at a time."""
    rows: Iterator[Any] = frame.toLocalIterator(prefetchPartitions=True)
    return rows


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn errors of Spark into :class:`StorageError`, with their class and first line."""
    try:
        yield
    except SidecarError:
        raise
    except Exception as error:
        raise StorageError(f"Spark failed: {foreign_reason(error)}") from error


@contextmanager
def kept(frame: Any) -> Iterator[None]:
    """Have Spark keep a frame's rows while the block runs. Executors that are lost take theirs along."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()
