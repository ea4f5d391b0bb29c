"""Arrow arrays of every type to hashes of ORC keys, beside each key hashed alone."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sidecar.errors import UsageError
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.key_hash import hash_bytes, hash_long
from sidecar.filters.orc.values import decimal_text

PAYLOAD_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def dec(*values: str) -> list[Decimal]:
    return [Decimal(v) for v in values]


CPP = "orc/timestamp:c++:UTC"
ZONE = "orc/timestamp:java:America/Los_Angeles"
ARRAYS: list[tuple[pa.DataType, str, list[Any], list[int | bytes]]] = [
    # Arrow type, encoding, values, keys as the file's writer makes them
    (pa.int8(), "orc/long", [1, -128], [1, -128]),
    (pa.int16(), "orc/long", [1, -(2**15)], [1, -(2**15)]),
    (pa.int32(), "orc/long", [1, -(2**31)], [1, -(2**31)]),
    (pa.int64(), "orc/long", [1, -(2**63)], [1, -(2**63)]),
    (pa.time64("us"), "orc/long", [0, 5], [0, 5]),
    (pa.date32(), "orc/date", [0, -1], [0, -1]),
    (pa.float32(), "orc/float", [1.5, -math.inf], [bits(1.5), bits(-math.inf)]),
    (pa.float32(), "orc/float", [0.1], [bits(float(np.float32(0.1)))]),
    (pa.float64(), "orc/double", [0.1, -0.0, PAYLOAD_NAN], [bits(0.1), bits(-0.0), bits(PAYLOAD_NAN)]),
    (pa.string(), "orc/bytes", ["", "é", "12345678"], [b"", "é".encode(), b"12345678"]),
    (pa.large_string(), "orc/bytes", ["x"], [b"x"]),
    (pa.string_view(), "orc/bytes", ["x", "longer than twelve"], [b"x", b"longer than twelve"]),
    (pa.binary(), "orc/bytes", [b"", b"\xff"], [b"", b"\xff"]),
    (pa.binary(2), "orc/bytes", [b"ab"], [b"ab"]),
    (
        pa.string(),
        "orc/char:3",
        ["", "a", "日本語x", "𝄞𝄞𝄞𝄞"],
        [b"   ", b"a  ", "日本語".encode(), "𝄞𝄞𝄞".encode()],
    ),
    (pa.binary(), "orc/char:3", [b"a"], [b"a  "]),
    (pa.string(), "orc/varchar:3", ["", "a ", "日本語x"], [b"", b"a ", "日本語".encode()]),
    (
        pa.decimal128(10, 2),
        "orc/decimal:2",
        dec("1.50", "100.00", "-0.01", "0.00"),
        [b"1.5", b"100", b"-0.01", b"0"],
    ),
    (pa.decimal128(38, 38), "orc/decimal:38", dec("-1E-38"), [b"-0." + b"0" * 37 + b"1"]),
    (pa.decimal128(38, 0), "orc/decimal:0", dec("-" + "9" * 38), [b"-" + b"9" * 38]),
    (pa.decimal128(38, 18), "orc/decimal:18", dec("18446744073709551616.5"), [b"18446744073709551616.5"]),
    (pa.decimal128(18, 2), "orc/decimal64:2", dec("1.50", "-0.01"), [150, -1]),
    (pa.timestamp("s"), "orc/instant:java", [-1, 5], [-1000, 5000]),
    (pa.timestamp("ms", "UTC"), "orc/instant:java", [-1, 5], [-1, 5]),
    (pa.timestamp("us"), "orc/timestamp:java:UTC", [-1, 1_999, -1_000], [-1, 1, -1]),
    (pa.timestamp("ns"), "orc/timestamp:java:UTC", [-1, 1_999_999], [-1, 1]),
    (pa.timestamp("us"), ZONE, [1_999], [1]),
    (pa.timestamp("ns"), CPP, [-1, -1_999_999, -2_000_000, 1_999_999], [0, -1, -2, 1]),
    (pa.timestamp("us", "UTC"), "orc/instant:c++", [-1_001, 1_999], [-1, 1]),
]


def hashes_of(keys: list[Any]) -> list[int]:
    return [hash_bytes(key) if isinstance(key, bytes) else hash_long(key) for key in keys]


def array(kind: pa.DataType, values: list[Any]) -> Any:
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


@pytest.mark.parametrize(("kind", "name", "values", "keys"), ARRAYS, ids=str)
def test_each_value_is_hashed_by_its_key(kind: pa.DataType, name: str, values: Any, keys: Any) -> None:
    encoding, whole = OrcEncoding.parse(name), array(kind, values)
    expected = hashes_of(keys)
    assert hash_orc(whole, encoding, twins=False).tolist() == expected
    assert set(expected) <= set(hash_orc(whole, encoding).tolist())
    with_nulls = pa.concat_arrays([whole[:1], pa.nulls(3, kind), whole[1:]])
    assert hash_orc(with_nulls, encoding, twins=False).tolist() == expected
    padded = pa.concat_arrays([whole, pa.nulls(1, kind), whole, whole])[len(whole) + 1 : 2 * len(whole) + 1]
    assert hash_orc(padded, encoding, twins=False).tolist() == expected
    chunked = pa.chunked_array([whole[:1], whole[:0], pa.nulls(2, kind), whole[1:]], kind)
    assert hash_orc(chunked, encoding, twins=False).tolist() == expected
    if kind != pa.string_view():  # which Arrow does not encode
        twice = pa.concat_arrays([whole, whole]).dictionary_encode()
        assert set(hash_orc(twice, encoding, twins=False).tolist()) == set(expected)


@pytest.mark.parametrize("name", ["orc/long", "orc/bytes", "orc/decimal:2", "orc/instant:c++", "orc/char:3"])
def test_nothing_hashes_to_nothing(name: str) -> None:
    kinds: dict[str, Any] = {
        "orc/long": pa.int32(),
        "orc/decimal:2": pa.decimal128(9, 2),
        "orc/instant:c++": pa.timestamp("us"),
    }
    kind = kinds.get(name, pa.string())
    for nothing in (pa.array([], kind), pa.nulls(4, kind), pa.chunked_array([], kind)):
        out = hash_orc(nothing, OrcEncoding.parse(name))
        assert (out.dtype, len(out)) == (np.uint64, 0)


def test_twins_are_both_zeros_the_nan_that_readers_ask_for_and_both_milliseconds() -> None:
    double = OrcEncoding.parse("orc/double")
    assert set(hash_orc(pa.array([-0.0, 1.0]), double).tolist()) == set(hashes_of([0, bits(-0.0), bits(1.0)]))
    assert set(hash_orc(pa.array([PAYLOAD_NAN]), double).tolist()) == set(
        hashes_of([bits(PAYLOAD_NAN), bits(math.nan)])
    )
    assert len(hash_orc(pa.array([1.0]), double)) == 1
    times = pa.array([-1_001, 1_001, -2_000], pa.timestamp("us"))
    assert set(hash_orc(times, OrcEncoding.parse(CPP)).tolist()) == set(hashes_of([-1, -2, 1]))
    assert len(hash_orc(times, OrcEncoding.parse("orc/timestamp:java:UTC"))) == 3
    times = pa.array([-1_001, -5_001, 1_001, -9_999], pa.timestamp("us"))
    assert set(hash_orc(times, OrcEncoding.parse(CPP)).tolist()) == set(hashes_of([-1, -2, -5, -6, 1, -9, -10]))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pa.array(["a"]), "orc/ascii"),
        (pa.array(["a"]), "orc/long"),
        (pa.array([1]), "orc/bytes"),
        (pa.array([1]), "orc/char:8"),
        (pa.array([1]), "orc/date"),
        (pa.array([1.5]), "orc/float"),
        (pa.array([1]), "orc/double"),
        (pa.array([1]), "orc/instant:java"),
        (pa.array([1], pa.date32()), "orc/timestamp:java:UTC"),
        (pa.array([Decimal("1.5")]), "orc/decimal:2"),
        (pa.array([Decimal(10**20)], pa.decimal128(38, 0)), "orc/decimal64:0"),
        (pa.array([Decimal("1.5")], pa.decimal256(50, 1)), "orc/decimal:1"),
        (pa.array([b"\xff"]), "orc/char:8"),
        (pa.array([2**40]).cast(pa.timestamp("s")), "orc/date"),
        (pa.array([2**62], pa.timestamp("s")), "orc/instant:java"),
        (pa.array([True]), "orc/long"),
        (pa.array([2**63], pa.uint64()), "orc/long"),
    ],
)
def test_values_of_another_type_are_refused(values: Any, name: str) -> None:
    with pytest.raises(UsageError):
        hash_orc(values, OrcEncoding.parse(name))


@pytest.mark.parametrize("count", [1, 2, 16_383, 16_384, 16_385, 32_768, 32_769])
def test_the_last_decimal_of_a_column_is_hashed_wherever_a_step_ends(count: int) -> None:
    numbers = [Decimal(i).scaleb(-2) for i in range(count)]
    hashes = hash_orc(pa.array(numbers, pa.decimal128(9, 2)), OrcEncoding.parse("orc/decimal:2"))
    assert len(hashes) == count
    assert int(hashes[-1]) == hash_bytes(decimal_text(count - 1, 2))


def test_many_decimals_are_hashed_step_by_step() -> None:
    numbers = [Decimal(i).scaleb(-2) for i in range(-20_000, 20_000)]
    hashes = hash_orc(pa.array(numbers, pa.decimal128(9, 2)), OrcEncoding.parse("orc/decimal:2"))
    asked = [0, 1, 16_383, 16_384, 16_385, 20_000, 32_768, 39_999]
    assert [int(hashes[i]) for i in asked] == [hash_bytes(decimal_text(i - 20_000, 2)) for i in asked]
