"""Orders of values and bounds that writers cut short."""

from __future__ import annotations

import random

import pytest

from sidecar.parquet.bounds import (
    IEEE_754_TOTAL_ORDER,
    Ordering,
    find_ordering,
    total_order,
    truncate_lower,
    truncate_upper,
)
from sidecar.questions.bounds import Unknown
from tests.parquet.page_index_cases import open_file


def test_orders_of_the_types() -> None:
    _, footer = open_file("rs60_v1_none_afterrg")
    kinds = {leaf.path: find_ordering(footer, leaf) for leaf in footer.columns}
    want = {
        "bool_opt": "boolean",
        "i32_opt": "signed",
        "u32": "unsigned",
        "u64": "unsigned",
        "i96": "int96",
        "f32_nan": "float",
        "f16": "float",
        "str": "bytes",
        "uuid": "bytes",
        "dec_flba": "decimal",
    }
    for path, kind in want.items():
        if path in kinds:
            found = kinds[path]
            assert isinstance(found, Ordering), (path, found)
            assert found.kind == kind, path
    assert isinstance(kinds["interval"], Unknown)


def test_total_order_is_that_of_ieee_754() -> None:
    floats = [
        "ffffffff",
        "ff800000",
        "bf800000",
        "80000001",
        "80000000",
        "00000000",
        "3f800000",
        "7f800000",
        "7fc00000",
    ]
    keys = [total_order(bytes.fromhex(text)[::-1]) for text in floats]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert Ordering("float", 4, IEEE_754_TOTAL_ORDER).key(b"\0\0\0\x80") == -1


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        (b"abc", b"abc", b"abc"),
        (b"abcde", b"abcd", b"abce"),
        ("abc€x".encode(), b"abc", b"abd"),
        ("ab\u007fdx".encode(), b"ab\x7fd", b"ab\x7fe"),
        ("abc\u007fx".encode(), b"abc\x7f", b"abd"),
        ("\U0010ffffx".encode(), "\U0010ffff".encode(), "\U0010ffffx".encode()),
        ("a\ud7ffbc".encode(), "a\ud7ff".encode(), "a\ue000".encode()),
        (b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff"),
        (b"a\xff\xff\xff\xff", b"a\xff\xff\xff", b"b"),
    ],
)
def test_truncated_bounds_are_outer_bounds(value: bytes, lower: bytes, upper: bytes) -> None:
    assert (truncate_lower(value, 4), truncate_upper(value, 4)) == (lower, upper)
    assert lower <= value <= upper


def test_lemma_truncation_holds_for_random_texts_and_bytes() -> None:
    random.seed(11)
    alphabet = "az\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
    for _ in range(3000):
        text = "".join(random.choices(alphabet, k=random.randrange(12)))
        for value in (text.encode(), random.choice([b"\xff", b"a"]) * random.randrange(9)):
            lower, upper = truncate_lower(value, 8), truncate_upper(value, 8)
            assert lower <= value <= upper
            assert len(lower) <= 8
            assert len(upper) <= 8 or upper == value
            if len(value) > 8 and value == text.encode():
                lower.decode()
                upper.decode()
