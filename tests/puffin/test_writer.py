from __future__ import annotations

import array
import io
import json
import tracemalloc
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import StorageError, UsageError
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import COPY_LENGTH, CREATED_BY, PuffinWriter
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource


def read_back(sink: io.BytesIO, footer_size: int | None = None) -> PuffinReader:
    return PuffinReader(BytesSource(sink.getvalue()), footer_length=footer_size)


def test_icebergs_plain_sample_is_reproduced_byte_for_byte(
    puffin_data: Path, sample_blobs: tuple[bytes, bytes]
) -> None:
    sink = io.BytesIO()
    writer = PuffinWriter(sink, created_by="Test 1234")
    writer.add_blob("some-blob", [1], 2, 1, sample_blobs[0])
    writer.add_blob("some-other-blob", [2], 2, 1, sample_blobs[1])
    written = writer.finish()
    expected = (puffin_data / "sample-metric-data-uncompressed.bin").read_bytes()
    assert sink.getvalue() == expected
    assert written.file_size == len(expected)


def test_icebergs_zstd_sample_is_reproduced_by_copying_its_blobs(puffin_data: Path) -> None:
    path = puffin_data / "sample-metric-data-compressed-zstd.bin"
    origin = PuffinReader(LocalSource(str(path)))
    sink = io.BytesIO()
    writer = PuffinWriter(sink, created_by="Test 1234")
    writer.copy_blob(origin.metadata.blobs[0], origin)
    writer.copy_blob(origin.metadata.blobs[1], origin.read_raw(origin.metadata.blobs[1]))
    writer.finish()
    assert sink.getvalue() == path.read_bytes()


def test_the_footer_size_is_what_iceberg_registers() -> None:
    sink = io.BytesIO()
    writer = PuffinWriter(sink, properties={"a": "b" * 1_000})
    writer.add_blob("t", [1], 2, 3, b"abc")
    written = writer.finish()
    data = sink.getvalue()
    assert written.file_size == len(data) == writer.position
    assert written.footer_size == int.from_bytes(data[-12:-8], "little") + 16
    assert data[-8:-4] == bytes(4)
    reader = read_back(sink, written.footer_size)
    assert reader.metadata == written.metadata
    assert not reader.footer_compressed


def test_created_by_is_always_set() -> None:
    ours = f"sidecar {version('lakehouse-sidecar')}"
    for created_by, expected in ((None, ours), ("", ours), ("mine 1", "mine 1")):
        sink = io.BytesIO()
        metadata = PuffinWriter(sink, created_by=created_by, properties={"a": "b"}).finish().metadata
        assert read_back(sink).metadata == metadata
        assert metadata.properties == {"a": "b", CREATED_BY: expected}


def test_a_plain_blob_takes_any_number_of_pieces_of_any_buffer() -> None:
    sink = io.BytesIO()
    writer = PuffinWriter(sink)
    numbers = array.array("H", [0x0102]), array.array("d")
    blob = writer.add_blob("t", [1], 2, 3, [b"ab", bytearray(b"cd"), b"", memoryview(b"xefx")[1:3], *numbers])
    assert (blob.offset, blob.length) == (4, 8)
    writer.add_blob("t", [1], 2, 3, (bytes([i]) for i in range(5)))
    writer.add_blob("t", [1], 2, 3, [])
    writer.add_blob("t", [1], 2, 3, memoryview(b"abcdef")[::2].tobytes(), properties={"k": "v"})
    writer.finish()
    reader = read_back(sink)
    contents = [reader.read_blob(b) for b in reader.metadata.blobs]
    assert contents == [b"abcdef" + array.array("H", [0x0102]).tobytes(), bytes(range(5)), b"", b"ace"]
    with pytest.raises(UsageError, match="not contiguous bytes"):
        PuffinWriter(io.BytesIO()).add_blob("t", [1], 2, 3, memoryview(b"abcdef")[::2])


def test_bytes_are_compressed_into_one_frame() -> None:
    sink = io.BytesIO()
    writer = PuffinWriter(sink)
    blob = writer.add_blob("t", [1], 2, 3, b"piece " * 80, "zstd")
    assert (blob.compression_codec, blob.length < 80) == ("zstd", True)
    writer.finish()
    assert read_back(sink).read_blob(blob) == b"piece " * 80
    with pytest.raises(UsageError, match="not contiguous bytes"):
        PuffinWriter(io.BytesIO()).add_blob("t", [1], 2, 3, iter([b"a"]), "zstd")


def test_copies_keep_everything_but_the_offset(rich_file: bytes) -> None:
    document = {
        "type": "later",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": 3,
        "compression-codec": "later-codec",
        "properties": {"a": "é"},
        "later": [1, {"x": None}],
    }
    payload = json.dumps({"blobs": [document]}).encode()
    trailer = len(payload).to_bytes(4, "little") + bytes(4)
    other = PuffinReader(BytesSource(b"PFA1abcPFA1" + payload + trailer + b"PFA1"))
    rich = PuffinReader(BytesSource(rich_file))
    sink = io.BytesIO()
    writer = PuffinWriter(sink)
    writer.add_blob("mine", [9], 2, 3, b"first")
    for origin in (rich, other):
        for blob in origin.metadata.blobs:
            writer.copy_blob(blob, origin)
    writer.finish()
    copy = read_back(sink)
    originals = [(b, rich) for b in rich.metadata.blobs] + [(b, other) for b in other.metadata.blobs]
    for blob, (original, origin) in zip(copy.metadata.blobs[1:], originals, strict=True):
        assert copy.read_raw(blob) == origin.read_raw(original)
        assert BlobMetadata(**{**vars(blob), "offset": original.offset}) == original
    assert copy.metadata.blobs[-1].extra == {"later": [1, {"x": None}]}


def test_a_blob_of_several_pieces_is_copied_whole() -> None:
    """Each piece differs from the others, and the last one is shorter."""
    content = b"".join(n.to_bytes(4, "little") for n in range((2 * COPY_LENGTH + 1000) // 4))
    first = io.BytesIO()
    writer = PuffinWriter(first)
    writer.add_blob("small", [1], 2, 3, b"in front")
    writer.add_blob("large", [1], 2, 3, content)
    writer.finish()
    origin = read_back(first)
    second = io.BytesIO()
    copy = PuffinWriter(second)
    for blob in origin.metadata.blobs:
        copy.copy_blob(blob, origin)
    copy.finish()
    assert [read_back(second).read_blob(blob) for blob in copy.blobs] == [b"in front", content]
    assert second.getvalue() == first.getvalue()


def test_a_copy_of_wrong_length_is_refused() -> None:
    writer = PuffinWriter(io.BytesIO())
    with pytest.raises(UsageError, match="do not have the blob's length"):
        writer.copy_blob(BlobMetadata("t", (1,), 2, 3, 4, 10), b"abc")
    with pytest.raises(UsageError, match="inside a blob"):
        writer.finish()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"blob_type": 1}, "type"),
        ({"blob_type": "\ud800"}, "type"),
        ({"fields": [2**31]}, "fields"),
        ({"fields": ["1"]}, "fields"),
        ({"fields": [True]}, "fields"),
        ({"snapshot_id": 2**63}, "snapshot-id"),
        ({"snapshot_id": None}, "snapshot-id"),
        ({"sequence_number": 1.0}, "sequence-number"),
        ({"properties": {"a": 1}}, "properties|property"),
        ({"properties": {1: "a"}}, "properties|property"),
        ({"properties": {"a": "\udfff"}}, "properties|property"),
        ({"codec": "snappy"}, "codec"),
        ({"codec": "lz4"}, "codec"),
    ],
)
def test_metadata_that_no_reader_would_take_is_refused(change: dict[str, Any], reason: str) -> None:
    call = {"blob_type": "t", "fields": [1], "snapshot_id": 2, "sequence_number": 3, "data": b""}
    sink = io.BytesIO()
    with pytest.raises(UsageError, match=reason):
        PuffinWriter(sink).add_blob(**{**call, **change})
    assert sink.getvalue() == b"PFA1"


def test_file_properties_that_no_reader_would_take_are_refused() -> None:
    for properties in ({"a": 1}, {1: "a"}, {"\ud800": "a"}):
        with pytest.raises(UsageError, match="propert"):
            PuffinWriter(io.BytesIO(), properties=properties)  # type: ignore[arg-type]


def test_a_footer_that_readers_would_refuse_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.puffin.writer.FOOTER_LIMIT", 1_000)
    sink = io.BytesIO()
    writer = PuffinWriter(sink, properties={"a": "b" * 1_000})
    with pytest.raises(UsageError, match="footer would be larger"):
        writer.finish()
    assert sink.getvalue() == b"PFA1"


def test_one_thing_at_a_time_and_nothing_after_the_end() -> None:
    writer = PuffinWriter(io.BytesIO())

    def pieces() -> Iterator[bytes]:
        yield b"a"
        with pytest.raises(UsageError, match="accepts neither a blob nor the footer"):
            writer.add_blob("t", [1], 2, 3, b"")
        with pytest.raises(UsageError, match="accepts neither a blob nor the footer"):
            writer.finish()

    writer.add_blob("t", [1], 2, 3, pieces())
    writer.finish()
    for again in (writer.finish, lambda: writer.add_blob("t", [1], 2, 3, b"")):
        with pytest.raises(UsageError, match="finished"):
            again()


def test_an_error_of_the_caller_in_a_blob_is_raised_and_loses_the_file() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError

    writer = PuffinWriter(io.BytesIO())
    with pytest.raises(ZeroDivisionError):
        writer.add_blob("t", [1], 2, 3, pieces())
    with pytest.raises(UsageError, match="inside a blob"):
        writer.finish()


class Sinks:
    """Sinks that are not as files are."""

    class Short(io.BytesIO):
        """Takes at most 3 bytes at once."""

        def write(self, data: Any) -> int:
            return super().write(bytes(data[:3]))

    class Silent(io.BytesIO):
        """Does not say how many it took."""

        def write(self, data: Any) -> int:
            super().write(data)
            return None  # type: ignore[return-value]

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 6:
                raise OSError(28, "No space left on device")
            return super().write(data)

    class Stuck(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(data) if self.tell() < 4 else 0


@pytest.mark.parametrize("kind", [Sinks.Short, Sinks.Silent])
def test_short_writes_are_continued(kind: type[io.BytesIO]) -> None:
    sink = kind()
    writer = PuffinWriter(sink)
    blob = writer.add_blob("t", [1], 2, 3, b"0123456789")
    written = writer.finish()
    assert read_back(sink, written.footer_size).read_blob(blob) == b"0123456789"


@pytest.mark.parametrize(("kind", "reason"), [(Sinks.Full, "No space left"), (Sinks.Stuck, "did not accept bytes")])
def test_a_sink_that_fails_is_a_storage_error_and_the_file_is_lost(kind: type[io.BytesIO], reason: str) -> None:
    writer = PuffinWriter(kind())
    with pytest.raises(StorageError, match=reason):
        writer.add_blob("t", [1], 2, 3, b"0123456789")
    with pytest.raises(UsageError, match="failed"):
        writer.finish()


def test_many_blobs_and_much_data_take_little_memory() -> None:
    class Null:
        def write(self, data: Any) -> int:
            return len(data)

    piece = bytes(1 << 20)
    writer = PuffinWriter(Null())
    tracemalloc.start()
    try:
        writer.add_blob("t", [1], 2, 3, (piece for _ in range(200)))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
        for i in range(2_000):
            writer.add_blob("t", [i], 2, 3, b"")
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()
    assert len(writer.finish().metadata.blobs) == 2_001


def test_a_large_blob_is_copied_in_pieces() -> None:
    sink = io.BytesIO()
    writer = PuffinWriter(sink)
    writer.add_blob("t", [1], 2, 3, bytes(range(256)) * (9 << 12))
    writer.finish()
    source = CountingSource(BytesSource(sink.getvalue()))
    origin = PuffinReader(source)
    copy = io.BytesIO()
    copying = PuffinWriter(copy)
    copying.copy_blob(origin.metadata.blobs[0], origin)
    copying.finish()
    assert copy.getvalue() == sink.getvalue()
    assert source.reads == 4
