"""The decoder of Avro values reads what pyiceberg's Python decoder reads, and ends where the bytes end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder

from sidecar.iceberg.bytes_decoder import BytesDecoder

Read = Callable[[BinaryDecoder], Any]


def zigzag(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def pairs(decoder: BinaryDecoder) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    decoder.read_int_bytes_dict(2, found)
    return found


READS: list[Read] = [
    lambda decoder: decoder.read_int(),
    lambda decoder: decoder.skip_int(),
    lambda decoder: decoder.read_ints(3),
    lambda decoder: decoder.read_bytes(),
    lambda decoder: decoder.read_double(),
    lambda decoder: decoder.read(2),
    lambda decoder: decoder.skip(3),
    pairs,
]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_numbers(first: int, second: int) -> None:
    data = zigzag(first) + zigzag(second)
    assert BytesDecoder(data).read_ints(2) == (first, second)
    decoder = BytesDecoder(data)
    assert (decoder.read_int(), decoder.read_int(), decoder.tell()) == (first, second, len(data))


@given(st.lists(st.sampled_from(READS), max_size=4), st.binary(max_size=60))
def test_any_bytes_are_read_as_pyiceberg_reads_them_or_refused(reads: list[Read], data: bytes) -> None:
    ours, theirs = BytesDecoder(data), StreamingBinaryDecoder(data)
    for read in reads:
        try:
            found = read(ours)
        except (EOFError, ValueError):
            return
        assert found == read(theirs)
        assert ours.tell() == theirs.tell() <= len(data)


@pytest.mark.parametrize("read", READS)
def test_each_truncation_is_an_error(read: Read) -> None:
    whole = b"".join([zigzag(1), zigzag(200), zigzag(2), b"b" * 300])
    length = BytesDecoder(whole)
    read(length)
    for end in range(length.tell()):
        with pytest.raises(EOFError):
            read(BytesDecoder(whole[:end]))


@pytest.mark.parametrize("data", [b"\x80" * 11, b"\xff" * 100])
def test_a_number_has_at_most_ten_bytes(data: bytes) -> None:
    with pytest.raises(ValueError, match="ten bytes"):
        BytesDecoder(data).read_int()


def test_a_negative_length_is_an_error() -> None:
    for read in (BytesDecoder.read_bytes, BytesDecoder.skip_bytes):
        with pytest.raises(EOFError):
            read(BytesDecoder(zigzag(-1) + b"abc"))
