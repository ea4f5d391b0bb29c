"""Filters beside those of parquet-java, Arrow C++ and the parquet crate, bit by bit, for every type but BOOLEAN.

``values.json`` holds the PLAIN bytes of what each of them wrote, ``expected/NAME.json`` the filters in its file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sidecar.filters.array_hash import hash_arrow, hash_plain_fixed, hash_plain_spans
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.values import plain_forms, probe_hashes

FOLDER = Path(__file__).parents[1] / "data" / "parquet"
FILES = sorted(path.stem for path in (FOLDER / "expected").glob("*.json"))
WRITERS = {"parquet-mr version 1.18.0", "parquet-cpp-arrow version 26.0.1", "parquet-rs version 60.1.0"}

COLUMNS: dict[str, tuple[str, str | None, pa.DataType | None]] = {
    # column: encoding, Iceberg type whose literals are certain, Arrow type by which pyarrow reads it
    "i32_opt": ("int32", "int", pa.int32()),
    "i32_req_asc": ("int32", "int", pa.int32()),
    "i64_opt": ("int64", "long", pa.int64()),
    "i64_desc": ("int64", "long", pa.int64()),
    "i96": ("int96", None, None),
    "f32_nan": ("float", "float", pa.float32()),
    "f64_nan": ("double", "double", pa.float64()),
    "f32_clean": ("float", "float", pa.float32()),
    "f64_clean": ("double", "double", pa.float64()),
    "f64_zeros": ("double", "double", pa.float64()),
    "f16": ("float16", None, None),
    "bin": ("byte_array", "binary", pa.binary()),
    "str": ("byte_array", "string", pa.string()),
    "json": ("byte_array", "string", pa.large_string()),
    "flba5": ("flba:5", "fixed[5]", pa.binary(5)),
    "uuid": ("flba:16", "uuid", pa.binary(16)),
    "dec_i32": ("int32/decimal:2", "decimal(9, 2)", pa.decimal128(9, 2)),
    "dec_i64": ("int64/decimal:4", "decimal(18, 4)", pa.decimal128(18, 4)),
    "dec_flba": ("flba:16/decimal:10", "decimal(38, 10)", pa.decimal128(38, 10)),
    "dec_bin": ("byte_array/decimal:10", None, None),
    "date": ("int32/date", "date", pa.date32()),
    "time_ms": ("int32/time-ms", "time", pa.time32("ms")),
    "time_us": ("int64/time-us", "time", pa.time64("us")),
    "ts_ms": ("int64/timestamp-ms", "timestamp", pa.timestamp("ms")),
    "ts_us": ("int64/timestamp-us", "timestamptz", pa.timestamp("us", "UTC")),
    "ts_ns": ("int64/timestamp-ns", "timestamp_ns", pa.timestamp("ns")),
    "i8": ("int32", "int", pa.int8()),
    "u32": ("uint32", None, pa.uint32()),
    "u64": ("uint64", None, pa.uint64()),
    "interval": ("interval", None, None),
    "all_null": ("int32", "int", pa.int32()),
    "null_page": ("int32", "int", pa.int32()),
    "list_i32.list.element": ("int32", "int", pa.int32()),
    "list_str.list.element": ("byte_array", "string", pa.string()),
    "lowcard": ("byte_array", "string", pa.string()),
}


@cache
def written() -> dict[str, list[Any]]:
    columns = json.loads((FOLDER / "values.json").read_text())["columns"]
    return {column["name"]: column["values"] for column in columns}


@cache
def plain_values(column: str, first: int, rows: int) -> list[bytes]:
    """The PLAIN bytes of the non-null leaf values of some rows."""
    cells = written()[column.partition(".")[0]][first : first + rows]
    flat = [leaf for cell in cells for leaf in (cell if isinstance(cell, list) else [cell])]
    return [bytes.fromhex(leaf) for leaf in flat if leaf is not None]


@cache
def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "expected" / f"{name}.json").read_text())
    return found


def filters_of(name: str) -> Iterator[tuple[str, bytes, list[bytes]]]:
    for group in expected(name)["row_groups"]:
        for column, about in group["columns"].items():
            if column != "bool_opt" and about.get("bloom"):
                values = plain_values(column, group["first_row"], group["rows"])
                yield column, bytes.fromhex(about["bloom"]), values


def strict_hashes(column: str, values: list[bytes]) -> Any:
    """By the Arrow path where sidecar builds filters, by the PLAIN one for types it only reads."""
    encoding = Encoding.parse(COLUMNS[column][0])
    arrow_type = COLUMNS[column][2]
    if arrow_type is not None:
        return hash_arrow(arrow_array(values, arrow_type), encoding, twins=False)
    return plain_hashes(values, encoding)


def plain_hashes(values: list[bytes], encoding: Encoding) -> Any:
    data = b"".join(values)
    if encoding.width is not None:
        return hash_plain_fixed(data, len(values), encoding, twins=False)
    lengths = np.array([len(v) for v in values], np.int64)
    return hash_plain_spans(data, np.cumsum(lengths) - lengths, lengths)


def arrow_array(values: list[bytes], kind: pa.DataType) -> pa.Array:
    """An Arrow array of PLAIN bytes, made through Arrow's own buffers; a null lies between any two values."""
    if pa.types.is_decimal(kind):
        unscaled = [int.from_bytes(v, "little" if len(v) < 16 else "big", signed=True) for v in values]
        raw = [u.to_bytes(16, "little", signed=True) for u in unscaled]
        return with_nulls(raw, pa.binary(16), kind)
    if pa.types.is_primitive(kind):
        width = kind.bit_width // 8
        return with_nulls([v[:width] for v in values], pa.binary(width), kind)
    return pa.array([cell for v in values for cell in (v, None)], pa.large_binary()).cast(kind)


def with_nulls(raw: list[bytes], fixed: pa.DataType, kind: pa.DataType) -> pa.Array:
    array = pa.array([cell for v in raw for cell in (v, None)], fixed)
    return pa.Array.from_buffers(kind, len(array), array.buffers())


def test_fixtures_cover_every_writer_and_column() -> None:
    by = {" ".join(expected(name)["created_by"].split(" (")[0].split()) for name in FILES}
    assert by == WRITERS
    names = {name.partition(".")[0] for name in COLUMNS}
    assert names == set(written()) - {"bool_opt"}
    for writer in WRITERS:
        seen = {
            column
            for name in FILES
            if expected(name)["created_by"].startswith(writer)
            for column, _, _ in filters_of(name)
        }
        missing = set(COLUMNS) - seen
        assert missing <= {"i96", "f16", "interval", "dec_bin"}, writer  # Arrow C++ was not asked for those


@pytest.mark.parametrize("name", FILES)
def test_filters_are_bit_identical(name: str) -> None:
    count = 0
    for column, bitset, values in filters_of(name):
        theirs = SplitBlockBloomFilter.from_bytes(bitset)
        ours = SplitBlockBloomFilter.from_hashes(strict_hashes(column, values), theirs.z)
        assert ours.to_bytes() + theirs.tail == bitset, column
        assert theirs.to_bytes() == bitset
        count += 1
    assert count > 5


@pytest.mark.parametrize("column", COLUMNS)
def test_arrow_and_plain_paths_agree(column: str) -> None:
    encoding = Encoding.parse(COLUMNS[column][0])
    values = plain_values(column, 0, 600)
    assert sorted(strict_hashes(column, values).tolist()) == sorted(plain_hashes(values, encoding).tolist())


def literal(value: bytes, iceberg_type: str, encoding: Encoding) -> Any:
    """The value as a bound literal of the column has it; written from the formats, not from sidecar's table."""
    if iceberg_type in ("float", "double"):
        return struct.unpack("<f" if len(value) == 4 else "<d", value)[0]
    if iceberg_type == "string":
        return value.decode()
    if iceberg_type in ("binary", "uuid") or iceberg_type.startswith("fixed"):
        return value
    if iceberg_type.startswith("decimal"):
        order = "big" if encoding.name.startswith("flba") else "little"
        unscaled = int.from_bytes(value, order, signed=True)  # type: ignore[arg-type]
        digits = tuple(int(d) for d in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -int(iceberg_type.rstrip(")").split(",")[1])))
    number = int.from_bytes(value, "little", signed=True)
    return number * 1000 if encoding.name.endswith("-ms") else number


@pytest.mark.parametrize("name", FILES)
def test_every_written_value_might_be_there(name: str) -> None:
    """By value where a literal is certain, by hash for all types; no writer's filter denies what it wrote."""
    for column, bitset, values in filters_of(name):
        theirs = SplitBlockBloomFilter.from_bytes(bitset)
        assert theirs.check(strict_hashes(column, values)).all(), column
        encoding_name, iceberg_type, _ = COLUMNS[column]
        if iceberg_type is None:
            continue
        encoding = Encoding.parse(encoding_name)
        for value in set(values):
            asked = literal(value, iceberg_type, encoding)
            assert theirs.might_contain(asked, iceberg_type, encoding), (column, asked)
            if asked == asked:  # NaN is never certain
                assert probe_hashes(asked, iceberg_type, encoding).verdict == "probe"
                assert asked == 0 or plain_forms(asked, iceberg_type, encoding) == (value,)


@pytest.mark.parametrize("name", ["j118_v1_none", "pa26_v1_none", "rs60_v1_none_afterrg"])
def test_absent_values_are_mostly_denied(name: str) -> None:
    """The counterpart of the tests above: a filter that says yes to everything would pass them."""
    (bitset,) = [bits for column, bits, _ in filters_of(name) if column == "i64_opt"][:1]
    theirs = SplitBlockBloomFilter.from_bytes(bitset)
    yes = sum(theirs.might_contain(value, "long", Encoding.parse("int64")) for value in range(10**12, 10**12 + 1000))
    assert yes < 500
