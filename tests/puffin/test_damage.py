"""Any bytes at all give a value or our error, nothing else, and take no more memory than is stated."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, located
from sidecar.puffin.inspect import inspect_puffin, verify_puffin
from sidecar.puffin.metadata import FileMetadata, decode_metadata, encode_metadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.puffin.lz4_files import lz4_frame, with_lz4_footer

T = TypeVar("T")
REFUSALS = (DamagedFileError, UnsupportedFeatureError)


def attempt(call: Callable[[], T]) -> T | SidecarError:
    """The value of a call, or the refusal it raised, which names the file."""
    try:
        return call()
    except REFUSALS as error:
        refusal = error
    assert refusal.file == "file.stats"
    assert len(str(refusal)) < 500
    return refusal


def outcome(data: bytes) -> FileMetadata | SidecarError:
    """What reading everything gives: the metadata, or our error, which names the file."""
    source = BytesSource(data, "file.stats")
    reader = attempt(lambda: PuffinReader(source))
    if isinstance(reader, SidecarError):
        assert reader.offset is not None
        assert [p.problem for p in verify_puffin(source)] == [str(reader)]
        return reader
    assert isinstance(reader.metadata, FileMetadata)
    for blob in reader.metadata.blobs:
        attempt(lambda blob=blob: reader.read_blob(blob, limit=1 << 20))
    inspect_puffin(reader.source)
    verify_puffin(reader.source, limit=1 << 20)
    return reader.metadata


def small_file(footer_codec: str | None) -> bytes:
    sink = io.BytesIO()
    writer = PuffinWriter(sink, created_by="test")
    writer.add_blob("a", [1], 2, 3, b"abcdefgh" * 4, "zstd", {"ndv": "4"})
    writer.add_blob("b", [300], 2**40, 3, b"plain")
    writer.finish()
    return sink.getvalue() if footer_codec is None else with_lz4_footer(sink.getvalue())


@pytest.mark.parametrize("footer_codec", [None, "lz4"])
def test_every_truncation_is_damage(footer_codec: str | None) -> None:
    data = small_file(footer_codec)
    for length in range(len(data)):
        assert isinstance(outcome(data[:length]), DamagedFileError), length
    for start in range(1, len(data)):
        # Cut at the start: as long as the footer is whole, offsets or the first magic tell.
        assert isinstance(outcome(data[start:]), DamagedFileError), start


@pytest.mark.parametrize("footer_codec", [None, "lz4"])
def test_every_bit_flip_in_a_footer_gives_metadata_or_our_error(footer_codec: str | None) -> None:
    data = small_file(footer_codec)
    original = outcome(data)
    assert isinstance(original, FileMetadata)
    read = PuffinReader(BytesSource(data))
    other_meaning = 0
    for bit in range(read.footer_offset * 8, len(data) * 8):
        broken = bytearray(data)
        broken[bit >> 3] ^= 1 << (bit & 7)
        result = outcome(bytes(broken))
        if isinstance(result, FileMetadata) and result != original:
            other_meaning += 1
    # A plain footer is under no checksum: this is why bundles repeat who they are. A compressed one is.
    assert other_meaning == 0 if footer_codec else other_meaning > 100


def test_bit_flips_of_framing_are_all_noticed() -> None:
    data = small_file(None)
    footer = PuffinReader(BytesSource(data)).footer_offset
    places = [*range(4), *range(footer, footer + 4), *range(len(data) - 12, len(data))]
    unnoticed = []
    for bit in (place * 8 + b for place in places for b in range(8)):
        broken = bytearray(data)
        broken[bit >> 3] ^= 1 << (bit & 7)
        if isinstance(outcome(bytes(broken)), FileMetadata):
            unnoticed.append(bit)
    assert unnoticed == []


def parquet_file() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(100))}), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too short"),
        (b"PFA1", "too short"),
        (b"PFA1PFA1" + bytes(8) + b"PFA", "too short"),
        (b"PFA1PFA1" + bytes(8) + b"PFA1", "not JSON"),
        (b"PFA1" + bytes(12) + b"PFA1", "begin with the magic"),
        (parquet_file(), "not a Puffin file"),
        (parquet_file()[:-4] + b"PFA1", "footer does not begin"),
        (bytes(100_000), "not a Puffin file"),
        (b"PFA1" * 1_000, "does not fit"),
    ],
    ids=[
        "empty",
        "magic",
        "19 bytes",
        "no payload",
        "no footer",
        "parquet",
        "parquet with magic",
        "zeros",
        "magics",
    ],
)
def test_foreign_files_are_refused_with_place_and_reason(data: bytes, reason: str) -> None:
    with pytest.raises(REFUSALS, match=reason) as caught:
        PuffinReader(BytesSource(data, "file.stats"))
    error = caught.value
    assert (error.file, error.offset is not None) == ("file.stats", True)
    assert error.expected is not None
    assert error.found is not None
    assert [p.problem for p in verify_puffin(BytesSource(data, "file.stats"))] == [str(error)]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_our_error(data: bytes) -> None:
    outcome(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100), st.binary(max_size=100), st.integers(0, 1), st.integers(-4, 4))
def test_any_bytes_in_a_sound_frame_give_a_value_or_our_error(
    body: bytes, payload: bytes, flags: int, off_by: int
) -> None:
    length = (len(payload) + off_by).to_bytes(4, "little", signed=True)
    outcome(b"PFA1" + body + b"PFA1" + payload + length + bytes([flags, 0, 0, 0]) + b"PFA1")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = [
    "type",
    "fields",
    "snapshot-id",
    "sequence-number",
    "offset",
    "length",
    "compression-codec",
    "properties",
]
SOUND = {"type": "t", "fields": [1], "snapshot-id": 2, "sequence-number": 3, "offset": 4, "length": 5}


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), JSON, max_size=3), JSON)
def test_any_json_gives_metadata_that_can_be_written_again_or_our_error(
    change: dict[str, object], beside: object
) -> None:
    payload = json.dumps({"blobs": [SOUND | change], "beside": beside}).encode()

    def decoded() -> FileMetadata:
        with located("file.stats", offset=8):
            return decode_metadata(payload)

    metadata = attempt(decoded)
    if not isinstance(metadata, SidecarError):
        assert decode_metadata(encode_metadata(metadata)) == metadata


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_change_of_a_frame_gives_a_value_or_our_error(data: st.DataObject) -> None:
    file = bytearray(small_file(data.draw(st.sampled_from([None, "lz4"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    outcome(bytes(file))


def test_a_compressed_footer_is_bounded(framed: Callable[..., bytes]) -> None:
    payload = b'{"blobs":[]}' + b" " * 10_000_000
    data = framed(lz4_frame(payload), flags=1)
    assert len(data) < 50_000
    assert PuffinReader(BytesSource(data), footer_limit=len(payload)).metadata == FileMetadata()
    with pytest.raises(UnsupportedFeatureError, match="larger than the limit"):
        PuffinReader(BytesSource(data), footer_limit=len(payload) - 1)


@pytest.mark.parametrize("codec", ["zstd", "plain"])
def test_a_compressed_footer_is_one_lz4_frame(framed: Callable[..., bytes], codec: str) -> None:
    import zstandard

    payload = b'{"blobs":[]}'
    with pytest.raises(DamagedFileError, match="not one lz4 frame"):
        PuffinReader(BytesSource(framed(zstandard.compress(payload) if codec == "zstd" else payload, flags=1)))


def test_a_file_that_ends_early_is_damage(tmp_path: Path) -> None:
    class Shrunk(BytesSource):
        @property
        def size(self) -> int:
            return super().size + 10

    with pytest.raises(DamagedFileError):
        PuffinReader(Shrunk(small_file(None)))
