"""Frames of both codecs, ours and foreign: exactly one, with its content size, bounded."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import lz4.frame
import pytest
import xxhash
import zstandard

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError, located
from sidecar.puffin.codecs import compress, decompress
from tests.puffin.lz4_files import lz4_frame

CONTENTS = [b"", b"a", b"content " * 50, bytes(range(256)) * 5_000]
CODECS = ["zstd", "lz4"]


def unpack(codec: str | None, data: bytes, limit: int = 1 << 24) -> bytes:
    with located("file.stats", offset=4):
        return decompress(codec, data, limit)


def pack(codec: str, content: bytes) -> bytes:
    """A frame of ours, or one of LZ4, which we do not write."""
    return lz4_frame(content) if codec == "lz4" else compress(codec, memoryview(content))


@pytest.mark.parametrize("content", CONTENTS, ids=len)
@pytest.mark.parametrize("codec", CODECS)
def test_frames_come_back(codec: str, content: bytes) -> None:
    assert unpack(codec, pack(codec, content)) == content


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_frames_of_ours_are_read_by_the_libraries_and_state_content_size_and_checksum(content: bytes) -> None:
    frame = pack("zstd", content)
    header = zstandard.get_frame_parameters(frame)
    assert (header.content_size, header.has_checksum) == (len(content), True)
    assert zstandard.ZstdDecompressor().decompress(frame) == content
    frame = pack("lz4", content)
    assert frame[4] & 0x0C == 0x0C
    assert int.from_bytes(frame[6:14], "little") == len(content)
    assert lz4.frame.decompress(frame) == content


def test_the_lz4_frame_of_no_content_is_what_the_format_says() -> None:
    descriptor = bytes([0x4C, 0x40]) + bytes(8)
    checksum = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    end = bytes(4) + xxhash.xxh32_intdigest(b"").to_bytes(4, "little")
    assert pack("lz4", b"") == bytes.fromhex("04224d18") + descriptor + bytes([checksum]) + end


@pytest.mark.parametrize("content", CONTENTS[1:], ids=len)
def test_frames_of_the_libraries_are_read(content: bytes) -> None:
    for level in (1, 3, 19):
        for checksum in (False, True):
            made = zstandard.ZstdCompressor(level=level, write_checksum=checksum)
            assert unpack("zstd", made.compress(content)) == content
    for linked in (False, True):
        for checksum in (False, True):
            frame = lz4.frame.compress(
                content,
                block_linked=linked,
                block_checksum=checksum,
                content_checksum=checksum,
                store_size=True,
            )
            assert unpack("lz4", frame) == content


def test_hand_made_frames_are_read() -> None:
    # zstd: magic, single segment with 1 byte of content size, one last raw block; and one run.
    assert unpack("zstd", bytes.fromhex("28b52ffd 20 03 190000 616263")) == b"abc"
    assert unpack("zstd", bytes.fromhex("28b52ffd 20 05 2b0000 7a")) == b"zzzzz"
    # LZ4: magic, FLG with content size, BD, size, header checksum, one stored block, end mark.
    descriptor = bytes([0x68, 0x40]) + (3).to_bytes(8, "little")
    checksum = bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF])
    block = (3 | 1 << 31).to_bytes(4, "little") + b"abc"
    assert unpack("lz4", bytes.fromhex("04224d18") + descriptor + checksum + block + bytes(4)) == b"abc"


def without_content_size(codec: str, content: bytes) -> bytes:
    if codec == "zstd":
        return zstandard.ZstdCompressor(write_content_size=False).compress(content)
    return lz4.frame.compress(content, store_size=False)


def skippable(content: bytes) -> bytes:
    return bytes.fromhex("502a4d18") + len(content).to_bytes(4, "little") + content


@pytest.mark.parametrize("codec", CODECS)
def test_all_but_exactly_one_frame_with_its_content_size_is_damage(codec: str) -> None:
    frame, other = pack(codec, b"first " * 20), pack(codec, b"second")
    wrong = {
        "nothing": b"",
        "a plain blob": b"first " * 20,
        "a second frame": frame + other,
        "an empty second frame": frame + pack(codec, b""),
        "after an empty frame": pack(codec, b"") + b"x",
        "an empty frame after an empty one": pack(codec, b"") * 2,
        "a byte more": frame + b"\0",
        "a byte less": frame[:-1],
        "a skippable frame before": skippable(b"abc") + frame,
        "a skippable frame after": frame + skippable(b""),
        "a skippable frame": skippable(b""),
        "no content size": without_content_size(codec, b"first " * 20),
        "the other codec": pack("lz4" if codec == "zstd" else "zstd", b"first"),
    }
    for name, data in wrong.items():
        with pytest.raises(DamagedFileError, match=f"not one {codec} frame") as caught:
            unpack(codec, data)
        assert (caught.value.file, caught.value.offset) == ("file.stats", 4), name


@pytest.mark.parametrize("content", [b"", b"content " * 50])
@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_and_every_bit_flip_of_a_frame_is_noticed(codec: str, content: bytes) -> None:
    frame = pack(codec, content)
    for length in range(len(frame)):
        with pytest.raises(DamagedFileError):
            unpack(codec, frame[:length])
    for bit in range(len(frame) * 8):
        broken = bytearray(frame)
        broken[bit >> 3] ^= 1 << (bit & 7)
        # A flipped bit of the header may be another way to frame the same content (unused bits of zstd).
        with suppress(SidecarError):
            assert unpack(codec, bytes(broken)) == content


@pytest.mark.parametrize("codec", CODECS)
def test_content_beyond_the_limit_takes_no_memory(codec: str) -> None:
    content = bytes(50_000_000)
    frame = pack(codec, content)
    assert len(frame) < 300_000
    assert unpack(codec, frame, limit=len(content)) == content
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedFeatureError, match="larger than the limit"):
            unpack(codec, frame, limit=len(content) - 1)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_claimed_content_size_is_checked_before_memory_is_taken() -> None:
    frame = bytearray(pack("lz4", b"content"))
    frame[6:14] = (1 << 23).to_bytes(8, "little")
    frame[14] = xxhash.xxh32_intdigest(bytes(frame[4:14])) >> 8 & 0xFF
    with pytest.raises(DamagedFileError, match="the content size 8388608 is impossible for"):
        unpack("lz4", bytes(frame))
    # zstd: single segment, 8 bytes of content size.
    frame = bytearray(bytes.fromhex("28b52ffd e0") + (1 << 63).to_bytes(8, "little") + bytes.fromhex("190000616263"))
    with pytest.raises(UnsupportedFeatureError, match="larger than the limit"):
        unpack("zstd", bytes(frame))


@pytest.mark.parametrize("codec", CODECS)
def test_a_frame_without_content_size_is_told_apart(codec: str) -> None:
    with pytest.raises(DamagedFileError, match="no content size"):
        unpack(codec, without_content_size(codec, b"first " * 20))


@pytest.mark.parametrize("linked", [False, True])
def test_no_other_flag_of_an_lz4_frame_stands_for_its_content_size(linked: bool) -> None:
    content = b"first " * 20
    frame = lz4.frame.compress(
        content, block_linked=linked, block_checksum=True, content_checksum=True, store_size=False
    )
    assert lz4.frame.decompress(frame) == content
    with pytest.raises(DamagedFileError, match="no content size"):
        unpack("lz4", frame)


def test_a_frame_that_says_it_is_empty_and_is_not_is_damage() -> None:
    # zstd: 4 bytes of content size (0), a window of 1 KiB, one raw block of 3 bytes.
    with pytest.raises(DamagedFileError, match="not one zstd frame"):
        unpack("zstd", bytes.fromhex("28b52ffd 80 00 00000000 190000 616263"))
    # LZ4: to the library a content size of 0 is one that is not stated.
    descriptor = bytes([0x68, 0x40]) + bytes(8)
    checksum = bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF])
    block = (1 | 1 << 31).to_bytes(4, "little") + b"a"
    with pytest.raises(DamagedFileError, match="1 bytes instead of the stated 0"):
        unpack("lz4", bytes.fromhex("04224d18") + descriptor + checksum + block + bytes(4))


@pytest.mark.parametrize("claimed", [0, 2, 4, 255])
def test_a_wrong_content_size_is_damage(claimed: int) -> None:
    with pytest.raises(DamagedFileError):
        unpack("zstd", bytes.fromhex("28b52ffd 20") + bytes([claimed]) + bytes.fromhex("190000 616263"))
    descriptor = bytes([0x68, 0x40]) + claimed.to_bytes(8, "little")
    checksum = bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF])
    block = (3 | 1 << 31).to_bytes(4, "little") + b"abc"
    with pytest.raises(DamagedFileError):
        unpack("lz4", bytes.fromhex("04224d18") + descriptor + checksum + block + bytes(4))


def test_no_codec_is_no_change_and_other_codecs_are_unknown() -> None:
    assert unpack(None, b"abc") == b"abc"
    for codec in ("", "ZSTD", "snappy", "gzip"):
        with pytest.raises(UnsupportedFeatureError, match="unknown compression codec"):
            unpack(codec, pack("zstd", b"abc"))
        with pytest.raises(UsageError, match="unknown compression codec"):
            compress(codec, memoryview(b"abc"))
