"""Decides whether all rows of a data file match, by its partition and its bounds, as Spark does for DELETE."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, strict_projection
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import KeyDefaultDict

from sidecar.dependencies.pyiceberg import StrictMetricsEvaluator
from sidecar.iceberg.struct_nulls import metadata_with_struct_nulls
from sidecar.planning.partition_projection import exact_spec, in_doubt


class WholeMatch:
    """The question for one predicate on the current schema of a table."""

    def __init__(self, metadata: TableMetadata, row_filter: BooleanExpression) -> None:
        self._metadata = metadata = metadata_with_struct_nulls(metadata)
        self._row_filter = row_filter
        self._by_bounds = StrictMetricsEvaluator(metadata.schema(), row_filter)
        self._by_partition: dict[int, Callable[[DataFile], bool]] = KeyDefaultDict(self._partition_evaluator)

    def holds(self, file: DataFile, spec_id: int) -> bool:
        """Return whether certainly all rows of the file match."""
        return self._by_partition[spec_id](file) or self._by_bounds.eval(file)

    def _partition_evaluator(self, spec_id: int) -> Callable[[DataFile], bool]:
        schema, spec = self._metadata.schema(), self._metadata.specs()[spec_id]
        if not spec.fields:
            return lambda _: False
        projected = strict_projection(schema, exact_spec(spec, schema))(self._row_filter)
        evaluate = expression_evaluator(Schema(*spec.partition_type(schema).fields), projected, True)
        is_doubtful = in_doubt(spec, schema)
        return lambda file: not is_doubtful(file.partition) and evaluate(file.partition)
