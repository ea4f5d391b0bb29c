"""Extremes of byte strings and of big-endian numbers, beside Python's own comparison."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.kernels.levels import row_extremes, span_extremes
from sidecar.kernels.rle import byte_array_spans


def plain(values: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(len(v).to_bytes(4, "little") + v for v in values), np.uint8)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=40))
def test_span_extremes(values: list[bytes]) -> None:
    data = plain(values)
    starts, lengths = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    assert byte_array_spans(data, len(values), starts, lengths)
    assert [bytes(data[s : s + n]) for s, n in zip(starts, lengths, strict=True)] == values
    low, high = span_extremes(data, starts, lengths)
    assert (values[low], values[high]) == (min(values), max(values))


@pytest.mark.parametrize("cut", [1, 4, 6, 7])
def test_spans_beyond_the_data_are_refused(cut: int) -> None:
    data = plain([b"abc", b"defg"])
    starts, lengths = np.empty(2, np.int64), np.empty(2, np.int64)
    assert byte_array_spans(data, 2, starts, lengths)
    assert not byte_array_spans(data[:-cut], 2, starts, lengths)
    assert not byte_array_spans(data, 3, np.empty(3, np.int64), np.empty(3, np.int64))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5, 7, 8, 9, 16, 20])
def test_extremes_of_few_rows_in_every_order(width: int, signed: bool) -> None:
    """Also where the first row is the highest, and one lower row stands in front of a middle one."""
    for numbers in permutations((-3, -2, 5, 9) if signed else (1, 3, 5, 9)):
        rows = b"".join(number.to_bytes(width, "big", signed=signed) for number in numbers)
        low, high = row_extremes(np.frombuffer(rows, np.uint8), width, len(numbers), signed)
        assert (numbers[low], numbers[high]) == (min(numbers), max(numbers)), numbers


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5, 7, 8, 9, 16, 20])
def test_row_extremes(width: int, signed: bool) -> None:
    random = np.random.default_rng(width)
    edges = [bytes(width), b"\xff" * width, b"\x80" + bytes(width - 1), b"\x7f" + b"\xff" * (width - 1)]
    for count in (1, 2, 3, 500):
        rows = [random.bytes(width) for _ in range(count)] + (edges if count > 2 else [])
        numbers = [int.from_bytes(row, "big", signed=signed) for row in rows]
        low, high = row_extremes(np.frombuffer(b"".join(rows), np.uint8), width, len(rows), signed)
        assert (numbers[low], numbers[high]) == (min(numbers), max(numbers))
