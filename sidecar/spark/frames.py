"""What all stages on Spark share: errors, cached frames, and how many partitions data is divided into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sidecar.errors import SidecarError, StorageError, foreign_reason

Names = dict[str, pa.DataType]
"""Column types by name, of which a schema is made."""

ArrowMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for ``mapInArrow``."""

PARTITION_BYTES = 64 << 20
"""Bytes of a partition that is shuffled, about."""
MOST_PARTITIONS = 2_000


def partitions_for(size: int) -> int:
    """Return how many partitions ``size`` bytes are shuffled into: Spark's own 200 cost more than small data does."""
    return min(-(-size // PARTITION_BYTES) or 1, MOST_PARTITIONS)


def size_of(frame: Any, column: str) -> int:
    """Return the bytes that a column of bytes has in all rows. This computes a cached frame, all parts at once."""
    (size,) = frame.selectExpr(f"sum(length({column}))").first()
    return size or 0


def in_order(frame: Any, partitions: int, *columns: str) -> Iterator[Any]:
    """Yield the rows in the order of ``columns``. The driver holds two of the ``partitions`` at a time."""
    ordered = frame.repartitionByRange(partitions, *columns).sortWithinPartitions(*columns)
    rows: Iterator[Any] = ordered.toLocalIterator(prefetchPartitions=True)
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
