"""Holds what one predicate asks of data files: of their bounds in manifests, of filters, of page indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from sidecar.filters.leaf import ComparedColumn
from sidecar.iceberg.predicates.conditions import condition_of
from sidecar.iceberg.struct_nulls import bound_to, keeping_struct_nulls
from sidecar.planning.file_bounds import FileBounds
from sidecar.questions.conditions import Condition
from sidecar.questions.filter_questions import filter_question
from sidecar.questions.narrowing import asks_for_few, helpful


class FileQuestion:
    """One predicate on a table's schema, in the forms in which bounds, filters and page indexes are asked.

    ``row_filter`` is not bound, and has the names of ``schema``.
    """

    def __init__(self, row_filter: BooleanExpression, schema: Schema) -> None:
        self._row_filter, self._schema = row_filter, schema
        self.bound = bound = bound_to(schema, row_filter)
        """The predicate as rows and page indexes are asked."""
        columns = {i: schema.find_field(i) for i in sorted(extract_field_ids(bound))}
        self.types = {i: str(column.field_type) for i, column in columns.items()}
        """Iceberg types of the columns in the predicate, by field id."""
        self.names = {i: schema.find_column_name(i) or column.name for i, column in columns.items()}
        self.bounds = FileBounds(self.types)
        lost: list[Condition] = []
        self._condition = condition_of(bound, self._column, lost)
        self.for_filters = filter_question(self._condition, lost)

    @cached_property
    def for_manifests(self) -> BooleanExpression:
        """The bound predicate for the counts in manifests. It is wider: more rows meet it."""
        wide = keeping_struct_nulls(self._row_filter, self._schema)
        return self.bound if wide is self._row_filter else bound_to(self._schema, wide)

    def helpful_fields(self, data: DataFile, has_pages: Callable[[int], bool] = lambda field_id: True) -> set[int]:
        """Return the ids of the columns whose page indexes may rule out more of a file than its bounds do.

        ``has_pages`` says whether a column has page indexes.
        """
        if self._condition is None:
            return set()
        return helpful(self._condition, partial(self.bounds.of, data), has_pages) or set()

    @property
    def asks_for_few(self) -> bool:
        """Whether only rows with one of some listed values match."""
        return self._condition is not None and asks_for_few(self._condition)

    def _column(self, field_id: int) -> ComparedColumn | None:
        column = self.bounds.column(field_id)
        return None if column is None else replace(column, name=self.names[field_id])
