"""Walks the Avro records of many manifest entries at once: one step for each value of a record, for all records.

An Avro record has no lengths: a value begins where the one before it ends. The walk keeps a position in each record,
and each step reads the next value of all of them with numpy. A step over 100,000 records takes about a millisecond,
and a record has some hundred values.

    int, long       zigzag varint of at most 10 bytes
    string, bytes   varint n | n bytes
    union           varint: 0 is null, 1 is followed by the value
    array, map      blocks: varint n | n items; 0 ends; -n is followed by the length of the block in bytes

A walk that ends at the end of each record proves that a decoder finds the same values there and reads no other byte.
So a record may be decoded later, when its file is looked at, and that cannot fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

Numbers = npt.NDArray[np.int64]
"""int64[n], one for each record."""

_VARINTS = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
_TEXTS = (StringType, BinaryType)
_WIDTHS: dict[type[IcebergType], int] = {BooleanType: 1, FloatType: 4, DoubleType: 8, UUIDType: 16}
_LAST_SHIFT = 63
"""The shift of a varint's tenth byte, of which one bit is left."""


@dataclass(frozen=True)
class RecordSpans:
    """Where a value is in each record: ``[starts, ends)``, in bytes from the start of the record; empty for null."""

    starts: Numbers
    ends: Numbers


@dataclass
class RecordColumns:
    """The values that a walk found outside of lists and maps, by the field ids of the writer's schema."""

    numbers: dict[int, Numbers] = field(default_factory=dict)
    is_set: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """bool[n], by the id of an optional number: whether a record has it."""
    spans: dict[int, RecordSpans] = field(default_factory=dict)
    """Texts (without their lengths) and structs."""


def walk(records: Sequence[bytes], schema: Schema) -> RecordColumns:
    """Walk ``records``, one manifest entry each, written with ``schema``.

    Raises :class:`DamagedFileError` unless each is exactly one record of the schema, and
    :class:`UnsupportedFeatureError` for a type that manifests do not have.
    """
    walker = _Walker(records)
    for column in schema.fields:
        walker.field(column, None, collect=True)
    if (walker.at != walker.ends).any():
        raise DamagedFileError("a manifest entry is shorter than its bytes")
    return walker.columns


RecordOrdinals = Numbers | None
"""The ordinals of the records that have a value; ``None`` for all of them."""


class _Walker:
    """A position in each record. A step moves the positions of the records that have the value."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._data = np.frombuffer(b"".join(records), np.uint8)
        self.ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        self._starts = np.concatenate(([0], self.ends))[:-1]
        self.at = self._starts.copy()
        self.columns = RecordColumns()

    def field(self, column: NestedField, rows: RecordOrdinals, collect: bool) -> None:
        """Walk over one field of a struct."""
        found = rows if column.required else self._with_value(rows)
        kind = column.field_type
        if isinstance(kind, _VARINTS):
            numbers = self._varint(found)
            if collect:
                self._collect_numbers(column, found, numbers)
            return
        before = self.at.copy() if collect else self.at
        self._skip(kind, found, collect and column.field_id == _DATA_FILE)
        if collect and isinstance(kind, (*_TEXTS, StructType)):
            self._collect_spans(column, found, before)

    def _collect_numbers(self, column: NestedField, found: RecordOrdinals, numbers: Numbers) -> None:
        if found is not None:
            all_numbers = np.zeros(len(self.at), np.int64)
            all_numbers[found] = numbers
            numbers = all_numbers
        self.columns.numbers[column.field_id] = numbers
        if not column.required:
            is_set = np.zeros(len(self.at), np.bool_)
            is_set[slice(None) if found is None else found] = True
            self.columns.is_set[column.field_id] = is_set

    def _collect_spans(self, column: NestedField, found: RecordOrdinals, before: Numbers) -> None:
        ends = self.at - self._starts
        starts = before - self._starts
        if isinstance(column.field_type, _TEXTS):
            starts = ends - self._length
        if found is not None:
            has_value = np.zeros(len(starts), np.bool_)
            has_value[found] = True
            starts = np.where(has_value, starts, ends)
        self.columns.spans[column.field_id] = RecordSpans(starts, ends)

    def _skip(self, kind: IcebergType, rows: RecordOrdinals, collect: bool = False) -> None:
        """Walk over one value of a type."""
        if isinstance(kind, StructType):
            for column in kind.fields:
                self.field(column, rows, collect)
        elif isinstance(kind, _VARINTS):
            self._varint(rows)
        elif isinstance(kind, _TEXTS):
            self._skip_text(rows)
        elif isinstance(kind, ListType):
            self._blocks(rows, [kind.element_field])
        elif isinstance(kind, MapType):
            self._blocks(rows, [kind.key_field, kind.value_field])
        elif isinstance(kind, FixedType):
            self._forward(rows, len(kind))
        elif isinstance(kind, DecimalType):
            self._forward(rows, decimal_required_bytes(kind.precision))
        elif type(kind) in _WIDTHS:
            self._forward(rows, _WIDTHS[type(kind)])
        else:
            raise UnsupportedFeatureError("a manifest entry has a value of an unknown type", found=str(kind))

    def _skip_text(self, rows: RecordOrdinals) -> None:
        lengths = self._varint(rows)
        self._length = np.zeros(len(self.at), np.int64)
        self._length[slice(None) if rows is None else rows] = lengths
        self._forward(rows, lengths)

    def _blocks(self, rows: RecordOrdinals, columns: Sequence[NestedField]) -> None:
        """Walk over the blocks of an array or a map, and over the fields of each item."""
        open_ = np.arange(len(self.at)) if rows is None else rows
        while len(open_):
            counts = self._varint(open_)
            sized = open_[counts < 0]
            if len(sized):
                self._varint(sized)
            counts = np.abs(counts)
            open_, counts = open_[counts != 0], counts[counts != 0]
            # An item has at least one byte. Without this, a count of items without bytes would take for ever.
            # The absolute value of the smallest number is negative.
            if ((counts < 0) | (counts > self.ends[open_] - self.at[open_])).any():
                raise DamagedFileError("a manifest entry ends in the middle of a list or map")
            rows, item = open_, 0
            while len(rows):
                for column in columns:
                    self.field(column, rows, collect=False)
                item += 1
                going_on = counts > item
                rows, counts = rows[going_on], counts[going_on]

    def _with_value(self, rows: RecordOrdinals) -> RecordOrdinals:
        """Read the branch of a union; return the rows whose value is not null."""
        branches = self._varint(rows)
        if ((branches != 0) & (branches != 1)).any():
            raise DamagedFileError("a manifest entry has an unknown branch of a union")
        if rows is None:
            return None if branches.all() else np.flatnonzero(branches)
        with_value: RecordOrdinals = rows[branches == 1]
        return with_value

    def _varint(self, rows: RecordOrdinals) -> Numbers:
        chosen = slice(None) if rows is None else rows
        at, ends = self.at[chosen], self.ends[chosen]
        byte = self._bytes(at, ends)
        value = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte & 0x80)
        shift = 7
        while len(more):
            byte = self._bytes(at[more], ends[more])
            if shift == _LAST_SHIFT and (byte > 1).any():
                raise DamagedFileError("a number in a manifest entry has more than 64 bits")
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[(byte & 0x80) != 0]
            shift += 7
        self.at[chosen] = at
        number: Numbers = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
        return number

    def _bytes(self, at: Numbers, ends: Numbers) -> npt.NDArray[np.uint8]:
        if (at >= ends).any():
            raise DamagedFileError("a manifest entry ends in the middle of a value")
        return self._data[at]

    def _forward(self, rows: RecordOrdinals, lengths: Numbers | int) -> None:
        chosen = slice(None) if rows is None else rows
        left = self.ends[chosen] - self.at[chosen]
        if (np.less(lengths, 0) | (left < lengths)).any():
            raise DamagedFileError("a manifest entry ends in the middle of a value")
        self.at[chosen] += lengths


_DATA_FILE = 2
"""The field id of the struct whose fields are collected, too."""
