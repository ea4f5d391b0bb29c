"""Evaluates a predicate on the rows of a plain file, with pyiceberg's translation to Arrow and equal zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, Not, NotIn, Or, SetPredicate
from pyiceberg.expressions.visitors import translate_column_names
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, UUIDType

from sidecar.errors import UnsupportedFeatureError, UsageError, first_line
from sidecar.iceberg.predicates.unbound import equal_to, not_null
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.parquet.scan.page_scan import Residual
from sidecar.reading.file_columns import FileColumns, residual_name


def residual_of(bound: BooleanExpression, known: FileColumns, ids: list[int], zeros_are_equal: bool = True) -> Residual:
    """Return a function from a table to the positions (int64 [n], rising) of the rows that match ``bound``.

    ``ids`` are the field ids of the predicate's columns. ``zeros_are_equal`` makes 0.0 equal to -0.0 in IN lists too,
    in which pyiceberg distinguishes them. Raises :class:`UsageError` for deep nesting; the function raises
    :class:`UnsupportedFeatureError` if Arrow cannot evaluate the predicate.
    """
    fields = [known.schema.find_field(field_id) for field_id in ids]
    flat = Schema(*(NestedField(f.field_id, residual_name(f.field_id), _flat_type(f)) for f in fields))
    try:
        unbound = translate_column_names(bound, flat)
        if zeros_are_equal:
            unbound = _zeros_made_equal(unbound)
        expression = expression_to_pyarrow(bound_to(flat, unbound))
    except RecursionError as error:
        raise UsageError("the predicate is nested too deeply", hint="Combine long lists with In.") from error

    def matching(table: pa.Table) -> npt.NDArray[np.int64]:
        columns = {residual_name(i): known.columns[i].compared_in(table) for i in ids}
        columns["row"] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
        try:
            rows = pa.table(columns).filter(expression)["row"]
        except (pa.ArrowException, OverflowError) as error:
            raise UnsupportedFeatureError(f"the predicate cannot be evaluated: {first_line(error)}") from error
        return np.sort(rows.to_numpy())  # Arrow filters in threads

    return matching


def _zeros_made_equal(expression: BooleanExpression) -> BooleanExpression:
    """Replace IN lists that have a zero by comparisons: Arrow looks lists up by bits, in which 0.0 and -0.0 differ."""
    if isinstance(expression, And | Or):
        return type(expression)(_zeros_made_equal(expression.left), _zeros_made_equal(expression.right))
    if isinstance(expression, Not):
        return Not(_zeros_made_equal(expression.child))
    if not isinstance(expression, SetPredicate) or not any(
        isinstance(literal.value, float) and literal.value == 0 for literal in expression.literals
    ):
        return expression
    found: BooleanExpression = AlwaysFalse()
    for literal in expression.literals:
        found = Or(found, equal_to(expression.term, literal))
    found = And(found, not_null(expression.term))  # IN is false for NULL in Arrow, so NOT IN is true
    return Not(found) if isinstance(expression, NotIn) else found


def _flat_type(field_: NestedField) -> Any:
    return FixedType(16) if isinstance(field_.field_type, UUIDType) else field_.field_type
