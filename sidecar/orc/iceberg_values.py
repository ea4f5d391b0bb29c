"""Converts values of an ORC column to the type of the table's column, and chooses the encoding of their filters.

A split-block filter of an ORC column has the encoding in which a new Parquet file stores the column's Iceberg type, so
that filters of both formats share groups. An ORC filter has the encoding of Java's writers:

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

FLOAT keeps its encoding in a column that was promoted to double, as in Parquet, because readers round a literal to
the file's type. Filters need the values that every reader gets. A column on whose values readers differ is not indexed:
CHAR (some readers cut its blanks), TIMESTAMP of a writer in a zone other than UTC, days before 1582-10-15 (two
calendars), fractions of a second before 1970 of writers other than Java's (readers differ on negative nanoseconds), and
nanoseconds.
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
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import GREGORIAN_DAY
from sidecar.orc.schema import OrcColumn
from sidecar.orc.tail import JAVA
from sidecar.orc.trust import utc_or_name
from sidecar.questions.bounds import Unknown

SECOND = 1_000_000
DAY = 86_400 * SECOND
"""Microseconds of a second, and of a day."""


@dataclass(frozen=True)
class OrcValues:
    """The conversion of a file's column to a table's column, and the encodings of its filters."""

    encoding: Encoding
    """The encoding of a split-block filter."""
    orc_encoding: OrcEncoding | None
    """The encoding of an ORC filter; ``None`` if sidecar builds none for the type."""
    type: pa.DataType | None
    """The Arrow type for filters and sketches; ``None`` for the type as which pyarrow reads the values."""
    kind: str
    java: bool
    """Whether a Java writer made the file."""

    def from_file(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Return pyarrow's values in the table's type. Raises :class:`UsageError` if readers disagree on a value."""
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
            _check_calendar(converted.cast(pa.int64()), DAY)
            if not self.java:
                _check_fractions(converted)
        return converted


def orc_values(column: OrcColumn, column_type: str, writer: int) -> OrcValues | Unknown:
    """Return the conversion of ``column`` of a file to a ``column_type`` column, or the reason why there is none."""
    if column.kind == "CHAR":
        return Unknown("readers disagree on the blanks at the end of a CHAR")
    if doubt := type_doubt(column, column_type):
        return Unknown(doubt)
    kind = ColumnType.parse("float" if column.kind == "FLOAT" else column_type)
    if kind.encoding is None:
        return Unknown(f"sidecar builds no filters for type {column_type}")
    return OrcValues(
        encoding=Encoding.parse(kind.encoding),
        orc_encoding=OrcEncoding.parse(kind.orc_encoding) if kind.orc_encoding else None,
        type=None if kind.base in ("string", "binary") else arrow_type(kind),
        kind=column.kind,
        java=writer == JAVA,
    )


def type_doubt(column: OrcColumn, column_type: str) -> str:
    """Return the reason why ``column`` has no filters or values for a ``column_type`` column; empty if it has."""
    own = column.iceberg_type
    if own is None:
        return f"a column of kind {column.kind} in the file has no Iceberg type"
    if column.attributes.get("iceberg.timestamp-unit", "MICROS") != "MICROS":
        return "nanoseconds in ORC are not indexed"
    holds = ColumnType.parse(column_type).holds(ColumnType.parse(own))
    return "" if holds else f"a {column_type} column stored as {own}"


def zone_doubt(column: OrcColumn, zone: str | None) -> str:
    """Return the reason why readers may disagree on values written in ``zone``; empty if they agree."""
    if column.kind != "TIMESTAMP" or utc_or_name(zone) == "UTC":
        return ""
    return f"readers may have other rules for the writer's time zone {zone or '(unknown)'}"


def _check_calendar(counts: Any, day: int) -> None:
    first = pc.min(counts).as_py()
    if first is not None and first < GREGORIAN_DAY * day:
        raise UsageError("readers disagree on the calendar of days before 1582-10-15")


def _check_fractions(values: Any) -> None:
    counts = values.drop_null().view(pa.int64()).to_numpy(zero_copy_only=False)
    if ((counts < 0) & (np.remainder(counts, SECOND) != 0)).any():
        raise UsageError("readers disagree on fractions of a second before 1970")
