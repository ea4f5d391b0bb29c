"""The table of value, bytes and hash: each pair (column type, encoding), each rule, and never a false negative."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import uuid
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.values import plain_forms, probe_hashes

UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
I32, I64 = 2**31, 2**63
NAN = math.nan

ENCODINGS = [
    "int32",
    "int64",
    "uint32",
    "uint64",
    "float",
    "double",
    "float16",
    "boolean",
    "int96",
    "interval",
    "int32/date",
    "int32/time-ms",
    "int64/time-us",
    "int64/time-ns",
    "int64/timestamp-ms",
    "int64/timestamp-us",
    "int64/timestamp-ns",
    "int32/decimal:2",
    "int64/decimal:2",
    "flba:16/decimal:2",
    "byte_array/decimal:2",
    "byte_array",
    "flba:16",
]

PROBES: list[tuple[str, str, Any, list[bytes]]] = [
    # column type, encoding, literal, every PLAIN form that is equal to it
    ("int", "int32", -5, [b"\xfb\xff\xff\xff"]),
    ("int", "int32", I32 - 1, [b"\xff\xff\xff\x7f"]),
    ("int", "int32", -I32, [b"\x00\x00\x00\x80"]),
    ("long", "int64", -5, [b"\xfb" + b"\xff" * 7]),
    ("long", "int64", -I64, [b"\x00" * 7 + b"\x80"]),
    ("long", "int32", -5, [b"\xfb\xff\xff\xff"]),
    ("long", "int32", I32 - 1, [b"\xff\xff\xff\x7f"]),
    ("int", "uint32", 1, [b"\x01\x00\x00\x00"]),
    ("long", "uint32", 2 * I32 - 1, [b"\xff" * 4]),
    ("long", "uint32", -1, [b"\xff" * 4]),
    ("long", "uint64", 1, [b"\x01" + b"\x00" * 7]),
    ("decimal(20, 0)", "uint64", Decimal(2 * I64 - 1), [b"\xff" * 8]),
    ("decimal(20, 0)", "uint64", 1, [b"\x01" + b"\x00" * 7]),
    ("date", "int32/date", 15452, [b"\x5c\x3c\x00\x00"]),
    ("date", "int32/date", -1, [b"\xff" * 4]),
    ("time", "int64/time-us", 1, [b"\x01" + b"\x00" * 7]),
    ("time", "int32/time-ms", 2000, [b"\x02\x00\x00\x00"]),
    ("timestamp", "int64/timestamp-us", -1, [b"\xff" * 8]),
    ("timestamptz", "int64/timestamp-us", 256, [b"\x00\x01" + b"\x00" * 6]),
    ("timestamp", "int64/timestamp-ms", -2000, [b"\xfe" + b"\xff" * 7]),
    ("timestamptz", "int64/timestamp-ms", 0, [b"\x00" * 8]),
    ("timestamp_ns", "int64/timestamp-ns", 1, [b"\x01" + b"\x00" * 7]),
    ("timestamptz_ns", "int64/timestamp-ns", -1, [b"\xff" * 8]),
    ("float", "float", 1.5, [b"\x00\x00\xc0\x3f"]),
    ("float", "float", 0.0, [b"\x00" * 4, b"\x00\x00\x00\x80"]),
    ("float", "float", -0.0, [b"\x00" * 4, b"\x00\x00\x00\x80"]),
    ("float", "float", -math.inf, [b"\x00\x00\x80\xff"]),
    ("double", "double", 0.1, [struct.pack("<d", 0.1)]),
    ("double", "double", -0.0, [b"\x00" * 8, b"\x00" * 7 + b"\x80"]),
    ("double", "double", 5e-324, [b"\x01" + b"\x00" * 7]),
    ("double", "float", 1.5, [b"\x00\x00\xc0\x3f"]),
    ("double", "float", 0.0, [b"\x00" * 4, b"\x00\x00\x00\x80"]),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("1.50"), [b"\x96\x00\x00\x00"]),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("1.5"), [b"\x96\x00\x00\x00"]),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("-0.00"), [b"\x00" * 4]),
    ("decimal(9,2)", "int32/decimal:2", Decimal("1.5000"), [b"\x96\x00\x00\x00"]),
    ("decimal(18, 2)", "int64/decimal:2", Decimal("-0.01"), [b"\xff" * 8]),
    ("decimal(18, 2)", "int32/decimal:2", Decimal("2E+1"), [b"\xd0\x07\x00\x00"]),
    ("decimal(38, 2)", "flba:16/decimal:2", Decimal("-0.02"), [b"\xff" * 15 + b"\xfe"]),
    ("decimal(38, 2)", "flba:5/decimal:2", Decimal("2.58"), [b"\x00\x00\x00\x01\x02"]),
    ("decimal(38, 0)", "flba:16/decimal:0", Decimal("9" * 38), [int("9" * 38).to_bytes(16, "big")]),
    ("decimal(38, 2)", "flba:20/decimal:2", Decimal("-0.01"), [b"\xff" * 20]),
    ("string", "byte_array", "Łódź", ["Łódź".encode()]),
    ("string", "byte_array", "", [b""]),
    ("binary", "byte_array", b"\x00\xff", [b"\x00\xff"]),
    ("fixed[5]", "flba:5", b"abcde", [b"abcde"]),
    ("uuid", "flba:16", UUID, [UUID.bytes]),
    ("uuid", "flba:16", UUID.bytes, [UUID.bytes]),
]


@pytest.mark.parametrize(("column", "name", "value", "forms"), PROBES, ids=str)
def test_certain_pairs_probe_every_equal_form(column: str, name: str, value: Any, forms: list[bytes]) -> None:
    probe = probe_hashes(value, column, Encoding.parse(name))
    assert probe.verdict == "probe"
    assert set(probe.hashes) == {xxh64_intdigest(form) for form in forms}
    assert sorted(plain_forms(value, column, Encoding.parse(name))) == sorted(forms)


CANNOT_EXIST = [
    ("long", "int32", I32),
    ("long", "int32", -I32 - 1),
    ("long", "int32", 2**40),
    ("long", "uint32", 2 * I32),
    ("long", "uint32", -I32 - 1),
    ("decimal(20, 0)", "uint64", Decimal(2 * I64)),
    ("decimal(18, 2)", "int32/decimal:2", Decimal("99999999.99")),
    ("decimal(38, 2)", "int64/decimal:2", Decimal(10**20)),
    ("decimal(38, 2)", "flba:5/decimal:2", Decimal(2**39)),
    ("time", "int32/time-ms", 1001),
    ("timestamp", "int64/timestamp-ms", -1),
]


@pytest.mark.parametrize(("column", "name", "value"), CANNOT_EXIST, ids=str)
def test_one_to_one_pairs_tell_what_cannot_exist(column: str, name: str, value: Any) -> None:
    probe = probe_hashes(value, column, Encoding.parse(name))
    assert (probe.verdict, probe.hashes) == ("cannot-exist", ())
    assert probe.reason
    assert not everything_and_nothing(0).might_contain(value, column, Encoding.parse(name))
    assert plain_forms(value, column, Encoding.parse(name)) == ()


UNKNOWN = [
    # NaN, and numbers that engines round differently
    ("float", "float", NAN),
    ("double", "double", NAN),
    ("double", "float", NAN),
    ("float", "float", 0.1),
    ("double", "float", 0.1),
    ("float", "float", 1e300),
    ("float", "float", 2**24 + 1),
    ("double", "double", 2**53 + 1),
    ("double", "double", 10**400),
    # encodings without a certain rule
    ("boolean", "boolean", True),
    ("int", "uint64", 1),
    ("date", "uint32", 1),
    ("int", "int64", 1),
    ("int", "int32/date", 1),
    ("date", "int32", 1),
    ("timestamp", "int64", 1),
    ("timestamp", "int64/timestamp-ns", 1000),
    ("timestamptz", "int96", 1000),
    ("timestamp", "int96", 1000),
    ("timestamp_ns", "int64/timestamp-us", 1000),
    ("time", "int64/time-ns", 1000),
    ("float", "double", 1.5),
    ("float", "float16", 1.5),
    ("double", "float16", 1.5),
    ("decimal(9, 2)", "byte_array/decimal:2", Decimal("1.50")),
    ("decimal(9, 2)", "int32/decimal:3", Decimal("1.50")),
    ("decimal(9, 2)", "int32", Decimal("1.50")),
    ("int", "int32/decimal:0", 1),
    ("string", "flba:3", "abc"),
    ("binary", "flba:3", b"abc"),
    ("fixed[3]", "byte_array", b"abc"),
    ("uuid", "byte_array", UUID),
    ("geometry", "byte_array", b"abc"),
    ("", "int32", 1),
    # literals that are none of the column
    ("int", "int32", True),
    ("int", "int32", 1.0),
    ("int", "int32", "1"),
    ("int", "int32", None),
    ("float", "float", True),
    ("float", "float", "1"),
    ("string", "byte_array", b"abc"),
    ("string", "byte_array", "\ud800"),
    ("binary", "byte_array", "abc"),
    ("fixed[5]", "flba:5", b"abcd"),
    ("uuid", "flba:16", str(UUID)),
    ("uuid", "flba:16", b"short"),
    ("decimal(9, 2)", "int32/decimal:2", 1.5),
    ("decimal(9, 2)", "int32/decimal:2", True),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("NaN")),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("Infinity")),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("1.505")),
    ("decimal(9, 2)", "int32/decimal:2", Decimal("1E+100000")),
]


def everything_and_nothing(word: int) -> SplitBlockBloomFilter:
    return SplitBlockBloomFilter(np.full((1, 8), word, np.uint32))


@pytest.mark.parametrize(("column", "name", "value"), UNKNOWN, ids=str)
def test_doubt_is_unknown_and_kept(column: str, name: str, value: Any) -> None:
    probe = probe_hashes(value, column, Encoding.parse(name))
    assert (probe.verdict, probe.hashes) == ("unknown", ())
    assert probe.reason
    assert everything_and_nothing(0).might_contain(value, column, Encoding.parse(name))


def test_every_pair_that_is_not_listed_is_unknown() -> None:
    """A new type or encoding must be listed before it prunes anything."""
    listed = {(column, name) for column, name, *_ in [*PROBES, *CANNOT_EXIST]}
    literals = {
        "boolean": True, "int": 1, "long": 1, "float": 1.5, "double": 1.5, "date": 1, "time": 1000,
        "timestamp": 1000, "timestamptz": 1000, "timestamp_ns": 1000, "timestamptz_ns": 1000, "string": "a" * 16,
        "uuid": UUID, "fixed[16]": b"a" * 16, "binary": b"a" * 16, "decimal(9, 2)": Decimal("1.50"), "variant": 1,
    }  # fmt: skip
    same = {"fixed[16]": "fixed[5]"}
    certain = set()
    for column, value in literals.items():
        for name in ENCODINGS:
            if probe_hashes(value, column, Encoding.parse(name)).verdict != "unknown":
                certain.add((column, name))
    known = listed | {("fixed[16]", "flba:16")} | {("decimal(9, 2)", f"{e}/decimal:2") for e in ("int64", "flba:16")}
    assert same["fixed[16]"] in {column for column, _ in listed}
    assert certain == {pair for pair in known if pair[0] in literals and pair[1] in ENCODINGS}


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27))
def test_decimals_are_exact_under_any_context(value: Decimal) -> None:
    with localcontext() as context:
        context.prec = 3
        (data,) = plain_forms(value, "decimal(38, 10)", Encoding.parse("flba:16/decimal:10"))
    sign, digits, exponent = value.as_tuple()
    magnitude = int("".join(map(str, digits))) * 10 ** (int(exponent) + 10)
    assert int.from_bytes(data, "big", signed=True) == (-magnitude if sign else magnitude)


COLUMN_TYPES = [
    *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz_ns"),
    *("string", "binary", "fixed[16]", "uuid", "decimal(9, 2)", "decimal(38, 0)", "struct", ""),
]


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.decimals(),
        st.uuids(),
    ),
    st.sampled_from(COLUMN_TYPES),
    st.sampled_from(ENCODINGS),
)
def test_no_literal_raises(value: Any, column: str, name: str) -> None:
    probe = probe_hashes(value, column, Encoding.parse(name))
    assert (probe.verdict == "probe") == bool(probe.hashes)


# --- encodings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODINGS)
def test_encoding_names_come_back(name: str) -> None:
    encoding = Encoding.parse(name)
    assert encoding.name == str(encoding) == name
    assert encoding == Encoding.parse(name)
    assert encoding.is_decimal == ("decimal" in name)


@pytest.mark.parametrize("name", ["", "int", "int8", "INT32", "flba", "flba:0", "flba:01", "int32/decimal", " int32"])
@pytest.mark.parametrize("suffix", ["", "\n", "x"])
def test_unknown_encodings_are_refused(name: str, suffix: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="unknown encoding"):
        Encoding.parse(name + suffix)


def test_what_is_not_indexed_says_why() -> None:
    refused = {name for name in ENCODINGS if Encoding.parse(name).not_indexable}
    assert refused == {"boolean", "float16", "int64/time-ns", "int96", "interval", "byte_array/decimal:2"}


# --- planning compiles nothing ------------------------------------------------------------------------------


def test_probing_imports_no_compiler() -> None:
    script = """
import sys
import numpy as np
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.values import probe_hashes
found = SplitBlockBloomFilter.from_bytes(bytes(64))
assert not found.might_contain(5, "int", Encoding.parse("int32"))
found.estimated_fpp(), found.fill()
import sidecar.filters.theta, sidecar.filters.array_hash, sidecar.filters.sizing
sidecar.filters.theta.ThetaSketch().to_bytes()
assert not {"numba", "llvmlite", "sidecar.kernels"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
