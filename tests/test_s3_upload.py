"""Files on S3 are uploaded in parts, and S3 copies ranges of earlier objects into them.

The store is one in memory that keeps S3's rules. Where moto and s3fs are installed (the extra ``bench``), the contents
are checked on moto too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

import sidecar
from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.storage import s3_upload
from sidecar.storage.opening import open_source
from sidecar.storage.source import CountingSource
from sidecar.storage.target import create_target
from tests.s3_store import ArrowIO, MemoryS3, MemoryS3IO
from tests.tables import create_with_rows, new_catalog

MB = 1 << 20
OLD, NEW = "s3://bucket/old.stats", "s3://bucket/wh/new.stats"


@pytest.fixture(scope="module")
def data() -> bytes:
    return np.random.default_rng(3).bytes(23 * MB)


@pytest.fixture
def store() -> Iterator[MemoryS3]:
    MemoryS3IO.stores["memory"] = MemoryS3()
    yield MemoryS3IO.stores["memory"]
    del MemoryS3IO.stores["memory"]


@pytest.fixture
def io(store: MemoryS3, data: bytes) -> FileIO:
    store.pipe_file(OLD, data)
    return MemoryS3IO({"s3.endpoint": "memory"})


@pytest.fixture
def moto_io(data: bytes) -> Iterator[FileIO]:
    moto, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    user, endpoint = "testing", "http://{}:{}".format(*server.get_host_and_port())
    files = s3fs.S3FileSystem(key=user, secret=user, client_kwargs={"endpoint_url": endpoint}, skip_instance_cache=True)
    files.call_s3("create_bucket", Bucket="bucket")
    files.pipe_file(OLD, data)
    keys = {"s3.access-key-id": user, "s3.secret-access-key": user, "s3.region": "us-east-1"}
    yield FsspecFileIO({"s3.endpoint": endpoint, **keys})
    server.stop()


def opened(io: FileIO, data: bytes) -> CountingSource:
    return CountingSource(open_source(OLD, io, len(data)))


def stored(io: FileIO, path: str = NEW) -> bytes:
    with io.new_input(path).open() as stream:
        return bytes(stream.read())


RANGES = {
    "one": [(100, 16 * MB)],
    "neighbours": [(100, 4 * MB), (100 + 4 * MB, 3 * MB), (100 + 7 * MB, 9 * MB)],
    "apart": [(0, 12 * MB), (13 * MB, 10 * MB)],
    "backwards": [(12 * MB, 11 * MB), (0, 12 * MB)],
    "as long as a part": [(0, 10 * MB - 4), (20 * MB, 3 * MB)],
    "short": [(7, 1000), (2000, 4 * MB)],
    "empty": [(50, 0)],
}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_upload, "WRITTEN_PART", 5 * MB)
    monkeypatch.setattr(s3_upload, "COPIED_PART", 10 * MB)


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize("head", [4, 6 * MB])
@pytest.mark.usefixtures("small_parts")
def test_an_upload_has_what_was_written_and_copied(
    io: FileIO, data: bytes, ranges: list[tuple[int, int]], head: int
) -> None:
    check_upload(io, data, ranges, head)


@pytest.mark.usefixtures("small_parts")
def test_moto_takes_the_same_uploads(moto_io: FileIO, data: bytes) -> None:
    for ranges in RANGES.values():
        for head in (4, 6 * MB):
            for client in (moto_io, PyArrowFileIO(moto_io.properties)):
                check_upload(client, data, ranges, head)
                moto_io.delete(NEW)


def check_upload(io: FileIO, data: bytes, ranges: list[tuple[int, int]], head: int) -> None:
    with closing(opened(io, data)) as old, create_target(NEW, io) as target:
        target.write(b"h" * head)
        for offset, length in ranges:
            target.copy(old, offset, length)
        target.write(b"tail")
        assert target.position == head + sum(length for _, length in ranges) + 4
        assert not io.new_output(NEW).exists()
    assert stored(io) == b"h" * head + b"".join(data[at : at + length] for at, length in ranges) + b"tail"


def test_what_the_store_copies_does_not_come_through(io: FileIO, store: MemoryS3, data: bytes) -> None:
    with closing(opened(io, data)) as old, create_target(NEW, io) as target:
        target.write(b"head")
        for at in range(0, 20 * MB, MB):
            target.copy(old, at, MB)
        target.write(b"tail")
        assert old.bytes_read < 5 * MB, "what fills the first part"
    assert store.through("get_object") <= 5 * MB + 256 * 1024 + (32 << 10)
    assert store.through("upload_part") == 5 * MB + 4  # the first part, and the tail
    assert store.names().count("upload_part_copy") == 1
    assert not store.uploads


def test_a_head_that_the_copied_object_has_too_is_copied_with_the_range(
    io: FileIO, store: MemoryS3, data: bytes
) -> None:
    with closing(opened(io, data)) as old, create_target(NEW, io) as target:
        target.write(data[:100])
        target.copy(old, 100, 12 * MB)
        target.write(b"tail")
    assert stored(io) == data[: 100 + 12 * MB] + b"tail"
    assert (store.through("upload_part"), store.names().count("upload_part_copy")) == (4, 1)


def test_a_short_file_is_one_request(io: FileIO, store: MemoryS3) -> None:
    with create_target(NEW, io) as target:
        target.write(b"short")
    assert store.requests == [("put_object", 5)]
    with pytest.raises(UsageError, match="exists already"), create_target(NEW, io):
        pytest.fail("the target was opened")


@pytest.mark.parametrize("request_name", ["upload_part", "complete_multipart_upload"])
def test_an_upload_that_fails_is_given_up(io: FileIO, store: MemoryS3, data: bytes, request_name: str) -> None:
    store.refused = {request_name}

    def fail() -> None:
        with closing(opened(io, data)) as old, create_target(NEW, io) as target:
            target.write(b"head")
            target.copy(old, 0, 12 * MB)

    with pytest.raises(StorageError):
        fail()
    assert (store.uploads, store.exists(NEW)) == ({}, False)


def test_an_error_of_the_caller_gives_the_upload_up(io: FileIO, store: MemoryS3, data: bytes) -> None:
    def interrupted() -> None:
        with closing(opened(io, data)) as old, create_target(NEW, io) as target:
            target.copy(old, 0, 12 * MB)
            target.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (store.uploads, store.exists(NEW)) == ({}, False)
    assert "upload_part_copy" in store.names()


def test_an_object_that_was_replaced_is_not_copied(io: FileIO, store: MemoryS3, data: bytes) -> None:
    def replaced() -> None:
        with closing(opened(io, data)) as old, create_target(NEW, io) as target:
            target.copy(old, 0, 12 * MB)
            store.pipe_file(OLD, data[:-1] + b"?")
            target.write(b"tail")

    with pytest.raises(StorageError, match="was replaced"):
        replaced()
    assert (store.uploads, store.exists(NEW)) == ({}, False)


def test_only_the_object_that_was_read_is_copied(io: FileIO, store: MemoryS3, data: bytes) -> None:
    with closing(opened(io, data)) as old, create_target(NEW, io) as target:
        old.read(len(data) - 100, 100)  # as a reader of the footer does
        store.pipe_file(OLD, bytes(len(data)))
        target.copy(old, 0, 12 * MB)
        target.write(b"tail")
    assert "upload_part_copy" not in store.names()


@pytest.mark.parametrize("request_name", ["upload_part_copy", "head_object"])
def test_where_the_store_does_not_copy_the_bytes_come_through(
    io: FileIO, store: MemoryS3, data: bytes, request_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.refused = {request_name}
    caplog.set_level(logging.DEBUG, "sidecar")
    with closing(opened(io, data)) as old, create_target(NEW, io) as target:
        target.write(b"head")
        target.copy(old, 0, 12 * MB)
        target.copy(old, 13 * MB, 10 * MB)
    assert stored(io) == b"head" + data[: 12 * MB] + data[13 * MB :]
    assert store.names().count(request_name) == 1
    assert len(caplog.messages) == 1


def test_a_range_that_the_file_does_not_have_is_an_error(io: FileIO, store: MemoryS3, data: bytes) -> None:
    with closing(opened(io, data)) as old, pytest.raises(DamagedFileError), create_target(NEW, io) as target:
        target.copy(old, 20 * MB, 12 * MB)
    assert not store.exists(NEW)


def test_errors_do_not_show_secrets(io: FileIO, store: MemoryS3) -> None:
    def refuse(name: str, **_: Any) -> None:
        raise RuntimeError("the key hunter2 is unknown")

    store.call_s3 = refuse
    with (
        pytest.raises(StorageError, match=r"the key \*\*\* is"),
        create_target(NEW, io, {"s3.secret-access-key": "hunter2"}) as target,
    ):
        target.write(b"head")


def test_a_refresh_does_not_carry_the_earlier_segments_through(store: MemoryS3, tmp_path: Path) -> None:
    """The base of 16 MB is copied by the store; the table's answers are those of a fresh build."""
    io = {"py-io-impl": f"{MemoryS3IO.__module__}.{MemoryS3IO.__name__}", "s3.endpoint": "memory"}
    catalog = new_catalog(tmp_path, "s3", warehouse="s3://bucket/wh", **io)
    table = create_with_rows(catalog, "db.t", map(rows, (0, 4, 8, 12)))
    built = sidecar.build(table, ["k"], kinds=["bloom"], fpp=2.8e-17, engine="local")
    assert built.file_size > 16 * MB
    table.append(rows(16))
    store.requests.clear()
    report = sidecar.refresh(table, engine="local")
    assert (report.action, report.bytes_carried > 16 * MB, report.warnings) == ("written", True, [])
    new = report.file_size - report.bytes_carried
    assert store.through("get_object") < 5 * MB + 2 * MB
    assert store.through("put_object", "upload_part") < 5 * MB + new + MB
    assert "upload_part_copy" in store.names()
    for key in range(20):
        assert sidecar.plan(table, f"k = {key}").files_kept == 1
    assert sidecar.plan(table, "k = 77").files_kept == 0
    assert sidecar.verify(table).problems == []


def rows(first: int) -> pa.Table:
    return pa.table({"k": np.arange(first, first + 4)})


@pytest.fixture
def arrow_io(io: FileIO, monkeypatch: pytest.MonkeyPatch) -> FileIO:
    """Arrow's client for the store, with s3fs installed beside it."""
    monkeypatch.setattr(s3_upload, "find_spec", lambda name: name)
    monkeypatch.setattr("pyiceberg.io.fsspec.FsspecFileIO", MemoryS3IO)
    return ArrowIO(io.properties)


def test_beside_arrows_client_s3fs_has_the_store_copy(arrow_io: FileIO, store: MemoryS3, data: bytes) -> None:
    with closing(opened(arrow_io, data)) as old, create_target(NEW, arrow_io) as target:
        target.write(b"head")
        for at in range(0, 20 * MB, 10 * MB):
            target.copy(old, at, 10 * MB)
        target.write(b"tail")
        assert old.bytes_read < 5 * MB, "what fills the first part"
        assert not store.exists(NEW)
    assert stored(arrow_io) == b"head" + data[: 20 * MB] + b"tail"
    assert (store.through("upload_part"), store.through("by arrow")) == (5 * MB + 4, 0)
    with pytest.raises(UsageError, match="exists already"), create_target(NEW, arrow_io):
        pytest.fail("the target was opened")


@pytest.mark.parametrize("request_name", ["head_object", "create_multipart_upload", "nothing to copy"])
def test_what_s3fs_cannot_write_arrows_client_does(
    arrow_io: FileIO, store: MemoryS3, data: bytes, request_name: str
) -> None:
    store.refused, length = {request_name}, 9 * MB if request_name == "nothing to copy" else 20 * MB
    with closing(opened(arrow_io, data)) as old, create_target(NEW, arrow_io) as target:
        target.write(b"head")
        target.copy(old, 0, length)
        target.write(b"t" * 40 * MB)
    assert stored(arrow_io) == b"head" + data[:length] + b"t" * 40 * MB
    assert (store.through("by arrow"), store.uploads) == (4 + length + 40 * MB, {})


@pytest.mark.parametrize("length", [9 * MB, 20 * MB])
def test_what_either_client_has_begun_is_given_up(arrow_io: FileIO, store: MemoryS3, data: bytes, length: int) -> None:
    def interrupted() -> None:
        with closing(opened(arrow_io, data)) as old, create_target(NEW, arrow_io) as target:
            target.copy(old, 0, length)
            target.write(b"t" * 30 * MB)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (store.uploads, store.exists(NEW)) == ({}, False)


def test_a_client_that_cannot_copy_inside_the_store_is_named(
    io: FileIO, arrow_io: FileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow, much = PyArrowFileIO({"s3.region": "us-east-1"}), s3_upload.WORTH_ANOTHER_CLIENT
    assert s3_upload.why_carried_through(arrow, OLD, much) == []
    (warning,) = s3_upload.why_carried_through(PyArrowFileIO({"s3.role-arn": "arn:1"}), OLD, much)
    assert "py-io-impl: pyiceberg.io.fsspec.FsspecFileIO" in warning
    monkeypatch.setattr(s3_upload, "find_spec", lambda name: None)
    (warning,) = s3_upload.why_carried_through(arrow, OLD, much)
    assert warning.endswith("s3fs does: pip install s3fs")
    assert s3_upload.why_carried_through(arrow, OLD, much - 1) == []
    assert s3_upload.why_carried_through(arrow, "file:/a", much) == []
