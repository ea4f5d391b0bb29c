"""Reading Puffin files: footers in few reads, ranges of blobs, and framing that cannot be right."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.puffin import types
from sidecar.puffin.inspect import verify_puffin
from sidecar.puffin.metadata import BlobMetadata, FileMetadata
from sidecar.puffin.reader import FRAMING_LENGTH, TAIL_LENGTH, PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource
from tests.puffin.cases import open_bytes


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


@pytest.mark.parametrize("more", [-1000, 0, TAIL_LENGTH // 4])
def test_a_file_that_is_little_longer_than_a_tail_is_read_whole(more: int) -> None:
    other, _, _ = file_with(30_000, 10)
    data, _, _ = file_with(30_000 + TAIL_LENGTH + more - len(other), 10)
    assert len(data) == TAIL_LENGTH + more
    source = CountingSource(BytesSource(data))
    assert PuffinReader(source).tail == data
    assert source.reads == 1


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


def test_ours_are_the_types_that_this_version_may_replace() -> None:
    assert all(map(types.is_ours, (types.UNITS, types.SBBF, types.TOC)))
    assert not any(map(types.is_ours, (types.THETA, "deletion-vector-v1", "sidecar-units-v2", "")))


def test_metadata_can_be_hashed_and_compared(plain_blob: BlobMetadata) -> None:
    assert {plain_blob, replace(plain_blob)} == {plain_blob}
    assert plain_blob != replace(plain_blob, properties={"a": "b"})
