"""What the tests of the ORC room share: the fixtures, their values as literals, and the index of a file at once."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.storage.source import BytesSource, Source

DATA = Path(__file__).parents[1] / "data/orc"
JAVA = [
    *(f"java_{codec}_utf8.orc" for codec in ("none", "zlib", "zstd", "snappy", "lz4")),
    "java_none_original.orc",
    "java_zlib_chunk1k_utf8.orc",
    "java_zlib_2stripes_utf8.orc",
    "java_zlib_2stripes_nofilters.orc",
]
PYARROW = "pyarrow_zlib_utf8.orc"
APACHE = [
    "apache_bad_bloom_filter_1.6.11.orc",
    "apache_orc_index_int_string.orc",
    "apache_over1k_bloom.orc",
]
FILES = [*JAVA, PYARROW, *APACHE]


@lru_cache(maxsize=4)
def zigzag(value: int) -> int:
    """The varint of a signed 64-bit number, as Protobuf's page defines it."""
    return (value << 1) ^ (value >> 63)


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def source(name: str) -> BytesSource:
    return BytesSource((DATA / name).read_bytes(), name)


@dataclass
class ReadStripe:
    footer: StripeFooter
    indexes: dict[int, StripeIndex]


def read_all(of: Source, *, legacy: bool = False) -> tuple[OrcTail, list[ReadStripe]]:
    """Tail, stripe footers and the indexes of all columns."""
    tail = read_tail(of)
    stripes = []
    for stripe in tail.stripes:
        footer = read_stripe_footer(of, tail, stripe)
        indexes = read_indexes(of, tail, footer, range(len(tail.columns)), FileStatistics(of, tail), legacy=legacy)
        stripes.append(ReadStripe(footer, indexes))
    return tail, stripes


def literal(column: str, value: Any) -> Any:
    """A value of values.json as a bound literal of the column's Iceberg type holds it."""
    if column.startswith(("c_sd", "c_char", "c_vchar")):
        text = bytes.fromhex(value).decode()
        return {"c_char": text[:8], "c_vchar": text[:10]}.get(column, text)
    if column == "c_bin":
        return bytes.fromhex(value)
    if column == "c_big":
        return int(value)
    if column in ("c_float", "c_double"):
        return struct.unpack(">f" if column == "c_float" else ">d", bytes.fromhex(value))[0]
    return Decimal(value) if column.startswith("c_dec") else value


def pack(values: Iterable[int]) -> bytes:
    """Unsigned integers as the content of a packed field of Protobuf."""
    out = bytearray()
    for value in values:
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)
