from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.puffin import types
from sidecar.puffin.inspect import inspect_puffin, verify_puffin
from sidecar.puffin.metadata import MAX_NESTING, BlobMetadata, FileMetadata, decode_metadata, encode_metadata
from sidecar.puffin.reader import FRAMING_LENGTH, TAIL_LENGTH, PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.source import BytesSource, CountingSource, LocalSource

BLOB = {"type": "t", "fields": [1], "snapshot-id": 2, "sequence-number": 3, "offset": 4, "length": 0}


def open_bytes(data: bytes, **options: Any) -> PuffinReader:
    return PuffinReader(BytesSource(data, "file.stats"), **options)


def file_with(length: int, properties: int = 0) -> tuple[bytes, bytes, int]:
    """A file with one plain blob of ``length`` bytes and a long property; content; footer length."""
    sink = io.BytesIO()
    writer = PuffinWriter(sink)
    content = (bytes(i * 7 & 255 for i in range(1021)) * (length // 1021 + 1))[:length]
    writer.add_blob("t", [1], 2, 3, content, properties={"long": "x" * properties})
    footer_size = writer.finish().footer_size
    return sink.getvalue(), content, footer_size


@pytest.mark.parametrize("name", ["sample-metric-data-uncompressed", "sample-metric-data-compressed-zstd"])
def test_files_of_icebergs_writer_are_read(puffin_data: Path, sample_blobs: tuple[bytes, bytes], name: str) -> None:
    reader = PuffinReader(LocalSource(str(puffin_data / f"{name}.bin")))
    codec = "zstd" if "zstd" in name else None
    assert reader.metadata.properties == {"created-by": "Test 1234"}
    described = [
        (b.type, b.fields, b.snapshot_id, b.sequence_number, b.compression_codec) for b in reader.metadata.blobs
    ]
    assert described == [("some-blob", (1,), 2, 1, codec), ("some-other-blob", (2,), 2, 1, codec)]
    assert tuple(map(reader.read_blob, reader.metadata.blobs)) == sample_blobs
    assert verify_puffin(reader.source) == []


def test_the_empty_file_is_read(puffin_data: Path) -> None:
    reader = PuffinReader(LocalSource(str(puffin_data / "empty-puffin-uncompressed.bin")))
    assert reader.metadata == FileMetadata()
    assert (reader.footer_offset, reader.footer_length) == (4, 28)


def test_everything_that_is_written_comes_back(rich_file: bytes) -> None:
    reader = open_bytes(rich_file)
    assert reader.metadata.properties == {"größe": "1 µm 🤯", "created-by": "test"}
    assert [reader.read_blob(b) for b in reader.metadata.blobs] == [b"content " * 20, b""] * 3
    assert [b.compression_codec for b in reader.metadata.blobs[::2]] == [None, "zstd", "lz4"]
    first = reader.metadata.blobs[0]
    assert (first.snapshot_id, first.sequence_number, first.fields) == (-(2**63), 2**63 - 1, (1, 2))
    assert first.properties == {"ndv": "12"}


# --- how many reads ---


@pytest.mark.parametrize("footer", [10, 100_000])
def test_a_footer_of_known_length_takes_one_read(footer: int) -> None:
    data, _, footer_length = file_with(200_000, footer)
    source = CountingSource(BytesSource(data))
    reader = PuffinReader(source, footer_length=footer_length)
    assert source.reads == 1
    assert source.bytes_read == len(reader.tail) == max(footer_length, TAIL_LENGTH)


@pytest.mark.parametrize(("footer", "reads"), [(10, 1), (TAIL_LENGTH - 400, 1), (TAIL_LENGTH, 2), (300_000, 2)])
def test_a_footer_of_unknown_length_takes_at_most_two_reads(footer: int, reads: int) -> None:
    data, _, footer_length = file_with(200_000, footer)
    source = CountingSource(BytesSource(data))
    reader = PuffinReader(source)
    assert source.reads == reads
    assert source.bytes_read == max(footer_length, TAIL_LENGTH)
    assert reader.tail == data[reader.tail_offset :]


def test_ranges_in_the_tail_cost_no_read() -> None:
    data, content, footer_length = file_with(200_000)
    source = CountingSource(BytesSource(data))
    reader = PuffinReader(source, footer_length=footer_length)
    blob = reader.metadata.blobs[0]
    first = reader.tail_offset - blob.offset
    assert reader.read_range(blob, first, 100) == content[first : first + 100]
    assert reader.read_range(blob, 199_000, 1_000) == content[199_000:]
    assert reader.read_range(blob, 7, 0) == b""
    assert source.reads == 1
    assert reader.read_range(blob, first - 1, 100) == content[first - 1 : first + 99]
    assert source.reads == 2


def test_ranges_before_the_tail_are_fetched_together_and_those_in_it_not_at_all() -> None:
    data, content, footer_length = file_with(300_000)
    source = CountingSource(BytesSource(data))
    reader = PuffinReader(source, footer_length=footer_length)
    ranges = [(299_000, 10), (100_000, 32), (0, 5), (100_200, 32), (100_000, 32), (299_990, 10)]
    assert reader.read_ranges(reader.metadata.blobs[0], ranges) == [content[o : o + n] for o, n in ranges]
    assert source.reads == 3


def test_ranges_stay_inside_their_blob_and_out_of_compressed_ones(rich_file: bytes) -> None:
    reader = open_bytes(rich_file)
    plain, compressed = reader.metadata.blobs[0], reader.metadata.blobs[2]
    assert reader.read_range(plain, plain.length, 0) == b""
    for offset, length in [(0, plain.length + 1), (plain.length, 1), (-1, 1), (0, -1)]:
        with pytest.raises(DamagedFileError, match="outside the blob"):
            reader.read_range(plain, offset, length)
    with pytest.raises(UsageError, match="compressed"):
        reader.read_range(compressed, 0, 1)


def test_a_blob_beyond_the_limit_is_not_read(rich_file: bytes) -> None:
    reader = open_bytes(rich_file)
    for blob in reader.metadata.blobs[::2]:
        with pytest.raises(UnsupportedFeatureError, match="larger than the limit"):
            reader.read_blob(blob, limit=100)
        assert len(reader.read_blob(blob, limit=160)) == 160


def test_metadata_of_another_file_reads_nothing_outside_the_blobs(rich_file: bytes) -> None:
    reader = open_bytes(rich_file)
    for offset, length in [(0, 4), (4, reader.footer_offset), (-8, 4), (4, -1), (2**62, 2**62)]:
        with pytest.raises(DamagedFileError, match="outside the file's blobs"):
            reader.read_raw(replace(reader.metadata.blobs[0], offset=offset, length=length))


# --- framing ---


@pytest.mark.parametrize("change", [-100_000, -300, -1, 1, 4, 40_000, 10**12])
def test_a_wrong_registered_footer_length_is_damage(change: int) -> None:
    data, _, footer_length = file_with(200_000, 1_000)
    with pytest.raises(DamagedFileError, match="registered footer length") as caught:
        open_bytes(data, footer_length=footer_length + change)
    assert (caught.value.file, caught.value.found) == ("file.stats", footer_length + change)


@pytest.mark.parametrize("length", [-1, 0, 15, 10**12])
def test_a_registered_footer_length_that_cannot_be_costs_no_read(rich_file: bytes, length: int) -> None:
    source = CountingSource(BytesSource(rich_file))
    with pytest.raises(DamagedFileError, match="registered footer length"):
        PuffinReader(source, footer_length=length)
    assert source.reads == 0


def test_a_payload_length_taken_for_the_footer_length_is_damage(rich_file: bytes) -> None:
    length = open_bytes(rich_file).footer_length
    with pytest.raises(DamagedFileError, match="registered footer length"):
        open_bytes(rich_file, footer_length=length - FRAMING_LENGTH)


@pytest.mark.parametrize("bit", range(1, 32))
def test_reserved_flags_are_refused(framed: Callable[..., bytes], bit: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match="reserved flags"):
        open_bytes(framed(b'{"blobs":[]}', flags=1 << bit))


@pytest.mark.parametrize("length", [-1, -(2**31), 13, 2**31 - 1])
def test_a_payload_length_that_cannot_be_is_damage(framed: Callable[..., bytes], length: int) -> None:
    with pytest.raises(DamagedFileError, match="payload"):
        open_bytes(framed(b'{"blobs":[]}', length=length))


def test_a_payload_length_that_is_too_small_misses_the_magic(framed: Callable[..., bytes]) -> None:
    with pytest.raises(DamagedFileError, match="footer does not begin with the magic"):
        open_bytes(framed(b'{"blobs":[]}', length=11))


def test_a_footer_beyond_the_limit_is_not_read(framed: Callable[..., bytes]) -> None:
    payload = b'{"blobs":[]}' + b" " * 100_000
    source = CountingSource(BytesSource(framed(payload)))
    with pytest.raises(UnsupportedFeatureError, match="larger than the limit"):
        PuffinReader(source, footer_limit=100_000)
    assert source.bytes_read <= TAIL_LENGTH
    assert PuffinReader(source, footer_limit=100_012).metadata == FileMetadata()


def test_a_wrong_magic_at_the_start_is_found_where_the_tail_reaches_it_and_by_verify_elsewhere() -> None:
    small, _, _ = file_with(10)
    with pytest.raises(DamagedFileError, match="begin with the magic"):
        open_bytes(b"PFA2" + small[4:])
    large, _, _ = file_with(100_000)
    broken = b"PFA2" + large[4:]
    assert open_bytes(broken).metadata == open_bytes(large).metadata
    assert [p.offset for p in verify_puffin(BytesSource(broken))] == [0]


# --- the footer's JSON ---


def decode(document: object) -> FileMetadata:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    return decode_metadata(payload, file="file.stats", offset=8)


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
    assert decode_metadata(encode_metadata(metadata), file="", offset=0) == metadata


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


# --- inspect and verify ---


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


def test_ours_are_the_types_that_this_version_may_replace() -> None:
    assert all(map(types.is_ours, (types.UNITS, types.SBBF, types.TOC)))
    assert not any(map(types.is_ours, (types.THETA, "deletion-vector-v1", "sidecar-units-v2", "")))


def test_metadata_can_be_hashed_and_compared(plain_blob: BlobMetadata) -> None:
    assert {plain_blob, replace(plain_blob)} == {plain_blob}
    assert plain_blob != replace(plain_blob, properties={"a": "b"})
