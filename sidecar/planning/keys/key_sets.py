"""Holds the keys of a join's other side: up to millions of values of one column, one of which a row must have.

Keys are given as an Arrow array or a list and never become an expression. This module checks them against the type of
their column, drops nulls and repeats, and sorts them once, in a form that numpy can search:

    integers, dates, times, timestamps      int64, in the column's own unit
    float, double                           float64; 0.0 equals -0.0, NaN is kept apart
    decimals                                the unscaled number: int64; Python's integers for 19 or more digits
    string, binary, fixed, uuid             bytes, compared byte by byte

Bounds and rows of files are looked up in that form. A row matches if its value equals a key. As in the joins of Spark
and DuckDB, a null matches nothing, 0.0 equals -0.0, and NaN equals NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from sidecar.errors import UnsupportedFeatureError, UsageError, first_line, located
from sidecar.filters.column_types import ColumnType
from sidecar.iceberg.predicates.literals import PredicateColumn, find_column
from sidecar.planning.keys.key_lists import key_list

Search = npt.NDArray[Any]
"""Sorted keys, or values to look up among them: int64, float64, or objects (bytes, integers)."""

Keys: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any] | Sequence[Any]"
"""The values of a join's other side."""

_RANGED = {"integer", "float", "date", "time", "timestamp", "decimal", "string"}
"""Families of types whose smallest and largest key can be literals of a predicate, if they do not count nanoseconds.

The literals are exact, with one exception: for FLOAT files of a column that is double today, pyiceberg rounds them,
which keeps their order. UUIDs are left out, because Arrow does not compare them and some writers order them by sign."""
_COUNTED = {"integer", "date", "time", "timestamp", "boolean"}
_BYTES = {"string", "binary", "uuid"}
_INT64 = 18
"""The most digits of a decimal that an int64 holds."""


@dataclass(frozen=True, eq=False)
class KeySet:
    """Distinct keys of one column, without nulls. ``sorted`` has all but NaN."""

    field_id: int
    column: str
    type: str
    """The column's Iceberg type."""
    sorted: Search
    has_nan: bool = False

    def __len__(self) -> int:
        return len(self.sorted) + self.has_nan

    def literals(self, positions: npt.NDArray[np.int64]) -> list[Any]:
        """Return the keys at these positions of ``sorted``, as the values of bound literals of the column's type."""
        return [self._literal(key) for key in self.sorted[positions].tolist()]

    def _literal(self, key: Any) -> Any:
        kind = ColumnType.parse(self.type)
        if kind.scale is not None:
            return _decimal(key, kind.scale)
        return key.decode() if kind.family == "string" else key

    def within(self) -> BooleanExpression | None:
        """Return a predicate that every matching row meets: smallest key <= x <= largest key; ``None`` if uncertain."""
        if not len(self):
            return AlwaysFalse()
        kind = ColumnType.parse(self.type)
        if self.has_nan or kind.family not in _RANGED or kind.unit == "ns":
            return None
        least, most = self.literals(np.array([0, len(self.sorted) - 1]))
        at_least: Any = GreaterThanOrEqual
        at_most: Any = LessThanOrEqual
        # pyiceberg's own reader finds no row of an older file of floats by an infinite literal.
        infinite = [isinstance(bound, float) and math.isinf(bound) for bound in (least, most)]
        bounds = [AlwaysTrue() if infinite[0] else at_least(self.column, least)]
        bounds += [AlwaysTrue() if infinite[1] else at_most(self.column, most)]
        return And(*bounds)

    def matching(self, column: Any) -> npt.NDArray[np.bool_]:
        """Return bool[rows]: whether each value of the Arrow array ``column`` is a key."""
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        matching = np.zeros(len(column), np.bool_)
        values = search_form(column.drop_null(), self.type)
        nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)
        if len(self.sorted):
            places = np.minimum(np.searchsorted(self.sorted, values), len(self.sorted) - 1)
            is_key = np.asarray(self.sorted[places] == values, np.bool_)
        else:
            is_key = np.zeros(len(values), np.bool_)
        matching[valid] = is_key | (nan & self.has_nan)
        return matching


def key_set(keys: Mapping[str, Any], schema: Schema, case_sensitive: bool = True) -> KeySet:
    """Return the key set of ``{column: Arrow array or list}``.

    Raises :class:`UsageError` unless there is exactly one column, it is known, and the array has its type. Integers
    and decimals may be narrower or wider if every value fits.
    """
    column, array = key_array(keys, schema, case_sensitive)
    kind = str(column.type)
    values = search_form(array, kind)
    has_nan = False
    if values.dtype.kind == "f":
        nan = np.isnan(values)
        has_nan, values = bool(nan.any()), values[~nan]
    return KeySet(column.field_id, column.name, kind, _distinct(values), has_nan)


def key_array(keys: Mapping[str, Any], schema: Schema, case_sensitive: bool = True) -> tuple[PredicateColumn, Any]:
    """Return the column of ``{column: keys}``, and the keys without nulls in its Arrow type (UUIDs as 16 bytes).

    Keys are an Arrow array, or a list or tuple of Python values as :mod:`sidecar.planning.keys.key_lists` takes them.
    Raises the errors of :func:`key_set`.
    """
    if not isinstance(keys, Mapping) or len(keys) != 1:
        raise UsageError(
            "keys must be those of one column", expected="{column: Arrow array or list}", found=_shown(keys)
        )
    ((name, array),) = keys.items()
    column = find_column(schema, name, case_sensitive)
    with located(None, column.name):
        return column, _keys_of(column, array)


def _keys_of(column: PredicateColumn, array: Any) -> Any:
    if isinstance(column.type, StructType):
        raise UsageError("a struct cannot be compared", hint="Name one of its fields.")
    kind, wanted = str(column.type), arrow_type(column.type)
    if isinstance(wanted, pa.BaseExtensionType):
        wanted = wanted.storage_type
    if isinstance(array, list | tuple):
        return key_list(array, kind, wanted)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, pa.Array):
        raise UsageError("keys must be an Arrow array or a list", found=type(array).__name__)
    return _fitted(array, kind, wanted)


def arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of a column of Iceberg type ``kind``."""
    fields: Any = schema_to_pyarrow(Schema(NestedField(1, "key", kind)), include_field_ids=False)
    key_type: pa.DataType = fields.field(0).type
    return key_type


def search_form(values: Any, iceberg_type: str) -> Search:
    """Return the values of a column in the form that is searched; none may be null.

    Raises :class:`UnsupportedFeatureError` for a type without such a form.
    """
    kind = ColumnType.parse(iceberg_type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind.family in _BYTES:
        size_known = pa.types.is_fixed_size_binary(values.type)
        plain = values if size_known or pa.types.is_large_binary(values.type) else values.cast(pa.large_binary())
        as_bytes: Search = plain.to_numpy(zero_copy_only=False).astype(object)
        return as_bytes
    if kind.family == "decimal":
        return _unscaled(values)
    if kind.family == "float":
        numbers: Search = values.to_numpy(zero_copy_only=False).astype(np.float64)
        return numbers
    if kind.family not in _COUNTED:
        raise UnsupportedFeatureError(f"keys of type {iceberg_type} are not supported")
    return _counts(values, kind.unit or "us")


def _counts(values: Any, unit: Any) -> Search:
    """Return whole numbers, dates and times as int64 in the column's unit."""
    kind: Any = values.type
    if pa.types.is_boolean(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp(unit, kind.tz))
    width = {32: pa.int32(), 64: pa.int64()}.get(getattr(kind, "bit_width", 0))
    if width is not None and pa.types.is_temporal(kind):
        values = values.view(width)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def _unscaled(values: Any) -> Search:
    """Return the unscaled numbers of decimals: int64, or Python's integers if the type has more than 18 digits."""
    kind: Any = values.type
    if kind.bit_width != 128:
        values = values.cast(pa.decimal128(kind.precision, kind.scale))
    # A decimal128 is two little-endian words of 64 bits, the low one first; only the high one is signed.
    words = np.frombuffer(values.buffers()[1] or b"", np.int64)
    pairs = words[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    if kind.precision <= _INT64:
        short: Search = low.copy()
        return short
    long: Search = high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object)
    return long


def _distinct(values: Search) -> Search:
    """Sort the values and keep each once."""
    if len(values) < 2:
        return values
    if values.dtype == object:
        unique = sorted(set(values.tolist()))
        distinct = np.empty(len(unique), object)
        distinct[:] = unique
        return distinct
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _fitted(array: Any, kind: str, wanted: pa.DataType) -> Any:
    """Return the keys without nulls, cast to the Arrow type of the column if no value can change."""
    given = array.type
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        array.validate(full=True)
        array = _without_views(array).drop_null()
        if pa.types.is_null(array.type) or _alike(array.type, wanted):
            return array.cast(wanted)
        problem = "the keys do not have the type of their column"
    except pa.ArrowException as error:
        problem = f"the keys do not fit their column: {first_line(error)}"
    hint = f"Cast them to {wanted}, so that none is rounded or truncated."
    raise UsageError(problem, expected=kind, found=str(given), hint=hint)


def _without_views(array: Any) -> Any:
    """Return views of strings and binaries as plain arrays, because pyarrow cannot drop nulls from views."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def _alike(given: Any, wanted: Any) -> bool:
    """Return whether two Arrow types are alike, apart from the width of integers, decimals and offsets."""
    t: Any = pa.types
    if t.is_integer(wanted):
        return bool(t.is_integer(given))
    if t.is_decimal(wanted):
        return bool(t.is_decimal(given)) and given.scale == wanted.scale
    if t.is_string(wanted) or t.is_large_string(wanted):
        return bool(t.is_string(given) or t.is_large_string(given))
    if t.is_binary(wanted) or t.is_large_binary(wanted):
        return bool(t.is_binary(given) or t.is_large_binary(given))
    if t.is_timestamp(wanted):
        return bool(t.is_timestamp(given)) and given.unit == wanted.unit and bool(given.tz) == bool(wanted.tz)
    return bool(given == wanted)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _shown(keys: Any) -> str:
    return f"{len(keys)} columns" if isinstance(keys, Mapping) else type(keys).__name__
