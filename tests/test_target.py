"""Targets: a file appears whole or not at all, wherever it is and whatever fails."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from sidecar.access import Access
from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.failpoints import observe
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource
from sidecar.storage.target import (
    HELD_LENGTH,
    Target,
    create_or_replace,
    create_target,
)
from sidecar.storage.temporary import is_temporary, may_be_data_file
from tests.object_store import FolderIO
from tests.tables import new_catalog


class DeafStore(PyArrowFileIO):
    """A store of another library, which says nothing when it fails."""

    def new_output(self, location: str) -> Any:
        raise AssertionError


class Store:
    """An object store behind pyiceberg's FileIO: what is written appears when its stream is closed."""

    def __init__(self, fail_after: int | None = None, fail_close: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self.fail_after = fail_after
        self.fail_close = fail_close

    def new_output(self, path: str) -> Any:
        store = self

        class Stream(io.BytesIO):
            def write(self, data: Any) -> int:
                if store.fail_after is not None and self.tell() + len(data) > store.fail_after:
                    raise OSError(errno.EIO, "the network is down")
                return super().write(data[:1000])  # a short write is no error

            def close(self) -> None:
                if not self.closed:
                    store.objects[path] = self.getvalue()
                super().close()
                if store.fail_close:
                    raise OSError(errno.EIO, "the network is down")

        class Output:
            def create(self, overwrite: bool) -> Stream:
                assert not overwrite
                if path in store.objects:
                    raise FileExistsError(path)
                return Stream()

        return Output()

    def delete(self, path: str) -> None:
        del self.objects[path]


def test_a_local_file_appears_at_the_end(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(100_000))
    path = tmp_path / "file"
    with create_target(str(path)) as target:
        target.write(b"head")
        target.copy(LocalSource(str(source)), 10, 90_000)
        target.copy(BytesSource(b"0123456789"), 2, 5)
        assert target.position == 90_009
        assert not path.exists()
    assert path.read_bytes() == b"head" + source.read_bytes()[10:90_010] + b"23456"
    assert {p.name for p in tmp_path.iterdir()} == {"file", "source"}


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_where_the_kernel_does_not_copy_we_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    (tmp_path / "source").write_bytes(b"abcdefgh")
    with create_target(str(tmp_path / "file")) as target:
        target.copy(LocalSource(str(tmp_path / "source")), 1, 6)
    assert (tmp_path / "file").read_bytes() == b"bcdefg"


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the kernel copies nothing here")
@pytest.mark.parametrize("is_untold", [False, True])
def test_what_the_kernel_copied_is_not_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_untold: bool
) -> None:
    """It gives up in the middle: the rest is copied by hand, from where it stopped, or said that it did."""
    data = os.urandom(5_000)
    (tmp_path / "source").write_bytes(data)
    copy, calls = os.copy_file_range, []

    def partly(source: int, target: int, count: int, **options: Any) -> int:
        calls.append(count)
        if len(calls) == 3:
            if is_untold:
                copy(source, target, 50, **options)
            raise OSError(errno.EIO, "no more")
        return copy(source, target, min(count, 700), **options)

    monkeypatch.setattr(os, "copy_file_range", partly)
    with create_target(str(tmp_path / "file")) as target:
        target.copy(LocalSource(str(tmp_path / "source")), 11, 4_000)
        assert target.position == 4_000
    assert calls == [length - HELD_LENGTH for length in (4_000, 3_300, 2_600)]
    assert (tmp_path / "file").read_bytes() == data[11:4_011]


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the kernel copies nothing here")
def test_whole_blocks_are_copied_apart_so_that_file_systems_can_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS and Btrfs share what begins and ends with a block in both files, and copy all else."""
    data, asked, copy = os.urandom(50_000), list[tuple[int, int]](), os.copy_file_range
    (tmp_path / "source").write_bytes(data)

    def noted(source: int, target: int, count: int, offset_src: int) -> int:
        assert os.lseek(target, 0, os.SEEK_CUR) == offset_src
        asked.append((offset_src, count))
        return copy(source, target, count, offset_src)

    monkeypatch.setattr(os, "copy_file_range", noted)
    with create_target(str(tmp_path / "file")) as target:
        target.write(data[:100])
        target.copy(LocalSource(str(tmp_path / "source")), 100, 49_000)
    assert (tmp_path / "file").read_bytes() == data[:49_100]
    assert asked == [(100, 3_996), (4_096, 40_960), (45_056, 4_044 - HELD_LENGTH)]


@pytest.mark.parametrize("kernel", [True, False])
def test_a_source_that_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool) -> None:
    if not kernel:
        monkeypatch.delattr(os, "copy_file_range")
    (tmp_path / "source").write_bytes(b"abcdefgh")
    with pytest.raises(DamagedFileError), create_target(str(tmp_path / "file")) as target:
        target.copy(LocalSource(str(tmp_path / "source")), 1, 100)
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_error_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def interrupted() -> None:
        with create_target(str(tmp_path / "file")) as target:
            target.write(b"half")
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, refuse)
    if call == "link":
        monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(StorageError, match="No space left"), create_target(str(tmp_path / "file")) as target:
        target.write(b"half")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EEXIST])
@pytest.mark.parametrize("call", ["link", "rename"])
def test_a_file_is_there_if_only_the_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """A network file system gives the name and the answer is lost, or it is asked again and finds the name taken."""
    give = getattr(os, call)

    def lose_the_answer(old: str, new: str) -> None:
        give(old, new)
        raise OSError(number, os.strerror(number))

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, call, lose_the_answer)
    with create_target(str(tmp_path / "file")) as target:
        target.write(b"whole")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"whole")]


def test_a_temporary_name_that_cannot_be_removed_is_no_error_once_the_file_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error the caller would take the file for missing, and a second run would find that it exists already."""

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "unlink", refuse)
    with create_target(str(tmp_path / "file")) as target:
        target.write(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert [is_temporary(path.name) for path in sorted(tmp_path.iterdir())] == [False, True]


def test_an_error_when_a_file_is_closed_is_one_of_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = os.close

    def close_and_refuse(fd: int) -> None:
        close(fd)
        monkeypatch.undo()
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with pytest.raises(StorageError, match="quota"), create_target(str(tmp_path / "file")):
        monkeypatch.setattr(os, "close", close_and_refuse)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="exists already"), create_target(str(path)):
        pytest.fail("the target was opened")
    assert path.read_bytes() == b"old"
    path.unlink()

    def overtaken() -> None:
        with create_target(str(path)) as target:
            target.write(b"new")
            path.write_bytes(b"came between")

    with pytest.raises(UsageError, match="exists already"):
        overtaken()
    assert path.read_bytes() == b"came between"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


OTHER_BYTES = (b"12345678", b"12345678x", b"123456789 and more", b"", b"0" * 20)


@pytest.mark.parametrize("place", ["local", "store", "overtaken"])
def test_work_that_may_run_twice_takes_a_file_with_the_same_bytes_and_no_other(tmp_path: Path, place: str) -> None:
    """Locally the file may also appear while the second run writes."""
    access = Access(FolderIO({"folder": str(tmp_path)}) if place == "store" else None).repeated()
    stored, source = tmp_path / "file", BytesSource(b"123456789")
    name = "folder://file" if place == "store" else str(stored)

    def run(found: bytes) -> None:
        if place != "overtaken":
            stored.write_bytes(found)
        with access.create(name) as target:
            target.write(b"1234")
            target.copy(source, 4, 5)
            assert target.position == 9
            if place == "overtaken":
                stored.write_bytes(found)

    run(b"123456789")
    for other in OTHER_BYTES:
        stored.unlink()
        with pytest.raises(UsageError, match="exists already"):
            run(other)
        assert stored.read_bytes() == other
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"), create_target(str(tmp_path / "no" / "file")):
        pytest.fail("the target was opened")


@pytest.mark.parametrize("io", [None, PyArrowFileIO(), FsspecFileIO({})])
@pytest.mark.parametrize("url", ["https://host/f", "webhdfs://host/f", "x://f"])
def test_a_url_that_no_file_system_opens_is_refused(url: str, io: FileIO | None) -> None:
    for create in (Access(io).create, lambda one: create_target(one, io)):
        with pytest.raises(UsageError, match=rf"read or written over {url.partition(':')[0]}://.*local copy"):
            create(url).__enter__()


def test_a_store_of_another_library_that_cannot_create_a_file_says_what_to_do() -> None:
    with pytest.raises(StorageError, match=r"AssertionError; file https://h/f. Name a place that DeafStore can write"):
        Access(DeafStore()).create("https://h/f").__enter__()


class DeniedStore(DeafStore):
    """A store that knows no key of ours."""

    def new_output(self, location: str) -> Any:
        raise PermissionError("AWS Error ACCESS_DENIED")


def test_a_store_that_denies_a_new_file_names_the_variables_of_its_keys() -> None:
    with pytest.raises(StorageError, match=r"ACCESS_DENIED; file s3://b/f. Check the keys: AWS_ACCESS_KEY_ID"):
        Access(DeniedStore()).create("s3://b/f").__enter__()


def test_an_object_store(tmp_path: Path) -> None:
    store = Store()
    data = os.urandom(5000)
    with create_target("s3://bucket/file", store) as target:  # type: ignore[arg-type]
        target.write(data)
        target.copy(CountingSource(BytesSource(data)), 0, 5000)
        assert target.position == 10_000
        assert store.objects == {}
    assert store.objects == {"s3://bucket/file": data + data}
    with pytest.raises(UsageError, match="exists already"), create_target("s3://bucket/file", store):  # type: ignore[arg-type]
        pytest.fail("the target was opened")
    assert store.objects == {"s3://bucket/file": data + data}


@pytest.mark.parametrize("store", [Store(fail_after=3000), Store(fail_close=True)], ids=["write", "close"])
def test_an_object_store_that_fails_keeps_nothing(store: Store) -> None:
    with pytest.raises(StorageError, match="the network is down"), create_target("s3://b/f", store) as target:  # type: ignore[arg-type]
        target.write(bytes(5000))
    assert store.objects == {}


KILLED = """
import os, signal, sys
from sidecar.storage.target import create_target
with create_target(sys.argv[1]) as target:
    target.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
RUN = """
import sys
from sidecar.storage.target import create_target
with create_target(sys.argv[1]) as target:
    target.write(b"whole")
"""


def run(code: str, path: Path) -> int:
    return subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode


def test_what_a_killed_run_left_is_cleared_by_a_later_one_after_a_day(tmp_path: Path) -> None:
    assert run(KILLED, tmp_path / "a.parquet") == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("a.parquet.")  # a name with a dot in front would be passed over by orphan removal
    others = [tmp_path / name for name in (f"{left.name}.bak", ".sidecar-tmp", "b.parquet", "x.sidecar-tmp")]
    for path in others:
        path.write_bytes(b"mine")
        os.utime(path, (0, 0))
    link = tmp_path / f"c.{'0' * 32}.sidecar-tmp"
    link.symlink_to(others[0])
    young = time.time() - 23 * 3600
    os.utime(left, (young, young))
    assert run(RUN, tmp_path / "one") == 0
    assert left.exists()
    old = time.time() - 25 * 3600
    os.utime(left, (old, old))
    assert run(RUN, tmp_path / "two") == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in [*others, link]} | {
        "one",
        "two",
    }


ROWS = pa.table({"k": pa.array(range(3_000), pa.int64()), "s": [f"text {n}" for n in range(3_000)]})


def data_file(path: Path) -> Path:
    """A file of many row groups or stripes."""
    if path.suffix == ".orc":
        orc.write_table(ROWS, path, stripe_size=4096, batch_size=500)
    else:
        pq.write_table(ROWS, path, row_group_size=300)
    return path


def readable(path: Path) -> bool:
    try:
        rows = orc.read_table(path) if ".orc" in path.name else pq.read_table(path)
    except Exception:
        return False
    return rows.equals(ROWS)


def write_in_pieces(target: Target, path: Path) -> None:
    """Pieces shorter and longer than what is held back, the last of one byte."""
    data = path.read_bytes()
    for start in range(0, len(data) - 100, 1_000):
        target.write(data[start : min(start + 1_000, len(data) - 100)])
    for number in range(len(data) - 100, len(data)):
        target.write(data[number : number + 1])


def copy_whole(target: Target, path: Path) -> None:
    target.copy(LocalSource(str(path)), 0, path.stat().st_size)


@pytest.mark.parametrize("name", ["new.parquet", "new.orc"])
@pytest.mark.parametrize("create", [create_target, create_or_replace])
@pytest.mark.parametrize("write", [lambda t, p: t.write(p.read_bytes()), write_in_pieces, copy_whole])
def test_a_temporary_file_is_whole_only_when_it_gets_its_name(
    tmp_path: Path, name: str, create: Any, write: Any
) -> None:
    """Programs that add all files of a folder to a table read the ends of files, not their names."""
    source, new = data_file(tmp_path / name), tmp_path / "new" / name
    new.parent.mkdir()
    seen: dict[str, tuple[bool, bool]] = {}

    def look(step: str) -> None:
        for path in new.parent.iterdir():
            seen.setdefault(step, (readable(path), may_be_data_file(str(path))))

    with observe(look), create(str(new)) as target:
        write(target, source)
        look("all is given")
    assert seen["all is given"] == seen["target: written"] == (False, False)
    assert seen["target: publish"] == (True, True)
    assert [path.read_bytes() for path in new.parent.iterdir()] == [source.read_bytes()]


@pytest.mark.parametrize(("end", "syncs"), [(b"PFA1", 2), (b"PAR1", 3)])
def test_the_disk_works_beside_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes, syncs: int
) -> None:
    """It begins before the last byte is given, and is waited for once, or twice for what may be a data file."""
    begun, waited, sync = [], [], os.fsync
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, start, length, advice: begun.append((start, length)))
    monkeypatch.setattr(os, "fsync", lambda fd: waited.append(sync(fd)))
    megabyte = bytes(1 << 20)
    with create_target(str(tmp_path / "file")) as target:
        for _ in range(3):
            target.write(megabyte)
        for _ in range(2):
            target.copy(BytesSource(megabyte), 0, len(megabyte))
        target.write(end)
        assert begun == [(0, 2 << 20), (2 << 20, 2 << 20)]
        assert not waited
    assert len(waited) == syncs  # the last is the folder's
    assert (tmp_path / "file").read_bytes() == megabyte * 5 + end


@pytest.mark.parametrize("length", [0, 1, HELD_LENGTH - 1, HELD_LENGTH, HELD_LENGTH + 1, 200_000])
def test_files_of_every_length_are_written_whole(tmp_path: Path, length: int) -> None:
    """However short the file and its pieces are, and in whatever order they are written and copied."""
    data = os.urandom(length)
    (tmp_path / "source").write_bytes(data)
    for piece in (1, 7, 8, 9, 70_000):
        if length // piece > 10_000:
            continue
        for first in range(2):
            path = tmp_path / f"{piece}-{first}"
            with create_target(str(path)) as target:
                for number, start in enumerate(range(0, length, piece)):
                    end = min(start + piece, length)
                    if number % 2 == first:
                        target.copy(LocalSource(str(tmp_path / "source")), start, end - start)
                    else:
                        target.write(memoryview(data)[start:end])
                    target.write(b"")
                assert target.position == length
            assert path.read_bytes() == data


def test_an_orc_file_without_magic_at_its_end_may_be_a_data_file(tmp_path: Path) -> None:
    """The oldest writers have the magic at the start alone. Half a file is none."""
    whole = data_file(tmp_path / "new.orc").read_bytes()
    magic = bytes([0x82, 0xF4, 0x03, 3]) + b"ORC"
    assert whole[-8:-1] == magic
    old, half = tmp_path / "old.orc", tmp_path / "half.orc"
    old.write_bytes(whole[:-8] + bytes([whole[-1] - len(magic)]))
    half.write_bytes(whole[:-HELD_LENGTH])
    assert readable(old)
    assert may_be_data_file(str(old))
    assert not may_be_data_file(str(half))
    for data in (b"", b"ORC", b"PAR"):
        half.write_bytes(data)
        assert not may_be_data_file(str(half))


def test_a_later_run_deletes_no_whole_file_of_a_killed_one(tmp_path: Path) -> None:
    """Somebody has added all files of the folder to a table, and the table names it by its temporary name."""
    catalog = new_catalog(tmp_path, "added")
    table = catalog.create_table("db.t", ROWS.schema)
    folder = tmp_path / "lake"
    folder.mkdir()
    whole = data_file(folder / f"a.parquet.{'1' * 32}.sidecar-tmp")
    half = folder / f"b.parquet.{'2' * 32}.sidecar-tmp"
    half.write_bytes(whole.read_bytes()[:-HELD_LENGTH])
    table.add_files([str(whole)])
    for path in (whole, half):
        os.utime(path, (0, 0))
    with create_target(str(folder / "new")) as target:
        target.write(b"new")
    assert not half.exists()
    assert table.scan().to_arrow().num_rows == len(ROWS)


def test_a_folder_of_many_files_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: [listed.append(path), scandir(path)][1])
    for number in range(50):
        with create_target(str(tmp_path / str(number))) as target:
            target.write(b"x")
    assert listed == [str(tmp_path)]


def test_each_folder_is_cleared(tmp_path: Path) -> None:
    """A command that writes into several folders clears what killed runs left in every one of them."""
    for name in ("one", "two"):
        left = tmp_path / name / f"a.{'0' * 32}.sidecar-tmp"
        left.parent.mkdir()
        left.write_bytes(b"half")
        os.utime(left, (0, 0))
        with create_target(str(tmp_path / name / "b")) as target:
            target.write(b"x")
        assert not left.exists()


def test_a_name_may_have_all_bytes_that_the_file_system_allows(tmp_path: Path) -> None:
    for name in ("x" * 255, "ü" * 127):
        with create_target(f"{tmp_path}/{name}") as target:
            target.write(b"abcdefghijkl")
            (temporary,) = (path for path in tmp_path.iterdir() if path.name.endswith(".sidecar-tmp"))
            assert len(os.fsencode(temporary.name)) <= 255
        assert (tmp_path / name).read_bytes() == b"abcdefghijkl"
