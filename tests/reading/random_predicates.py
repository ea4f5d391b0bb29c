"""Random predicates with their truth, row by row in plain Python.

The truth is what the door of plain files promises, that is what pyiceberg's expressions mean in Arrow: NULL meets
no comparison and no LIKE, but NOT IN; NaN meets !=, NOT IN and the negation of every other comparison.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

WORDS = {"and", "or", "not", "is", "in", "null", "nan", "like", "between", "true", "false", "inf", "infinity"}
YEARS = {
    unit: tuple(int(np.datetime64(day, unit).astype(np.int64)) for day in ("0001-01-02", "9999-12-30"))
    for unit in ("D", "us")
}
"""The days and instants that a literal can spell, but for those at the ends."""

Cells = list[Any]
Truth = list[bool]

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass
class Column:
    """A column that predicates may ask. ``spell`` writes a cell as a literal, ``near`` gives cells beside it."""

    name: str
    cells: Cells
    spell: Callable[[Any], str]
    is_float: bool = False
    is_text: bool = False
    can_compare: bool = True
    near: Callable[[Any, random.Random], Any] = lambda cell, rng: cell

    def can_spell(self, cell: Any) -> bool:
        """Whether a literal has just this value: far years and nanoseconds have none."""
        return any(self.near(cell, random.Random(seed)) == cell for seed in range(8))


@dataclass
class Predicates:
    """A source of predicates over some columns. ``for_duckdb`` leaves out what DuckDB means otherwise."""

    columns: list[Column]
    rng: random.Random
    for_duckdb: bool = False

    def next(self, depth: int = 0) -> tuple[str, Truth]:
        """A predicate and whether each row meets it."""
        roll = self.rng.random()
        if depth < 3 and roll < 0.45:
            word = "and" if self.rng.random() < 0.55 else "or"
            (left, a), (right, b) = self.next(depth + 1), self.next(depth + 1)
            join = all if word == "and" else any
            return f"({left} {word} {right})", [join(pair) for pair in zip(a, b, strict=True)]
        return self._leaf(self.rng.choice(self.columns))

    def _leaf(self, column: Column) -> tuple[str, Truth]:
        roll, cells, name = self.rng.random(), column.cells, column.name
        values = [cell for cell in cells if cell is not None and cell == cell]
        if roll < 0.12 or not column.can_compare or not values:
            negated = self.rng.random() < 0.5
            truth = [(cell is None) != negated for cell in cells]
            return f"{name} is {'not ' if negated else ''}null", truth
        if roll < 0.17 and column.is_float and not self.for_duckdb:
            negated = self.rng.random() < 0.5
            # pyiceberg's NOT NAN leaves nulls out, and so does IS NAN
            return f"{name} is {'not ' if negated else ''}nan", [
                cell is not None and (cell != cell) != negated for cell in cells
            ]
        if roll < 0.30 and column.is_text:
            return self._like(column, values)
        if roll < 0.50:
            return self._among(column, values)
        operator = self.rng.choice(["=", "=", "=", "<", "<=", ">", ">=", "!="])
        if self.for_duckdb and column.is_float and operator in (">", ">="):
            operator = "<"
        literal = column.near(self.rng.choice(values), self.rng)
        negate = self.rng.random() < 0.15 and not (self.for_duckdb and column.is_float)
        holds = COMPARISONS[operator]
        text = f"{name} {operator} {column.spell(literal)}"
        return f"not ({text})" if negate else text, [
            cell is not None and holds(cell, literal) != negate for cell in cells
        ]

    def _like(self, column: Column, values: Cells) -> tuple[str, Truth]:
        value = self.rng.choice(values)
        prefix = value[: self.rng.randint(1, max(len(value), 1))]
        negated = self.rng.random() < 0.25
        text = re.sub(r"[%_\\]", r"\\\g<0>", prefix).replace("'", "''")
        return f"{column.name} {'not ' if negated else ''}like '{text}%'", [
            cell is not None and cell.startswith(prefix) != negated for cell in column.cells
        ]

    def _among(self, column: Column, values: Cells) -> tuple[str, Truth]:
        chosen = [column.near(self.rng.choice(values), self.rng) for _ in range(self.rng.randint(2, 5))]
        negated = self.rng.random() < 0.3 and not self.for_duckdb
        listed = ", ".join(map(column.spell, chosen))
        distinct = len(set(chosen))
        null_meets = negated and distinct > 1  # one value alone becomes !=
        truth = [
            null_meets if cell is None else any(cell == value for value in chosen) != negated for cell in column.cells
        ]
        return f"{column.name} {'not ' if negated else ''}in ({listed})", truth


def number(value: Any) -> str:
    return f"'{value}'" if math.isinf(value) else repr(float(value))


def quoted(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def hexadecimal(value: bytes) -> str:
    return f"'0x{value.hex()}'"


def columns_of(table: pa.Table) -> list[Column]:
    """Columns for predicates over a table, by the Arrow types of its fields; structs by their fields."""
    found: list[Column] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        _add(found, spelled(name), column)
    return found


def spelled(name: str) -> str:
    """A name as predicates spell it: in quotes unless it is a plain word."""
    return name if name.isidentifier() and name.lower() not in WORDS else '"' + name.replace('"', '""') + '"'


def _add(found: list[Column], name: str, column: Any) -> None:
    kind, t = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        kind = column.type
    if isinstance(kind, pa.UuidType):
        cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
        found.append(Column(name, cells, quoted))
        return
    if t.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if t.is_struct(kind):
        found.append(Column(name, column.to_pylist(), str, can_compare=False))
        for field in kind:
            parts = [chunk.flatten()[kind.get_field_index(field.name)] for chunk in column.chunks]
            child = pa.chunked_array(parts, field.type)
            _add(found, f"{name}.{spelled(field.name)}", child)
        return
    if t.is_nested(kind) or t.is_null(kind):
        return
    found.append(_flat(name, column, kind))


def _flat(name: str, column: Any, kind: Any) -> Column:
    t = pa.types
    if t.is_boolean(kind):
        return Column(name, column.to_pylist(), lambda v: str(v).lower())
    if t.is_integer(kind):
        top = 2 ** (kind.bit_width - t.is_signed_integer(kind)) - 1
        return Column(name, column.to_pylist(), str, near=lambda v, rng: min(v + rng.choice([0, 0, 0, 1]), top))
    if t.is_floating(kind):
        cells = [None if v is None else float(v) for v in column.cast(pa.float64()).to_pylist()]
        return Column(name, cells, number, is_float=True, near=lambda v, rng: -v if v == 0.0 else v)
    if t.is_decimal(kind):
        if kind.precision > 38:
            return Column(name, column.to_pylist(), str, can_compare=False)
        return Column(name, column.to_pylist(), lambda v: format(v, "f"))
    if t.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return Column(name, days, lambda v: f"'{np.datetime64(v, 'D')}'", near=lambda v, rng: _spellable(v, "D"))
    if t.is_time(kind):
        nanos = column.cast(pa.time64("ns")).cast(pa.int64()).to_pylist()
        return Column(name, nanos, lambda v: _clock(v // 1000), near=lambda v, rng: v // 1000 * 1000)
    if t.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        if kind.unit == "ns":  # asked in microseconds
            return Column(
                name,
                column.cast(pa.int64()).to_pylist(),
                lambda v: f"'{np.datetime64(v // 1000, 'us')}{zone}'",
                near=lambda v, rng: _spellable(v // 1000, "us") * 1000,
            )
        cells = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()).to_pylist()
        near = lambda v, rng: _spellable(v, "us")  # noqa: E731
        return Column(name, cells, lambda v: f"'{np.datetime64(v, 'us')}{zone}'", near=near)
    if t.is_string(kind) or t.is_large_string(kind):
        return Column(name, column.to_pylist(), quoted, is_text=True)
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return Column(name, column.to_pylist(), hexadecimal)
    return Column(name, column.to_pylist(), str, can_compare=False)


def _spellable(value: int, unit: str) -> int:
    """The value, or the one nearest to it that has a literal."""
    first, last = YEARS[unit]
    return min(max(value, first), last)


def _clock(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return f"'{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}'"


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Whether two tables have equal types and rows; NaN equals itself, and zeros have signs."""
    return found.schema.equals(expected.schema) and repr(found.to_pylist()) == repr(expected.to_pylist())
