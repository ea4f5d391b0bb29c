"""A lake in a folder that breaks a request, as sidecar and pyiceberg reach it, by three doors.

``file``: local paths. sidecar's own requests go through :mod:`tests.faults.faulty_os`; pyiceberg's own files go through
Arrow's file system. ``arrow`` and ``fsspec``: an object store, whose files appear when they are closed, behind
``PyArrowFileIO`` and ``FsspecFileIO``. All of them ask :data:`FAULTS` about each request.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from pyarrow import PythonFile
from pyarrow.fs import FSSpecHandler, PyFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile, FsspecOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from sidecar.storage.locations import local_path
from tests.faults.faults import BREAKS, FAULTS, Mode, Request, error_of
from tests.faults.faulty_os import local_storage

DOORS = ("file", "arrow", "fsspec")


class FaultyFolder(AbstractFileSystem):  # type: ignore[misc]
    """A folder as a file system of fsspec. ``is_store``: a file appears when it is closed, whole or not at all."""

    protocol = "store"
    cachable = False

    def __init__(self, root: str, is_store: bool) -> None:
        super().__init__()
        self._root, self._is_store = root, is_store

    def real(self, path: str) -> str:
        path = path.split("://", 1)[-1]
        return f"{self._root}/{path.lstrip('/')}" if self._is_store else "/" + path.removeprefix("file:").lstrip("/")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.split("://", 1)[-1].rstrip("/")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        real = self.real(path)
        if os.path.isdir(real):
            return {"name": path, "size": 0, "type": "directory"}
        mode = FAULTS.mode_of(Request("length", real)) if FAULTS.covers(real) else None
        if mode is Mode.STALE:
            return _info(path, FAULTS.stale(real))
        if mode is not None:
            raise error_of(mode)
        return _info(path, os.stat(real))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        real = self.real(path)
        mode = FAULTS.mode_of(Request("list", real)) if FAULTS.covers(real) else None
        if mode not in (None, Mode.STALE):
            raise error_of(mode)  # type: ignore[arg-type]
        if mode is Mode.STALE:
            found = FAULTS.stale_names(real)
        else:
            with os.scandir(real) as entries:
                found = {entry.path: entry.stat() for entry in entries if entry.is_file()}
        infos = [_info(f"{path.rstrip('/')}/{os.path.basename(name)}", state) for name, state in found.items()]
        return infos if detail else [info["name"] for info in infos]

    def find(self, path: str, maxdepth: Any = None, withdirs: bool = False, detail: bool = False, **_: Any) -> Any:
        infos = self.ls(path)
        return {info["name"]: info for info in infos} if detail else [info["name"] for info in infos]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        real, start = self.real(path), start or 0
        _answer_open(real)
        length = (os.path.getsize(real) if end is None else end) - start
        return FAULTS.read(Request("read", real, start, length), lambda: _read(real, start, length))

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        real = self.real(path)
        if "r" in mode:
            if FAULTS.covers(real):
                _answer_open(real)
            return _Reader(real)
        os.makedirs(os.path.dirname(real), exist_ok=True)
        return _Upload(real, self._is_store)

    def rm_file(self, path: str) -> None:
        real = self.real(path)
        FAULTS.ask(Request("delete", real), lambda: os.unlink(real))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        self.rm_file(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None: ...


def _answer_open(real: str) -> None:
    mode = FAULTS.mode_of(Request("open", real))
    if mode is Mode.STALE:
        FAULTS.stale(real)
    elif mode is not None:
        raise error_of(mode)


def _info(path: str, state: os.stat_result) -> dict[str, Any]:
    return {"name": path, "size": state.st_size, "type": "file", "mtime": state.st_mtime}


def _read(path: str, start: int, length: int) -> bytes:
    with open(path, "rb") as file:
        return os.pread(file.fileno(), length, start)


class _Reader:
    """An open file."""

    def __init__(self, path: str) -> None:
        self._path, self._file = path, open(path, "rb")  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        at = self._file.tell()
        length = size if size >= 0 else os.fstat(self._file.fileno()).st_size - at
        if not FAULTS.covers(self._path) or not length:
            return self._file.read(size)
        return FAULTS.read(Request("read", self._path, at, length), lambda: self._file.read(size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Upload:
    """A file that is being written."""

    def __init__(self, path: str, is_store: bool) -> None:
        self._path = path
        self._open_at = f"{path}.upload" if is_store else path
        FAULTS.ask(Request("create", path), self._begin)
        self._is_store = is_store

    def _begin(self) -> None:
        self._file = open(self._open_at, "wb")  # noqa: SIM115

    def write(self, data: Any) -> int:
        view = memoryview(data)
        FAULTS.ask(
            Request("send", self._path, 0, len(view)),
            lambda: self._file.write(view),
            lambda: self._file.write(view[: len(view) // 2]),
        )
        return len(view)

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.close()
        try:
            FAULTS.ask(Request("publish", self._path), lambda: os.replace(self._open_at, self._path))
        finally:
            if self._is_store and os.path.exists(self._open_at):
                os.unlink(self._open_at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(FSSpecHandler):  # type: ignore[misc]
    """Opens files without asking first whether they are files, as Arrow's own file systems do."""

    def open_input_stream(self, path: str) -> Any:
        return PythonFile(self.fs.open(path, mode="rb"), mode="r")

    open_input_file = open_input_stream


class ArrowDoor(PyArrowFileIO):
    """pyiceberg's ``FileIO`` on Arrow's file systems."""

    is_store = True

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
        return PyFileSystem(_Handler(FaultyFolder(self.properties["folder"], self.is_store)))


class FileDoor(ArrowDoor):
    """pyiceberg's ``FileIO`` on local files."""

    is_store = False


class FsspecDoor(FileIO):
    """pyiceberg's ``FileIO`` on fsspec."""

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        self._filesystem = FaultyFolder(self.properties["folder"], True)

    def new_input(self, location: str) -> InputFile:
        return FsspecInputFile(location, self._filesystem)

    def new_output(self, location: str) -> OutputFile:
        return FsspecOutputFile(location, self._filesystem)

    def delete(self, location: Any) -> None:
        self._filesystem.rm_file(location if isinstance(location, str) else location.location)


class FaultyCatalog(SqlCatalog):
    """A catalog whose requests may break."""

    def load_table(self, identifier: Any) -> Any:
        return FAULTS.ask(Request("load", str(identifier)), lambda: super(FaultyCatalog, self).load_table(identifier))

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        return FAULTS.ask(
            Request("commit", str(table.name())),
            lambda: super(FaultyCatalog, self).commit_table(table, requirements, updates),
        )


class FolderPlace:
    """A place for a lake: a folder behind one of :data:`DOORS`, and its state to go back to."""

    faults = FAULTS
    modes = tuple(BREAKS)

    def __init__(self, door: str, folder: Path) -> None:
        self.name, self._folder, self._kept = door, folder / "lake", folder / "kept"
        self._folder.mkdir(parents=True)

    def catalog(self) -> FaultyCatalog:
        """Its catalog, opened anew. It has the namespace ``db``."""
        is_new = not (self._folder / "cat.db").exists()
        io = {"file": FileDoor, "arrow": ArrowDoor, "fsspec": FsspecDoor}[self.name]
        catalog = FaultyCatalog(
            "faulty",
            **{
                "uri": f"sqlite:///{self._folder}/cat.db",
                "warehouse": f"file://{self._folder}/wh" if self.name == "file" else "store://wh",
                "folder": str(self._folder),
                "py-io-impl": f"{io.__module__}.{io.__name__}",
                "init_catalog_tables": str(is_new).lower(),
            },
        )
        if is_new:
            catalog.create_namespace("db")
        return catalog

    def location(self, name: str) -> str:
        """The location of a file that is not the table's."""
        return f"{self._folder}/wh/files/{name}" if self.name == "file" else f"store://wh/files/{name}"

    def io(self, table: Any) -> Any:
        """Return the FileIO that commands get; ``None`` for local paths."""
        return None if self.name == "file" else table.io

    def _real(self, location: str) -> Path:
        local = local_path(location)
        return self._folder / location.split("://", 1)[-1] if local is None else Path(local)

    def put(self, location: str, data: bytes) -> None:
        self._real(location).parent.mkdir(parents=True, exist_ok=True)
        self._real(location).write_bytes(data)

    def get(self, location: str) -> bytes:
        return self._real(location).read_bytes()

    def exists(self, location: str) -> bool:
        return self._real(location).exists()

    def delete(self, location: str) -> None:
        self._real(location).unlink()

    def keep(self) -> None:
        """Remember the state of all files."""
        shutil.copytree(self._folder, self._kept)

    def restore(self) -> None:
        """Go back to the state that was kept. The folder has the same path, because metadata names local files."""
        if self.is_as_kept():
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._kept, self._folder)

    def is_as_kept(self) -> bool:
        """Return whether the folder has exactly the files that were kept, unchanged."""
        return _state_of(self._folder) == _state_of(self._kept)

    @contextmanager
    def breaking(self, mode: Mode, turn: int) -> Iterator[None]:
        """Break request ``turn`` of those that ``mode`` breaks."""
        with local_storage(), FAULTS.armed(mode, turn, self._folder):
            yield


def _state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The length and the time of the last change of each file."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            state = os.stat(os.path.join(place, name))
            found[os.path.join(place[len(str(folder)) :], name)] = (state.st_size, state.st_mtime_ns)
    return found
