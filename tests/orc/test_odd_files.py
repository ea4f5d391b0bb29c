"""ORC that today's writers do not make: chunks of several frames, no block size; and DWRF, which only begins as ORC."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyorc
import pytest
import zstandard
from pyarrow import orc
from pyiceberg.expressions import AlwaysTrue

import sidecar
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.orc import compression
from sidecar.orc.compression import compress, decompress_stream
from sidecar.orc.decode import ColumnDecoder
from sidecar.orc.tail import read_tail
from sidecar.orc.verify.verify import verify_file
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.source import BytesSource
from tests.orc.lies import edited

SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"
TEXT = b"".join(b"line %d\n" % i for i in range(3000))


def frame(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


def frames(data: bytes, *_: int) -> bytes:
    """Three frames, the last without a size and with a checksum."""
    third = len(data) // 3
    last = frame(data[2 * third :], write_content_size=False, write_checksum=True)
    return frame(data[:third]) + frame(data[third : 2 * third]) + last


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "frames": frames,
    "skippable first": lambda data: SKIPPABLE + frame(data),
    "skippable last": lambda data: frame(data) + SKIPPABLE,
    "skippable between": lambda data: frame(data[:99]) + SKIPPABLE + frame(data[99:]),
    "an empty frame first": lambda data: frame(b"") + frame(data),
    "without a size": lambda data: frame(data, write_content_size=False),
    "with a checksum": lambda data: frame(data, write_checksum=True),
}


def chunk(data: bytes) -> bytes:
    return (len(data) << 1).to_bytes(3, "little") + data


@pytest.mark.parametrize("form", FORMS)
def test_a_chunk_has_all_its_frames(form: str) -> None:
    packed = chunk(FORMS[form](TEXT))
    assert decompress_stream(packed, "ZSTD", 1 << 18) == TEXT
    other = compress(TEXT, "ZSTD", 1 << 18)
    assert decompress_stream(other + packed + other, "ZSTD", 1 << 18) == 3 * TEXT
    for data in (packed, packed + other):
        with pytest.raises(DamagedFileError):
            decompress_stream(data, "ZSTD", len(TEXT) - 1)
        with pytest.raises(UnsupportedFeatureError, match="too large"):
            decompress_stream(data, "ZSTD", 1 << 18, limit=len(TEXT) - 1)


@pytest.mark.parametrize("left_over", [b"x", b"\x28\xb5\x2f\xfd", frame(TEXT)[:-1]])
def test_what_is_left_over_in_a_chunk_is_damage(left_over: bytes) -> None:
    packed, other = chunk(frame(TEXT) + left_over), compress(TEXT, "ZSTD", 1 << 18)
    for data in (packed, other + packed):
        with pytest.raises(DamagedFileError):
            decompress_stream(data, "ZSTD", 1 << 18)


def rows() -> pa.Table:
    random = np.random.default_rng(7).integers(0, 1 << 40, 900)
    texts = [None if n % 7 == 3 else f"text {n % 19}" for n in range(900)]
    lists = [None if n % 5 == 2 else [n, None, n * 3][: n % 4] for n in range(900)]
    return pa.table({"n": random, "t": texts, "l": pa.array(lists, pa.list_(pa.int64()))})


def written(codec: str) -> bytes:
    sink = io.BytesIO()
    orc.write_table(rows(), sink, compression=codec)
    return sink.getvalue()


def test_rows_of_streams_of_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = written("zstd")
    monkeypatch.setitem(compression._COMPRESS, "ZSTD", frames)

    def change(file: object) -> None:
        for stripe in file.stripes:  # type: ignore[attr-defined]
            for stream in stripe.streams:
                stream.data = file.packed(file.content(stream))  # type: ignore[attr-defined]

    data = edited(change, plain)
    assert data.count(b"\x28\xb5\x2f\xfd") > 2 * plain.count(b"\x28\xb5\x2f\xfd")
    assert orc.ORCFile(io.BytesIO(data)).read().equals(rows())
    assert sidecar.scan(BytesSource(data), AlwaysTrue()).equals(rows())
    assert sidecar.scan(BytesSource(data), "t = 'text 5'").num_rows > 30


def test_a_file_without_a_block_size() -> None:
    data = edited(lambda file: file.tail.postscript.set_all(3, []), written("zlib"))
    assert read_tail(BytesSource(data)).block_size == 1 << 18
    assert not read_tail(BytesSource(data)).postscript.has(3)
    assert sidecar.scan(BytesSource(data), AlwaysTrue()).equals(rows())


def test_dwrf_is_named() -> None:
    def change(file: object) -> None:
        file.tail.postscript.set_all(4, [4])  # type: ignore[attr-defined]

    with pytest.raises(UnsupportedFeatureError, match="DWRF"):
        read_tail(BytesSource(edited(change, written("zlib"))))


def test_numbers_are_aligned_for_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams begin anywhere in the file. Arrow warns on stderr of numbers that do."""
    numbers = np.random.default_rng(1).random(500)
    sink = io.BytesIO()
    orc.write_table(pa.table({"d": numbers}), sink)
    stored = ColumnDecoder._raw

    def unaligned(self: ColumnDecoder, stream: str, length: int) -> object:
        return np.frombuffer(b"x" + stored(self, stream, length).tobytes(), np.uint8, offset=1)

    monkeypatch.setattr(ColumnDecoder, "_raw", unaligned)
    found = sidecar.scan(BytesSource(sink.getvalue()), AlwaysTrue())["d"]
    assert found.to_pylist() == numbers.tolist()
    assert all(chunk.buffers()[1].address % 8 == 0 for chunk in found.chunks)


def test_a_predicate_names_a_union() -> None:
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<n:bigint,u:uniontype<bigint,string>>") as writer:
        writer.write((1, "x"))
    for predicate in ("u is null", "u is not null and n = 1"):
        with pytest.raises(UnsupportedFeatureError, match="column u"):
            sidecar.scan(BytesSource(sink.getvalue()), predicate)
    assert sidecar.scan(BytesSource(sink.getvalue()), "n = 1").num_rows == 1
    verified = verify_file(BytesSource(sink.getvalue()), ValueCheck())
    assert verified == [], "values inside a union are not compared, which is no problem of the file"
