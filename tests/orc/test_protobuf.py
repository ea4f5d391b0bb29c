"""Protobuf as field lists, and compression chunks: exact, bounded, and our error for anything else."""

from __future__ import annotations

import contextlib
import random
import struct

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.orc import protobuf
from sidecar.orc.compression import compress, compress_parts, decompress_stream
from sidecar.orc.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Message,
    decode,
    encode,
    unpack,
    unzigzag,
)
from tests.orc.files import pack, zigzag

CODECS = ["ZLIB", "SNAPPY", "LZ4", "ZSTD", "BROTLI"]

numbers = st.integers(1, (1 << 29) - 1)
fields = st.one_of(
    st.tuples(numbers, st.just(VARINT), st.integers(0, (1 << 64) - 1)),
    st.tuples(numbers, st.just(FIXED64), st.integers(0, (1 << 64) - 1)),
    st.tuples(numbers, st.just(FIXED32), st.integers(0, (1 << 32) - 1)),
    st.tuples(numbers, st.just(BYTES), st.binary(max_size=200)),
)


@given(st.lists(fields, max_size=30))
def test_what_is_encoded_is_decoded(made: list[protobuf.Field]) -> None:
    message = Message(made)
    assert decode(encode(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_damage(data: bytes) -> None:
    try:
        message = decode(data)
    except DamagedFileError:
        return
    assert decode(encode(message)) == message


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_zigzag_of_every_signed_number(value: int) -> None:
    assert 0 <= zigzag(value) < 1 << 64
    assert unzigzag(zigzag(value)) == value


@given(st.lists(st.integers(0, (1 << 64) - 1)))
def test_packed_numbers(values: list[int]) -> None:
    assert unpack(pack(values)) == values
    packed, single = Message([(1, BYTES, pack(values))]), Message([(1, VARINT, value) for value in values])
    assert packed.repeated_varints(1) == single.repeated_varints(1) == values


def test_bytes_of_the_published_examples() -> None:
    """Those of protobuf's own documentation of its encoding."""
    assert decode(bytes.fromhex("089601")).varint(1) == 150
    assert decode(bytes.fromhex("120774657374696e67")).text(2) == "testing"
    inner = decode(bytes.fromhex("1a03089601")).message(3)
    assert inner is not None
    assert inner.varint(1) == 150
    assert decode(bytes.fromhex("3206038e029ea705")).repeated_varints(6) == [3, 270, 86942]


def test_of_a_field_given_twice_the_last_counts() -> None:
    assert decode(bytes.fromhex("08010802")).varint(1) == 2


def test_setting_keeps_the_place_and_all_other_fields() -> None:
    message = Message([(9, BYTES, b"unknown"), (2, VARINT, 1), (2, VARINT, 2), (77, FIXED64, 5)])
    message.set(2, 3)
    message.set(4, b"new")
    assert message.fields == [(9, BYTES, b"unknown"), (2, VARINT, 3), (77, FIXED64, 5), (4, BYTES, b"new")]
    message.set(2, None)
    message.set_all(9, [b"a", Message([(1, VARINT, 1)])])
    assert message.fields == [(9, BYTES, b"a"), (9, BYTES, b"\x08\x01"), (77, FIXED64, 5), (4, BYTES, b"new")]


def test_a_double_is_its_bits() -> None:
    data = b"\x09" + struct.pack("<d", -0.1)
    assert decode(data).double(1) == -0.1


@pytest.mark.parametrize(
    "data",
    ["08", "0a05616263", "0affffffffffffffffff01", "09aabb", "0d00", "0b", "0c", "0e", "0f", "00", "0800" "07",
     "08ffffffffffffffffffff01", "08ffffffffffffffffff7f"],
)  # fmt: skip
def test_bad_messages_are_damage(data: str) -> None:
    with pytest.raises(DamagedFileError):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize("getter", ["varint", "signed", "double", "bytes_", "text", "message", "messages", "texts"])
def test_another_wire_type_is_damage(getter: str) -> None:
    message = Message([(1, FIXED32, 1)])
    with pytest.raises(DamagedFileError, match="wire type"):
        getattr(message, getter)(1)
    with pytest.raises(DamagedFileError):
        Message([(1, FIXED32, 1)]).repeated_varints(1)
    with pytest.raises(DamagedFileError, match="UTF-8"):
        Message([(1, BYTES, b"\xff")]).text(1)


def test_fields_are_bounded() -> None:
    with pytest.raises(DamagedFileError, match="too many"):
        decode(b"\x08\x00" * (protobuf.MAX_FIELDS + 1))


# --- compression --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["NONE", *CODECS])
@pytest.mark.parametrize("block", [64, 1000, 1 << 18])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 10_000])
def test_what_is_compressed_is_decompressed(codec: str, block: int, size: int) -> None:
    noise = random.Random(size)
    for data in (bytes(size), noise.randbytes(size), (noise.randbytes(20) * size)[:size]):
        packed = compress(data, codec, block)
        assert decompress_stream(packed, codec, block) == data
        assert len(packed) <= len(data) + 3 * (len(data) // block + 1)


@pytest.mark.parametrize("codec", ["NONE", *CODECS])
def test_parts_are_compressed_as_if_they_were_joined(codec: str) -> None:
    """Blocks begin and end in parts; some shrink, and of others the parts themselves are returned."""
    noise = random.Random(7)
    parts = [noise.randbytes(size) if size % 2 else bytes(size) for size in (0, 5, 300, 64, 1, 129, 64, 128, 77)]
    chunks = compress_parts(parts, codec, 64)
    whole = b"".join(parts)
    assert b"".join(chunks) == compress(whole, codec, 64)
    assert decompress_stream(b"".join(chunks), codec, 64) == whole


@pytest.mark.parametrize("codec", ["NONE", *CODECS])
def test_content_is_put_behind_what_is_left_of_the_piece_before(codec: str) -> None:
    for size in (0, 10, 500):
        packed = compress(bytes(range(100)) * (size // 100) + bytes(size % 100), codec, 64)
        alone = bytes(decompress_stream(packed, codec, 64))
        assert bytes(decompress_stream(packed, codec, 64, before=b"rest")) == b"rest" + alone
        if size > 10:
            with pytest.raises(UnsupportedFeatureError, match="too large"):
                decompress_stream(packed, codec, 64, before=b"rest", limit=size - 1)


def test_original_and_compressed_chunks_may_be_mixed() -> None:
    packed = compress(bytes(100), "ZLIB", 100)
    assert decompress_stream(packed + b"\x07\x00\x00abc" + packed, "ZLIB", 100) == bytes(100) + b"abc" + bytes(100)


def test_lzo_is_named() -> None:
    with pytest.raises(UnsupportedFeatureError, match="LZO"):
        decompress_stream(b"\x02\x00\x00a", "LZO", 100)
    with pytest.raises(UnsupportedFeatureError, match="LZO"):
        compress(b"abc", "LZO", 100)


@pytest.mark.parametrize("codec", CODECS)
def test_content_beyond_the_block_size_is_damage(codec: str) -> None:
    packed = compress(bytes(1 << 20), codec, 1 << 20)
    with pytest.raises(DamagedFileError):
        decompress_stream(packed, codec, 1 << 16)


def test_a_chunk_longer_than_the_block_size_is_damage() -> None:
    with pytest.raises(DamagedFileError, match="longer than the block size"):
        decompress_stream((101 << 1 | 1).to_bytes(3, "little") + bytes(101), "ZLIB", 100)


@pytest.mark.parametrize("codec", CODECS)
def test_content_beyond_the_limit_is_refused(codec: str) -> None:
    packed = compress(bytes(1 << 20), codec, 1 << 16)
    with pytest.raises(UnsupportedFeatureError, match="too large"):
        decompress_stream(packed, codec, 1 << 16, limit=1 << 19)


def test_a_frame_may_not_state_more_than_it_may_have() -> None:
    """zstd allocates what the frame states, Snappy what the block states: neither is believed."""
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 20)))
    with pytest.raises(DamagedFileError):
        decompress_stream((len(frame) << 1).to_bytes(3, "little") + bytes(frame), "ZSTD", 1 << 10)
    with pytest.raises(DamagedFileError):
        decompress_stream(b"\x0a\x00\x00\xff\xff\xff\xff\x0f", "SNAPPY", 1 << 10)
    block = lz4.block.compress(bytes(1 << 20), store_size=False)
    with pytest.raises(DamagedFileError):
        decompress_stream((len(block) << 1).to_bytes(3, "little") + block, "LZ4", 1 << 10)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_chunks_give_bytes_or_our_error(codec: str) -> None:
    noise = random.Random(codec)
    content = (b"some text, and some more; " * 40)[:900]
    packed = compress(content, codec, 300)
    for _ in range(400):
        damaged = bytearray(packed)
        damaged[noise.randrange(len(damaged))] ^= 1 << noise.randrange(8)
        with contextlib.suppress(DamagedFileError, UnsupportedFeatureError):
            assert len(decompress_stream(bytes(damaged), codec, 300)) <= 300 * len(damaged)
    for end in range(len(packed)):
        with contextlib.suppress(DamagedFileError, UnsupportedFeatureError):
            assert len(decompress_stream(packed[:end], codec, 300)) <= len(content)
