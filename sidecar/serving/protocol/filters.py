"""Turns filters of JSON into pyiceberg's expressions, and back into residuals.

Every row that meets a filter meets the expression. What cannot be parsed exactly (an unknown predicate or column, a
literal that does not fit) becomes TRUE, and so does each NOT around it, because the negation of something wider is
narrower. Chains of AND and OR become balanced trees, so that long ones need no deep recursion.

A residual is what a client applies to the rows of a file. It is written anew from the request: names and literals are
the client's own, because a client parses what it writes, and what was not understood becomes a predicate that all rows
meet but that is not ``true``. pyiceberg counts a file without reading it if the residual is ``true``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, TypeVar

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FixedType, FloatType, StringType

from sidecar.errors import SidecarError
from sidecar.iceberg.literals import PredicateColumn, find_column
from sidecar.iceberg.struct_nulls import with_struct_nulls
from sidecar.serving.protocol.literals import literals_of

MOST_NODES = 20_000
"""What follows so many predicates is taken as TRUE without a look."""
MOST_PREDICATES = 500
"""A part of a filter with more predicates is taken as TRUE, because each file is compared with each of them.
Equalities of one column that are joined by OR are one predicate."""
MOST_VALUES = 20_000
"""The lists of a filter that follow so many literals are taken as TRUE without a look: each literal takes 40 us."""
DEEPEST = 64
"""The part of a filter below this many alternations of AND, OR and NOT is taken as TRUE."""

_TESTS: dict[str, Callable[..., BooleanExpression]] = {
    "is-null": IsNull,
    "not-null": NotNull,
    "is-nan": IsNaN,
    "not-nan": NotNaN,
}
_COMPARISONS: dict[str, Callable[..., BooleanExpression]] = {
    "lt": LessThan,
    "lt-eq": LessThanOrEqual,
    "gt": GreaterThan,
    "gt-eq": GreaterThanOrEqual,
    "eq": EqualTo,
    "not-eq": NotEqualTo,
    "starts-with": StartsWith,
    "not-starts-with": NotStartsWith,
}
_LISTS: dict[str, Callable[..., BooleanExpression]] = {"in": In, "not-in": NotIn}
N = TypeVar("N")
FieldsOfNames = frozenset[tuple[str, int | None]]
"""Names with the ids of the columns that they mean; ``None`` for names that mean none, or more than one."""


@dataclass(frozen=True)
class ParsedFilter:
    """A filter as an expression on one schema."""

    expression: BooleanExpression
    is_exact: bool = True
    """Whether exactly the rows that meet the filter meet the expression. Otherwise more rows may."""
    fields: FieldsOfNames = frozenset()
    """The names in the filter, with what they mean."""


_UNKNOWN = ParsedFilter(AlwaysTrue(), is_exact=False)


def parse_filter(node: Any, schema: Schema, case_sensitive: bool = True) -> ParsedFilter:
    """Parse a filter with the columns of ``schema``. Raises nothing: what cannot be parsed becomes TRUE."""
    names = _Names(schema, case_sensitive)
    parsed = _Parser(names).parse(node, 0)
    return ParsedFilter(parsed.expression, parsed.is_exact, frozenset(names.found.items()))


def fields_of(names: Iterable[str], schema: Schema, case_sensitive: bool) -> FieldsOfNames:
    """Return what names mean in a schema."""
    known = _Names(schema, case_sensitive)
    for name in names:
        known.column(name)
    return frozenset(known.found.items())


def residual_of(
    node: Any, schemas: Sequence[Schema], case_sensitive: bool = True, select: Sequence[str] | None = None
) -> Any:
    """Return a filter as JSON for the member ``residual-filter``. Names may be of any of ``schemas``.

    ``select``: the columns that the client reads; ``None`` for all.
    """
    columns = [_Names(schema, case_sensitive) for schema in {one.schema_id: one for one in schemas}.values()]
    return _ResidualWriter(columns, column_of_client(schemas, case_sensitive, select)).rewrite(node, 0)[0]


def column_of_client(schemas: Sequence[Schema], case_sensitive: bool, select: Sequence[str] | None) -> str:
    """Return the name of a column that the client reads. Java looks up the names of a residual in these columns.

    Empty if there is no column.
    """
    columns = [_Names(schema, case_sensitive) for schema in schemas]
    known = (name for name in select or () if any(names.column(name) is not None for names in columns))
    present = schemas[-1].fields
    return next(known, present[0].name if present else "")


class _Names:
    """Finds the columns of one schema by the names of a filter."""

    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self.found: dict[str, int | None] = {}
        self._columns: dict[str, PredicateColumn | None] = {}
        self._schema = schema
        self._case_sensitive = case_sensitive

    def column(self, name: object) -> PredicateColumn | None:
        """Return the column ``name``; ``None`` if there is none that can be compared, or more than one."""
        if not isinstance(name, str):
            return None
        if name not in self._columns:
            self._columns[name] = self._find(name)
            column = self._columns[name]
            self.found[name] = None if column is None else column.field_id
        return self._columns[name]

    def is_null_with_its_struct(self, column: PredicateColumn) -> bool:
        """Whether a required column is NULL where a struct around it is. pyiceberg says that it is never NULL."""
        own, nulls = (schema.find_field(column.field_id).required for schema in (self._schema, self._nulls))
        return own and not nulls

    def _find(self, name: str) -> PredicateColumn | None:
        if name not in self._known if self._case_sensitive else self._alike[name.lower()] != 1:
            return None
        try:
            return find_column(self._schema, name, self._case_sensitive)
        except SidecarError:
            return None

    @cached_property
    def _nulls(self) -> Schema:
        return with_struct_nulls(self._schema)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._schema.column_names)

    @cached_property
    def _alike(self) -> Counter[str]:
        return Counter(name.lower() for name in self._known)


def _chain(node: dict[str, Any], kind: str) -> list[Any]:
    """Return the operands of nested AND (or OR) nodes in their order."""
    operands: list[Any] = []
    waiting: list[Any] = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict) and current.get("type") == kind:
            waiting += [current.get("right"), current.get("left")]
        else:
            operands.append(current)
    return operands


def _with_lists(operands: Sequence[BooleanExpression]) -> list[BooleanExpression]:
    """Return the operands of an OR with one list of values for all equalities of a column."""
    listed: dict[str, list[Literal[Any]]] = {}
    others = []
    for operand in operands:
        if isinstance(operand, EqualTo | In) and isinstance(operand.term, Reference):
            literals = operand.literals if isinstance(operand, In) else [operand.literal]
            listed.setdefault(operand.term.name, []).extend(literals)
        else:
            others.append(operand)
    make: Callable[..., BooleanExpression] = In
    return [make(name, literals) for name, literals in listed.items()] + others


def _size(expression: BooleanExpression) -> int:
    """Return the number of predicates in an expression."""
    if isinstance(expression, And | Or):
        return _size(expression.left) + _size(expression.right)
    return _size(expression.child) if isinstance(expression, Not) else 1


def _balanced(join: Callable[[N, N], N], operands: Sequence[N]) -> N:
    level = list(operands)
    while len(level) > 1:
        pairs = [join(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


class _Parser:
    """Parses one filter."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._nodes = 0
        self._values = 0

    def parse(self, node: Any, depth: int) -> ParsedFilter:
        if isinstance(node, bool):
            return ParsedFilter(AlwaysTrue() if node else AlwaysFalse())
        if not isinstance(node, dict) or depth > DEEPEST:
            return _UNKNOWN
        kind = node.get("type")
        if kind in ("true", "false"):
            return ParsedFilter(AlwaysTrue() if kind == "true" else AlwaysFalse())
        if kind in ("and", "or"):
            operands = _chain(node, kind)
            self._nodes += len(operands)
            if self._nodes > MOST_NODES:
                return _UNKNOWN
            parts = [self.parse(operand, depth + 1) for operand in operands]
            expressions = [part.expression for part in parts]
            joined = _balanced(And, expressions) if kind == "and" else _balanced(Or, _with_lists(expressions))
            if _size(joined) > MOST_PREDICATES:
                return _UNKNOWN
            return ParsedFilter(joined, all(part.is_exact for part in parts))
        if kind == "not":
            child = self.parse(node.get("child"), depth + 1)
            return ParsedFilter(Not(child.expression)) if child.is_exact else _UNKNOWN
        return self._predicate(node, kind)

    def _predicate(self, node: dict[str, Any], kind: Any) -> ParsedFilter:
        column = self._names.column(node.get("term"))
        if column is None or not isinstance(kind, str):
            return _UNKNOWN
        if kind in _TESTS:
            is_misread = kind in ("is-null", "not-null") and self._names.is_null_with_its_struct(column)
            return _UNKNOWN if is_misread else ParsedFilter(_TESTS[kind](column.name))
        if kind in _COMPARISONS:
            return _compared(_COMPARISONS[kind], column, node.get("value"))
        values = node.get("values")
        if kind in _LISTS and isinstance(values, list):
            self._values += len(values)
            return _UNKNOWN if self._values > MOST_VALUES else _listed(_LISTS[kind], column, values)
        return _UNKNOWN


def _compared(kind: Callable[..., BooleanExpression], column: PredicateColumn, value: Any) -> ParsedFilter:
    if kind in (StartsWith, NotStartsWith) and not isinstance(column.type, StringType):
        return _UNKNOWN
    found = literals_of(value, column)
    if not found:
        return _UNKNOWN
    return ParsedFilter(_balanced(Or, [kind(column.name, one) for one in found]), len(found) == 1)


def _listed(kind: Callable[..., BooleanExpression], column: PredicateColumn, values: list[Any]) -> ParsedFilter:
    found = [literals_of(value, column) for value in values]
    if not all(found):
        return _UNKNOWN
    is_exact = all(len(meanings) == 1 for meanings in found)
    if not is_exact and kind is NotIn:
        return _UNKNOWN
    literals: list[Literal[Any]] = [one for meanings in found for one in meanings]
    return ParsedFilter(kind(column.name, literals), is_exact)


class _ResidualWriter:
    """Writes a filter anew."""

    def __init__(self, names: Sequence[_Names], any_column: str) -> None:
        self._names = names
        self._any_column = any_column
        self._nodes = 0
        self._values = 0

    def rewrite(self, node: Any, depth: int) -> tuple[Any, bool]:
        """Return the new node, and whether it means the same."""
        if isinstance(node, bool):
            return node, True
        if not isinstance(node, dict) or depth > DEEPEST:
            return self._any_row(), False
        kind = node.get("type")
        if kind in ("true", "false"):
            return kind == "true", True
        if kind in ("and", "or"):
            operands = _chain(node, kind)
            self._nodes += len(operands)
            if self._nodes > MOST_NODES:
                return self._any_row(), False
            parts = [self.rewrite(operand, depth + 1) for operand in operands]
            return _balanced(partial(_joined, kind), [part for part, _ in parts]), all(same for _, same in parts)
        if kind == "not":
            child, same = self.rewrite(node.get("child"), depth + 1)
            return ({"type": "not", "child": child}, True) if same else (self._any_row(), False)
        return self._predicate(node, kind)

    def _predicate(self, node: dict[str, Any], kind: Any) -> tuple[Any, bool]:
        term = node.get("term")
        columns = [column for names in self._names if (column := names.column(term)) is not None]
        if not columns or not isinstance(term, str):
            return self._any_row(), False
        if not isinstance(kind, str):
            return any_row(term), False
        if kind in _TESTS:
            return {"type": kind, "term": term}, True
        if kind in _COMPARISONS and _is_understood([node.get("value")], columns):
            return {"type": kind, "term": term, "value": _plain(node["value"])}, True
        values = node.get("values")
        if kind in _LISTS and isinstance(values, list) and values:
            self._values += len(values)
            if self._values > MOST_VALUES or not _is_understood(values, columns):
                return any_row(term), False
            return {"type": kind, "term": term, "values": [_plain(value) for value in values]}, True
        return any_row(term), False

    def _any_row(self) -> Any:
        return any_row(self._any_column)


def any_row(column: str) -> Any:
    """A predicate that every row meets. Clients do not see that, so it is not ``true`` for them."""
    return _joined("or", {"type": "is-null", "term": column}, {"type": "not-null", "term": column})


def _is_understood(values: Sequence[Any], columns: Sequence[PredicateColumn]) -> bool:
    """Whether a client can bind the literals again, to the same values."""
    return all(_is_sayable(value) for value in values) and all(
        _is_bound_again(value, column) and literals_of(value, column) for column in columns for value in values
    )


def _is_bound_again(value: Any, column: PredicateColumn) -> bool:
    """Whether Java reads such a literal: of a text it makes neither bytes nor numbers, which "Infinity" would be."""
    if isinstance(column.type, FloatType | DoubleType):
        return not isinstance(value, str)
    return not isinstance(column.type, BinaryType | FixedType)


def _is_sayable(value: Any) -> bool:
    """Whether :func:`_plain` keeps a literal: the number of a decimal column can have more digits than a float."""
    return not isinstance(value, Decimal) or Decimal(repr(float(value))) == value


def _joined(kind: str, left: Any, right: Any) -> Any:
    return {"type": kind, "left": left, "right": right}


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
