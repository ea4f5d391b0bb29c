"""What is left of a plan, cut into partitions for Spark and carried to its workers.

A worker has neither the catalog nor the sidecar that the plan was made with. It gets the table's metadata (of the
one snapshot that is read), the properties to open files with, and scan tasks with what the plan left of their files.
From these it makes a plan again, and reads it as every plan is read (:mod:`sidecar.reading.scanning`).

Small files share a partition: each counts its bytes that may match and what opening it costs. A large Parquet file
whose row groups are known is cut between surviving row groups. Each partition then has a range of the file's rows, all
ranges together are the file, and so no row is lost or read twice, however a worker comes to read its part.
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

TARGET_BYTES = 128 * 1024 * 1024
"""Bytes that a partition reads, about, as in Spark's own file sources."""
OPENING = 4 * 1024 * 1024
"""Bytes that could be read in the time that opening a file takes, as Spark's file sources have it."""
FILES_AT_ONCE = 2
"""A task of Spark has one processor; a second file is on its way meanwhile."""


@dataclass(frozen=True, eq=False)
class RowGroupShare:
    """What one partition reads: tasks, and by path what the plan left of their files, as far as it is known."""

    tasks: tuple[FileScanTask, ...]
    row_groups: Mapping[str, KeptRowGroups]
    answered: frozenset[str]


@dataclass(frozen=True, eq=False)
class PartitionReading:
    """What all partitions have in common; to be pickled."""

    identifier: tuple[str, ...]
    metadata: TableMetadata
    metadata_location: str
    io_properties: Mapping[str, Any]
    snapshot_id: int | None
    time_travel: bool
    row_filter: BooleanExpression
    keys: KeySet | None
    columns: tuple[str, ...] | None
    keys_place: str | None
    """Where a worker finds the keys of encrypted files; keys themselves are not sent."""

    @classmethod
    def of(
        cls, planned: Plan, columns: Sequence[str] | None, keys_place: str | None = None
    ) -> PartitionReading:
        """What reading ``planned`` takes, apart from its tasks."""
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
            planned.time_travel,
            planned.row_filter,
            planned.keys,
            None if columns is None else tuple(columns),
            keys_place,
        )

    def read(self, share: RowGroupShare) -> pa.RecordBatchReader:
        """The matching rows of a share, as a stream."""
        io = load_file_io(dict(self.io_properties), self.metadata_location)
        table = Table(self.identifier, self.metadata, self.metadata_location, io, NoopCatalog("sidecar"))
        planned = Plan(
            table,
            self.snapshot_id,
            self.time_travel,
            self.row_filter,
            list(share.tasks),
            row_groups=share.row_groups,
            answered=share.answered,
            keys=self.keys,
            encryption_keys=None if self.keys_place is None else encryption_keys_from(self.keys_place),
        )
        return read_batches(planned, self.columns, threads=FILES_AT_ONCE)


def shares(planned: Plan, target: int = TARGET_BYTES) -> list[RowGroupShare]:
    """The plan's tasks in shares of about ``target`` bytes, in their order."""
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
            if tasks and (size + length > target or path in row_groups):
                close()
                size = 0
            tasks.append(task)
            size += length
            if kept is not None:
                row_groups[path] = kept
    close()
    return found


def _parts(
    task: FileScanTask, kept: KeptRowGroups | None, target: int
) -> Iterator[tuple[KeptRowGroups | None, int]]:
    """A file, or parts of it of at least ``target`` bytes, and what each costs."""
    file = task.file
    if kept is None:
        yield None, file.file_size_in_bytes + OPENING
        return
    kept = replace(kept, places=())  # they lead into the sidecar
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
