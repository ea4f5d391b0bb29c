"""Values that are equal are never denied, whatever their bits and whatever type they were promoted from."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from tests.tables import new_catalog

I32 = 2**31
NAN = math.nan


FLOAT32 = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, math.inf, -math.inf, NAN]))
FLOAT64 = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.inf, -math.inf, NAN]))
NAN_BITS = st.integers(1, (1 << 22) - 1)


def held(array: pa.Array, encoding: str) -> SplitBlockBloomFilter:
    return SplitBlockBloomFilter.from_arrow(array, Encoding.parse(encoding), 0.001)


@settings(deadline=None, max_examples=60)
@given(st.lists(FLOAT32, min_size=1, max_size=20), st.sampled_from(["float", "double"]))
def test_equal_floats_are_never_denied(values: list[float], column: str) -> None:
    found = held(pa.array(values, pa.float32()), "float")
    for value in values:
        for equal in {value, -value} if value == 0 else {value}:
            assert found.might_contain(equal, column, Encoding.parse("float"))


@settings(deadline=None, max_examples=60)
@given(st.lists(FLOAT64, min_size=1, max_size=20))
def test_equal_doubles_are_never_denied(values: list[float]) -> None:
    found = held(pa.array(values, pa.float64()), "double")
    for value in values:
        for equal in {value, -value} if value == 0 else {value}:
            assert found.might_contain(equal, "double", Encoding.parse("double"))


@settings(deadline=None, max_examples=60)
@given(st.lists(NAN_BITS, min_size=1, max_size=5), st.booleans())
def test_nan_of_any_payload_brings_the_canonical_one(payloads: list[int], negative: bool) -> None:
    """Spark and parquet-java look for 0x7fc00000 and 0x7ff8000000000000 alone."""
    sign = 0x80000000 if negative else 0
    single = np.array([sign | 0x7F800000 | p for p in payloads], np.uint32).view(np.float32)
    double = np.array([sign << 32 | 0x7FF0000000000000 | p for p in payloads], np.uint64).view(np.float64)
    assert held(pa.array(single), "float").might_contain_hash(xxh64_intdigest(b"\x00\x00\xc0\x7f"))
    assert held(pa.array(double), "double").might_contain_hash(xxh64_intdigest(b"\x00" * 6 + b"\xf8\x7f"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-I32, I32 - 1), min_size=1, max_size=20))
def test_promoted_ints_are_never_denied(values: list[int]) -> None:
    found = held(pa.array(values, pa.int32()), "int32")
    for value in values:
        assert found.might_contain(value, "int", Encoding.parse("int32"))
        assert found.might_contain(value, "long", Encoding.parse("int32"))


WIDTHS = {
    "int32/decimal:2": 9,
    "int64/decimal:2": 18,
    "flba:5/decimal:2": 11,
    "flba:9/decimal:2": 20,
    "flba:16/decimal:2": 38,
    "flba:20/decimal:2": 38,
}


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from(sorted(WIDTHS)), st.sampled_from(["decimal(11, 2)", "decimal(38, 2)"]))
def test_equal_decimals_are_never_denied(data: Any, encoding: str, column: str) -> None:
    limit = 10 ** WIDTHS[encoding] - 1
    unscaled = data.draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=20))
    raw = b"".join(u.to_bytes(16, "little", signed=True) for u in unscaled)
    array = pa.Array.from_buffers(pa.decimal128(38, 2), len(unscaled), [None, pa.py_buffer(raw)])
    found = held(array, encoding)
    for u in unscaled:
        digits = tuple(int(d) for d in str(abs(u)))
        value = Decimal((int(u < 0), digits, -2))
        longer = Decimal((int(u < 0), (*digits, 0, 0), -4))
        assert found.might_contain(value, column, Encoding.parse(encoding))
        assert found.might_contain(longer, column, Encoding.parse(encoding))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.text(max_size=50), st.just("")), min_size=1, max_size=20))
def test_equal_strings_and_binaries_are_never_denied(values: list[str]) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()):
        found = held(pa.array(values, pa.string()).cast(kind), "byte_array")
        for value in values:
            assert found.might_contain(value, "string", Encoding.parse("byte_array"))
            assert found.might_contain(value.encode(), "binary", Encoding.parse("byte_array"))


def test_whatever_pyiceberg_finds_in_promoted_files_is_kept(tmp_path: Path) -> None:
    """pyiceberg rounds the values of an IN to the file's float32, and so finds 0.1 where 0.1f was written."""
    from pyiceberg.expressions import In
    from pyiceberg.types import DoubleType, LongType

    catalog = new_catalog(tmp_path, "c")
    rows = pa.table({"f": pa.array([0.1, 0.5, -0.0], pa.float32()), "i": pa.array([1, -2, 3], pa.int32())})
    table = catalog.create_table("db.t", rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        update.update_column("f", DoubleType())
        update.update_column("i", LongType())
    floats, ints = held(rows["f"], "float"), held(rows["i"], "int32")
    rounded = 0
    for number in (0.1, 0.25, 0.5, 0.0, -0.0, float(np.float32(0.1))):
        found = table.scan(row_filter=In("f", [number, 0.4])).to_arrow().num_rows
        rounded += bool(found and number == 0.1)
        assert floats.might_contain(number, "double", Encoding.parse("float")) or not found
    for whole in (1, 2, -2, 2**32 + 1):
        found = table.scan(row_filter=In("i", [whole, 2])).to_arrow().num_rows
        assert ints.might_contain(whole, "long", Encoding.parse("int32")) or not found
    assert rounded, "pyiceberg rounds no more: the rule for promoted floats may become cannot-exist"
