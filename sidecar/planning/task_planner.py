"""Runs pyiceberg's planner, by its private API, with the entries of manifests that need not be opened.

``tests/planning/test_internals.py`` fails when that API changes. How manifests are read is in
:mod:`sidecar.iceberg.manifests`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import compress
from typing import Any
from uuid import UUID

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    ResidualEvaluator,
    UnpartitionedResidualEvaluator,
    expression_evaluator,
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

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.iceberg.listing import identity_of, read_checked
from sidecar.iceberg.live_files import LiveFiles
from sidecar.planning.bound_literals import for_bounds, for_partitions, is_rounded_up, with_rounded_up_times
from sidecar.planning.funnel import ManifestUse
from sidecar.planning.struct_nulls import keeping_struct_nulls

AnyLiteral = Literal[Any]
Identify = Callable[[], DataFileIdentity | None]
"""Returns the identity of a data file, ``None`` if it is ambiguous. The call may read manifests, and raise."""
Keep = Callable[[Sequence[tuple[DataFile, Identify]]], Iterable[bool]]
"""Returns of each of some data files whether it has to be read."""
See = Callable[[Iterable[ManifestEntry]], None]


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

Known = Callable[[list[ManifestFile], Evaluators], Mapping[str, list[ManifestEntry]]]
"""Returns, by path, the live entries that match of manifests that need not be opened, in their order."""


def plan_tasks(
    scan: DataScan,
    manifests: Sequence[ManifestFile],
    keep: Keep,
    see: See | None = None,
    known: Known | None = None,
    manifest_use: ManifestUse | None = None,
) -> list[FileScanTask]:
    """Return pyiceberg's own scan tasks, without those whose data file ``keep`` refuses.

    ``manifests`` are all lines of the snapshot's manifest list; those that ``known`` answers for are not opened. Files
    are refused before pyiceberg's index matches deletes to those that are left. pyiceberg raises for any equality
    delete. With ``see`` it gets none: ``see`` gets them, and the entries of the data files that are kept. The counts of
    ``manifest_use`` are filled in. If the catalog plans on the server, its tasks are only filtered, and the identity of
    each file is looked up in ``manifests``.
    """
    if scan.snapshot() is None:
        return []
    if scan._should_use_server_side_planning():
        live = LiveFiles(scan.io, manifests)
        wide = scan.update(row_filter=for_bounds(keeping_struct_nulls(scan.row_filter, scan.table_metadata.schema())))
        tasks = list(wide.plan_files())
        return list(compress(tasks, keep([(task.file, partial(live.find, task.file)) for task in tasks])))
    planner = _Planner(scan._manifest_planner, keep, see, known, manifest_use or ManifestUse())
    with _many_new_objects(count_files(manifests)):
        return list(planner.plan_files(manifests))


@contextmanager
def _many_new_objects(files: int) -> Iterator[None]:
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


def count_files(lines: Iterable[ManifestFile]) -> int:
    """Return the number of live files of manifests, as far as the manifest list says it."""
    return sum((line.added_files_count or 0) + (line.existing_files_count or 0) for line in lines)


def _live_entries(io: FileIO, line: ManifestFile) -> list[ManifestEntry]:
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
    """pyiceberg's planner, which gets the entries of some manifests from ``known``.

    It differs from pyiceberg's in six steps:

    1. Evaluators of bounds get :func:`for_bounds` of the filter, those of manifests and partitions get
       :func:`for_partitions`, both after :func:`keeping_struct_nulls`. What is projected onto partitions is widened by
       :func:`with_rounded_up_times`. Residuals are those of the filter itself.
    2. Delete manifests are ruled out by the smallest sequence number of the data files that are kept. pyiceberg takes
       that of the manifests that it is given, which would drop deletes that apply to files of the others. A delete
       applies only to older files (or equally old ones), and no entry is younger than its manifest. So a delete
       manifest that is older than all kept files has no delete that applies.
    3. Partition values of type UUID are compared as bytes, as literals are. pyiceberg finds that none of them is equal.
    4. Residuals are made by :class:`_NullSafeResiduals`, and are the whole filter if a partition :func:`is_rounded_up`.
    5. Manifests are read by :func:`_live_entries`.
    6. All data files of a manifest are shown to ``keep`` together, and what is left of them to ``see``.
    """

    def __init__(
        self,
        planner: ManifestGroupPlanner,
        keep: Keep | None = None,
        see: See | None = None,
        known: Known | None = None,
        manifest_use: ManifestUse | None = None,
    ) -> None:
        self._wide = keeping_struct_nulls(planner.row_filter, planner.table_metadata.schema())
        wide = for_bounds(self._wide)
        super().__init__(planner.table_metadata, planner.io, wide, planner.case_sensitive, planner.options)
        self._plain = planner
        self._keep = keep
        self._see = see
        self._known = known
        self._manifest_use = manifest_use or ManifestUse()

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
        lines = list(manifests)
        may_match = KeyDefaultDict(self._build_manifest_evaluator)
        nothing = isinstance(self.row_filter, AlwaysFalse)
        passing = [line for line in lines if not nothing and may_match[line.partition_spec_id](line)]
        data = [line for line in passing if line.content == ManifestContent.DATA]
        self._manifest_use.total = sum(line.content == ManifestContent.DATA for line in lines)
        self._manifest_use.deletes = len(lines) - self._manifest_use.total
        evaluators = Evaluators(self)
        known = self._known(data, evaluators) if self._known and data else {}
        unknown = [line for line in data if line.manifest_path not in known]
        self._manifest_use.listed, self._manifest_use.opened = len(data) - len(unknown), len(unknown)

        def matching(asked: tuple[ManifestFile, Callable[[DataFile], bool]]) -> list[ManifestEntry]:
            line, in_partition = asked
            files = ((entry, entry.data_file) for entry in _live_entries(self.io, line))
            return [entry for entry, file in files if in_partition(file) and evaluators.metrics(file)]

        def read(chosen: Sequence[ManifestFile]) -> Iterator[list[ManifestEntry]]:
            asked = [(line, evaluators.partition(line.partition_spec_id)) for line in chosen]
            return ExecutorFactory.get_or_create().map(matching, asked)

        opened = read(unknown)
        deletes = [line for line in passing if line.content == ManifestContent.DELETES]
        oldest: int | None = None
        for line in data:
            kept = self._kept(known[line.manifest_path] if line.manifest_path in known else next(opened))
            if deletes and kept:
                least = min(entry.sequence_number or INITIAL_SEQUENCE_NUMBER for entry in kept)
                oldest = least if oldest is None else min(oldest, least)
            yield kept
        if oldest is not None:
            deletes = [line for line in deletes if self._check_sequence_number(oldest, line)]
            self._manifest_use.deletes_opened = len(deletes)
            yield from map(self._kept, read(deletes))

    def _kept(self, entries: list[ManifestEntry]) -> list[ManifestEntry]:
        """Return those of a manifest's entries that become tasks, or deletes of tasks."""
        data = [entry for entry in entries if entry.data_file.content == DataFileContent.DATA]
        deletes = [entry for entry in entries if entry.data_file.content != DataFileContent.DATA]
        if self._keep is not None and data:
            asked = [(entry.data_file, partial(identity_of, entry)) for entry in data]
            data = list(compress(data, self._keep(asked)))
        if self._see is not None:
            self._see(data)
            equality = DataFileContent.EQUALITY_DELETES
            self._see(entry for entry in deletes if entry.data_file.content == equality)
            deletes = [entry for entry in deletes if entry.data_file.content != equality]
        return data + deletes
