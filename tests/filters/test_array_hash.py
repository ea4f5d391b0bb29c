"""Arrow arrays of every type to hashes, beside each value's bytes hashed alone by other packages."""

from __future__ import annotations

import math
import struct
import tracemalloc
import uuid
from collections.abc import Iterable
from decimal import Decimal, localcontext
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.types import IcebergType
from xxhash import xxh64_intdigest

from sidecar.errors import UsageError
from sidecar.filters.array_hash import hash_arrow, hash_plain_fixed, hash_plain_spans, theta_hashes
from sidecar.filters.encoding import Encoding

DAY = 86_400_000


def u(width: int, *values: int) -> list[bytes]:
    return [(v % (1 << 8 * width)).to_bytes(width, "little") for v in values]


def dec(*values: str) -> list[Decimal]:
    return [Decimal(v) for v in values]


# Arrow type, encoding, values, their PLAIN bytes
ARRAYS: list[tuple[pa.DataType, str, list[Any], list[bytes]]] = [
    (pa.int8(), "int32", [1, -1, -128], u(4, 1, -1, -128)),
    (pa.int16(), "int32", [1, -1, -(2**15)], u(4, 1, -1, -(2**15))),
    (pa.int32(), "int32", [1, -1, -(2**31)], u(4, 1, -1, -(2**31))),
    (pa.int64(), "int64", [1, -1, -(2**63)], u(8, 1, -1, -(2**63))),
    (pa.uint8(), "uint32", [1, 255], u(4, 1, 255)),
    (pa.uint16(), "uint32", [1, 65535], u(4, 1, 65535)),
    (pa.uint32(), "uint32", [1, 2**32 - 1], u(4, 1, -1)),
    (pa.uint32(), "int64", [1, 2**32 - 1], u(8, 1, 2**32 - 1)),
    (pa.uint64(), "uint64", [1, 2**64 - 1], u(8, 1, -1)),
    (pa.float32(), "float", [1.5, -math.inf], [struct.pack("<f", 1.5), struct.pack("<f", -math.inf)]),
    (pa.float64(), "double", [1.5, 0.1], [struct.pack("<d", 1.5), struct.pack("<d", 0.1)]),
    (pa.date32(), "int32/date", [0, -1], u(4, 0, -1)),
    (pa.date64(), "int32/date", [0, -DAY, 3 * DAY], u(4, 0, -1, 3)),
    (pa.time32("s"), "int32/time-ms", [0, 5], u(4, 0, 5000)),
    (pa.time32("ms"), "int32/time-ms", [0, 5], u(4, 0, 5)),
    (pa.time64("us"), "int64/time-us", [0, 5], u(8, 0, 5)),
    (pa.timestamp("s"), "int64/timestamp-ms", [-1, 5], u(8, -1000, 5000)),
    (pa.timestamp("ms", "UTC"), "int64/timestamp-ms", [-1, 5], u(8, -1, 5)),
    (pa.timestamp("ms"), "int64/timestamp-us", [-1, 5], u(8, -1000, 5000)),
    (pa.timestamp("us"), "int64/timestamp-us", [-1, 5], u(8, -1, 5)),
    (pa.timestamp("us", "America/New_York"), "int64/timestamp-us", [-1, 5], u(8, -1, 5)),
    (pa.timestamp("ns"), "int64/timestamp-ns", [-1, 5], u(8, -1, 5)),
    (pa.timestamp("ns"), "int64/timestamp-us", [-1000, 5000], u(8, -1, 5)),
    (pa.decimal32(9, 2), "int32/decimal:2", dec("1.50", "-0.01"), u(4, 150, -1)),
    (pa.decimal64(18, 2), "int64/decimal:2", dec("1.50", "-0.01"), u(8, 150, -1)),
    (pa.decimal128(9, 2), "int32/decimal:2", dec("1.50", "-0.01"), u(4, 150, -1)),
    (pa.decimal128(18, 2), "int64/decimal:2", dec("1.50", "-0.01"), u(8, 150, -1)),
    (pa.decimal128(38, 2), "flba:16/decimal:2", dec("1.50", "-0.01"), [b"\0" * 15 + b"\x96", b"\xff" * 16]),
    (pa.decimal128(11, 2), "flba:5/decimal:2", dec("2.56", "-0.01"), [b"\0\0\0\x01\0", b"\xff" * 5]),
    (pa.decimal128(38, 2), "flba:18/decimal:2", dec("1.50", "-0.01"), [b"\0" * 17 + b"\x96", b"\xff" * 18]),
    (pa.decimal256(50, 2), "flba:21/decimal:2", dec("1.50", "-0.01"), [b"\0" * 20 + b"\x96", b"\xff" * 21]),
    (pa.string(), "byte_array", ["", "a", "Łódź" * 30], [b"", b"a", "Łódź".encode() * 30]),
    (pa.large_string(), "byte_array", ["", "a"], [b"", b"a"]),
    (pa.string_view(), "byte_array", ["", "a", "x" * 40], [b"", b"a", b"x" * 40]),
    (pa.binary(), "byte_array", [b"", b"\xff"], [b"", b"\xff"]),
    (pa.large_binary(), "byte_array", [b"", b"\xff"], [b"", b"\xff"]),
    (pa.binary_view(), "byte_array", [b"", b"x" * 40], [b"", b"x" * 40]),
    (pa.binary(5), "flba:5", [b"abcde", b"\0" * 5], [b"abcde", b"\0" * 5]),
    (pa.uuid(), "flba:16", [b"a" * 16], [b"a" * 16]),
]


def shapes(array: pa.Array) -> Iterable[tuple[str, Any]]:
    """The same values laid out in every way that Arrow has."""
    yield "whole", array
    nulls = pa.array([None] * 3, array.type)
    padded = pa.concat_arrays([nulls, array, nulls])
    yield "with nulls", padded
    yield "sliced", pa.concat_arrays([array, array, nulls]).slice(len(array), len(array) + 1)
    yield "sliced without nulls", pa.concat_arrays([array, array, array]).slice(len(array), len(array))
    yield "chunked", pa.chunked_array([array.slice(0, 1), nulls, array.slice(1), array.slice(0, 0)])
    if not isinstance(array.type, pa.BaseExtensionType):
        yield "dictionary", dictionary(array)
        yield "chunked dictionary", pa.chunked_array([dictionary(array), dictionary(array)])


def dictionary(array: pa.Array) -> pa.Array:
    """Each value used twice and a null between, behind an entry that no row uses."""
    entries = pa.concat_arrays([array.slice(0, 1), array])
    indices = [i + 1 for i in range(len(array))]
    return pa.DictionaryArray.from_arrays(pa.array([*indices, None, *indices], pa.int16()), entries)


def arrow_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(pa.array(values, kind.storage_type))
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize(("kind", "name", "values", "plain"), ARRAYS, ids=lambda v: str(v)[:30])
def test_every_arrow_type_is_hashed_as_plain_bytes(
    kind: pa.DataType, name: str, values: list[Any], plain: list[bytes]
) -> None:
    encoding = Encoding.parse(name)
    wanted = {xxh64_intdigest(p) for p in plain}
    assert len(wanted) == len(values)
    for shape, array in shapes(arrow_of(kind, values)):
        found = hash_arrow(array, encoding).tolist()
        assert set(found) == wanted, shape
        if shape in ("whole", "with nulls", "sliced", "dictionary", "sliced without nulls"):
            assert len(found) == len(wanted), shape


@pytest.mark.parametrize("array", [pa.array([], pa.int32()), pa.array([None], pa.int32()), pa.nulls(5)])
@pytest.mark.parametrize("name", ["int32", "double", "byte_array", "flba:3", "int32/decimal:1"])
def test_nothing_hashes_to_nothing(array: pa.Array, name: str) -> None:
    for values in (array, pa.chunked_array([array]), pa.chunked_array([], array.type)):
        found = hash_arrow(values, Encoding.parse(name))
        assert (found.size, found.dtype) == (0, np.uint64)
        assert theta_hashes(values, "int").size == 0


REFUSED = [
    (pa.array([True]), "boolean"),
    (pa.array([1.5], pa.float16()), "float16"),
    (pa.array([1], pa.timestamp("ns")), "int96"),
    (pa.array([1], pa.time64("ns")), "int64/time-ns"),
    (pa.array([Decimal("1.5")]), "byte_array/decimal:1"),
    (pa.array([b"x" * 12], pa.binary(12)), "interval"),
    (pa.array([1.5]), "int32"),
    (pa.array([2**40]), "int32"),
    (pa.array([-1]), "uint32"),
    (pa.array([0.1]), "float"),
    (pa.array([1.5], pa.float16()), "byte_array"),
    (pa.array([1]), "byte_array"),
    (pa.array(["a"]), "int32"),
    (pa.array(["a"]), "flba:1"),
    (pa.array([b"ab"], pa.binary(2)), "flba:3"),
    (pa.array([1]), "flba:8"),
    (pa.array([Decimal("1.5")]), "int32/decimal:2"),
    (pa.array([1.5]), "int32/decimal:1"),
    (pa.array([Decimal("99999999.99")], pa.decimal128(10, 2)), "int32/decimal:2"),
    (pa.array([Decimal(10**20)], pa.decimal128(22, 1)), "int64/decimal:1"),
    # one value that does not fit among others that do
    (pa.array(dec("1.50", "99999999.99", "-0.01"), pa.decimal128(10, 2)), "int32/decimal:2"),
    (pa.array([Decimal(1), Decimal(10**20), Decimal(-1)], pa.decimal128(22, 1)), "int64/decimal:1"),
    (pa.array([Decimal(1), Decimal(2**39), Decimal(-1)], pa.decimal128(22, 1)), "flba:5/decimal:1"),
    (pa.array([1, 2**40, 3]), "int32"),
    (pa.array([Decimal(2**39)], pa.decimal128(22, 1)), "flba:5/decimal:1"),
    (pa.array([Decimal(10**40)], pa.decimal256(50, 1)), "flba:16/decimal:1"),
    (pa.array([1], pa.timestamp("ns")), "int64/timestamp-us"),
    (pa.array([2**62], pa.timestamp("s")), "int64/timestamp-ns"),
    (pa.array([1], pa.timestamp("us")), "int64"),
    (pa.array([[1]]), "int32"),
    (pa.array([{"a": 1}]), "int64"),
]


@pytest.mark.parametrize(("array", "name"), REFUSED, ids=str)
def test_what_is_not_in_the_encoding_is_refused(array: pa.Array, name: str) -> None:
    """Never cut to the width: a hash of other bytes would be a value that the filter denies."""
    with pytest.raises(UsageError):
        hash_arrow(array, Encoding.parse(name))


# --- twins --------------------------------------------------------------------------------------------------

ZEROS4, NAN4 = [b"\0" * 4, b"\0\0\0\x80"], b"\0\0\xc0\x7f"
ZEROS8, NAN8 = [b"\0" * 8, b"\0" * 7 + b"\x80"], b"\0" * 6 + b"\xf8\x7f"


@pytest.mark.parametrize(
    ("bits", "name", "zeros", "nan"),
    [(np.uint32, "float", ZEROS4, NAN4), (np.uint64, "double", ZEROS8, NAN8)],
)
def test_twins_of_zeros_and_nan(bits: Any, name: str, zeros: list[bytes], nan: bytes) -> None:
    encoding, width = Encoding.parse(name), len(nan)
    kind = pa.float32() if width == 4 else pa.float64()
    odd_nan = nan[:-2] + bytes([nan[-2] | 1, 0xFF])
    one = struct.pack("<f" if width == 4 else "<d", 1.0)

    def found(values: list[bytes], twins: bool) -> set[int]:
        array = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(b"".join(values))])
        by_arrow = hash_arrow(array, encoding, twins=twins).tolist()
        assert by_arrow == hash_plain_fixed(b"".join(values), len(values), encoding, twins=twins).tolist()
        return set(by_arrow)

    def hashes(*values: bytes) -> set[int]:
        return {xxh64_intdigest(v) for v in values}

    assert found([one], True) == hashes(one)
    for zero in zeros:
        assert found([one, zero], True) == hashes(one, *zeros)
        assert found([one, zero], False) == hashes(one, zero)
    assert found([odd_nan], True) == hashes(odd_nan, nan)
    assert found([one, odd_nan, one], True) == hashes(one, odd_nan, nan), "one NaN among numbers"
    assert found([odd_nan, one, zeros[1]], True) == hashes(odd_nan, one, nan, *zeros)
    assert found([odd_nan], False) == hashes(odd_nan)


def test_nulls_over_zeros_bring_no_twins() -> None:
    """Arrow leaves zeros under nulls; they are no values."""
    assert hash_arrow(pa.array([1.5, None]), Encoding.parse("double")).size == 1


def test_zeros_of_other_types_have_no_twins() -> None:
    for kind, name in [(pa.int32(), "int32"), (pa.int64(), "int64")]:
        assert hash_arrow(pa.array([0], kind), Encoding.parse(name)).size == 1


# --- PLAIN pages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["int32", "int64", "int96", "interval", "flba:5", "float16", "boolean"])
def test_plain_fixed_values(name: str) -> None:
    encoding = Encoding.parse(name)
    width = encoding.width or 0
    data = bytes(range(1, 3 * width + 1))
    wanted = [xxh64_intdigest(data[i : i + width]) for i in range(0, 3 * width, width)]
    assert hash_plain_fixed(data + b"more", 3, encoding).tolist() == wanted
    assert hash_plain_fixed(b"", 0, encoding).size == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=10))
def test_plain_byte_arrays(values: list[bytes]) -> None:
    """As a PLAIN page has them: each value behind its length in four bytes."""
    page = b"".join(len(v).to_bytes(4, "little") + v for v in values)
    lengths = np.array([len(v) for v in values], np.int64)
    starts = np.cumsum(lengths + 4) - lengths
    assert hash_plain_spans(page, starts, lengths).tolist() == [xxh64_intdigest(v) for v in values]


# --- sketches -----------------------------------------------------------------------------------------------

UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
SERIALIZED: list[tuple[str, pa.DataType, list[Any]]] = [
    ("boolean", pa.bool_(), [True, False]),
    ("int", pa.int32(), [1, -1, -(2**31)]),
    ("int", pa.int8(), [1, -1]),
    ("long", pa.int64(), [1, -1, -(2**63)]),
    ("long", pa.int32(), [1, -1]),
    ("float", pa.float32(), [1.5, 0.0, -0.0, math.inf]),
    ("double", pa.float64(), [0.1, 0.0, -0.0, -math.inf]),
    ("double", pa.float32(), [1.5]),
    ("date", pa.date32(), [0, -1]),
    ("time", pa.time64("us"), [0, 86_399_999_999]),
    ("timestamp", pa.timestamp("us"), [0, -1]),
    ("timestamptz", pa.timestamp("us", "UTC"), [0, -1]),
    ("timestamptz_ns", pa.timestamp("ns", "UTC"), [0, -1]),
    ("timestamp_ns", pa.timestamp("ns"), [0, -1]),
    ("string", pa.string(), ["a", "Łódź", "x" * 100]),
    ("string", pa.large_string(), ["a"]),
    ("string", pa.string_view(), ["a", "x" * 100]),
    ("binary", pa.binary(), [b"\0", b"ab"]),
    ("fixed[5]", pa.binary(5), [b"abcde"]),
    ("uuid", pa.uuid(), [UUID.bytes]),
    ("uuid", pa.binary(16), [UUID.bytes]),
    ("decimal(9, 2)", pa.decimal32(9, 2), dec("0.00", "1.27", "1.28", "-1.28", "-1.29", "9999999.99")),
    ("decimal(9, 2)", pa.decimal128(9, 2), dec("0.00", "1.27", "1.28", "-1.28", "-1.29", "9999999.99")),
    ("decimal(38, 10)", pa.decimal128(38, 10), dec("-0.0000000001", "9" * 28 + ".0000000005")),
    ("decimal(38, 2)", pa.decimal256(40, 2), dec("1.27", "-1.29")),
]


@pytest.mark.parametrize(("column", "kind", "values"), SERIALIZED, ids=str)
def test_sketches_hash_single_value_serialization(column: str, kind: pa.DataType, values: list[Any]) -> None:
    """pyiceberg serializes, mmh3 hashes: MurmurHash3 x64-128 of seed 9001, the first half shifted by one."""
    iceberg_type: Any = IcebergType.handle_primitive_type(column, lambda v: v)
    objects = [uuid.UUID(bytes=v) if column == "uuid" else v for v in values]
    with localcontext() as context:
        context.prec = 60  # pyiceberg's serialization rounds to the context's precision
        serialized = [to_bytes(iceberg_type, v) for v in objects]
    wanted = {mmh3.hash64(s, seed=9001, x64arch=True, signed=False)[0] >> 1 for s in serialized}
    assert len(wanted) == len(values)
    for shape, array in shapes(arrow_of(kind, values)):
        assert set(theta_hashes(array, column).tolist()) == wanted, shape


def test_sketches_skip_empty_strings_and_nulls() -> None:
    for kind, column in [(pa.string(), "string"), (pa.binary(), "binary"), (pa.string_view(), "string")]:
        assert theta_hashes(pa.array(["", None, "a"], pa.string()).cast(kind), column).size == 1


def test_sketches_take_floats_bit_by_bit() -> None:
    """As Spark's compute_table_stats does (tests/filters/test_theta_spark.py): no zero and no NaN is unified."""
    bits = np.array([0x7FC00000, 0xFFC00001, 0, 0x80000000], np.uint32)
    assert len(set(theta_hashes(pa.array(bits.view(np.float32)), "float").tolist())) == 4


@pytest.mark.parametrize(
    ("array", "column"),
    [
        (pa.array(["a"]), "int"),
        (pa.array([2**40]), "int"),
        (pa.array([1]), "string"),
        (pa.array([1]), "boolean"),
        (pa.array([1]), "variant"),
        (pa.array([1]), "decimal(9, 2)"),
        (pa.array([Decimal("1.5")]), "decimal(9, 2)"),
        (pa.array([1], pa.timestamp("ns")), "timestamp"),
        (pa.array([b"abcd"], pa.binary(4)), "uuid"),
        (pa.array([b"abcd"], pa.binary(4)), "fixed[5]"),
        (pa.array([0.1]), "float"),
    ],
    ids=str,
)
def test_sketches_refuse_what_is_not_of_the_column(array: pa.Array, column: str) -> None:
    with pytest.raises(UsageError):
        theta_hashes(array, column)


# --- cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "name", "bytes_a_value"),
    [
        (pa.array(np.arange(1_000_000)), "int64", 8),
        (pa.array(np.arange(1_000_000)).slice(10, 900_000), "int64", 8),
        (pa.array(["some text"] * 300_000), "byte_array", 8 + 3 * 8),
    ],
    ids=["int64", "sliced", "string"],
)
def test_columns_are_hashed_where_they_lie(array: pa.Array, name: str, bytes_a_value: int) -> None:
    """Nothing is allocated but the hashes, and for strings where each value lies."""
    hash_arrow(array.slice(0, 10), Encoding.parse(name))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        hash_arrow(array, Encoding.parse(name))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() == before
    assert peak < len(array) * bytes_a_value * 1.1 + 100_000
