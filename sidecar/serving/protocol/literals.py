"""Parses the literals of filters by the type of their column.

The protocol leaves open how a literal is written, so each client has its own way:

| type | Java (Spark) | pyiceberg |
| --- | --- | --- |
| date | days from 1970-01-01 | ISO |
| time, timestamp, timestamptz | microseconds | ISO; a timestamptz without an offset, in UTC |
| decimal | text | text or number |
| binary, fixed | hexadecimal text | hexadecimal text of bytes; a text that means its own bytes |
| float, double | number, "Infinity" | number; ``null`` for infinity |
| uuid | text | text |

The meaning of a text for a binary column depends on what the caller of pyiceberg wrote, and the request does not say
what that was. So it has up to two meanings, and a row that one of them finds may match.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from pyiceberg.expressions.literals import (
    BinaryLiteral,
    DateLiteral,
    FixedLiteral,
    Literal,
    TimeLiteral,
    TimestampLiteral,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    FixedType,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from sidecar.errors import SidecarError
from sidecar.iceberg.predicates.literals import MICROS_PER_DAY, PredicateColumn, literal_of_text

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_COUNTED: dict[type[PrimitiveType], tuple[type[Any], int, int]] = {
    DateType: (DateLiteral, -(1 << 31), (1 << 31) - 1),
    TimeType: (TimeLiteral, 0, MICROS_PER_DAY - 1),
    TimestampType: (TimestampLiteral, -(1 << 63), (1 << 63) - 1),
    TimestamptzType: (TimestampLiteral, -(1 << 63), (1 << 63) - 1),
}
"""Types whose integers count days or microseconds, with the literal, the least and the greatest number."""


def literals_of(value: object, column: PredicateColumn, *, only_hex: bool = False) -> list[Literal[Any]]:
    """Return what a literal of JSON can mean for a column: one literal mostly, none if it cannot be parsed exactly.

    Numbers are ``int`` or ``Decimal``, as :func:`sidecar.serving.protocol.requests.parse_json` returns them.
    ``only_hex``: bytes are hexadecimal digits. Otherwise they may be a text, too: pyiceberg sends what it was given.
    """
    kind = column.type
    try:
        if isinstance(value, bool):
            return [literal_of_text(str(value).lower(), column, quoted=False)] if isinstance(kind, BooleanType) else []
        if isinstance(value, int | Decimal):
            return _of_number(value, column)
        if not isinstance(value, str) or (isinstance(kind, BooleanType) and value not in ("true", "false")):
            return []
        if isinstance(kind, BinaryType | FixedType):
            return _of_bytes(value, kind, only_hex)
        if isinstance(kind, TimestamptzType):
            return [_with_zone(value, column)]
        return [literal_of_text(value, column, quoted=True)]
    except SidecarError:  # the text does not fit, or pyiceberg cannot compare the type
        return []


def _of_number(value: int | Decimal, column: PredicateColumn) -> list[Literal[Any]]:
    counted = _COUNTED.get(type(column.type))  # type: ignore[arg-type]
    if counted is None:
        return [literal_of_text(str(value), column, quoted=False)]
    make, least, most = counted
    return [make(value)] if isinstance(value, int) and least <= value <= most else []


def _of_bytes(text: str, kind: BinaryType | FixedType, only_hex: bool) -> list[Literal[Any]]:
    meanings = [bytes.fromhex(text)] if _HEX.fullmatch(text) else []
    if not only_hex:
        try:
            meanings.append(text.encode())
        except UnicodeEncodeError:  # a lone surrogate
            return []
    if isinstance(kind, FixedType):
        return [FixedLiteral(one) for one in meanings if len(one) == len(kind)]
    return [BinaryLiteral(one) for one in meanings]


def _with_zone(text: str, column: PredicateColumn) -> Literal[Any]:
    try:
        return literal_of_text(text, column, quoted=True)
    except SidecarError:
        return literal_of_text(f"{text}+00:00", column, quoted=True)
