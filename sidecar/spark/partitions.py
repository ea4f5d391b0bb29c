"""Cuts what a plan keeps into partitions for Spark, and reads a partition on a worker.

A worker has neither the catalog nor the sidecar of the plan. It gets the table's metadata (cut down to the one
snapshot that is read), the properties to open files with, and scan tasks with what the plan keeps of their files.
From these it makes a plan again and reads it like any plan (:mod:`sidecar.reading.scanning`).

Small files share a partition; each counts with its bytes that may match plus the cost of opening it. A large Parquet
file whose row groups are known is cut between kept row groups. Each partition then has a range of the file's rows.
Together the ranges are the whole file, so no row is lost or read twice, even if a worker has pyiceberg read its
range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import load_file_io
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from sidecar.crypto.keys import encryption_keys_from
from sidecar.planning.key_sets import KeySet
from sidecar.planning.plan import Plan
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.reading.scanning import read_batches
from sidecar.spark.same_code import check_code, code_digest

TARGET_BYTES = 128 * 1024 * 1024
"""About how many bytes a partition reads, the default of Spark's own file sources."""
OPENING = 4 * 1024 * 1024
"""Cost of opening a file, in bytes that could be read meanwhile; the default of Spark's own file sources."""
FILES_AT_ONCE = 2
"""A Spark task has one processor: it decodes one file while it waits for the next."""


@dataclass(frozen=True, eq=False)
class RowGroupShare:
    """The input of one partition: scan tasks, and by path what the plan keeps of their files, if that is known."""

    tasks: tuple[FileScanTask, ...]
    row_groups: Mapping[str, KeptRowGroups]
    answered: frozenset[str]


@dataclass(frozen=True, eq=False)
class PartitionReading:
    """The part of a plan that all partitions share. It is pickled and sent to the workers."""

    identifier: tuple[str, ...]
    metadata: TableMetadata
    metadata_location: str
    io_properties: Mapping[str, Any]
    snapshot_id: int | None
    row_filter: BooleanExpression
    keys: KeySet | None
    columns: tuple[str, ...] | None
    keys_place: str | None
    """Where a worker finds the keys of encrypted files (a file or ``env:NAME``); keys themselves are not sent."""
    code: str
    """The digest of the driver's version of sidecar."""

    @classmethod
    def of(cls, planned: Plan, columns: Sequence[str] | None, keys_place: str | None = None) -> PartitionReading:
        """Return what is needed to read ``planned``, except its tasks."""
        table, chosen = planned.table, planned.snapshot_id
        snapshots = [s for s in table.metadata.snapshots if s.snapshot_id == chosen]
        metadata = table.metadata.model_copy(
            update={
                "snapshots": snapshots,
                "snapshot_log": [],
                "metadata_log": [],
                "statistics": [],
                "refs": {},
            }
        )
        return cls(
            tuple(table.name()),
            metadata,
            table.metadata_location,
            dict(table.io.properties),
            chosen,
            planned.row_filter,
            planned.keys,
            None if columns is None else tuple(columns),
            keys_place,
            code_digest(),
        )

    def read(self, share: RowGroupShare) -> pa.RecordBatchReader:
        """Return the matching rows of a share as a stream. Raises :class:`UsageError` with another version's code."""
        check_code(self.code)
        io = load_file_io(dict(self.io_properties), self.metadata_location)
        table = Table(self.identifier, self.metadata, self.metadata_location, io, NoopCatalog("sidecar"))
        planned = Plan(
            table,
            self.snapshot_id,
            self.row_filter,
            list(share.tasks),
            row_groups=share.row_groups,
            answered=share.answered,
            keys=self.keys,
            encryption_keys=None if self.keys_place is None else encryption_keys_from(self.keys_place),
        )
        return read_batches(planned, self.columns, threads=FILES_AT_ONCE)


def shares(planned: Plan, target: int = TARGET_BYTES) -> list[RowGroupShare]:
    """Cut the plan's tasks into shares of about ``target`` bytes, in the order of the plan."""
    found: list[RowGroupShare] = []
    tasks: list[FileScanTask] = []
    row_groups: dict[str, KeptRowGroups] = {}
    size = 0

    def close() -> None:
        if tasks:
            paths = frozenset(task.file.file_path for task in tasks)
            found.append(RowGroupShare(tuple(tasks), dict(row_groups), planned.answered & paths))
            tasks.clear()
            row_groups.clear()

    for task in planned.tasks:
        for kept, length in _parts(task, planned.row_groups.get(task.file.file_path), target):
            path = task.file.file_path
            # A share has one entry per path, so two parts of a file are never in the same share.
            if tasks and (size + length > target or path in row_groups):
                close()
                size = 0
            tasks.append(task)
            size += length
            if kept is not None:
                row_groups[path] = kept
    close()
    return found


def _parts(task: FileScanTask, kept: KeptRowGroups | None, target: int) -> Iterator[tuple[KeptRowGroups | None, int]]:
    """Yield a file, or parts of a large one of about ``target`` bytes, each with its cost in bytes."""
    file = task.file
    if kept is None:
        yield None, file.file_size_in_bytes + OPENING
        return
    kept = replace(kept, places=())  # offsets in the sidecar, which a worker does not have
    a_row = file.file_size_in_bytes / max(file.record_count, 1)
    if file.file_format != FileFormat.PARQUET or kept.may_match * a_row < 2 * target:
        yield kept, int(kept.may_match * a_row) + OPENING
        return
    start, size = 0, 0.0
    for unit, rows in zip(kept.units, kept.rows, strict=True):
        if rows and size and size + rows.num_rows * a_row > target:
            yield replace(kept, part=(start, unit.first_row)), int(size) + OPENING
            start, size = unit.first_row, 0.0
        size += rows.num_rows * a_row
    yield replace(kept, part=(start, None)), int(size) + OPENING
