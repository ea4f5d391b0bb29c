"""pyiceberg's predicates on columns by name, as functions: type checkers refuse a name where its classes are called."""

from collections.abc import Callable

from pyiceberg import expressions

UnboundMaker = Callable[..., expressions.BooleanExpression]
"""Makes a predicate of a column's name, or its term, and of literals."""

below: UnboundMaker = expressions.LessThan
not_above: UnboundMaker = expressions.LessThanOrEqual
above: UnboundMaker = expressions.GreaterThan
not_below: UnboundMaker = expressions.GreaterThanOrEqual
equal_to: UnboundMaker = expressions.EqualTo
is_in: UnboundMaker = expressions.In
starts_with: UnboundMaker = expressions.StartsWith
is_null: UnboundMaker = expressions.IsNull
not_null: UnboundMaker = expressions.NotNull
is_nan: UnboundMaker = expressions.IsNaN
not_nan: UnboundMaker = expressions.NotNaN
