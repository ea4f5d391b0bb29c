"""The generic field tree: other writers' footers come back byte for byte, and any bytes give a value or our error."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError
from sidecar.parquet.thrift import (
    BINARY,
    BOOL,
    BOOL_FALSE,
    BYTE,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    STRUCT,
    UUID,
    Entries,
    Items,
    Struct,
    TruncatedError,
    decode_struct,
    encode_struct,
)

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
PLAIN_FOOTERS = [
    path
    for path in sorted(DATA.rglob("*.parquet*"))
    if path.read_bytes()[-4:] == b"PAR1"  # an encrypted footer is not Thrift
]


def footer_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def test_there_are_footers() -> None:
    assert len(PLAIN_FOOTERS) >= 45


@pytest.mark.parametrize("path", PLAIN_FOOTERS, ids=lambda path: path.name)
def test_footers_of_every_writer_encode_to_their_own_bytes(path: Path) -> None:
    data = footer_bytes(path)
    value, end = decode_struct(data)
    assert encode_struct(value) == data[:end]
    assert len(data) - end in (0, 28)  # 28: the signature of a plaintext footer


def test_every_type_survives() -> None:
    value = Struct(
        {
            1: (BOOL, True),
            2: (BOOL, False),
            3: (BYTE, -128),
            4: (I16, -32768),
            5: (I32, 2**31 - 1),
            21: (I64, -(2**63)),
            300: (DOUBLE, b"\x01\x00\x00\x00\x00\x00\xf4\x7f"),
            7: (BINARY, b"bytes"),  # ids may go backwards
            8: (LIST, Items(I32, list(range(-20, 20)))),
            9: (LIST, Items(BOOL_FALSE, [1, 0, 2])),
            10: (MAP, Entries(BINARY, STRUCT, [(b"k", Struct({1: (UUID, bytes(16))}))])),
            11: (MAP, Entries(0, 0, [])),
            12: (STRUCT, Struct()),
        }
    )
    data = encode_struct(value)
    assert decode_struct(data) == (value, len(data))
    assert decode_struct(b"xx" + data + b"yy", 2) == (value, len(data) + 2)


@pytest.mark.parametrize("element_type", [BOOL, BOOL_FALSE])
@pytest.mark.parametrize("false", [0, 2])
def test_booleans_in_lists_keep_the_bytes_of_their_writer(element_type: int, false: int) -> None:
    data = bytes([1 << 4 | LIST, 3 << 4 | element_type, 1, false, 1, 0])
    value, end = decode_struct(data)
    assert end == len(data)
    assert value.fields[1][1].values == [1, false, 1]
    assert encode_struct(value) == data


def test_the_getters_name_what_is_wrong() -> None:
    value = Struct({1: (I32, -1), 2: (BINARY, b"\xff"), 3: (LIST, Items(I32, [1]))})
    for call in (
        lambda: value.count(1, "rows"),
        lambda: value.count(2, "rows"),
        lambda: value.text(2),
        lambda: value.structs(3),
        lambda: value.need_integer(9, "rows"),
    ):
        with pytest.raises(DamagedFileError):
            call()
    assert value.integer(9) is value.binary(1) is value.integer(2) is value.struct(3) is value.structs(1) is None
    assert value.integers(3) == [1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x15",  # an integer is missing
        b"\x18\x05abc",  # five bytes are promised
        b"\x19\xf5\xff\xff\xff\xff\x07",  # two billion integers are promised
        b"\x1b\xff\xff\xff\xff\x07",  # and as many pairs
        b"\x17\x00",  # a double is short
    ],
)
def test_what_ends_early_is_told_apart(data: bytes) -> None:
    with pytest.raises(TruncatedError):
        decode_struct(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x1c" * 1000,  # structs inside each other
        b"\x19" + b"\x19" * 1000,  # lists inside each other
        b"\x16" + b"\xff" * 11 + b"\x00",  # more than 64 bits
        b"\x15\xff\xff\xff\xff\x1f\x00",  # more than 32 bits
        b"\x15\x02\x05\x02\x02\x00",  # field 1 twice
        b"\x1e\x00\x00",  # an unknown type
        b"\x10\x00\x00",  # a stop that carries an id
    ],
)
def test_what_cannot_be_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedFileError) as caught:
        decode_struct(data, base=1000)
    assert not isinstance(caught.value, TruncatedError)
    assert caught.value.offset is not None
    assert caught.value.offset >= 1000


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_our_error(data: bytes) -> None:
    with contextlib.suppress(DamagedFileError):
        value, end = decode_struct(data)
        again, _ = decode_struct(encode_struct(value))
        assert again == value
        assert end <= len(data)


def test_a_field_twice_is_reported_where_it_is() -> None:
    with pytest.raises(DamagedFileError, match="field 1 twice") as caught:
        decode_struct(bytes([0x15, 2, 0x15, 2, 0x05, 2, 2, 0]), base=100)
    assert caught.value.offset == 106
