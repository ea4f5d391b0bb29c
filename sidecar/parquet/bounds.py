"""Defines how bounds of column values are stored, how they compare, and how long ones are cut.

A bound is a PLAIN-encoded value without a length prefix; a BOOLEAN takes one byte. The order of values follows from
the leaf's type and from its entry in the file's ``column_orders``:

| type | order |
| --- | --- |
| BOOLEAN | false, true |
| INT32, INT64 | signed; unsigned where annotated so |
| FLOAT, DOUBLE, FLOAT16 | TYPE_ORDER: as numbers, NaN left out; a bound of one zero includes the other zero |
| | IEEE_754_TOTAL_ORDER: totalOrder, -0.0 before 0.0; NaN left out unless all values are NaN |
| INT96 | INT96_TIMESTAMP_ORDER only: days (last 4 bytes), then nanoseconds (first 8), signed |
| BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY | unsigned bytes; a prefix is less than any longer value that begins with it |
| DECIMAL in bytes | signed big-endian |

There is no order without ``column_orders``, with an entry that is unknown or does not fit the type, and for INTERVAL,
VARIANT, geometries and unknown annotations. Their bounds prove nothing. A bound need not be a value of the column:
long strings are cut and the upper one is raised, so that the bounds still enclose all values (parquet.thrift,
``ColumnOrder`` and ``ColumnIndex``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.errors import DamagedFileError
from sidecar.filters.leaf import Leaf
from sidecar.parquet.footer import Footer
from sidecar.questions.bounds import Comparable, Unknown

TYPE_ORDER, IEEE_754_TOTAL_ORDER, INT96_TIMESTAMP_ORDER = 1, 2, 3

TRUNCATE_LENGTH = 64
"""Bytes that a long bound is cut to."""

_FLOATS = {2: ("<e", "<h"), 4: ("<f", "<i"), 8: ("<d", "<q")}
_INTEGER_KINDS = {
    "INT32": ("", "INTEGER", "DATE", "TIME", "DECIMAL"),
    "INT64": ("", "INTEGER", "TIME", "TIMESTAMP", "DECIMAL"),
}
_TEXT_KINDS = ("", "STRING", "ENUM", "JSON", "BSON")


@dataclass(frozen=True)
class Ordering:
    """How bounds of one leaf compare. ``width`` is the length of a bound in bytes; ``None`` if lengths differ."""

    kind: str
    """``boolean``, ``signed``, ``unsigned``, ``float``, ``int96``, ``bytes`` or ``decimal``."""
    width: int | None
    column_order: int = TYPE_ORDER

    def decode(self, bound: bytes) -> Comparable:
        """Return the bound as a value that Python compares in this order (except NaN and the sign of zero).

        Raises :class:`DamagedFileError` for bytes that are not a value of the type.
        """
        if self.width is not None and len(bound) != self.width and not self._is_cut(bound):
            raise DamagedFileError("a bound has the wrong length", expected=self.width, found=len(bound))
        return _DECODERS[self.kind](bound)

    def key(self, bound: bytes) -> Comparable:
        """Return a sort key of the bound. Under IEEE_754_TOTAL_ORDER it also orders NaN and the sign of zero.

        Raises :class:`DamagedFileError` for bytes that are not a value of the type.
        """
        if self.kind == "float" and self.column_order == IEEE_754_TOTAL_ORDER:
            self.decode(bound)
            return total_order(bound)
        return self.decode(bound)

    def _is_cut(self, bound: bytes) -> bool:
        return self.kind == "bytes" and len(bound) < (self.width or 0)


def total_order(bound: bytes) -> int:
    """Return an integer that sorts floats of one width as IEEE 754's totalOrder does."""
    bits: int = struct.unpack(_FLOATS[len(bound)][1], bound)[0]
    return bits if bits >= 0 else bits ^ ((1 << (8 * len(bound) - 1)) - 1)


def _boolean(bound: bytes) -> int:
    if bound[0] > 1:
        raise DamagedFileError("a bound of a BOOLEAN is neither 0 nor 1", found=bound[0])
    return bound[0]


def _float(bound: bytes) -> float:
    value: float = struct.unpack(_FLOATS[len(bound)][0], bound)[0]
    return value


def _decimal(bound: bytes) -> int:
    if not bound:
        raise DamagedFileError("a bound of a DECIMAL has no bytes")
    return int.from_bytes(bound, "big", signed=True)


_DECODERS: dict[str, Callable[[bytes], Comparable]] = {
    "boolean": _boolean,
    "signed": lambda bound: int.from_bytes(bound, "little", signed=True),
    "unsigned": lambda bound: int.from_bytes(bound, "little"),
    "float": _float,
    "int96": lambda bound: (
        int.from_bytes(bound[8:], "little", signed=True),
        int.from_bytes(bound[:8], "little", signed=True),
    ),
    "bytes": lambda bound: bound,
    "decimal": _decimal,
}


def find_ordering(footer: Footer, leaf: Leaf) -> Ordering | Unknown:
    """Return the order of a leaf's bounds in this file, or the reason why it has none."""
    column_order = _column_order(footer, leaf)
    if isinstance(column_order, Unknown):
        return column_order
    found = _type_ordering(leaf)
    if found is None:
        return Unknown(f"values of {leaf.physical} {leaf.annotation.kind}".rstrip() + " have no defined order")
    kind, width = found
    allowed = {"float": (TYPE_ORDER, IEEE_754_TOTAL_ORDER), "int96": (INT96_TIMESTAMP_ORDER,)}
    if column_order not in allowed.get(kind, (TYPE_ORDER,)):
        return Unknown(f"column order {column_order} is unknown or does not fit {leaf.physical}")
    return Ordering(kind, width, column_order)


def _column_order(footer: Footer, leaf: Leaf) -> int | Unknown:
    orders = footer.metadata.structs(7)
    if orders is None:
        return Unknown("the file has no column orders")
    if len(orders) != len(footer.columns):
        return Unknown(f"the file has {len(orders)} column orders for {len(footer.columns)} columns")
    fields = list(orders[leaf.index].fields)
    return fields[0] if len(fields) == 1 else Unknown(f"the column order has {len(fields)} members, not one")


def _type_ordering(leaf: Leaf) -> tuple[str, int | None] | None:
    physical, kind, width = leaf.physical, leaf.annotation.kind, leaf.width
    if physical in _INTEGER_KINDS:
        if kind not in _INTEGER_KINDS[physical]:
            return None
        return "signed" if leaf.annotation.signed else "unsigned", width
    if kind == "DECIMAL" and physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return "decimal", width
    if physical == "FIXED_LEN_BYTE_ARRAY":
        if kind == "FLOAT16":
            return ("float", 2) if width == 2 else None
        return ("bytes", width) if kind in ("", "UUID") else None
    if physical == "BYTE_ARRAY":
        return ("bytes", None) if kind in _TEXT_KINDS else None
    names = {"BOOLEAN": ("boolean", 1), "INT96": ("int96", 12), "FLOAT": ("float", 4), "DOUBLE": ("float", 8)}
    return names[physical] if kind == "" else None


def truncate_lower(value: bytes, length: int = TRUNCATE_LENGTH) -> bytes:
    """Return a lower bound of at most ``length`` bytes: a prefix, of whole characters if ``value`` is UTF-8."""
    return value if len(value) <= length else _prefix(value, length)


def truncate_upper(value: bytes, length: int = TRUNCATE_LENGTH) -> bytes:
    """Return an upper bound of at most ``length`` bytes, or ``value`` itself if there is none.

    Take a prefix, raise its last unit (character or byte) that can be raised, and drop the units after it. The result
    is greater than any value that begins with the prefix. UTF-8 sorts as its code points do.
    """
    if len(value) <= length:
        return value
    prefix = _prefix(value, length)
    raised = _raise_text(prefix) if _is_utf8(value) else _raise_bytes(prefix)
    return value if raised is None else raised


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _prefix(value: bytes, length: int) -> bytes:
    if _is_utf8(value):
        while length and value[length] & 0xC0 == 0x80:  # inside a character
            length -= 1
    return value[:length]


def _raise_text(prefix: bytes) -> bytes | None:
    """Raise the last character whose successor has as many bytes, and drop the rest; ``None`` if there is none."""
    text = prefix.decode()
    for at in range(len(text) - 1, -1, -1):
        code = ord(text[at]) + 1
        code = 0xE000 if 0xD800 <= code < 0xE000 else code
        if code <= 0x10FFFF and len(chr(code).encode()) == len(text[at].encode()):
            return (text[:at] + chr(code)).encode()
    return None


def _raise_bytes(prefix: bytes) -> bytes | None:
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
