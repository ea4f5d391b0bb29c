"""Lists the files of one folder with their lengths and times, as the storage states them."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sidecar.dependencies.pyiceberg import arrow_place, fsspec_of, path_in_fsspec
from sidecar.errors import StorageError, UnsupportedFeatureError, foreign_reason
from sidecar.storage.locations import file_at, local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


class StoredFile(NamedTuple):
    """A file in a folder."""

    name: str
    """The name in the folder."""
    size: int
    """Length in bytes."""
    modified: float
    """When it was last written, in seconds since 1970, by the storage's clock."""


def list_stored_files(folder: str, io: FileIO) -> list[StoredFile]:
    """Return the files in a folder, sorted by name, without those in folders below; nothing if there is no folder.

    Local folders are listed by themselves, others by the file system of ``io``, that of Arrow or fsspec. Raises
    :class:`StorageError` if the storage fails, and :class:`UnsupportedFeatureError` if ``io`` has no file system that
    lists, or one that does not state a file's length or time.
    """
    local = local_path(folder)
    try:
        found = _list_local(local) if local is not None else _list_remote(folder, io)
    except UnsupportedFeatureError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else foreign_reason(error)
        raise StorageError(f"cannot list the folder: {reason}", file=folder) from error
    return sorted(found)


def filesystem_of(io: FileIO, location: str) -> tuple[Any, str, bool]:
    """Return the file system of a location, the path in it without a slash at the end, and whether it is Arrow's.

    Raises :class:`UnsupportedFeatureError` if ``io`` uses neither Arrow's file systems nor fsspec.
    """
    file: Any = file_at(io, location)
    filesystem = fsspec_of(file)
    if filesystem is not None:
        return filesystem, path_in_fsspec(filesystem, location).rstrip("/"), False
    place = arrow_place(file)
    if place is None:
        raise UnsupportedFeatureError(
            "the files of this storage cannot be listed",
            file=location,
            expected="a FileIO on Arrow's file systems or on fsspec",
            found=type(io).__name__,
        )
    return place[0], place[1].rstrip("/"), True


def _list_local(folder: str) -> list[StoredFile]:
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    state = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted meanwhile
                    continue
                if stat.S_ISREG(state.st_mode):
                    files.append(StoredFile(entry.name, state.st_size, state.st_mtime))
    except FileNotFoundError:
        return []
    return files


def _list_remote(folder: str, io: FileIO) -> list[StoredFile]:
    filesystem, path, is_arrow = filesystem_of(io, folder)
    if is_arrow:
        from pyarrow.fs import FileSelector, FileType

        infos = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return [_stored(folder, i.base_name, i.size, i.mtime_ns) for i in infos if i.type == FileType.File]
    filesystem.invalidate_cache()  # fsspec's file systems remember listings
    try:
        found = filesystem.ls(path, detail=True)
    except FileNotFoundError:
        return []
    return [
        _stored(folder, i["name"].rpartition("/")[2], i["size"], _nanoseconds(i)) for i in found if i["type"] == "file"
    ]


def _nanoseconds(info: dict[str, Any]) -> int | None:
    """Return the time of a file as fsspec's file systems state it, each by its own name."""
    for name in ("LastModified", "last_modified", "mtime", "updated"):
        found = info.get(name)
        if isinstance(found, str):
            found = datetime.fromisoformat(found)
        if isinstance(found, datetime):
            return int(found.timestamp() * 1e9)
        if isinstance(found, int | float):
            return int(found * 1e9)
    return None


def _stored(folder: str, name: str, size: int | None, nanoseconds: int | None) -> StoredFile:
    if size is None or nanoseconds is None:
        raise UnsupportedFeatureError(
            "the storage does not state the length and time of a file", file=f"{folder}/{name}"
        )
    return StoredFile(name, size, nanoseconds / 1e9)
