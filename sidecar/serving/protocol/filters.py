"""Turns filters of JSON into pyiceberg's expressions, and back into residuals.

Every row that meets a filter meets the expression. What cannot be parsed exactly (an unknown predicate or column, a
literal that does not fit) becomes TRUE, and so does each NOT around it, because the negation of something wider is
narrower. Chains of AND and OR become balanced trees, so that long ones need no deep recursion.

A residual is what a client applies to the rows of a file. It is written anew from the request: names and literals are
the client's own, because a client parses what it writes, and what was not understood becomes a predicate that all rows
meet but that is not ``true``. pyiceberg counts a file without reading it if the residual is ``true``.

An opaque residual compares identity transforms of columns instead of columns. For rows it means the same. Java's
readers skip no row group and no stripe by it, because they look up statistics and filters of plain columns only.
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
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    StringType,
    StructType,
    UnknownType,
)

from sidecar.errors import SidecarError
from sidecar.iceberg.predicates.literals import PredicateColumn, find_column
from sidecar.iceberg.struct_nulls import with_struct_nulls
from sidecar.serving.protocol.literals import literals_of
from sidecar.serving.protocol.requests import UNREADABLE

MOST_NODES = 20_000
"""Predicates beyond this number become TRUE without being parsed."""
MOST_PREDICATES = 500
"""A part of a filter with more predicates becomes TRUE, because each file is compared with each of them. Equalities of
one column that are joined by OR are one predicate."""
MOST_VALUES = 20_000
"""Lists become TRUE once a filter has had this number of literals, because each literal takes 40 us to parse."""
DEEPEST = 64
"""Parts of a filter below this number of alternations of AND, OR and NOT become TRUE."""

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
_WITHOUT_IDENTITY = (GeographyType, GeometryType, UnknownType)
"""Types for which Java has no identity transform. It has none for structs either, but also no statistics."""
N = TypeVar("N")
FieldsOfNames = frozenset[tuple[str, int | None]]
"""Names with the ids of the columns that they mean; ``None`` for names that mean none, or more than one."""


@dataclass(frozen=True)
class PredicateForm:
    """The form of a predicate: the column and the kind of the comparison, without literals."""

    kind: str
    """As in the JSON: ``eq``, ``is-null``."""
    name: str | None
    """The name of the column; ``None`` if the JSON has it in an unknown form."""
    transform: str | None = None
    """The transform of the column that is compared, as ``bucket[16]``; ``None`` for the column itself."""


@dataclass(frozen=True)
class ParsedFilter:
    """A filter as an expression on one schema."""

    expression: BooleanExpression
    inexact: frozenset[PredicateForm] = frozenset()
    """The predicates that are wider in the expression."""
    fields: FieldsOfNames = frozenset()
    """The names in the filter, with what they mean."""

    @property
    def is_exact(self) -> bool:
        """Whether the filter and the expression have the same rows. Otherwise the expression may have more."""
        return not self.inexact


def parse_filter(node: Any, schema: Schema, case_sensitive: bool = True, *, only_hex: bool = False) -> ParsedFilter:
    """Parse a filter with the columns of ``schema``. Raises nothing: what cannot be parsed becomes TRUE.

    ``only_hex`` says that the client writes bytes as hexadecimal digits, never as a text.
    """
    names = _Names(schema, case_sensitive)
    parsed = _Parser(names, only_hex).parse(node, 0)
    return ParsedFilter(parsed.expression, parsed.inexact, frozenset(names.found.items()))


def forms_of(node: Any) -> frozenset[PredicateForm]:
    """Return the forms of all predicates of a filter, however deep they are nested."""
    found: set[PredicateForm] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if not isinstance(current, dict):
            found.update(() if isinstance(current, bool) else [PredicateForm("", None)])
            continue
        inner = [current[side] for side in ("left", "right", "child") if side in current]
        waiting += inner
        terms = current.get("terms")
        if current.get("type") == UNREADABLE and isinstance(terms, list) and terms:
            found.update(PredicateForm(UNREADABLE, name if isinstance(name, str) else None) for name in terms)
        elif not inner and current.get("type") not in ("true", "false"):
            found.add(_form(current))
    return frozenset(found)


def _form(predicate: dict[str, Any]) -> PredicateForm:
    kind, term, transform = predicate.get("type"), predicate.get("term"), None
    if isinstance(term, dict):
        transform = term.get("transform") if term.get("type") == "transform" else None
        term = term.get("term")
    return PredicateForm(
        kind if isinstance(kind, str) else "",
        term if isinstance(term, str) else None,
        transform if isinstance(transform, str) else None,
    )


def fields_of(names: Iterable[str], schema: Schema, case_sensitive: bool) -> FieldsOfNames:
    """Return what names mean in a schema."""
    known = _Names(schema, case_sensitive)
    for name in names:
        known.column(name)
    return frozenset(known.found.items())


def residual_of(
    node: Any,
    schemas: Sequence[Schema],
    case_sensitive: bool = True,
    select: Sequence[str] | None = None,
    *,
    only_hex: bool = False,
    is_opaque: bool = False,
) -> Any:
    """Return a filter as JSON for the member ``residual-filter``. Names may be of any of ``schemas``.

    ``select``: the columns that the client reads; ``None`` for all. ``only_hex``: it writes bytes as hexadecimal
    digits, and reads them. ``is_opaque``: Java's readers skip nothing by the residual.
    """
    columns = [_Names(schema, case_sensitive) for schema in {one.schema_id: one for one in schemas}.values()]
    any_column = column_of_client(schemas, case_sensitive, select)
    return _ResidualWriter(columns, any_column, only_hex, is_opaque).rewrite(node, 0)[0]


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
        if name not in self._known if self._case_sensitive else self._counts_without_case[name.lower()] != 1:
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
    def _counts_without_case(self) -> Counter[str]:
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

    def __init__(self, names: _Names, only_hex: bool) -> None:
        self._names = names
        self._only_hex = only_hex
        self._nodes = 0
        self._values = 0

    def parse(self, node: Any, depth: int) -> ParsedFilter:
        if isinstance(node, bool):
            return ParsedFilter(AlwaysTrue() if node else AlwaysFalse())
        if not isinstance(node, dict) or depth > DEEPEST:
            return _taken_as_true(node)
        kind = node.get("type")
        if kind in ("true", "false"):
            return ParsedFilter(AlwaysTrue() if kind == "true" else AlwaysFalse())
        if kind in ("and", "or"):
            operands = _chain(node, kind)
            self._nodes += len(operands)
            if self._nodes > MOST_NODES:
                return _taken_as_true(node)
            parts = [self.parse(operand, depth + 1) for operand in operands]
            expressions = [part.expression for part in parts]
            joined = _balanced(And, expressions) if kind == "and" else _balanced(Or, _with_lists(expressions))
            if _size(joined) > MOST_PREDICATES:
                return _taken_as_true(node)
            return ParsedFilter(joined, frozenset[PredicateForm]().union(*(part.inexact for part in parts)))
        if kind == "not":
            child = self.parse(node.get("child"), depth + 1)
            # The negation of a wider predicate would lose rows.
            negated = Not(child.expression) if child.is_exact else AlwaysTrue()
            return ParsedFilter(negated, child.inexact)
        return self._predicate(node, kind)

    def _predicate(self, node: dict[str, Any], kind: Any) -> ParsedFilter:
        column = self._names.column(node.get("term"))
        expression, is_exact = None, False
        if column is not None and isinstance(kind, str):
            expression, is_exact = self._compared(kind, column, node)
        if expression is None:
            return _taken_as_true(node)
        return ParsedFilter(expression, frozenset() if is_exact else forms_of(node))

    def _compared(
        self, kind: str, column: PredicateColumn, node: dict[str, Any]
    ) -> tuple[BooleanExpression | None, bool]:
        """Return a predicate, and whether it is exact; ``None`` if it is not understood."""
        if kind in _TESTS:
            is_misread = kind in ("is-null", "not-null") and self._names.is_null_with_its_struct(column)
            return (None, False) if is_misread else (_TESTS[kind](column.name), True)
        if kind in _COMPARISONS:
            make = _COMPARISONS[kind]
            if make in (StartsWith, NotStartsWith) and not isinstance(column.type, StringType):
                return None, False
            found = literals_of(node.get("value"), column, only_hex=self._only_hex)
            # A row may match if it does for one of the meanings of a literal.
            meant = [make(column.name, one) for one in found]
            return (_balanced(Or, meant), len(meant) == 1) if meant else (None, False)
        values = node.get("values")
        if kind in _LISTS and isinstance(values, list):
            self._values += len(values)
            if self._values <= MOST_VALUES:
                return self._listed(_LISTS[kind], column, values)
        return None, False

    def _listed(
        self, make: Callable[..., BooleanExpression], column: PredicateColumn, values: list[Any]
    ) -> tuple[BooleanExpression | None, bool]:
        found = [literals_of(value, column, only_hex=self._only_hex) for value in values]
        is_exact = all(len(meanings) == 1 for meanings in found)
        # NOT IN with all meanings of a literal would exclude too much.
        if not all(found) or (not is_exact and make is NotIn):
            return None, False
        literals: list[Literal[Any]] = [one for meanings in found for one in meanings]
        return make(column.name, literals), is_exact


def _taken_as_true(node: Any) -> ParsedFilter:
    """Return what stands for a part of a filter that is not understood: TRUE."""
    return ParsedFilter(AlwaysTrue(), forms_of(node))


class _ResidualWriter:
    """Writes a filter anew."""

    def __init__(self, names: Sequence[_Names], any_column: str, only_hex: bool, is_opaque: bool) -> None:
        self._names = names
        self._any_column = any_column
        self._only_hex = only_hex
        self._is_opaque = is_opaque
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
        compared: Any = term
        if self._is_opaque and not any(isinstance(column.type, StructType) for column in columns):
            if any(isinstance(column.type, _WITHOUT_IDENTITY) for column in columns):
                return any_row(term), False
            compared = {"type": "transform", "transform": "identity", "term": term}
        if kind in _TESTS:
            return {"type": kind, "term": compared}, True
        if kind in _COMPARISONS and self._is_understood([node.get("value")], columns):
            return {"type": kind, "term": compared, "value": _plain(node["value"])}, True
        values = node.get("values")
        if kind in _LISTS and isinstance(values, list) and values:
            self._values += len(values)
            if self._values > MOST_VALUES or not self._is_understood(values, columns):
                return any_row(term), False
            return {"type": kind, "term": compared, "values": [_plain(value) for value in values]}, True
        return any_row(term), False

    def _is_understood(self, values: Sequence[Any], columns: Sequence[PredicateColumn]) -> bool:
        """Whether a client can bind the literals again, to the same values."""
        return all(_is_sayable(value) for value in values) and all(
            self._is_bound_again(value, column) and literals_of(value, column, only_hex=self._only_hex)
            for column in columns
            for value in values
        )

    def _is_bound_again(self, value: Any, column: PredicateColumn) -> bool:
        """Whether a client reads such a literal. Java makes no number of a text, which "Infinity" would be."""
        if isinstance(column.type, FloatType | DoubleType):
            return not isinstance(value, str)
        return self._only_hex or not isinstance(column.type, BinaryType | FixedType)

    def _any_row(self) -> Any:
        return any_row(self._any_column)


def any_row(column: str) -> Any:
    """A predicate that every row meets. Clients do not see that, so it is not ``true`` for them."""
    return _joined("or", {"type": "is-null", "term": column}, {"type": "not-null", "term": column})


def _is_sayable(value: Any) -> bool:
    """Whether :func:`_plain` keeps a literal: the number of a decimal column can have more digits than a float."""
    return not isinstance(value, Decimal) or Decimal(repr(float(value))) == value


def _joined(kind: str, left: Any, right: Any) -> Any:
    return {"type": kind, "left": left, "right": right}


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
