"""The JSON of footers: values that are wrong are damage, values that are unknown are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.errors import DamagedFileError, located
from sidecar.puffin.metadata import MAX_NESTING, FileMetadata, decode_metadata, encode_metadata
from tests.puffin.cases import BLOB, open_bytes


def decode(document: object) -> FileMetadata:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    with located("file.stats", offset=8):
        return decode_metadata(payload)


def test_metadata_of_icebergs_writer_is_encoded_byte_for_byte(puffin_data: Path) -> None:
    for path in puffin_data.glob("*.bin"):
        data = path.read_bytes()
        reader = open_bytes(data)
        assert encode_metadata(reader.metadata) == data[reader.footer_offset + 4 : -12]


@pytest.mark.parametrize(
    "change",
    [
        {"type": None},
        {"type": 1},
        {"type": ["t"]},
        {"type": "\ud800"},
        {"fields": None},
        {"fields": 1},
        {"fields": "1"},
        {"fields": {"1": 1}},
        {"fields": [1.0]},
        {"fields": [True]},
        {"fields": ["1"]},
        {"fields": [2**31]},
        {"fields": [-(2**31) - 1]},
        {"snapshot-id": 2.0},
        {"snapshot-id": True},
        {"snapshot-id": "2"},
        {"snapshot-id": None},
        {"snapshot-id": 2**63},
        {"snapshot-id": -(2**63) - 1},
        {"sequence-number": 1e3},
        {"sequence-number": 2**63},
        {"sequence-number": 10**4000},
        {"offset": -1},
        {"offset": 4.0},
        {"offset": 2**63},
        {"length": -1},
        {"length": False},
        {"length": 2**64},
        {"compression-codec": 1},
        {"compression-codec": ["zstd"]},
        {"properties": None},
        {"properties": ["a"]},
        {"properties": {"a": 1}},
        {"properties": {"a": None}},
        {"properties": {"a": "\udfff"}},
        {"properties": {"\ud800\u0041": "a"}},
        {"unknown": "\ud800"},
        {"unknown": [[{"\ud800": 1}]]},
        {"unknown": 10**20},
    ],
    ids=lambda change: f"{next(iter(change))}={str(next(iter(change.values())))[:20]!a}",
)
def test_wrong_values_of_a_blob_are_damage(change: dict[str, object]) -> None:
    with pytest.raises(DamagedFileError) as caught:
        decode({"blobs": [BLOB | change]})
    assert (caught.value.file, caught.value.offset) == ("file.stats", 8)
    assert caught.value.expected is not None
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("key", BLOB)
def test_a_missing_key_of_a_blob_is_damage(key: str) -> None:
    with pytest.raises(DamagedFileError, match=f"does not have a required key.*{key}"):
        decode({"blobs": [{k: v for k, v in BLOB.items() if k != key}]})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"blobs"',
        b"{}",
        b'{"blobs":null}',
        b'{"blobs":{}}',
        b'{"blobs":[null]}',
        b'{"blobs":[[]]}',
        b'{"blobs":[]',
        b'{"blobs":[]}x',
        b'{"blobs":[]}{"blobs":[]}',
        b'{"blobs":[],"blobs":[]}',
        b'{"blobs":[],"properties":{"a":"1","a":"1"}}',
        b'{"blobs":[],"x":{"y":[{"a":1,"a":2}]}}',
        b'{"blobs":[],"properties":[]}',
        b'{"blobs":[],"x":NaN}',
        b'{"blobs":[],"x":-Infinity}',
        b'{"blobs":[],"x":1e999}',
        b'{"blobs":[],"x":' + b"9" * 100_000 + b"}",
        b'\xef\xbb\xbf{"blobs":[]}',
        b'{"blobs":[],"x":"\xff"}',
        b'{"blobs":[],"x":"\xed\xa0\x80"}',
        b'{"blobs":[],"x":"\x01"}',
        b'{"blobs":[],"x":' + b"[" * 1_000_000,
        b'{"blobs":[],"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"blobs":[],"x":' + b"[" * 40 + b"]" * 40 + b"}",
    ],
    ids=lambda payload: ascii(payload[:32]),
)
def test_a_payload_that_is_not_one_valid_object_is_damage(payload: bytes) -> None:
    with pytest.raises(DamagedFileError) as caught:
        decode(payload)
    assert len(str(caught.value)) < 400


def test_unknown_keys_are_kept_and_a_null_codec_is_none() -> None:
    document = {
        "blobs": [BLOB | {"compression-codec": None, "new": {"a": [1, 2.5, None, True, "é"]}}],
        "properties": {"a": "b"},
        "later": "x",
    }
    metadata = decode(document)
    assert metadata.blobs[0].compression_codec is None
    assert metadata.blobs[0].extra == {"new": {"a": [1, 2.5, None, True, "é"]}}
    assert metadata.extra == {"later": "x"}
    assert decode_metadata(encode_metadata(metadata)) == metadata


def test_nesting_is_kept_up_to_the_limit() -> None:
    deepest = b'{"blobs":[],"x":' + b"[" * (MAX_NESTING - 1) + b"]" * (MAX_NESTING - 1) + b"}"
    assert decode(deepest).extra
    with pytest.raises(DamagedFileError, match="nests too deep"):
        decode(deepest.replace(b":[[", b":[[[").replace(b"]]}", b"]]]}"))


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 1), (3, 1), (4, 7), (10, 1), (11, 0), (2**62, 2**62), (4, 2**63 - 1)]
)
def test_a_blob_outside_the_blobs_of_the_file_is_damage(framed: Callable[..., bytes], offset: int, length: int) -> None:
    payload = json.dumps({"blobs": [BLOB | {"offset": offset, "length": length}]}).encode()
    with pytest.raises(DamagedFileError, match="outside the file's blobs") as caught:
        open_bytes(framed(payload, body=b"123456"))
    assert caught.value.offset == offset
