"""Listing a folder with lengths and times, behind each kind of FileIO that lists."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from sidecar.errors import StorageError, UnsupportedFeatureError
from sidecar.many_files import stored_files
from sidecar.many_files.stored_files import StoredFile, list_stored_files
from tests.many_files.test_remote import ArrowStore, FsspecStore

EXPECTED = [StoredFile("a.stats", 3, 1_000_000.0), StoredFile("b.json", 0, 1_000_000.0)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and a folder with a third one."""
    made = tmp_path / "bucket" / "t"
    (made / "below").mkdir(parents=True)
    for name, text in (("a.stats", "abc"), ("b.json", ""), ("below/c.stats", "c")):
        (made / name).write_text(text)
        os.utime(made / name, (1_000_000, 1_000_000))
    return made


@pytest.mark.parametrize("store", [ArrowStore, FsspecStore])
def test_a_folder_of_a_store(folder: Path, store: Any) -> None:
    io = store(folder.parents[1])
    assert list_stored_files("s3://bucket/t", io) == EXPECTED
    assert list_stored_files("s3://bucket/none", io) == []


def test_a_local_folder(folder: Path) -> None:
    (folder / "link.stats").symlink_to(folder / "a.stats")
    for location in (str(folder), f"file:{folder}", f"file://{folder}"):
        assert list_stored_files(location, PyArrowFileIO()) == EXPECTED
    assert list_stored_files(f"{folder}/none", PyArrowFileIO()) == []


def test_a_folder_that_cannot_be_listed_is_an_error(folder: Path) -> None:
    with pytest.raises(StorageError, match="cannot list the folder: Not a directory"):
        list_stored_files(f"{folder}/a.stats", PyArrowFileIO())


@pytest.mark.parametrize(
    "info",
    [
        {"LastModified": datetime(1970, 1, 12, 13, 46, 40, tzinfo=timezone.utc)},
        {"last_modified": datetime(1970, 1, 12, 13, 46, 40, tzinfo=timezone.utc)},
        {"updated": "1970-01-12T13:46:40+00:00"},
        {"mtime": 1_000_000},
    ],
    ids=lambda info: next(iter(info)),
)
def test_each_file_system_of_fsspec_names_the_time_in_its_own_way(info: dict[str, Any]) -> None:
    assert stored_files._nanoseconds(info) == 10**15


def test_a_store_that_states_no_time_is_unsupported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_files, "_nanoseconds", lambda info: None)
    with pytest.raises(UnsupportedFeatureError, match="does not state"):
        list_stored_files("s3://bucket/t", FsspecStore(folder.parents[1]))
