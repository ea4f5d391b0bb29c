"""Runs pyiceberg's planner, by its private API, with the entries of manifests that need not be opened.

``tests/planning/test_internals.py`` fails when that API changes. How manifests are read is in
:mod:`sidecar.iceberg.manifests`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any
from uuid import UUID

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    ResidualEvaluator,
    UnpartitionedResidualEvaluator,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    INITIAL_SEQUENCE_NUMBER,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import KeyDefaultDict, Record
from pyiceberg.types import UUIDType
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.iceberg.listing import read_checked
from sidecar.iceberg.struct_nulls import bound_to, keeping_struct_nulls, metadata_with_struct_nulls
from sidecar.planning.bound_literals import for_bounds, for_partitions, is_rounded_up, with_rounded_up_times
from sidecar.planning.funnel import ManifestUse

AnyLiteral = Literal[Any]
Keep = Callable[[DataFile], bool]
See = Callable[[Iterable[ManifestEntry]], None]
Entries = Mapping[int, Sequence[ManifestEntry]]
"""The entries of the data files that are left, by the place of their manifest in the manifest list."""


class Evaluators:
    """pyiceberg's evaluators of one plan, for files of manifests that are not opened."""

    def __init__(self, planner: ManifestGroupPlanner) -> None:
        self._planner = planner
        self._partition = KeyDefaultDict(planner._build_partition_evaluator)
        self._manifest = KeyDefaultDict(planner._build_manifest_evaluator)
        self.metrics: Callable[[DataFile], bool] = planner._build_metrics_evaluator()

    def manifest(self, line: ManifestFile) -> bool:
        """Return whether the partition summaries of a manifest allow a match in one of its files."""
        return bool(self._manifest[line.partition_spec_id](line))

    def partition(self, spec_id: int) -> Callable[[DataFile], bool]:
        """Return the evaluator of partition values for files of a spec."""
        evaluator: Callable[[DataFile], bool] = self._partition[spec_id]
        return evaluator

    def partition_field_ids(self, spec_id: int) -> list[int] | None:
        """Return the field ids of a spec; ``None`` if their values rule nothing out."""
        if isinstance(self._planner.partition_filters[spec_id], AlwaysTrue):
            return None
        return [field.field_id for field in self._planner.table_metadata.specs()[spec_id].fields]

    def match(self, line: ManifestFile, file: DataFile) -> bool:
        """Return whether pyiceberg keeps a data file of a manifest."""
        return bool(self.partition(line.partition_spec_id)(file) and self.metrics(file))

    def residual(self, file: DataFile, spec_id: int) -> BooleanExpression:
        """Return what is left of the predicate for the rows of a file, given its partition."""
        return self._planner._build_residual_evaluator(spec_id)(file).residual_for(file.partition)


MANY = 10_000
"""With at least this many files, Python does not search for cycles while their tasks are made."""


class TaskMaker:
    """Makes the tasks of one scan: pyiceberg's own, with the deletes and the residual of each file.

    ``lines`` are all lines of the snapshot's manifest list.
    """

    def __init__(self, scan: DataScan, lines: Sequence[ManifestFile], use: ManifestUse | None = None) -> None:
        self._planner = _Planner(scan._manifest_planner)
        self._lines = lines
        self.evaluators = Evaluators(self._planner)
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

    def tasks(self, entries: Entries, see: See | None = None) -> list[FileScanTask]:
        """Return a task for each entry, in the order of manifests. ``see`` gets them, and equality deletes.

        pyiceberg raises for any equality delete. With ``see`` it gets none.
        """
        data = [entries.get(at, ()) for at, _ in self.data]
        deletes = [line for _, line in self._passing if line.content == ManifestContent.DELETES]
        if see is not None:
            for some in data:
                see(some)
        if deletes and any(data):
            oldest = min(entry.sequence_number or INITIAL_SEQUENCE_NUMBER for some in data for entry in some)
            deletes = [line for line in deletes if self._planner._check_sequence_number(oldest, line)]
            self.use.deletes_opened = len(deletes)
        else:
            deletes = []
        self._planner.entries = chain(data, self._deletes(deletes, see))
        return list(self._planner.plan_files(self._lines))

    def _deletes(self, lines: Sequence[ManifestFile], see: See | None) -> Iterator[list[ManifestEntry]]:
        def read(line: ManifestFile) -> list[ManifestEntry]:
            entries = live_entries(self._planner.io, line)
            return [entry for entry in entries if self.evaluators.match(line, entry.data_file)]

        for found in ExecutorFactory.get_or_create().map(read, lines):
            if see is not None:
                see(entry for entry in found if entry.data_file.content == DataFileContent.EQUALITY_DELETES)
                found = [e for e in found if e.data_file.content != DataFileContent.EQUALITY_DELETES]
            yield found


def planned_on_server(scan: DataScan) -> list[FileScanTask] | None:
    """Return the tasks of a scan that the catalog plans; ``None`` if it does not."""
    if not scan._should_use_server_side_planning():
        return None
    asked = scan.row_filter if _means_the_same_everywhere(scan) else AlwaysTrue()
    wide = scan.update(row_filter=for_bounds(keeping_struct_nulls(asked, scan.table_metadata.schema())))
    return list(wide.plan_files())


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


def plan_tasks(scan: DataScan, lines: Sequence[ManifestFile], keep: Keep, see: See | None = None) -> list[FileScanTask]:
    """Return pyiceberg's own scan tasks of the data files that ``keep`` wants, without any index."""
    if scan.snapshot() is None:
        return []
    if (planned := planned_on_server(scan)) is not None:
        return [task for task in planned if keep(task.file)]
    maker, entries = TaskMaker(scan, lines), dict[int, list[ManifestEntry]]()
    with many_new_objects(count_files(lines)):
        for at, line in maker.data:
            found = live_entries(scan.io, line)
            entries[at] = [e for e in found if maker.evaluators.match(line, e.data_file) and keep(e.data_file)]
        return maker.tasks(entries, see)


@contextmanager
def many_new_objects(files: int) -> Iterator[None]:
    """Do not let Python search for cycles while the tasks of many files are made: all of them stay, and none is in one.

    Otherwise it looks through the tasks again and again, which takes half of the time of a plan of 100,000 files.
    """
    pauses = files >= MANY and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


def data_of(lines: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the lines of data manifests."""
    return [line for line in lines if line.content == ManifestContent.DATA]


def count_files(lines: Iterable[ManifestFile]) -> int:
    """Return the number of live files of manifests, as far as the manifest list says it."""
    return sum((line.added_files_count or 0) + (line.existing_files_count or 0) for line in lines)


def live_entries(io: FileIO, line: ManifestFile) -> list[ManifestEntry]:
    """Return the live entries of a manifest.

    pyiceberg takes an empty Avro block for the end of the file, and so a file that is cut between two blocks for whole.
    Raises the errors of :func:`read_checked` if the manifest has fewer entries than its line in the manifest list says.
    """
    entries: list[ManifestEntry] = line.fetch_manifest_entry(io, discard_deleted=True)
    if len(entries) >= count_files([line]):
        return entries
    every = (raw.entry for raw in read_checked(io, line).entries)
    return [entry for entry in every if entry.status != ManifestEntryStatus.DELETED]


def evaluators_of(scan: DataScan) -> Evaluators:
    """Return the evaluators of a scan, for manifests and files that are not planned by :func:`plan_tasks`."""
    return Evaluators(_Planner(scan._manifest_planner))


class _NullSafeResiduals(ResidualEvaluator):
    """pyiceberg's residuals. A NULL partition value is within no range; pyiceberg fails to compare it."""

    def visit_less_than(self, term: BoundTerm, literal: AnyLiteral) -> BooleanExpression:
        return AlwaysFalse() if self._is_null(term) else super().visit_less_than(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: AnyLiteral) -> BooleanExpression:
        return AlwaysFalse() if self._is_null(term) else super().visit_less_than_or_equal(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: AnyLiteral) -> BooleanExpression:
        return AlwaysFalse() if self._is_null(term) else super().visit_greater_than(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: AnyLiteral) -> BooleanExpression:
        return AlwaysFalse() if self._is_null(term) else super().visit_greater_than_or_equal(term, literal)

    def _is_null(self, term: BoundTerm) -> bool:
        return term.eval(self.struct) is None


class _Planner(ManifestGroupPlanner):
    """pyiceberg's planner, which gets the entries that are left.

    It differs from pyiceberg's in six steps:

    1. Evaluators of bounds get :func:`for_bounds` of the filter, those of manifests and partitions get
       :func:`for_partitions`, both after :func:`keeping_struct_nulls`. What is projected onto partitions is widened by
       :func:`with_rounded_up_times`. Residuals are those of the filter itself. All bind to a schema with the NULLs of
       structs.
    2. Delete manifests are ruled out by the smallest sequence number of the data files that are kept. pyiceberg takes
       that of the manifests that it is given, which would drop deletes that apply to files of the others. A delete
       applies only to older files (or equally old ones), and no entry is younger than its manifest. So a delete
       manifest that is older than all kept files has no delete that applies.
    3. Partition values of type UUID are compared as bytes, as literals are. pyiceberg finds that none of them is equal.
    4. Residuals are made by :class:`_NullSafeResiduals`, and are the whole filter if a partition :func:`is_rounded_up`.
    5. Manifests are read by :func:`live_entries`.
    6. Entries come from :class:`TaskMaker`.
    """

    def __init__(self, planner: ManifestGroupPlanner) -> None:
        self._wide = keeping_struct_nulls(planner.row_filter, planner.table_metadata.schema())
        wide = for_bounds(self._wide)
        metadata = metadata_with_struct_nulls(planner.table_metadata)
        super().__init__(metadata, planner.io, wide, planner.case_sensitive, planner.options)
        self._plain = planner
        self.entries: Iterable[Sequence[ManifestEntry]] = ()
        """The entries of data files, then of delete files, that become tasks."""

    def _build_partition_projection(self, spec_id: int) -> BooleanExpression:
        schema, spec = self.table_metadata.schema(), self.table_metadata.specs()[spec_id]
        if not spec.fields and not isinstance(self._wide, AlwaysFalse):
            return AlwaysTrue()  # what projecting gives, too, in a twentieth of the time of a lookup
        project = inclusive_projection(schema, spec, self.case_sensitive)
        return with_rounded_up_times(project(for_partitions(self._wide)), spec, schema)

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        if isinstance(self.partition_filters[spec_id], AlwaysTrue):
            return lambda _: True
        return super()._build_manifest_evaluator(spec_id)

    def _build_partition_evaluator(self, spec_id: int) -> Callable[[DataFile], bool]:
        if isinstance(self.partition_filters[spec_id], AlwaysTrue):
            return lambda _: True
        if not self._has_uuids(spec_id):
            return super()._build_partition_evaluator(spec_id)
        kinds = self.table_metadata.specs()[spec_id].partition_type(self.table_metadata.schema())
        evaluate = expression_evaluator(Schema(*kinds.fields), self.partition_filters[spec_id], self.case_sensitive)

        def match(file: DataFile) -> bool:
            values = [file.partition[place] for place in range(len(kinds.fields))]
            return evaluate(Record(*(value.bytes if isinstance(value, UUID) else value for value in values)))

        return match

    def _build_residual_evaluator(self, spec_id: int) -> Callable[[DataFile], ResidualEvaluator]:
        schema, spec, asked = self.table_metadata.schema(), self.table_metadata.specs()[spec_id], self._plain.row_filter
        whole = UnpartitionedResidualEvaluator(schema, asked)
        if spec.is_unpartitioned() or self._has_uuids(spec_id):
            return lambda _: whole
        in_doubt = is_rounded_up(spec, schema)

        def evaluator(file: DataFile) -> ResidualEvaluator:
            return whole if in_doubt(file.partition) else _NullSafeResiduals(schema, spec, self.case_sensitive, asked)

        return evaluator

    def _has_uuids(self, spec_id: int) -> bool:
        schema, spec = self.table_metadata.schema(), self.table_metadata.specs()[spec_id]
        sources = {part.source_id for part in spec.fields if isinstance(part.transform, IdentityTransform)}
        return any(isinstance(schema.find_type(one), UUIDType) for one in sources & set(schema.field_ids))

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        """Yield entries of data manifests, in order, then those of delete manifests that may apply to kept files."""
        yield from map(list, self.entries)
