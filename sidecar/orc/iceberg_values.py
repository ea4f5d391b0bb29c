"""Values of an ORC column as the table's column has them, and the encoding that their filters get.

A split-block filter of an ORC column is built in the encoding that a new Parquet file would give the column's
Iceberg type, so that both formats share groups; an ORC filter as Java's writers hash:

| Iceberg | kinds in the file | encoding |
| --- | --- | --- |
| boolean | BOOLEAN | boolean (no filter) |
| int | BYTE, SHORT, INT | int32 |
| long | these and LONG | int64 |
| float | FLOAT | float |
| double | DOUBLE; FLOAT (promoted) | double; float |
| decimal(P, S) | DECIMAL of scale S and at most P digits | int32, int64 or flba:N, decimal:S, by P |
| date | DATE | int32/date |
| time | LONG with ``iceberg.long-type`` TIME | int64/time-us |
| timestamp | TIMESTAMP | int64/timestamp-us |
| timestamptz | TIMESTAMP_INSTANT | int64/timestamp-us |
| string | STRING, VARCHAR | byte_array |
| binary | BINARY | byte_array |
| fixed[N], uuid | BINARY with that ``iceberg.binary-type`` | flba:N, flba:16 |

A float stays one under a promoted column, as it does in Parquet: readers round a literal to the file's type.
Values must be those that every reader of the table gets. Where readers differ, a column is not indexed: CHAR (some
cut its blanks off), a TIMESTAMP of another writer's zone than UTC, days before 1582-10-15 (two calendars), fractions
of a second before 1970 by other writers than Java's (negative nanoseconds are read in two ways), nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sidecar.errors import UsageError
from sidecar.filters.arrow_types import arrow_type
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.orc_values import GREGORIAN_DAY
from sidecar.orc.schema import OrcColumn
from sidecar.orc.tail import JAVA
from sidecar.orc.trust import utc_or_name

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


@dataclass(frozen=True)
class OrcValues:
    """How the values of a column of a file become those of a column of the table."""

    encoding: Encoding
    """Of a split-block filter of the values."""
    orc_encoding: OrcEncoding | None
    """Of an ORC filter of the values; ``None`` where there are none."""
    type: pa.DataType | None
    """The Arrow type in which filter and sketch take them; ``None`` for pyarrow's own."""
    kind: str
    java: bool
    """Whether a Java writer made the file."""

    def from_file(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """pyarrow's values as the table's. :class:`UsageError` if readers would not all get the same ones."""
        if self.type is None or values.type == self.type:
            converted = values
        else:
            try:
                converted = values.cast(self.type)
            except pa.ArrowException as error:
                raise UsageError(f"values stored as {self.kind} do not fit {self.type}") from error
        if self.kind == "DATE":
            _check_calendar(converted.cast(pa.int32()), 1)
        if self.kind.startswith("TIMESTAMP"):
            _check_calendar(converted.cast(pa.int64()), _DAY)
            if not self.java:
                _check_fractions(converted)
        return converted


def orc_values(column: OrcColumn, column_type: str, writer: int) -> OrcValues | str:
    """The way from ``column`` of a file to a table's column of type ``column_type``, or why there is none."""
    if column.kind == "CHAR":
        return "readers disagree on the blanks at the end of a CHAR"
    if doubt := type_doubt(column, column_type):
        return doubt
    kind = ColumnType.parse("float" if column.kind == "FLOAT" else column_type)
    if kind.encoding is None:
        return f"no filter has values of type {column_type}"
    return OrcValues(
        encoding=Encoding.parse(kind.encoding),
        orc_encoding=OrcEncoding.parse(kind.orc_encoding) if kind.orc_encoding else None,
        type=None if kind.base in ("string", "binary") else arrow_type(kind),
        kind=column.kind,
        java=writer == JAVA,
    )


def type_doubt(column: OrcColumn, column_type: str) -> str:
    """Why neither filters nor values of ``column`` say anything of a ``column_type``; empty if they do."""
    own = column.iceberg_type
    if own is None:
        return f"a column of kind {column.kind} in the file has no Iceberg type"
    if column.attributes.get("iceberg.timestamp-unit", "MICROS") != "MICROS":
        return "nanoseconds in ORC are not indexed"
    holds = ColumnType.parse(column_type).holds(ColumnType.parse(own))
    return "" if holds else f"a {column_type} column stored as {own}"


def zone_doubt(column: OrcColumn, zone: str | None) -> str:
    """Why readers may disagree on the values of a stripe whose writer's zone is ``zone``; empty if they cannot."""
    if column.kind != "TIMESTAMP" or utc_or_name(zone) == "UTC":
        return ""
    return f"timestamps of the writer's zone {zone or '(unknown)'}, whose rules readers may not share"


def _check_calendar(counts: Any, day: int) -> None:
    first = pc.min(counts).as_py()
    if first is not None and first < GREGORIAN_DAY * day:
        raise UsageError("days before 1582-10-15, where readers disagree on the calendar")


def _check_fractions(values: Any) -> None:
    counts = values.drop_null().view(pa.int64()).to_numpy(zero_copy_only=False)
    if ((counts < 0) & (np.remainder(counts, _SECOND) != 0)).any():
        raise UsageError("fractions of a second before 1970, which readers take in two ways")
