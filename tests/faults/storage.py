"""Storage that breaks one of its requests: folders as sidecar and pyiceberg reach them, by three doors.

``file``: local paths. ``os`` of the modules that open, write and list local files is :class:`FaultyOs`; pyiceberg's own
files go through Arrow's file system. ``arrow`` and ``fsspec``: an object store, whose files appear when they are
closed, behind ``PyArrowFileIO`` and ``FsspecFileIO``. All of them ask :data:`FAULTS` about each request.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from fsspec import AbstractFileSystem
from pyarrow import PythonFile
from pyarrow.fs import FSSpecHandler, PyFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile, FsspecOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from sidecar import source, target
from sidecar.many_files import stored_files
from sidecar.source import local_path

Answer = TypeVar("Answer")
DOORS = ("file", "arrow", "fsspec")


class Mode(Enum):
    """How a request breaks."""

    ERROR = "error"
    """An input/output error, before any effect."""
    LATE = "timeout after it"
    """The server does it, and the client never hears of it."""
    RESET = "connection reset"
    """What is sent arrives in half, and an object is not made of it."""
    SHORT = "short body"
    """A read, or a write to a local file, takes half of the bytes, without an error."""
    FLIPPED = "flipped bytes"
    """One bit of what is read is another one."""
    STALE = "stale listing"
    """The answer is that of the storage as it was before the run."""
    FULL = "no space left"
    """The disk is full in the middle of a write."""
    DENIED = "permission denied"
    """Refused, before any effect."""


READS = ("read",)
LOOKS = ("length", "list", "open")
SENDS = ("create", "write", "send", "publish", "copy")
CHANGES = (*SENDS, "delete", "flush")
CATALOG = ("load", "commit")
FILES = (*READS, *LOOKS, *CHANGES)
BREAKS = {
    Mode.ERROR: (*FILES, *CATALOG),
    Mode.LATE: (*FILES, *CATALOG),
    Mode.RESET: (*FILES, *CATALOG),
    Mode.SHORT: (*READS, "write", "copy"),
    Mode.FLIPPED: READS,
    Mode.STALE: LOOKS,
    Mode.FULL: SENDS,
    Mode.DENIED: (*FILES, *CATALOG),
}
"""The requests that a mode breaks."""


class Request(NamedTuple):
    """A request, and what it is about."""

    kind: str
    path: str
    offset: int = 0
    length: int = 0

    def __str__(self) -> str:
        part = f" [{self.offset}:{self.offset + self.length}]" if self.kind == "read" else ""
        return f"{self.kind} {self.path}{part}"


class Faults:
    """Counts the requests that a mode breaks, and breaks one of them. Nothing is counted outside :meth:`armed`."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.broken: Request | None = None
        self.flip: Flip | None = None
        self._mode: Mode | None = None
        self._turn = -1
        self._folder: Path | None = None
        self._before: dict[str, os.stat_result] = {}
        self._lock = threading.Lock()

    @contextmanager
    def armed(self, mode: Mode, turn: int, folder: Path) -> Iterator[None]:
        """Break request ``turn`` of those that ``mode`` breaks in the files below ``folder``."""
        self.seen, self.broken, self.flip = [], None, None
        self._before = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
        self._mode, self._turn, self._folder = mode, turn, folder
        try:
            yield
        finally:
            self._mode = self._folder = None

    def covers(self, path: Any) -> bool:
        """Whether requests for a local path are counted now."""
        return self._folder is not None and str(path).startswith(str(self._folder))

    def stale(self, path: str) -> os.stat_result:
        """The state of a file before the run. Raises FileNotFoundError if there was none."""
        if path not in self._before:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._before[path]

    def stale_names(self, folder: str) -> dict[str, os.stat_result]:
        """The files of a folder before the run."""
        return {path: state for path, state in self._before.items() if os.path.dirname(path) == folder.rstrip("/")}

    def mode_of(self, request: Request) -> Mode | None:
        """How this request breaks; ``None`` if it is answered."""
        with self._lock:
            if self._mode is None or request.kind not in BREAKS[self._mode]:
                return None
            self.seen.append(request)
            if len(self.seen) != self._turn + 1:
                return None
            self.broken = request
            return self._mode

    def ask(self, request: Request, do: Callable[[], Answer], half: Callable[[], object] = lambda: None) -> Answer:
        """The answer to a request that has no answer of its own in a mode. ``half`` does it in part."""
        mode = self.mode_of(request)
        if mode is None:
            return do()
        if mode is Mode.LATE:
            do()
            raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
        if mode in (Mode.RESET, Mode.FULL):
            half()
        raise error_of(mode)

    def read(self, request: Request, do: Callable[[], bytes]) -> bytes:
        """The bytes of a read."""
        mode = self.mode_of(request)
        if mode is None:
            return do()
        if mode is Mode.SHORT:
            data = do()
            return data[: len(data) // 2]
        if mode is Mode.FLIPPED:
            data = do()
            self.flip = flip_in(request.path, request.offset, len(data), self._turn)
            return self.flip.applied(data, request.offset)
        raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer") if mode is Mode.LATE else error_of(mode)


FAULTS = Faults()


def error_of(mode: Mode) -> OSError:
    """The error of a mode that raises one."""
    number = {
        Mode.ERROR: errno.EIO,
        Mode.RESET: errno.ECONNRESET,
        Mode.FULL: errno.ENOSPC,
        Mode.DENIED: errno.EACCES,
        Mode.STALE: errno.ENOENT,
    }[mode]
    return OSError(number, os.strerror(number))


class Flip(NamedTuple):
    """A bit that arrived as another one."""

    path: str
    offset: int
    mask: int

    def applied(self, data: bytes, start: int = 0) -> bytes:
        """``data``, which begins at ``start`` in the file, as it arrived."""
        at = self.offset - start
        return data[:at] + bytes([data[at] ^ self.mask]) + data[at + 1 :]


def flip_in(path: str, start: int, length: int, turn: int) -> Flip:
    """The bit that flips in a read: another one in each turn."""
    spread = (turn + 1) * 2_654_435_761
    return Flip(path, start + spread % length, 1 << spread // length % 8)


class FaultyOs:
    """The module ``os``, whose requests to files that :data:`FAULTS` covers may break."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if not FAULTS.covers(path) or os.path.isdir(path):
            return os.open(path, flags, mode)
        kind = "create" if flags & os.O_CREAT else "open"
        how = FAULTS.mode_of(Request(kind, str(path)))
        if how is Mode.STALE:
            FAULTS.stale(str(path))
        elif how is Mode.LATE:
            os.close(os.open(path, flags, mode))
            raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
        elif how is not None:
            raise error_of(how)
        fd = os.open(path, flags, mode)
        self._paths[fd] = str(path)
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        os.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        if fd not in self._paths:
            return os.pread(fd, length, offset)
        request = Request("read", self._paths[fd], offset, length)
        return FAULTS.read(request, lambda: os.pread(fd, length, offset))

    def write(self, fd: int, data: Any) -> int:
        half = memoryview(data)[: len(data) // 2]
        if fd not in self._paths:
            return os.write(fd, data)
        request = Request("write", self._paths[fd], 0, len(data))
        mode = FAULTS.mode_of(request)
        if mode is None:
            return os.write(fd, data)
        if mode is Mode.SHORT:
            return os.write(fd, half if len(half) else data)
        if mode in (Mode.RESET, Mode.FULL):
            os.write(fd, half)
        if mode is Mode.LATE:
            os.write(fd, data)
            raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
        raise error_of(mode)

    def copy_file_range(self, src: int, dst: int, count: int, offset_src: int | None = None) -> int:
        mode = FAULTS.mode_of(Request("copy", self._paths.get(dst, ""), 0, count))
        if mode in (Mode.SHORT, Mode.RESET, Mode.FULL):
            done = os.copy_file_range(src, dst, max(count // 2, 1), offset_src)
            if mode is Mode.SHORT:
                return done
        if mode is not None:
            raise error_of(Mode.ERROR if mode is Mode.LATE else mode)
        return os.copy_file_range(src, dst, count, offset_src)

    def fsync(self, fd: int) -> None:
        if fd in self._paths:
            FAULTS.ask(Request("flush", self._paths[fd]), lambda: os.fsync(fd))
        else:
            os.fsync(fd)

    def link(self, old: str, new: str) -> None:
        self._covered("publish", new, lambda: os.link(old, new))

    def rename(self, old: str, new: str) -> None:
        self._covered("publish", new, lambda: os.rename(old, new))

    def unlink(self, path: str) -> None:
        self._covered("delete", path, lambda: os.unlink(path))

    def scandir(self, path: str) -> Any:
        if not FAULTS.covers(path):
            return os.scandir(path)
        mode = FAULTS.mode_of(Request("list", str(path)))
        if mode is None:
            return os.scandir(path)
        if mode is Mode.STALE:
            return _Listing([_StaleEntry(name, state) for name, state in FAULTS.stale_names(str(path)).items()])
        raise TimeoutError(errno.ETIMEDOUT, "no answer") if mode is Mode.LATE else error_of(mode)

    @staticmethod
    def _covered(kind: str, path: str, do: Callable[[], None]) -> None:
        if FAULTS.covers(path):
            FAULTS.ask(Request(kind, str(path)), do)
        else:
            do()


class _StaleEntry:
    """An entry of a listing that is not true any more."""

    def __init__(self, path: str, state: os.stat_result) -> None:
        self.path, self.name, self._state = path, os.path.basename(path), state

    def stat(self, follow_symlinks: bool = True) -> os.stat_result:
        return self._state

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return True


class _Listing(list[Any]):
    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None: ...


@contextmanager
def local_storage() -> Iterator[None]:
    """Have sidecar's own modules reach local files through :class:`FaultyOs`."""
    faulty = FaultyOs()
    patches = [mock.patch.object(module, "os", faulty) for module in (source, target, stored_files)]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


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
        if mode is Mode.LATE:
            raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
        if mode is not None:
            raise error_of(mode)
        return _info(path, os.stat(real))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        real = self.real(path)
        mode = FAULTS.mode_of(Request("list", real)) if FAULTS.covers(real) else None
        if mode is Mode.LATE:
            raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
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
    elif mode is Mode.LATE:
        raise TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
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
        io = {"file": FileDoor, "arrow": ArrowDoor, "fsspec": FsspecDoor}[self.name]
        catalog = FaultyCatalog(
            "faulty",
            **{
                "uri": f"sqlite:///{self._folder}/cat.db",
                "warehouse": f"file://{self._folder}/wh" if self.name == "file" else "store://wh",
                "folder": str(self._folder),
                "py-io-impl": f"{io.__module__}.{io.__name__}",
            },
        )
        catalog.create_namespace_if_not_exists("db")
        return catalog

    def location(self, name: str) -> str:
        """The location of a file that is not the table's."""
        return f"{self._folder}/wh/files/{name}" if self.name == "file" else f"store://wh/files/{name}"

    def io(self, table: Any) -> Any:
        """What reaches files: nothing for local paths."""
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
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._kept, self._folder)

    @contextmanager
    def breaking(self, mode: Mode, turn: int) -> Iterator[None]:
        """Break request ``turn`` of those that ``mode`` breaks."""
        with local_storage(), FAULTS.armed(mode, turn, self._folder):
            yield
