"""Makes scan tasks as pyiceberg's planner does, of entries of manifests that need not be opened.

``tests/planning/test_tasks.py`` fails when pyiceberg plans otherwise. How manifests are read is in
:mod:`sidecar.iceberg.manifests`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
)
from pyiceberg.expressions.visitors import (
    extract_field_ids,
)
from pyiceberg.manifest import (
    INITIAL_SEQUENCE_NUMBER,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.dependencies.pyiceberg import (
    may_have_deletes,
    plans_on_server,
)
from sidecar.iceberg.deletes.delete_files import (
    DeleteFile,
    EqualityDeletes,
    FileKey,
    SnapshotDeletes,
    partition_of,
    read_delete_files,
)
from sidecar.iceberg.listing import live_entries
from sidecar.iceberg.struct_nulls import bound_to, keeping_struct_nulls
from sidecar.planning.bound_literals import for_bounds
from sidecar.planning.evaluators import evaluators_of
from sidecar.planning.funnel import ManifestUse
from sidecar.run import without_search_for_cycles

MANY = 10_000
"""With at least this many files, Python does not search for cycles while their tasks are made."""

Keep = Callable[[DataFile], bool]
ManifestEntries = Mapping[int, Sequence[ManifestEntry]]
"""The entries of the data files that are left, by the place of their manifest in the manifest list."""


class TaskMaker:
    """Makes the tasks of one scan: each file with its deletes and its residual.

    ``lines`` are all lines of the snapshot's manifest list.
    """

    def __init__(self, scan: DataScan, lines: Sequence[ManifestFile], use: ManifestUse | None = None) -> None:
        self._lines = lines
        self.evaluators = evaluators_of(scan)
        self._planner = self.evaluators.planner
        self.use = use or ManifestUse()
        self.use.total = len(data_of(lines))
        self.use.deletes = len(lines) - self.use.total

    @cached_property
    def _passing(self) -> list[tuple[int, ManifestFile]]:
        nothing = isinstance(self._planner.row_filter, AlwaysFalse)
        return [(at, line) for at, line in enumerate(self._lines) if not nothing and self.evaluators.manifest(line)]

    @property
    def data(self) -> list[tuple[int, ManifestFile]]:
        """The data manifests whose partition summaries allow a match, with their places in the manifest list."""
        return [(at, line) for at, line in self._passing if line.content == ManifestContent.DATA]

    def tasks(self, entries: ManifestEntries, equality: EqualityDeletes) -> list[FileScanTask]:
        """Return a task for each entry, in the order of manifests.

        Tasks have position deletes alone. ``equality`` gets the equality deletes that may apply to each file, since
        pyiceberg reads none.
        """
        data = [entry for at, _ in self.data for entry in entries.get(at, ())]
        deletes, tasks = SnapshotDeletes(self._deletes(data)), list[FileScanTask]()
        equality.deletes = deletes
        for entry in data:
            file, positions = entry.data_file, set[DataFile]()
            partition = partition_of(file) if deletes.count else ()
            key = FileKey(entry.sequence_number or INITIAL_SEQUENCE_NUMBER, file.spec_id, partition)
            equality.add(file.file_path, key)
            if deletes.count:
                positions = {delete.file for delete in deletes.positions_of(file.file_path, key)}
            residual = self.evaluators.residual(file, file.spec_id)
            tasks.append(FileScanTask(file, delete_files=positions, residual=residual))
        return tasks

    def _deletes(self, data: Sequence[ManifestEntry]) -> Iterator[DeleteFile]:
        """Yield the delete files that may delete matching rows of some of these data files."""
        lines = [line for _, line in self._passing if line.content == ManifestContent.DELETES]
        if not lines or not data:
            return
        # No entry is younger than its manifest, and a delete applies only to files that are not younger.
        oldest = min(entry.sequence_number or INITIAL_SEQUENCE_NUMBER for entry in data)
        lines = [line for line in lines if may_have_deletes(self._planner, oldest, line)]
        self.use.deletes_opened = len(lines)
        specs, io = self._planner.table_metadata.specs(), self._planner.io

        def read(line: ManifestFile) -> list[DeleteFile]:
            deletes = read_delete_files(io, line, specs.get(line.partition_spec_id))
            return [delete for delete in deletes if self.evaluators.deletes_match(delete)]

        for found in ExecutorFactory.get_or_create().map(read, lines):
            yield from found


def planned_on_server(scan: DataScan) -> list[FileScanTask] | None:
    """Return the tasks of a scan that the catalog plans; ``None`` if it does not, or with equality deletes.

    pyiceberg takes no answer that names such deletes, also for an engine that applies them.
    """
    if not plans_on_server(scan):
        return None
    asked = scan.row_filter if _means_the_same_everywhere(scan) else AlwaysTrue()
    wide = scan.update(row_filter=for_bounds(keeping_struct_nulls(asked, scan.table_metadata.schema())))
    try:
        return list(wide.plan_files())
    except NotImplementedError:
        return None


def _means_the_same_everywhere(scan: DataScan) -> bool:
    """Return whether the columns of a filter have one name and type in all schemas of the table.

    If a snapshot is named, servers differ in the schema in which they look names up, and pyiceberg cannot say which.
    """
    if scan.snapshot_id is None:
        return True
    metadata = scan.table_metadata
    ids = extract_field_ids(bound_to(metadata.schema(), scan.row_filter))
    described = {
        (i, schema.find_column_name(i), str(schema.find_type(i)) if i in schema.field_ids else "")
        for schema in metadata.schemas
        for i in ids
    }
    return len(described) == len(ids)


def plan_tasks(
    scan: DataScan, lines: Sequence[ManifestFile], keep: Keep, equality: EqualityDeletes | None = None
) -> list[FileScanTask]:
    """Return scan tasks of the data files that ``keep`` wants, without any index.

    ``equality`` gets the equality deletes that may apply to them.
    """
    if scan.snapshot() is None:
        return []
    if (planned := planned_on_server(scan)) is not None:
        return [task for task in planned if keep(task.file)]
    maker, entries = TaskMaker(scan, lines), dict[int, list[ManifestEntry]]()
    with without_search_for_cycles(are_many=have_many_files(lines)):
        for at, line in maker.data:
            found = live_entries(scan.io, line)
            entries[at] = [e for e in found if maker.evaluators.match(line, e.data_file) and keep(e.data_file)]
        return maker.tasks(entries, EqualityDeletes() if equality is None else equality)


def have_many_files(lines: Iterable[ManifestFile]) -> bool:
    """Return whether manifests have at least :data:`MANY` files, as far as the manifest list says it."""
    return count_files(lines) >= MANY


def data_of(lines: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the lines of data manifests."""
    return [line for line in lines if line.content == ManifestContent.DATA]


def count_files(lines: Iterable[ManifestFile]) -> int:
    """Return the number of live files of manifests, as far as the manifest list says it."""
    return sum((line.added_files_count or 0) + (line.existing_files_count or 0) for line in lines)
