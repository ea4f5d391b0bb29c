"""Files that the tests of this room share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.writer import PuffinWriter
from tests.puffin.lz4_files import add_lz4

DATA = Path(__file__).resolve().parents[1] / "data" / "puffin"
FIRST = b"abcdefghi"
SECOND = "some blob \0 binary data 🤯 that is not very very very very very very long, is it?".encode()


@pytest.fixture(scope="session")
def puffin_data() -> Path:
    assert len(list(DATA.glob("*.bin"))) == 3
    return DATA


@pytest.fixture(scope="session")
def sample_blobs() -> tuple[bytes, bytes]:
    """Contents of the two blobs of Iceberg's sample files."""
    return FIRST, SECOND


@pytest.fixture(scope="session")
def rich_file() -> bytes:
    """A small file with all that a file of ours can have: every codec, empty blobs, properties."""
    sink = io.BytesIO()
    writer = PuffinWriter(sink, created_by="test", properties={"größe": "1 µm 🤯"})
    for codec in (None, "zstd"):
        writer.add_blob("blob", [1, 2], -(2**63), 2**63 - 1, b"content " * 20, codec, {"ndv": "12"})
        writer.add_blob("empty", [], -1, -1, b"", codec)
    add_lz4(writer, "blob", [1, 2], -(2**63), 2**63 - 1, b"content " * 20, {"ndv": "12"})
    add_lz4(writer, "empty", [], -1, -1, b"")
    writer.finish()
    return sink.getvalue()


@pytest.fixture
def framed() -> Any:
    """Build a file by hand: ``framed(payload, flags=0, body=b"", length=None)``."""

    def build(payload: bytes, flags: int = 0, body: bytes = b"", length: int | None = None) -> bytes:
        size = len(payload) if length is None else length
        trailer = size.to_bytes(4, "little", signed=True) + flags.to_bytes(4, "little")
        return b"PFA1" + body + b"PFA1" + payload + trailer + b"PFA1"

    return build


@pytest.fixture(scope="session")
def plain_blob() -> BlobMetadata:
    return BlobMetadata("t", (1,), 2, 3, 4, 5)
