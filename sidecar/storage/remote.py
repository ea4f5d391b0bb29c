"""Reads remote files through pyiceberg's ``FileIO``, with a limit of time for each request.

The cost of a request (:mod:`sidecar.storage.costs`) decides how ranges are fetched. One request fetches the last
:data:`REMOTE_TAIL` bytes, where footers and indexes are, and keeps them. Ranges with up to :data:`REMOTE_GAP` bytes
between them share a request, and several requests run at the same time (:mod:`sidecar.storage.ranges`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from sidecar.dependencies.pyiceberg import fsspec_of
from sidecar.errors import DamagedFileError, SidecarError, StorageError, foreign_reason
from sidecar.storage.costs import REMOTE_GAP, REMOTE_TAIL, REQUESTS_AT_ONCE
from sidecar.storage.locations import file_at, local_path, refuse_control_characters
from sidecar.storage.source import check_range
from sidecar.storage.stores import denied_hint

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

ANSWER_SECONDS = 120.0
"""Seconds that a read from a remote file system of fsspec may take, all attempts of its client together.

Each :data:`SLOWEST` bytes that are asked for add a second. s3fs alone asks a server that never answers 125 times, for
half an hour. Arrow's file systems have limits of their own.
"""
SLOWEST = 64 * 1024
"""Bytes a second at which a read is still waited for."""
WHOLE_FILE = 64 << 20
"""Bytes that a file of unknown length counts as: manifests and metadata are shorter."""


class FileIOSource:
    """A file behind pyiceberg's ``FileIO``. It sends no request before the first read.

    With fsspec, a read is one ranged request. Arrow's file systems ask for the length of every file that they open,
    even if it is known, which costs one more request. Safe to share between threads; reads do not block each other.
    """

    gap = REMOTE_GAP
    requests_at_once = REQUESTS_AT_ONCE

    def __init__(self, io: FileIO, path: str, size: int | None = None) -> None:
        self.name = path
        self._io = io
        self._size = size
        self._open: _Opened | None = None
        self._tail: bytes | None = None
        self._lock, self._opening = threading.Lock(), threading.Lock()

    @property
    def size(self) -> int:
        """Length in bytes. Sends a request only if the length was not given."""
        if self._size is None:
            try:
                self._size = _length(file_at(self._io, self.name), self.name)
            except Exception as error:
                raise _failed("cannot get the length", error, self.name) from error
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        if self._size is not None:
            check_range(self.name, self._size, offset, length)
        if not length:
            return b""
        if self._size is None or length > REMOTE_TAIL:
            return self._fetch(offset, length)
        if offset + length == self._size or self._size <= REMOTE_TAIL:
            with self._lock:
                if self._tail is None or offset < self._size - len(self._tail):
                    start = max(0, min(offset, self._size - REMOTE_TAIL))
                    self._tail = self._fetch(start, self._size - start)
        at = -1 if self._tail is None else offset - self._size + len(self._tail)
        return self._fetch(offset, length) if self._tail is None or at < 0 else self._tail[at : at + length]

    def _fetch(self, offset: int, length: int) -> bytes:
        try:
            data = self._opened().read(offset, length)
        except Exception as error:
            raise _failed("cannot read", error, self.name, offset) from error
        if len(data) != length:
            raise DamagedFileError(
                "the file ended early", file=self.name, offset=offset, expected=length, found=len(data)
            )
        return data

    def _opened(self) -> _Opened:
        with self._opening:
            if self._open is None:
                self._open = _opened(self._io, self.name)
            return self._open

    def close(self) -> None:
        """Close the file if it is open."""
        with self._opening:
            if self._open is not None:
                self._open.close()
                self._open = None


@runtime_checkable
class StaysInDriver(Protocol):
    """A ``FileIO`` of the driver's JVM: Spark's workers cannot have it."""

    stays_in_driver: Literal[True]


class _Opened(NamedTuple):
    """An open file of a ``FileIO``. ``read`` takes offset and length and returns fewer bytes only at the file's end."""

    read: Callable[[int, int], bytes]
    close: Callable[[], object] = lambda: None


def _opened(io: FileIO, path: str) -> _Opened:
    file = file_at(io, path)
    filesystem = fsspec_of(file)
    if filesystem is not None:
        return _Opened(lambda offset, length: fetch(filesystem, path, offset, length))
    stream: Any = file.open()
    if hasattr(stream, "read_at"):
        return _Opened(lambda offset, length: bytes(stream.read_at(length, offset)), stream.close)
    lock = threading.Lock()

    def read(offset: int, length: int) -> bytes:
        with lock:
            stream.seek(offset)
            return _read_fully(stream, length)

    return _Opened(read, stream.close)


def is_stored(path: str, io: FileIO) -> bool:
    """Return whether a file exists. Raises what the storage raises: no answer is not taken for a no.

    ``exists`` of fsspec takes any error for a no, and that of s3fs answers from the folder's last listing, which does
    not have what others have written since.
    """
    file = file_at(io, path)
    filesystem = fsspec_of(file)
    if filesystem is None:
        return file.exists()
    filesystem.invalidate_cache(path)
    try:
        _info(filesystem, path)
    except FileNotFoundError:
        return False
    return True


def _length(file: Any, path: str) -> int:
    filesystem = fsspec_of(file)
    if filesystem is None:
        return len(file)
    found = _info(filesystem, path)
    return int(found["Size"] if "Size" in found else found["size"])


def _info(filesystem: Any, path: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _in_time(filesystem, partial(filesystem.info, path), 0)
    return found


def fetch(filesystem: Any, path: str, offset: int, length: int | None = None) -> bytes:
    """Read a range of a file in one request to an fsspec file system, to the file's end without a ``length``.

    Raises what the file system raises, and ``TimeoutError`` after :data:`ANSWER_SECONDS`.
    """
    ask = partial(filesystem.cat_file, path, start=offset, end=None if length is None else offset + length)
    return bytes(_in_time(filesystem, ask, WHOLE_FILE if length is None else length))


def _in_time(filesystem: Any, ask: Callable[..., Any], length: int) -> Any:
    """Call a method of an fsspec file system that reads ``length`` bytes, and end it if no answer comes in time.

    Methods of asynchronous file systems, which all remote ones are, can be ended.
    """
    if not getattr(filesystem, "async_impl", False):
        return ask()
    from fsspec.exceptions import FSTimeoutError  # type: ignore[import-untyped]

    seconds = ANSWER_SECONDS + length / SLOWEST
    try:
        return ask(timeout=seconds)
    except FSTimeoutError as error:
        raise TimeoutError(f"no answer in {seconds:.0f} s") from error


def read_file(path: str, io: FileIO) -> bytes:
    """Read a whole file of unknown length, in one request if ``io`` can. Raises :class:`StorageError`."""
    refuse_control_characters(path)
    local = local_path(path)
    if local is not None and os.path.exists(local) and not os.path.isfile(local) and not os.path.isdir(local):
        raise StorageError("the path is not that of a file", file=path)
    try:
        file: Any = file_at(io, path)
        filesystem = fsspec_of(file)
        if filesystem is not None:
            return fetch(filesystem, path, 0)  # without a start, s3fs sends one more request for the length
        with file.open() as stream:
            return bytes(stream.read())
    except SidecarError:
        raise
    except Exception as error:
        raise _failed("cannot read", error, path) from error


def _failed(what: str, error: Exception, path: str, offset: int | None = None) -> StorageError:
    reason = foreign_reason(error)
    return StorageError(f"{what}: {reason}", file=path, offset=offset, hint=denied_hint(path, reason))


def has_cheap_ranges(path: str, io: FileIO, size: int) -> bool:
    """Return whether reading a whole file through a source saves requests: it is remote, and short or on fsspec."""
    if local_path(path) is not None:
        return False
    return size <= REMOTE_TAIL or fsspec_of(file_at(io, path)) is not None


def _read_fully(stream: IO[bytes], length: int) -> bytes:
    """Read until ``length`` bytes are there or the stream ends. A short read alone does not mean the end."""
    parts: list[bytes] = []
    left = length
    while left:
        part = stream.read(left)
        if not part:
            break
        parts.append(bytes(part))
        left -= len(part)
    return b"".join(parts)
