"""Puffin files shown and verified: what is wrong with their blobs, each by itself."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sidecar.errors import UnsupportedFeatureError
from sidecar.puffin import types
from sidecar.puffin.inspect import inspect_puffin, verify_puffin
from sidecar.storage.source import BytesSource
from tests.puffin.cases import BLOB, open_bytes


def test_inspect_shows_the_footer_under_its_own_names(rich_file: bytes) -> None:
    shown = inspect_puffin(BytesSource(rich_file, "file.stats")).to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["size"] == len(rich_file)
    blobs = shown["blobs"]
    assert isinstance(blobs, list)
    assert blobs[2] == {
        "type": "blob",
        "fields": [1, 2],
        "snapshot-id": -(2**63),
        "sequence-number": 2**63 - 1,
        "offset": 164,
        "length": blobs[2]["length"],
        "compression-codec": "zstd",
        "properties": {"ndv": "12"},
        "ours": False,
    }


def verify_blobs(framed: Callable[..., bytes], *blobs: dict[str, object]) -> list[dict[str, object]]:
    data = framed(json.dumps({"blobs": [BLOB | blob for blob in blobs]}).encode(), body=bytes(100))
    return verify_puffin(BytesSource(data, "file.stats"))


def test_verify_finds_overlaps_and_repeated_blobs(framed: Callable[..., bytes]) -> None:
    apart: list[dict[str, object]] = [
        {"offset": 14, "length": 10},
        {"offset": 4, "length": 10},
        {"offset": 60, "length": 4},
    ]
    assert verify_blobs(framed, *apart) == []
    assert verify_blobs(framed, *apart, {"offset": 14, "length": 0}) == []
    assert len(verify_blobs(framed, *apart, apart[0])) == 1
    assert len(verify_blobs(framed, *apart, {"offset": 23, "length": 37})) == 1
    # The long one covers two that do not touch each other.
    assert len(verify_blobs(framed, {"offset": 4, "length": 100}, *apart)) == 3


def test_verify_finds_two_thetas_of_a_field(framed: Callable[..., bytes]) -> None:
    theta = {"type": types.THETA}
    assert verify_blobs(framed, theta, theta | {"fields": [2]}) == []
    problems = verify_blobs(framed, theta, theta)
    assert [p.problem for p in problems] == ["2 theta sketches for fields [1]"]
    assert verify_blobs(framed, {"type": types.UNITS}, {"type": types.UNITS}) == []


def test_verify_decompresses_what_is_compressed(rich_file: bytes) -> None:
    reader = open_bytes(rich_file)
    assert verify_puffin(BytesSource(rich_file)) == []
    for blob in reader.metadata.blobs[2:]:
        last = blob.offset + blob.length - 1
        broken = rich_file[:last] + bytes([rich_file[last] ^ 1]) + rich_file[last + 1 :]
        assert [p.offset for p in verify_puffin(BytesSource(broken))] == [blob.offset]
    limited = verify_puffin(BytesSource(rich_file), limit=100)
    assert ["larger than the limit" in str(p.problem) for p in limited] == [True, True]


def test_an_unknown_codec_is_a_problem_of_its_blob_alone(framed: Callable[..., bytes]) -> None:
    data = framed(
        json.dumps({"blobs": [BLOB | {"compression-codec": "brotli", "length": 5}, BLOB]}).encode(),
        body=b"12345",
    )
    reader = open_bytes(data)
    unknown, plain = reader.metadata.blobs
    with pytest.raises(UnsupportedFeatureError, match=r"unknown compression codec.*brotli"):
        reader.read_blob(unknown)
    assert (reader.read_raw(unknown), reader.read_blob(plain)) == (b"12345", b"")
    assert len(verify_puffin(reader.source)) == 1
