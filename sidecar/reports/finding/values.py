"""Turns ``COLUMN=VALUE`` into questions: which column by its field id, which values of its type, which predicate.

A name means every column that has had it in a schema that the table still keeps: the column of that name today, a
column that was renamed since, and a column that was dropped. Data files keep the values of all of them.

A value is converted to the column's type without loss. A number that no value of the type equals (outside of the
range, with more digits) is in no row, and nothing has to be read for it. Equality is that of SQL, but NaN is found:

- 0.0 and -0.0 are equal;
- NaN equals NaN, whatever its bits are;
- a number for a FLOAT column is rounded to 32 bits first, one for a DOUBLE column is not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, Or
from pyiceberg.expressions.literals import Literal
from pyiceberg.schema import Schema, make_compatible_name, prune_columns
from pyiceberg.table import Table
from pyiceberg.types import FloatType, StructType

from sidecar.errors import SidecarError, UsageError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.float32 import nearest_float32
from sidecar.iceberg.predicates.literals import PredicateColumn, find_column, literal_of_value
from sidecar.iceberg.predicates.unbound import equal_to, is_in, is_nan
from sidecar.planning.file_question import FileQuestion

QuestionKey = tuple[str, int, int]
"""The name of a column as it was asked for, the id of the schema in which it is read, and its field id."""

NO_SUCH_COLUMN = "the table has no column of this name"
OTHER_NAME = "|"
"""Between the names that a column has in several tables."""
_NUMBERS = ("integer", "decimal", "float")


@dataclass(frozen=True)
class AskedValues:
    """The values that are looked for under one name of a column, each with its text."""

    name: str
    values: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, name: str, given: object) -> AskedValues:
        """Take one value, or a list, tuple or set of them; equal texts count once.

        Raises :class:`UsageError` for an empty list.
        """
        values = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
        if not values:
            raise UsageError("no value was given", column=name)
        return cls(name, tuple({_text(value): value for value in values}.items()))

    @classmethod
    def of_all(cls, values: Mapping[str, object]) -> list[AskedValues]:
        """Take the values of each name. Raises :class:`UsageError` if there are none."""
        if not isinstance(values, Mapping):
            raise UsageError("values are a mapping of columns to values", hint="Write {'id': 42}, for example.")
        if not values:
            raise UsageError("no value was given")
        return [cls.of(name, given) for name, given in values.items()]


@dataclass(frozen=True, eq=False)
class ValueQuestion:
    """The values that are looked for in one column, in the type that it has in one schema of a table or file."""

    schema: Schema
    name: str
    column: PredicateColumn
    literals: Mapping[str, Literal[Any]]
    """The values that the type has, by their text."""
    nan: tuple[str, ...] = ()
    """The texts of NaN, if it is looked for."""

    @property
    def field_id(self) -> int:
        """The field id of the column."""
        return self.column.field_id

    @property
    def can_match(self) -> bool:
        """Whether a value of the column's type equals one that is looked for."""
        return bool(self.literals or self.nan)

    @cached_property
    def key(self) -> QuestionKey:
        """The identity of the question among those of a search."""
        return self.name, self.schema.schema_id, self.field_id

    @cached_property
    def projection(self) -> Schema:
        """The schema with the asked column only."""
        return prune_columns(self.schema, {self.field_id}, select_full_types=False)

    @cached_property
    def predicate(self) -> BooleanExpression:
        """The predicate that rows with one of the values meet. Other rows may meet it too; :meth:`count` compares."""
        name, parts, listed = self.column.name, list[BooleanExpression](), list[Literal[Any]]()
        for one in self.literals.values():
            if isinstance(one.value, float) and one.value == 0:
                parts.append(equal_to(name, one))  # lists tell the two zeros apart
            else:
                listed.append(one)
        if listed:
            parts.append(equal_to(name, listed[0]) if len(listed) == 1 else is_in(name, listed))
        if self.nan:
            parts.append(is_nan(name))
        return reduce(Or, parts) if parts else AlwaysFalse()

    @cached_property
    def question(self) -> FileQuestion:
        """The predicate as bounds, filters and page indexes are asked."""
        return FileQuestion(self.predicate, self.schema)

    @cached_property
    def values(self) -> Mapping[Any, list[str]]:
        """The texts of each value as rows have it (see :func:`_plain`): ``1`` and ``01`` are one value."""
        texts: dict[Any, list[str]] = {}
        for text, one in self.literals.items():
            value = nearest_float32(one.value) if isinstance(self.column.type, FloatType) else one.value
            texts.setdefault(value, []).append(text)
        return texts

    def count(self, batch: pa.RecordBatch) -> Counter[str]:
        """Count the rows of a batch (in :attr:`projection`) that have each value, by the text of the value."""
        return self.count_values(self._values_in(batch))

    def count_values(self, values: pa.Array[Any]) -> Counter[str]:
        """Count the values of the column that are looked for, by their texts."""
        found: Counter[str] = Counter()
        counts: Any = pc.value_counts(_plain(values))
        for value, rows in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
            for text in self.texts_of(value):
                found[text] += rows
        return found

    def texts_of(self, value: Any) -> Sequence[str]:
        """Return the texts that mean a value, which is as literals have it; empty for null."""
        is_nan = isinstance(value, float) and math.isnan(value)
        return self.nan if is_nan else self.values.get(value, ())

    def _values_in(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Return the values of the asked column, which may be a field of structs."""
        field, values = self.projection.fields[0], batch.column(0)
        while isinstance(field.field_type, StructType):
            values = pc.struct_field(values, [0])  # with the nulls of the struct
            field = field.field_type.fields[0]
        return values


def _plain(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return values as literals have them: days and microseconds as integers, UUIDs as bytes."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int64())
    return values


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def field_ids_of(table: Table, name: str) -> list[int]:
    """Return the ids of all columns that have had a name, that of today first; none if no schema has it.

    ``mail|email`` means the columns of both names, unless a column is called so.
    """
    schemas, current = table.schemas(), table.metadata.current_schema_id
    newest_first = sorted(schemas, key=lambda one: (one != current, -one))
    for names in ([name], name.split(OTHER_NAME)):
        known = [(schemas[i], one) for one in names for i in newest_first if one in schemas[i].column_names]
        if known:
            return list(dict.fromkeys(schema.find_field(one).field_id for schema, one in known))
    return []


class ConditionReader:
    """Reads the values of conditions as literals of the columns that have their names, in one schema or several."""

    def __init__(self) -> None:
        self._made: dict[QuestionKey, ValueQuestion] = {}
        self._refused: dict[tuple[str, str], SidecarError] = {}
        self._accepted: set[tuple[str, str]] = set()
        self.impossible: dict[tuple[str, str], str] = {}
        """Why no value of the type of any column equals a value, by name of the column and text of the value."""

    @property
    def all(self) -> list[ValueQuestion]:
        """All questions that can match, each once."""
        return list(self._made.values())

    def question(self, condition: AskedValues, schema: Schema, field_id: int) -> ValueQuestion | None:
        """Return the question about a column of a schema; ``None`` for one without values of its own."""
        key = condition.name, schema.schema_id, field_id
        if key not in self._made:
            made = self._question(condition, schema, field_id)
            if made is None:
                return None
            self._made[key] = made
        return self._made[key]

    def refused(self, condition: AskedValues, question: ValueQuestion) -> list[tuple[str, object]]:
        """Return the values that a column did not take, but for those that no number of its type can be."""
        if ColumnType.parse(str(question.column.type)).family in _NUMBERS:
            return []
        return [one for one in condition.values if one[0] not in question.literals and one[0] not in question.nan]

    def _question(self, condition: AskedValues, schema: Schema, field_id: int) -> ValueQuestion | None:
        try:
            column = find_column(schema, schema.find_column_name(field_id) or condition.name)
        except UsageError as error:  # a column inside of a list, a list, a map
            for text, _ in condition.values:
                self._refused.setdefault((condition.name, text), error)
            return None
        literals: dict[str, Literal[Any]] = {}
        nan: list[str] = []
        for text, value in condition.values:
            key = condition.name, text
            if _is_nan_of(value, column):
                nan.append(text)
                self._accepted.add(key)
                continue
            try:
                literals[text] = literal_of_value(value, column)
                self._accepted.add(key)
            except SidecarError as error:
                if _is_number_of(value, column):
                    self.impossible[key] = error.what
                else:
                    self._refused.setdefault(key, error)
        return ValueQuestion(schema, condition.name, column, literals, tuple(nan))

    def check(self) -> None:
        """Raise the error for a value that fits no column; forget reasons of values that fit some column."""
        for key in self._accepted:
            self.impossible.pop(key, None)
        for key, error in self._refused.items():
            if key not in self._accepted and key not in self.impossible:
                raise error


class Questions(ConditionReader):
    """The questions about each snapshot of a table, made once for each schema that is needed.

    ``schemas`` has the schema in which each snapshot is read, by snapshot id. Raises :class:`UsageError` for a value
    that fits none of the columns with its name, and for a name that no schema of the table has; with ``may_lack``, the
    values of such a name are impossible.
    """

    def __init__(
        self, table: Table, conditions: Sequence[AskedValues], schemas: Mapping[int, Schema], *, may_lack: bool = False
    ) -> None:
        super().__init__()
        self.table = table
        self._may_lack = may_lack
        self._conditions = conditions
        self.by_snapshot: dict[int, list[ValueQuestion]] = {}
        """The questions about each snapshot, in the order of the conditions."""
        for snapshot_id, schema in schemas.items():
            self.by_snapshot[snapshot_id] = self._questions_in(schema)
        if not schemas:
            self._questions_in(table.schema())
        self.check()

    @cached_property
    def columns_by_name(self) -> dict[str, tuple[set[int], set[str]]]:
        """For each name that is asked for, the field ids of its columns, and the paths that they have, or had, in
        files, in lower case."""
        schemas = self.table.schemas().values()
        found = {}
        for name in (condition.name for condition in self._conditions):
            ids = set(field_ids_of(self.table, name))
            had = [schema.find_column_name(one) for schema in schemas for one in ids]
            paths = {one.lower() for one in (name, *name.split(OTHER_NAME), *filter(None, had))}
            written = {
                ".".join(map(make_compatible_name, path.split("."))).lower() for path in paths if all(path.split("."))
            }
            found[name] = ids, paths | written
        return found

    def _questions_in(self, own: Schema) -> list[ValueQuestion]:
        """Return the questions about a snapshot that is read in a schema."""
        asked = []
        for condition in self._conditions:
            field_ids = field_ids_of(self.table, condition.name)
            if not field_ids:
                self._check_lacks(condition.name)
                self.impossible |= {(condition.name, text): NO_SUCH_COLUMN for text, _ in condition.values}
            for field_id in field_ids:
                question = self.question(condition, self._schema_of(own, field_id), field_id)
                if question is not None:
                    asked.append(question)
        return [question for question in asked if question.can_match]

    def _check_lacks(self, name: str) -> None:
        """Raise :class:`UsageError` if the table must have a column, or has had one of this name in another case."""
        wanted = {one.lower() for one in (name, *name.split(OTHER_NAME))}
        alike = {
            one for schema in self.table.schemas().values() for one in schema.column_names if one.lower() in wanted
        }
        if alike:
            hint = f"Name all of them: '{OTHER_NAME.join([name, *sorted(alike)])}'."
            raise UsageError("the column has the name in another case", column=name, found=", ".join(alike), hint=hint)
        if not self._may_lack:
            find_column(self.table.schema(), name)  # raises the error with similar names

    def _schema_of(self, own: Schema, field_id: int) -> Schema:
        """Return a schema that has a column in the type of ``own``, or else the newest that has it.

        It is the present schema if that has this type, so that files of many snapshots are read once.
        """
        schemas, present = self.table.schemas(), self.table.schema()
        if field_id in own.field_ids:
            is_same = field_id in present.field_ids and present.find_type(field_id) == own.find_type(field_id)
            return present if is_same else schemas[own.schema_id]
        return schemas[max(i for i, schema in schemas.items() if field_id in schema.field_ids)]


def _is_nan_of(value: object, column: PredicateColumn) -> bool:
    """Return whether a value is NaN and the column may have it."""
    if ColumnType.parse(str(column.type)).family != "float":
        return False
    if isinstance(value, str):
        return value.strip().lower() in ("nan", "+nan", "-nan")
    return isinstance(value, float) and math.isnan(value)


def _is_number_of(value: object, column: PredicateColumn) -> bool:
    """Return whether a value is a finite number and the column has numbers, so that it can only be out of range."""
    if isinstance(column.type, StructType) or ColumnType.parse(str(column.type)).family not in _NUMBERS:
        return False
    try:
        text = str(value).strip()  # Decimal takes digits of all scripts, and "_" between them
        is_plain = text.isascii() and "_" not in text
        return is_plain and not isinstance(value, bool) and Decimal(text).is_finite()
    except InvalidOperation:
        return False
