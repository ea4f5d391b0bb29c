"""Folders and globs in object stores, through Arrow's file systems and through fsspec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem as FsspecLocal
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

import sidecar
from sidecar.access import Access
from sidecar.errors import StorageError, UsageError
from sidecar.many_files.find import find_files

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet" / "j118_v1_none.parquet"
NAMES = [
    "day=1/a.parquet",
    "day=1/b.orc",
    "day=2/hour=3/c d.parquet",
    "x.parquet/part-0.parquet",
    "z%20[1].parquet",
]
LEFT_OUT = ["_SUCCESS", "_temporary/0/t.parquet", ".hidden.parquet"]


class ArrowStore(PyArrowFileIO):
    """A folder as a bucket of Arrow's file systems."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.opened = 0

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        assert scheme == "s3"
        return SubTreeFileSystem(str(self.root), LocalFileSystem())


class BucketFiles(DirFileSystem):  # type: ignore[misc]
    """A folder as a bucket of fsspec."""

    protocol = "s3"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path.removeprefix("s3://").rstrip("/") if isinstance(path, str) else [p[5:] for p in path]


class FsspecStore(FsspecFileIO):
    """The same behind pyiceberg's other kind of ``FileIO``."""

    def __init__(self, root: Path) -> None:
        super().__init__({})
        self.files = BucketFiles(path=str(root), fs=FsspecLocal())

    def get_fs(self, scheme: str, hostname: str | None = None) -> Any:
        assert scheme == "s3"
        return self.files


@pytest.fixture(params=[ArrowStore, FsspecStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    for name in NAMES + LEFT_OUT:
        path = tmp_path / "bucket" / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA.read_bytes())
    return request.param(tmp_path)


def names(path: str, store: Any) -> list[str]:
    return [file.removeprefix("s3://bucket/t/") for file in find_files(path, Access(store)).files]


@pytest.mark.parametrize("folder", ["s3://bucket/t", "s3://bucket/t/", "s3://bucket"])
def test_a_folder(store: Any, folder: str) -> None:
    assert names(folder, store) == sorted(NAMES)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("s3://bucket/t/day=1/*", NAMES[:2]),
        ("s3://bucket/t/*/*.parquet", [NAMES[0], NAMES[3]]),
        ("s3://bucket/**/*.parquet", [NAMES[0], *NAMES[2:]]),
        ("s3://bucket/t/day=?/*.orc", [NAMES[1]]),
        ("s3://bucket/t/z%20[1].parquet", [NAMES[4]]),
        ("s3://bucket/t/x.parquet", [NAMES[3]]),
        ("s3://bucket/t/day=1/a.parquet", [NAMES[0]]),
        ("s3://bucket/t/nosuch.parquet", ["nosuch.parquet"]),
    ],
)
def test_a_glob_and_a_plain_url(store: Any, glob: str, expected: list[str]) -> None:
    assert names(glob, store) == expected


@pytest.mark.parametrize("glob", ["s3://bucket/nosuch/*", "s3://bucket/t/*.nix", "s3://bucket/t/**/nix*"])
def test_a_glob_without_a_match(store: Any, glob: str) -> None:
    with pytest.raises(UsageError, match="no file matches"):
        find_files(glob, Access(store))


def test_a_name_that_pyiceberg_would_cut_is_never_another_file(store: Any, tmp_path: Path) -> None:
    for name in ("a", "a#b.parquet", "a?b.parquet"):
        (tmp_path / "bucket" / name).write_bytes(DATA.read_bytes())
    for sign in "#?" if isinstance(store, ArrowStore) else "":  # fsspec cuts nothing
        cut = f"s3://bucket/a{sign}b.parquet"
        for call in (
            lambda cut: sidecar.scan(cut, io=store),
            lambda cut, sign=sign: sidecar.strip(
                "s3://bucket/t/day=1/a.parquet", cut.replace("a" + sign, "new" + sign), io=store
            ),
            *([] if sign == "?" else [lambda cut: find_files(cut, Access(store))]),
        ):
            with pytest.raises(UsageError, match=f"with '\\{sign}' names another file"):
                call(cut)
    if isinstance(store, FsspecStore):
        (tmp_path / "bucket" / "a").unlink()
        assert sidecar.find("s3://bucket/a#b.parquet", {"i32_opt": -1999999999}, io=store).answer == "absent"
        assert sidecar.scan("s3://bucket/a?b.parquet", limit=1, io=store).num_rows == 1
    assert not (tmp_path / "bucket" / "new").exists()
    found = find_files("s3://bucket", Access(store))
    assert len(found.files) == len(NAMES)
    assert sorted(found.failed) == ["s3://bucket/a#b.parquet", "s3://bucket/a?b.parquet"]
    assert all("'#' or '?' in its name has no URL; file s3://bucket/a" in str(e) for e in found.failed.values())


def test_many_remote_files_are_read(store: Any) -> None:
    found = sidecar.inspect("s3://bucket/**/*.parquet", io=store, threads=3)
    single = [sidecar.inspect(file.file, io=store).only for file in found.files]
    assert list(found.files) == single
    assert [file.file for file in found.files] == list(find_files("s3://bucket/**/*.parquet", Access(store)).files)
    probed = sidecar.probe("s3://bucket/t/day=1/a.parquet", "i32_opt", -1999999999, io=store)
    assert (probed.files[0].might_contain, probed.files[0].reads > 0) == (False, True)


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    def fail(location: str) -> Any:
        raise OSError("no route to host")

    monkeypatch.setattr(store, "new_input", fail)
    with pytest.raises(StorageError, match=r"cannot list the folder: OSError: no route to host; file s3://bucket/t"):
        find_files("s3://bucket/t/*.parquet", Access(store))
    assert find_files("s3://bucket/t/a.parquet", Access(store)).files == ("s3://bucket/t/a.parquet",)
