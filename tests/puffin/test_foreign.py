"""Files of ours in the hands of Iceberg's own reader and pyiceberg's, and theirs in ours."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.puffin import PuffinFile

from sidecar.puffin import types
from sidecar.puffin.inspect import verify_puffin
from sidecar.puffin.metadata import BlobMetadata, FileMetadata, encode_metadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter, WrittenFile
from sidecar.storage.local import LocalSource
from sidecar.storage.remote import FileIOSource
from tests.puffin.lz4_files import add_lz4, with_lz4_footer

LONG = bytes(range(256)) * 2_000
CONTENTS = [b"", b"a", "größe 🤯".encode(), LONG]


def write_all_kinds(sink: Any, count: int = 50) -> tuple[WrittenFile, list[bytes]]:
    """Plain, zstd and empty blobs of several numbers of fields, and many of them; with their contents."""
    writer = PuffinWriter(sink, properties={"größe": 'quotes " and \\ and 🤯 and \x01\x7f'})
    contents = []
    for codec in (None, "zstd"):
        for i, content in enumerate(CONTENTS):
            properties = {"ndv": "12", "ключ": "значение 🤯"} if i % 2 else None
            writer.add_blob("some-blob", list(range(i)), 2**62 + i, i - 1, content, codec, properties)
            contents.append(content)
    for i in range(count):
        writer.add_blob(types.SBBF, [i], -1, -1, (b"piece of ", b"%d" % i))
        contents.append(b"piece of %d" % i)
    return writer.finish(), contents


def with_gap(path: Path) -> list[bytes]:
    """Rewrite the file at ``path`` so that bytes that are no blob stand before and between its blobs."""
    reader = PuffinReader(LocalSource(str(path)))
    body, blobs = b"PFA1gap ", []
    for blob in reader.metadata.blobs:
        blobs.append(BlobMetadata(**{**vars(blob), "offset": len(body)}))
        body += reader.read_raw(blob) + b"another gap"
    payload = encode_metadata(FileMetadata(tuple(blobs), reader.metadata.properties, {"unknown": [1, {"a": None}]}))
    contents = [reader.read_blob(blob) for blob in reader.metadata.blobs]
    path.write_bytes(body + b"PFA1" + payload + len(payload).to_bytes(4, "little") + bytes(4) + b"PFA1")
    return contents


# --- pyiceberg ---


def test_pyiceberg_reads_our_files() -> None:
    sink = io.BytesIO()
    written, contents = write_all_kinds(sink)
    theirs = PuffinFile(sink.getvalue())
    assert theirs.footer.properties == written.metadata.properties
    for blob, ours, content in zip(theirs.footer.blobs, written.metadata.blobs, contents, strict=True):
        described = (blob.type, tuple(blob.fields), blob.snapshot_id, blob.sequence_number, blob.properties)
        assert described == (ours.type, ours.fields, ours.snapshot_id, ours.sequence_number, ours.properties)
        assert theirs.get_blob_payload(blob) == content


def test_files_are_written_and_read_through_pyicebergs_file_io(tmp_path: Path) -> None:
    files, path = PyArrowFileIO(), f"file:{tmp_path}/a.stats"
    with files.new_output(path).create(overwrite=False) as sink:
        written, contents = write_all_kinds(sink)
    assert len(files.new_input(path)) == written.file_size
    reader = PuffinReader(FileIOSource(files, path, written.file_size), footer_length=written.footer_size)
    assert [reader.read_blob(b) for b in reader.metadata.blobs] == contents
    reader.source.close()


# --- Iceberg's own reader and writer, on the JVM ---


def java_read(spark: Any, path: Path, written: WrittenFile | None = None) -> tuple[dict[str, str], list[Any]]:
    """Properties, and of each blob type, fields, snapshot, sequence number, properties and content."""
    jvm = spark._jvm
    build = jvm.org.apache.iceberg.puffin.Puffin.read(jvm.org.apache.iceberg.Files.localInput(str(path)))
    if written is not None:
        build = build.withFileSize(written.file_size).withFooterSize(written.footer_size)
    reader = build.build()
    try:
        metadata = reader.fileMetadata()
        blobs = []
        pairs = reader.readAll(metadata.blobs()).iterator()
        while pairs.hasNext():
            pair = pairs.next()
            blob, content = pair.first(), pair.second()
            blobs.append(
                (
                    blob.type(),
                    tuple(blob.inputFields()),
                    blob.snapshotId(),
                    blob.sequenceNumber(),
                    dict(blob.properties()),
                    bytes(jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(content)),
                )
            )
        return dict(metadata.properties()), blobs
    finally:
        reader.close()


def as_java_has_it(written: WrittenFile, contents: list[bytes]) -> list[Any]:
    return [
        (b.type, b.fields, b.snapshot_id, b.sequence_number, dict(b.properties), content)
        for b, content in zip(written.metadata.blobs, contents, strict=True)
    ]


@pytest.mark.jvm
@pytest.mark.parametrize("sizes", ["registered", "unknown"])
def test_icebergs_own_reader_reads_our_files(spark: Any, tmp_path: Path, sizes: str) -> None:
    path = tmp_path / "ours.stats"
    with path.open("wb") as sink:
        written, contents = write_all_kinds(sink)
    properties, blobs = java_read(spark, path, written if sizes == "registered" else None)
    assert properties == written.metadata.properties
    assert blobs == as_java_has_it(written, contents)


@pytest.mark.jvm
def test_icebergs_own_reader_reads_our_empty_file_and_copies(spark: Any, tmp_path: Path, puffin_data: Path) -> None:
    empty = tmp_path / "empty.stats"
    with empty.open("wb") as sink:
        written = PuffinWriter(sink, created_by="ä").finish()
    assert java_read(spark, empty, written) == ({"created-by": "ä"}, [])
    origin = PuffinReader(LocalSource(str(puffin_data / "sample-metric-data-compressed-zstd.bin")))
    copy = tmp_path / "copy.stats"
    with copy.open("wb") as sink:
        writer = PuffinWriter(sink)
        writer.add_blob(types.SBBF, [1], 2, 3, b"ours comes first")
        for blob in origin.metadata.blobs:
            writer.copy_blob(blob, origin)
        written = writer.finish()
    contents = [b"ours comes first", *map(origin.read_blob, origin.metadata.blobs)]
    assert java_read(spark, copy, written)[1] == as_java_has_it(written, contents)


@pytest.mark.jvm
def test_files_with_gaps_and_unknown_keys_are_read_alike(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "gaps.stats"
    with path.open("wb") as sink:
        write_all_kinds(sink, 3)
    contents = with_gap(path)
    reader = PuffinReader(LocalSource(str(path)))
    assert [reader.read_blob(b) for b in reader.metadata.blobs] == contents
    assert reader.metadata.extra == {"unknown": [1, {"a": None}]}
    assert verify_puffin(reader.source) == []
    properties, blobs = java_read(spark, path)
    assert properties == reader.metadata.properties
    assert [blob[-1] for blob in blobs] == contents


def java_write(spark: Any, path: Path, codec: str, blobs: list[tuple[str, list[int], bytes, dict[str, str]]]) -> Any:
    jvm = spark._jvm
    puffin = jvm.org.apache.iceberg.puffin
    output = jvm.org.apache.iceberg.Files.localOutput(str(path))
    writer = puffin.Puffin.write(output).createdBy("Iceberg ü").set("größe", 'quotes " \x01').build()
    for i, (blob_type, fields, content, properties) in enumerate(blobs):
        ids, named = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
        for field_id in fields:
            ids.add(field_id)
        for key, value in properties.items():
            named.put(key, value)
        data = jvm.java.nio.ByteBuffer.wrap(content)
        kind = getattr(puffin.PuffinCompressionCodec, codec)
        writer.add(puffin.Blob(blob_type, ids, 2**62 + i, i - 1, data, kind, named))
    writer.finish()
    sizes = writer.fileSize(), writer.footerSize()
    writer.close()
    return sizes


@pytest.mark.jvm
@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_files_of_icebergs_own_writer_are_read(spark: Any, tmp_path: Path, codec: str) -> None:
    path = tmp_path / "theirs.stats"
    blobs = [
        (f"type {i} é", list(range(i)), content, {"ключ": "🤯"} if i else {}) for i, content in enumerate(CONTENTS)
    ]
    file_size, footer_size = java_write(spark, path, codec, blobs)
    reader = PuffinReader(LocalSource(str(path)), footer_length=footer_size)
    assert reader.size == file_size
    assert reader.metadata.properties == {"created-by": "Iceberg ü", "größe": 'quotes " \x01'}
    for i, (blob, (blob_type, fields, content, properties)) in enumerate(
        zip(reader.metadata.blobs, blobs, strict=True)
    ):
        assert (blob.type, list(blob.fields), dict(blob.properties)) == (blob_type, fields, properties)
        assert (blob.snapshot_id, blob.sequence_number) == (2**62 + i, i - 1)
        assert blob.compression_codec == (None if codec == "NONE" else "zstd")
        assert reader.read_blob(blob) == content
    assert verify_puffin(reader.source) == []


@pytest.mark.jvm
def test_our_plain_files_equal_those_of_icebergs_own_writer_byte_for_byte(spark: Any, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.stats"
    blobs = [
        (f"type {i} é", list(range(i)), content, {"ключ": "🤯"} if i else {}) for i, content in enumerate(CONTENTS)
    ]
    java_write(spark, theirs, "NONE", blobs)
    sink = io.BytesIO()
    order = list(PuffinReader(LocalSource(str(theirs))).metadata.properties)
    properties = {"created-by": "Iceberg ü", "größe": 'quotes " \x01'}
    writer = PuffinWriter(sink, created_by="Iceberg ü", properties={key: properties[key] for key in order})
    for i, (blob_type, fields, content, named) in enumerate(blobs):
        writer.add_blob(blob_type, fields, 2**62 + i, i - 1, content, None, named)
    writer.finish()
    assert sink.getvalue() == theirs.read_bytes()


@pytest.mark.jvm
def test_icebergs_own_reader_refuses_lz4_which_we_read_and_do_not_write(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import UnsupportedOperationException

    for name in ("blob", "footer"):
        path, sink = tmp_path / f"{name}.stats", io.BytesIO()
        writer = PuffinWriter(sink)
        blob = (add_lz4 if name == "blob" else PuffinWriter.add_blob)(writer, "t", [1], 2, 3, b"content")
        writer.finish()
        path.write_bytes(sink.getvalue() if name == "blob" else with_lz4_footer(sink.getvalue()))
        assert PuffinReader(LocalSource(str(path))).read_blob(blob) == b"content"
        with pytest.raises(UnsupportedOperationException, match="LZ4"):
            java_read(spark, path)


def test_our_footer_is_plain_json_for_everyone() -> None:
    sink = io.BytesIO()
    written, _ = write_all_kinds(sink, 1)
    payload = sink.getvalue()[-written.footer_size + 4 : -12]
    assert json.loads(payload)["blobs"][0]["type"] == "some-blob"
