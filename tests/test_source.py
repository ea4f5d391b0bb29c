"""Sources: the bytes that are asked for, however reads are joined, cut short, or hit damage."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.io.fsspec import FsspecInputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from sidecar.errors import DamagedFileError, StorageError
from sidecar.maintenance.garbage import _delete_file
from sidecar.storage import remote
from sidecar.storage.local import LocalSource
from sidecar.storage.opening import open_source
from sidecar.storage.ranges import read_ranges, try_ranges
from sidecar.storage.remote import FileIOSource, is_stored, read_file
from sidecar.storage.source import BytesSource, CountingSource
from sidecar.storage.target import create_or_replace, create_target

DATA = bytes(range(256)) * 8


class Torn(BytesSource):
    """Every read that touches byte 100 hits damage."""

    def read(self, offset: int, length: int) -> bytes:
        if offset <= 100 < offset + length:
            raise DamagedFileError("torn", file=self.name, offset=100)
        return super().read(offset, length)


class Drips:
    """A file of an ``io`` whose stream gives at most seven bytes at once, and has no ranged reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def new_input(self, path: str) -> Drips:
        return self

    def open(self) -> Drips:
        return self

    def __len__(self) -> int:
        return len(self._data)

    def seek(self, offset: int) -> None:
        self._at = offset

    def read(self, length: int) -> bytes:
        part = self._data[self._at : self._at + min(length, 7)]
        self._at += len(part)
        return part

    def close(self) -> None:
        return None


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 100), (10, 5)],  # one inside the other, which goes on behind it
        [(10, 5), (0, 100), (20, 200), (30, 1)],
        [(0, 10), (0, 100), (0, 1)],
        [(5, 0), (5, 10), (2000, 48)],
        [(0, 50), (500, 10), (40, 30), (505, 700)],
    ],
)
@pytest.mark.parametrize("gap", [0, 16, None])
def test_ranges_that_overlap_or_hold_one_another_get_their_own_bytes(ranges: Any, gap: int | None) -> None:
    source = CountingSource(BytesSource(DATA))
    assert read_ranges(source, ranges, gap) == [DATA[start : start + length] for start, length in ranges]
    assert source.reads <= len(ranges)


def test_damage_between_or_in_ranges_costs_only_what_it_hits() -> None:
    ranges = [(80, 10), (95, 10), (110, 10), (1000, 5)]
    found = try_ranges(Torn(DATA), ranges, 1 << 20)
    assert [isinstance(answer, bytes) for answer in found] == [True, False, True, True]
    assert [found[i] for i in (0, 2, 3)] == [DATA[80:90], DATA[110:120], DATA[1000:1005]]
    assert read_ranges(Torn(DATA), [(90, 5), (105, 5)], 1 << 20) == [DATA[90:95], DATA[105:110]]


def test_a_short_read_of_a_local_file_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(DATA)
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: read(fd, min(length, 100), offset))
    source = LocalSource(str(tmp_path / "f"))
    assert source.read(30, 777) == DATA[30:807]
    source.close()


@pytest.mark.parametrize("length", [1, 6, 7, 8, 14, 15, 22, 2048])
def test_a_stream_that_gives_few_bytes_at_once_is_read_on(length: int) -> None:
    source = FileIOSource(Drips(DATA), "drips", None)  # type: ignore[arg-type]
    assert source.read(0, length) == DATA[:length]
    with pytest.raises(DamagedFileError, match="ended early"):
        source.read(2048 - 5, 6)


class Listing(MemoryFileSystem):  # type: ignore[misc]
    """Takes any error for a no, and answers from its last listing, as file systems of fsspec do."""

    cachable = False
    error: Exception | None = None
    names: ClassVar[set[str] | None] = None

    def info(self, path: str, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        if self.names is not None and self._strip_protocol(path) not in self.names:
            raise FileNotFoundError(path)
        return super().info(path, **options)

    def invalidate_cache(self, path: str | None = None) -> None:
        Listing.names = None


class Silent(AsyncFileSystem):  # type: ignore[misc]
    """A server that takes requests and never answers."""

    cachable = False
    ended = 0

    async def _wait(self) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            self.ended += 1

    async def _info(self, path: str, **_: Any) -> Any:
        return await self._wait()

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> Any:
        return await self._wait()


@pytest.mark.parametrize(
    "ask",
    [
        lambda path, io: open_source(path, io).size,
        lambda path, io: open_source(path, io, 100).read(0, 10),
        read_file,
        is_stored,
    ],
)
def test_a_server_that_never_answers_is_given_up(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is ended, so that its client does not go on with it."""
    monkeypatch.setattr(remote, "ANSWER_SECONDS", 0.02)
    monkeypatch.setattr(remote, "WHOLE_FILE", 0)
    store = Silent()
    io: Any = SimpleNamespace(new_input=lambda path: FsspecInputFile(path, store))
    with pytest.raises((StorageError, TimeoutError), match="no answer in 0 s"):
        ask("s3://bucket/file", io)
    assert store.ended == 1


def test_no_answer_is_no_proof_that_a_file_is_gone() -> None:
    store = Listing()
    io: Any = SimpleNamespace(new_input=lambda path: FsspecInputFile(path, store))
    store.pipe_file("memory://wh/there", b"bytes")
    assert (is_stored("memory://wh/there", io), is_stored("memory://wh/gone", io)) == (True, False)
    Listing.names = set()
    assert is_stored("memory://wh/there", io), "a listing of earlier does not have it"
    store.error = TimeoutError("no answer")
    assert not io.new_input("memory://wh/there").exists(), "fsspec's own answer"
    with pytest.raises(TimeoutError):
        is_stored("memory://wh/there", io)


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (open_source, lambda path: read_file(path, PyArrowFileIO())):
        with pytest.raises(StorageError, match="not that of a file"):
            read(str(tmp_path / "pipe"))


@pytest.mark.parametrize("text", ["\t", "\n", "\x00", "\x7f"])
def test_no_location_has_control_characters(text: str, tmp_path: Path) -> None:
    """pyiceberg's parser of URLs drops tabs and line breaks: ``.\\t.`` becomes ``..``, and another file is opened."""
    (tmp_path / "a").write_bytes(b"x")
    io, path = PyArrowFileIO(), f"file:{tmp_path}/{text}a"
    table: Any = SimpleNamespace(io=io)
    for refused in (
        lambda: open_source(path, io),
        lambda: read_file(path, io),
        lambda: is_stored(path, io),
        lambda: create_target(path, io).__enter__(),
        lambda: create_or_replace(path).__enter__(),
        lambda: _delete_file(table, path),
    ):
        with pytest.raises(StorageError, match="control characters"):
            refused()
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_the_scheme_of_a_local_url_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    for place in (f"FILE:{tmp_path}/a", f"File://{tmp_path}/a"):
        with closing(open_source(place)) as source:
            assert source.read(0, 3) == b"abc"
