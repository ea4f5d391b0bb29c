"""Blocks of Avro files: what pyiceberg's codecs make of them, and no more than a limit."""

from __future__ import annotations

import bz2
import tracemalloc

import pytest
import zstandard
from pyiceberg.avro.codecs import KNOWN_CODECS

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.iceberg import bytes_decoder
from sidecar.iceberg.bytes_decoder import BlockReader

PLAIN = bytes(range(256)) * 40
CODECS = ["deflate", "bzip2", "zstandard"]


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_are_those_of_pyiceberg(codec: str) -> None:
    known = KNOWN_CODECS[codec]  # type: ignore[index]
    assert known is not None
    assert BlockReader(codec, 10).read(known.compress(PLAIN)[0]) == PLAIN
    assert BlockReader("null", 10).read(PLAIN) == PLAIN


def test_both_streams_of_a_block_are_read() -> None:
    assert BlockReader("bzip2", 10).read(bz2.compress(b"a") + bz2.compress(b"b")) == b"ab"


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_that_say_they_are_huge_take_no_memory(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_decoder, "LEAST_LIMIT", 1 << 20)
    known = KNOWN_CODECS[codec]  # type: ignore[index]
    assert known is not None
    block = known.compress(bytes(32 << 20))[0]
    tracemalloc.start()
    with pytest.raises(DamagedFileError, match="too long"):
        BlockReader(codec, 10).read(block)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_the_limit_is_of_all_blocks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_decoder, "LEAST_LIMIT", 1000)
    blocks, block = BlockReader("zstandard", 10), zstandard.compress(bytes(400))
    assert len(blocks.read(block) + blocks.read(block)) == 800
    with pytest.raises(DamagedFileError, match="at most 1,000 bytes"):
        blocks.read(block)


def test_a_snappy_block_is_refused_by_the_length_that_it_states() -> None:
    with pytest.raises(DamagedFileError, match="too long"):
        BlockReader("snappy", 10).read(b"\xff\xff\xff\xff\x0f" + bytes(8))


def test_damaged_and_unknown_blocks_are_errors() -> None:
    known = KNOWN_CODECS["deflate"]
    assert known is not None
    with pytest.raises(DamagedFileError, match="ends early"):
        BlockReader("deflate", 10).read(known.compress(PLAIN)[0][:-20])
    with pytest.raises(UnsupportedFeatureError, match="does not know"):
        BlockReader("lzma", 10)
