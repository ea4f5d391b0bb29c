"""Predicates over the rows of a life: as text, and what they say of a row by a slow evaluation of their own.

Engines do not agree on all of SQL (NaN in comparisons, NULL under NOT, -0.0 in a list). So the truth of a row is two
answers: whether every engine returns it, and whether some engine does.
"""

from __future__ import annotations

import math
import operator
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    UUIDType,
)

from tests.life.values import Row, any_value

NOT_COMPARED = (UUIDType,)
"""pyarrow compares none, so pyiceberg reads no rows by them; plans can be asked."""


class Truth(NamedTuple):
    """Whether a row is in the result of every engine, and whether it may be in that of some."""

    must: bool
    may: bool


YES, NO, UNSAID = Truth(True, True), Truth(False, False), Truth(False, True)


class LifeCondition:
    """A condition on a row."""

    def text(self) -> str:
        """As it is written in a predicate."""
        raise NotImplementedError

    def truth(self, row: Row, negated: bool = False) -> Truth:
        """What it, or its negation, says of a row."""
        raise NotImplementedError

    def columns(self) -> set[str]:
        """The names in it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Combined(LifeCondition):
    """Conditions with AND or OR between them."""

    word: str
    parts: tuple[LifeCondition, ...]

    def text(self) -> str:
        return "(" + f" {self.word} ".join(part.text() for part in self.parts) + ")"

    def truth(self, row: Row, negated: bool = False) -> Truth:
        found = [part.truth(row, negated) for part in self.parts]
        every = (self.word == "and") != negated
        join: Callable[[Any], bool] = all if every else any
        return Truth(join(one.must for one in found), join(one.may for one in found))

    def columns(self) -> set[str]:
        return set().union(*(part.columns() for part in self.parts))


@dataclass(frozen=True)
class Negated(LifeCondition):
    """A condition with NOT before it."""

    part: LifeCondition

    def text(self) -> str:
        return f"not ({self.part.text()})"

    def truth(self, row: Row, negated: bool = False) -> Truth:
        return self.part.truth(row, not negated)

    def columns(self) -> set[str]:
        return self.part.columns()


ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Compared(LifeCondition):
    """One column compared with values."""

    column: str
    field_id: int
    kind: IcebergType
    operation: str
    values: tuple[Any, ...] = ()

    def columns(self) -> set[str]:
        return {self.column}

    def text(self) -> str:
        texts = [literal_text(value, self.kind) for value in self.values]
        if self.operation in ("in", "not in"):
            return f"{self.column} {self.operation} ({', '.join(texts)})"
        if self.operation == "between":
            return f"{self.column} between {texts[0]} and {texts[1]}"
        if self.operation == "like":
            prefix = self.values[0].replace("'", "''")
            return f"{self.column} like '{prefix}%'"
        return " ".join([self.column, self.operation, *texts])

    def truth(self, row: Row, negated: bool = False) -> Truth:
        value = row.get(self.field_id)
        operation = self.operation
        if operation in ("!=", "not in", "is not null", "is not nan"):
            operation, negated = operation.replace("!=", "=").replace("not ", ""), not negated
        if operation == "is null":
            return _said((value is None) != negated)
        if value is None:
            return UNSAID if negated else NO
        if operation == "is nan":
            return _said((value != value) != negated)
        if value != value:
            return UNSAID if negated or operation not in ("=", "in") else NO
        if operation in ("=", "in"):
            found = [_equal(value, one, operation) for one in self.values]
            either = Truth(any(one.must for one in found), any(one.may for one in found))
            if either.must and UNSAID in found:  # a list with both zeros has one of them in pyiceberg
                either = UNSAID
            return Truth(not either.may, not either.must) if negated else either
        if any(_equal(value, one, "in") == UNSAID for one in self.values if operation != "like"):
            return UNSAID
        return _said(self._holds(operation, value) != negated)

    def _holds(self, operation: str, value: Any) -> bool:
        if operation == "between":
            return bool(self.values[0] <= value <= self.values[1])
        if operation == "like":
            return bool(value.startswith(self.values[0]))
        return ORDER[operation](value, self.values[0])


def _said(truth: bool) -> Truth:
    return YES if truth else NO


def _equal(value: Any, asked: Any, operation: str) -> Truth:
    """Some compare floats from before a promotion in 32 bits; some find no -0.0 by a list with 0.0."""
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            if value != asked and np.float32(value) == np.float32(asked):
                return UNSAID
        if operation == "in" and value == asked == 0 and math.copysign(1, value) != math.copysign(1, asked):
            return UNSAID
    return _said(value == asked)


def literal_text(value: Any, kind: IcebergType) -> str:
    """A value as a person writes it in a predicate."""
    if isinstance(kind, StringType):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(kind, BinaryType | FixedType):
        return f"'0x{value.hex()}'"
    if isinstance(kind, UUIDType):
        return f"'{uuid.UUID(bytes=value)}'"
    if isinstance(kind, DecimalType):
        return format(value, "f")
    if isinstance(kind, BooleanType):
        return str(value).lower()
    if isinstance(kind, FloatType | DoubleType):
        return repr(value) if math.isfinite(value) else f"'{value}'"
    return str(value) if isinstance(kind, IntegerType | LongType) else f"'{value}'"


def askable_columns(schema: Schema) -> dict[str, tuple[int, PrimitiveType]]:
    """The primitive columns that a predicate can name, with their field ids and types."""
    found: dict[str, tuple[int, PrimitiveType]] = {}
    for name in schema.column_names:
        field = schema.find_field(name)
        try:
            schema.accessor_for_field(field.field_id)
        except ValueError:  # inside a list or a map
            continue
        if isinstance(field.field_type, PrimitiveType):
            found[name] = field.field_id, field.field_type
    return found


def random_condition(
    rng: random.Random,
    schema: Schema,
    rows: Sequence[Row],
    often: Sequence[str] = (),
    orc: bool = False,
    depth: int = 2,
) -> LifeCondition:
    """A condition on columns of ``schema``; most values are those of some of the rows. Columns ``often`` come often.

    ``orc``: as for :func:`tests.life.values.any_value`.
    """
    if depth and rng.random() < 0.35:
        parts = [random_condition(rng, schema, rows, often, orc, depth - 1) for _ in range(rng.choice([2, 2, 3]))]
        return Combined(rng.choice(["and", "or", "or"]), tuple(parts))
    if depth and rng.random() < 0.1:
        return Negated(random_condition(rng, schema, rows, often, orc, depth - 1))
    columns = askable_columns(schema)
    known = [name for name in often if name in columns]
    name = rng.choice(known) if known and rng.random() < 0.6 else rng.choice(sorted(columns))
    field_id, kind = columns[name]
    operations = ["="] * 9 + ["in"] * 4 + ["!=", "not in", "is null", "is not null"]
    if isinstance(kind, FloatType | DoubleType):
        operations += ["is nan", "is not nan"]
    if isinstance(kind, StringType):
        operations += ["like"]
    if not isinstance(kind, BooleanType | UUIDType):
        operations += ["<", ">=", ">", "<=", "between"]
    operation = rng.choice(operations)
    count = {"in": rng.randrange(1, 5), "not in": 2, "between": 2}.get(
        operation, 0 if operation.startswith("is") else 1
    )
    values = [_asked_value(rng, field_id, kind, rows, orc) for _ in range(count)]
    if operation == "between":
        values.sort()
    if operation == "like":
        values = [rng.choice(["värde-1", "a prefix that is l", "日", "värde", "it"])]
    return Compared(name, field_id, kind, operation, tuple(values))


def _asked_value(rng: random.Random, field_id: int, kind: PrimitiveType, rows: Sequence[Row], orc: bool) -> Any:
    if rows and rng.random() < 0.6:
        value = rng.choice(rows).get(field_id)
        if value is not None and value == value:
            return value
    value = any_value(kind, rng, orc, domain=1000)
    return value if value == value else 0.5
