"""Holds pyiceberg's evaluators of one plan, with the six differences that keep rows or save time.

``tests/planning/test_tasks.py`` fails when pyiceberg plans otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    BoundTerm,
    Or,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    ResidualEvaluator,
    UnpartitionedResidualEvaluator,
    expression_evaluator,
    rewrite_not,
    visit_bound_predicate,
)
from pyiceberg.manifest import (
    DataFile,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, ManifestGroupPlanner
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import KeyDefaultDict, Record
from pyiceberg.types import UUIDType

from sidecar.dependencies.pyiceberg import (
    InclusiveMetricsEvaluator,
    manifest_evaluator,
    manifest_planner,
    metrics_evaluator,
    partition_evaluator,
    residual_evaluator,
)
from sidecar.iceberg.deletes.delete_files import (
    DeleteFile,
    partition_of,
)
from sidecar.iceberg.struct_nulls import keeping_struct_nulls, metadata_with_struct_nulls
from sidecar.planning.bound_literals import for_bounds, for_partitions
from sidecar.planning.budget import cost_of, present_budget

AnyLiteral = Literal[Any]


class Evaluators:
    """pyiceberg's evaluators of one plan, for files of manifests that are not opened."""

    def __init__(self, planner: ManifestGroupPlanner) -> None:
        self.planner = planner
        self.io = planner.io
        self._specs = planner.table_metadata.specs()
        self._budget, self._cost = present_budget(), cost_of(planner.row_filter)
        self._partition: dict[int, Callable[[DataFile], bool]] = KeyDefaultDict(
            lambda spec_id: self._counted(partition_evaluator(planner, spec_id))
        )
        self._manifest = KeyDefaultDict(partial(manifest_evaluator, planner))
        self._residual_of = KeyDefaultDict(partial(residual_evaluator, planner))
        self._residuals: dict[tuple[int, int, tuple[object, ...]], BooleanExpression] = {}
        self._metrics_of = KeyDefaultDict(self._build_metrics_of)
        self.metrics: Callable[[DataFile], bool] = self._counted(metrics_evaluator(planner))

    def spend(self, times: float = 1) -> None:
        """Count ``times`` comparisons of all predicates. Raises :class:`PlanStopped` beyond the budget."""
        if self._budget is not None:
            self._budget.spend(int(self._cost * times))

    def can_decide(self) -> bool:
        """Return whether the budget has room for one more comparison of all predicates."""
        return self._budget is None or self._budget.has(self._cost)

    def _counted(self, evaluate: Callable[[DataFile], bool]) -> Callable[[DataFile], bool]:
        def counted(file: DataFile) -> bool:
            self.spend()
            return evaluate(file)

        return evaluate if self._budget is None else counted

    def manifest(self, line: ManifestFile) -> bool:
        """Return whether the partition summaries of a manifest allow a match in one of its files.

        Some writers leave out summaries, and delete manifests may have a spec that the table does not have.
        """
        spec = self._specs.get(line.partition_spec_id)
        if spec is None or len(line.partitions or ()) < len(spec.fields):
            return True
        self.spend()
        return bool(self._manifest[line.partition_spec_id](line))

    def partition(self, spec_id: int) -> Callable[[DataFile], bool]:
        """Return the evaluator of partition values for files of a spec."""
        return self._partition[spec_id]

    def partition_field_ids(self, spec_id: int) -> list[int] | None:
        """Return the field ids of a spec; ``None`` if their values rule nothing out."""
        if isinstance(self.planner.partition_filters[spec_id], AlwaysTrue):
            return None
        return [field.field_id for field in self._specs[spec_id].fields]

    def match(self, line: ManifestFile, file: DataFile) -> bool:
        """Return whether pyiceberg keeps a data file of a manifest."""
        return bool(self.partition(line.partition_spec_id)(file) and self.metrics(file))

    def deletes_match(self, delete: DeleteFile) -> bool:
        """Return whether a delete file may delete rows that match.

        Statistics of an equality-delete file rule it out only by its equality columns: others may be filled with
        anything. Those of position deletes, which may have whole rows, never do.
        """
        file = delete.file
        if not file.record_count or not (delete.is_doubtful or delete.target or self.partition(delete.spec_id)(file)):
            return False
        return not delete.is_equality or self._metrics_of[frozenset(file.equality_ids or ())](file)

    def _build_metrics_of(self, field_ids: frozenset[int]) -> Callable[[DataFile], bool]:
        """Return the evaluator of bounds for the part of the predicate that asks these columns alone."""
        planner, schema = self.planner, self.planner.table_metadata.schema()
        names = {name for name in map(schema.find_column_name, field_ids) if name is not None}
        asked = _restricted_to(rewrite_not(planner.row_filter), names)
        return InclusiveMetricsEvaluator(schema, asked, planner.case_sensitive).eval

    def residual(self, file: DataFile, spec_id: int) -> BooleanExpression:
        """Return the rest of the predicate for the rows of a file, given its partition. It is made once for each
        partition."""
        key = spec_id, len(file.partition), partition_of(file)
        if key not in self._residuals:
            self.spend()
            self._residuals[key] = self._residual_of[spec_id](file).residual_for(file.partition)
        return self._residuals[key]


def evaluators_of(scan: DataScan) -> Evaluators:
    """Return the evaluators of a scan, for manifests and files that are not planned by :func:`plan_tasks`."""
    return Evaluators(_Planner(manifest_planner(scan)))


def _restricted_to(node: BooleanExpression, names: set[str]) -> BooleanExpression:
    """Return a wider expression without NOT, with predicates on columns of these names alone."""
    if isinstance(node, And | Or):
        return type(node)(_restricted_to(node.left, names), _restricted_to(node.right, names))
    is_other = isinstance(node, UnboundPredicate) and node.term.name not in names  # type: ignore[attr-defined]
    return AlwaysTrue() if is_other else node


class _NullSafeResiduals(ResidualEvaluator):
    """pyiceberg's residuals. A NULL partition value is within no range; pyiceberg fails to compare it.

    Each predicate is bound and projected once, and not again for each partition, which takes a hundred times as long.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec, case_sensitive: bool, expr: BooleanExpression) -> None:
        super().__init__(schema, spec, case_sensitive, expr)
        self._bound: dict[int, BooleanExpression] = {}
        self._projected: dict[tuple[int, int, bool], BooleanExpression | None] = {}

    @cached_property
    def _partition_schema(self) -> Schema:
        return Schema(*self.spec.partition_type(self.schema).fields)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        """Return TRUE or FALSE if the partition decides the predicate, else the predicate."""
        bound = self._bound.get(id(predicate))
        if bound is None:
            bound = self._bound[id(predicate)] = predicate.bind(self.schema, case_sensitive=self.case_sensitive)
        if not isinstance(bound, BoundPredicate):
            return bound
        for part in self.spec.fields_by_source_id(bound.term.ref().field.field_id):
            if isinstance(self._of_partition(bound, part, True), AlwaysTrue):
                return AlwaysTrue()
            if isinstance(self._of_partition(bound, part, False), AlwaysFalse):
                return AlwaysFalse()
        return predicate

    def _of_partition(self, bound: BoundPredicate, part: PartitionField, strict: bool) -> BooleanExpression | None:
        """Evaluate the projection of a predicate for the present partition; ``None`` if there is none."""
        key = id(bound), part.field_id, strict
        if key not in self._projected:
            make = part.transform.strict_project if strict else part.transform.project
            made = make(part.name, bound)
            self._projected[key] = None if made is None else made.bind(self._partition_schema, self.case_sensitive)
        projected = self._projected[key]
        return visit_bound_predicate(projected, self) if isinstance(projected, BoundPredicate) else projected

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
    """pyiceberg's planner, of which :class:`Evaluators` and :class:`TaskMaker` use the evaluators."""

    # The evaluators and tasks differ from pyiceberg's in six steps:
    # 1. Evaluators of bounds get :func:`for_bounds` of the filter, those of manifests and partitions get
    #    :func:`for_partitions`, both after :func:`keeping_struct_nulls`. Predicates are projected onto partitions by
    #    :func:`project`. Residuals are those of the filter itself. All bind to a schema with the NULLs of structs.
    # 2. Delete manifests are ruled out by the smallest sequence number of the data files that are kept. pyiceberg takes
    #    that of the manifests that it is given, which would drop deletes that apply to files of the others.
    # 3. Partition values of type UUID are compared as bytes, as literals are. For pyiceberg none of them is equal. A
    #    partition of which a manifest lacks values may match.
    # 4. Residuals are made by :class:`_NullSafeResiduals`, and are the whole filter if a partition is :func:`in_doubt`.
    # 5. Manifests are read by :func:`live_entries`.
    # 6. :class:`SnapshotDeletes` says which delete files apply. :meth:`Evaluators.deletes_match` says which are needed.

    def __init__(self, planner: ManifestGroupPlanner) -> None:
        self._wide = keeping_struct_nulls(planner.row_filter, planner.table_metadata.schema())
        wide = for_bounds(self._wide)
        metadata = metadata_with_struct_nulls(planner.table_metadata)
        super().__init__(metadata, planner.io, wide, planner.case_sensitive, planner.options)
        self._plain = planner

    def _build_partition_projection(self, spec_id: int) -> BooleanExpression:
        schema, spec = self.table_metadata.schema(), self.table_metadata.specs()[spec_id]
        if not spec.fields and not isinstance(self._wide, AlwaysFalse):
            return AlwaysTrue()  # what projecting gives, too, in a twentieth of the time of a lookup
        from sidecar.planning.partition_projection import project  # 3 ms, which tables without partitions do not need

        return project(for_partitions(self._wide), spec, schema, self.case_sensitive)

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        if isinstance(self.partition_filters[spec_id], AlwaysTrue):
            return lambda _: True
        return super()._build_manifest_evaluator(spec_id)

    def _build_partition_evaluator(self, spec_id: int) -> Callable[[DataFile], bool]:
        if isinstance(self.partition_filters[spec_id], AlwaysTrue):
            return lambda _: True
        kinds = self.table_metadata.specs()[spec_id].partition_type(self.table_metadata.schema())
        evaluate = expression_evaluator(Schema(*kinds.fields), self.partition_filters[spec_id], self.case_sensitive)
        width, has_uuids = len(kinds.fields), self._has_uuids(spec_id)

        def match(file: DataFile) -> bool:
            partition = file.partition
            if has_uuids:
                values = [partition[place] for place in range(len(partition))]
                partition = Record(*(value.bytes if isinstance(value, UUID) else value for value in values))
            return len(partition) < width or evaluate(partition)

        return match

    def _build_residual_evaluator(self, spec_id: int) -> Callable[[DataFile], ResidualEvaluator]:
        schema, spec, asked = self.table_metadata.schema(), self.table_metadata.specs()[spec_id], self._plain.row_filter
        whole = UnpartitionedResidualEvaluator(schema, asked)
        if spec.is_unpartitioned() or self._has_uuids(spec_id):
            return lambda _: whole
        from sidecar.planning.partition_projection import exact_spec, in_doubt

        is_doubtful = in_doubt(spec, schema)
        exact = _NullSafeResiduals(schema, exact_spec(spec, schema), self.case_sensitive, asked)

        def evaluator(file: DataFile) -> ResidualEvaluator:
            is_whole = len(file.partition) < len(spec.fields) or is_doubtful(file.partition)
            return whole if is_whole else exact

        return evaluator

    def _has_uuids(self, spec_id: int) -> bool:
        schema, spec = self.table_metadata.schema(), self.table_metadata.specs()[spec_id]
        sources = {part.source_id for part in spec.fields if isinstance(part.transform, IdentityTransform)}
        return any(isinstance(schema.find_type(one), UUIDType) for one in sources & set(schema.field_ids))
