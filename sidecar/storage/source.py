"""Byte sources: the only place where sidecar opens files for reading.

A source has a name, a length and ranged reads. Format code reads through a source, so one decoder
serves local files, object stores and Spark tasks. A caller that already knows the length (from a manifest
entry, a statistics entry) passes it in and saves a request.

The cost of a request decides how ranges are fetched. A local read takes microseconds. A request to an object
store takes tens of milliseconds, enough time to transfer a megabyte. For remote files, one request therefore
fetches the last :data:`REMOTE_TAIL` bytes, where footers and indexes are, and keeps them; ranges with up to
:data:`REMOTE_GAP` bytes between them share a request; and several requests run at the same time.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError, foreign_reason, without_credentials
from sidecar.run import ReportingThreads

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, InputFile

COALESCE_GAP = 16 * 1024
"""Ranges of a local file that are at most this many bytes apart are fetched in one read."""

REMOTE_GAP = 256 * 1024
"""Ranges of a remote file that are at most this many bytes apart are fetched in one read."""

REMOTE_TAIL = 256 * 1024
"""The first read that reaches the end of a remote file fetches this many bytes of its tail and keeps them.

Any read of a shorter file fetches the whole file. Both need a known file length.
"""

REQUESTS_AT_ONCE = 8
"""Ranges of a remote file that are requested at the same time."""

ANSWER_SECONDS = 120.0
"""Seconds that a read from a remote file system of fsspec may take, all attempts of its client together.

Each :data:`SLOWEST` bytes that are asked for add a second. s3fs alone asks a server that never answers 125 times, for
half an hour. Arrow's file systems have limits of their own.
"""
SLOWEST = 64 * 1024
"""Bytes a second at which a read is still waited for."""
WHOLE_FILE = 64 << 20
"""Bytes that a file of unknown length counts as: manifests and metadata are shorter."""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""The control characters of ASCII, which no location may have."""
_MOST_JOINED = 1 << 20
"""A local read of this many bytes is not made longer: copying its parts costs more than another read."""

_DIGEST_STEP = 8 << 20
_LOCAL_DIGEST_STEP = 1 << 20
"""Bytes that are hashed at once: a request to a store takes long, but what is read from a disk stays in the cache."""

AnyPath = str | os.PathLike[str]
"""A path or URL as callers give it; ``os.fspath`` makes text of it."""


class Source(Protocol):
    """Anything with a name, a length and ranged reads."""

    name: str
    """The path or URL, for messages."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``; raise :class:`DamagedFileError` if the file is too short."""

    def close(self) -> None:
        """Release open handles. A second call does nothing."""


def check_range(name: str, size: int, offset: int, length: int) -> None:
    """Raise :class:`DamagedFileError` unless ``[offset, offset + length)`` is inside ``size`` bytes."""
    if offset < 0 or length < 0 or offset + length > size:
        raise DamagedFileError(
            "a range is outside the file",
            file=name,
            offset=offset,
            expected=f"at most {size} bytes",
            found=f"{length} bytes from {offset}",
        )


class BytesSource:
    """A source over bytes in memory."""

    def __init__(self, data: bytes | memoryview, name: str = "<memory>") -> None:
        self.name = name
        self._data = data

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        check_range(self.name, self.size, offset, length)
        return bytes(self._data[offset : offset + length])

    def close(self) -> None:
        """Do nothing: a source in memory has no open handle."""


class LocalSource:
    """A local file, read with ``pread``. Safe to share between threads."""

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
            if stat.S_IFMT(os.fstat(self._fd).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                raise StorageError("the path is not that of a file", file=path)
            self._size, self._written_at = _state(self._fd)
        except OSError as error:
            raise StorageError(f"cannot open the file: {error.strerror}", file=path) from error

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        check_range(self.name, self._size, offset, length)
        parts: list[bytes] = []
        while length:
            try:
                part = os.pread(self._fd, length, offset)
            except OSError as error:
                raise StorageError(f"cannot read: {error.strerror}", file=self.name, offset=offset) from error
            if not part:
                raise DamagedFileError("the file ended early", file=self.name, offset=offset)
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fileno(self) -> int:
        """Return the file descriptor, for copies inside the kernel."""
        return self._fd

    def check_unchanged(self) -> None:
        """Raise :class:`StorageError` if the file was written to since it was opened."""
        if _state(self._fd) != (self._size, self._written_at):
            raise StorageError(
                "the file changed while sidecar was reading it",
                file=self.name,
                hint="Try again when no other program writes to it.",
            )

    def close(self) -> None:
        """Close the file descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1


def _state(fd: int) -> tuple[int, int]:
    """Return the length of an open file in bytes and its modification time in nanoseconds."""
    state = os.fstat(fd)
    return state.st_size, state.st_mtime_ns


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
                raise StorageError(f"cannot get the length: {foreign_reason(error)}", file=self.name) from error
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
            raise StorageError(f"cannot read: {foreign_reason(error)}", file=self.name, offset=offset) from error
        if len(data) != length:
            raise DamagedFileError(
                "the file ended early", file=self.name, offset=offset, expected=length, found=len(data)
            )
        return data

    def filesystem(self) -> Any:
        """Return the fsspec file system that the file is on, ``None`` if its ``FileIO`` does not use fsspec."""
        return fsspec_of(file_at(self._io, self.name))

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


class RepeatedIO(NamedTuple):
    """Stands for ``io`` in work that may run twice at the same time or later, as on Spark (see ``target``)."""

    io: FileIO | None


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


def fsspec_of(file: Any) -> Any:
    """Return the fsspec file system behind a pyiceberg file, ``None`` if the file does not use fsspec."""
    filesystem: Any = getattr(file, "_fs", None)
    return filesystem if hasattr(filesystem, "cat_file") else None


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
    end = None if length is None else offset + length
    ask = partial(filesystem.cat_file, path, start=offset, end=end)
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
        raise StorageError(f"cannot read: {foreign_reason(error)}", file=path) from error


class WrappingSource:
    """Base of sources that read from another source, ``inner``. They suit the same reads, and close it."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.name = inner.name

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.inner.size

    @property
    def gap(self) -> int:
        """See :func:`gap_of`."""
        return gap_of(self.inner)

    @property
    def requests_at_once(self) -> int:
        """See :func:`requests_at_once`."""
        return requests_at_once(self.inner)

    def close(self) -> None:
        """Close the inner source."""
        self.inner.close()


class ObservingSource(WrappingSource):
    """Base of sources that return the bytes of the inner source as they are, see :func:`stored_file`."""


class CountingSource(ObservingSource):
    """Wraps a source and counts reads and bytes, for tests and for the reports of plans."""

    def __init__(self, inner: Source) -> None:
        super().__init__(inner)
        self.reads = 0
        self.bytes_read = 0
        self._lock = threading.Lock()

    def continue_with(self, inner: Source) -> None:
        """Read from another source of the same file from now on, and count anew."""
        self.inner = inner
        self.reads = self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """Count a read and pass it on, see :meth:`Source.read`."""
        with self._lock:
            self.reads += 1
            self.bytes_read += length
        return self.inner.read(offset, length)

    @property
    def encryption(self) -> Any:
        """Encryption details of a decrypted view, see :mod:`sidecar.parquet.encrypted.plain_view`; else ``None``."""
        return getattr(self.inner, "encryption", None)


class SourceFile:
    """A seekable read-only file object over a source, for libraries that need one (pyarrow)."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes from the current position, all remaining bytes if ``size`` is negative."""
        left = self._source.size - self._position
        length = left if size is None or size < 0 else max(min(size, left), 0)
        data = self._source.read(self._position, length) if length > 0 else b""
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position as ``io.IOBase.seek`` does."""
        base = (0, self._position, self._source.size)[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the current position in bytes."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: writing is not supported."""

    def close(self) -> None:
        """Mark the file object as closed. The source stays open; its owner closes it."""
        self.closed = True


def digest_ranges(source: Source, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the SHA-256 of all ranges ``(offset, length)`` in order, each after its length (8 bytes, little-endian).

    Raises :class:`DamagedFileError` for a negative length, and if the ranges together are longer than the file, because
    ranges of one file do not overlap.
    """
    for offset, length in ranges:
        if length < 0:
            raise DamagedFileError(
                "a part of the file has a negative length", file=source.name, offset=offset, found=length
            )
    total = sum(length for _, length in ranges)
    if total > source.size:
        raise DamagedFileError(
            "the parts of the file are longer than the file",
            file=source.name,
            expected=f"at most {source.size} bytes",
            found=f"{total} bytes",
        )
    digest, step = hashlib.sha256(), _LOCAL_DIGEST_STEP if costs_no_request(source) else _DIGEST_STEP
    for offset, length in ranges:
        digest.update(length.to_bytes(8, "little"))
        for at in range(offset, offset + length, step):
            digest.update(source.read(at, min(step, offset + length - at)))
    return digest.digest()


def read_ranges(source: Source, ranges: Sequence[tuple[int, int]], gap: int | None = None) -> list[bytes]:
    """Return the bytes of each ``(offset, length)``, in the order of ``ranges``.

    Neighbours with at most ``gap`` bytes between them (default: the source's) share one read. Remote reads run in
    parallel. Ranges may overlap. Raises :class:`DamagedFileError` for a range that cannot be read; damage between
    ranges does not matter.
    """
    answers = try_ranges(source, ranges, gap)
    for answer in answers:
        if isinstance(answer, DamagedFileError):
            raise answer
    return [answer for answer in answers if isinstance(answer, bytes)]


def try_ranges(
    source: Source, ranges: Sequence[tuple[int, int]], gap: int | None = None
) -> list[bytes | DamagedFileError]:
    """Like :func:`read_ranges`, but return the error in place of a damaged range's bytes. Storage errors raise."""
    order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    near = gap_of(source) if gap is None else gap
    most = _MOST_JOINED if costs_no_request(source) else source.size
    runs: list[tuple[int, int, list[int]]] = []
    at = 0
    while at < len(order):
        start, length = ranges[order[at]]
        end, last = start + length, at + 1
        while last < len(order) and ranges[order[last]][0] <= end + near and end - start <= most:
            end = max(end, sum(ranges[order[last]]))
            last += 1
        runs.append((start, end, order[at:last]))
        at = last
    out: list[bytes | DamagedFileError] = [b""] * len(ranges)
    for (start, _, members), data in zip(runs, _read_all(source, runs), strict=True):
        for i in members:
            offset, length = ranges[i]
            if isinstance(data, bytes):
                out[i] = data[offset - start : offset - start + length]
            else:
                # A joined read failed: read each range alone, so that only the damaged ones fail.
                out[i] = data if len(members) == 1 else _try(source, offset, length)
    return out


def _read_all(source: Source, runs: Sequence[tuple[int, int, list[int]]]) -> Iterable[bytes | DamagedFileError]:
    at_once = min(requests_at_once(source), len(runs))
    if at_once < 2:
        return [_try(source, start, end - start) for start, end, _ in runs]
    with ReportingThreads(at_once, "sidecar-read") as pool:
        return list(pool.map(lambda run: _try(source, run[0], run[1] - run[0]), runs))


def _try(source: Source, offset: int, length: int) -> bytes | DamagedFileError:
    try:
        return source.read(offset, length)
    except DamagedFileError as error:
        return error


def check_unchanged(source: Source) -> None:
    """Raise :class:`StorageError` if a local file was written to since it was opened.

    A reader of values first and pages later would otherwise mix two contents. If another file took the path, the open
    one is still read, which is fine. Remote files are not checked.
    """
    while (inner := getattr(source, "inner", None)) is not None:
        source = inner
    if isinstance(source, LocalSource):
        source.check_unchanged()


def stored_file(source: Source) -> Source:
    """Return the source of a file as it is stored, beneath sources that only look at what is read."""
    while isinstance(source, ObservingSource):
        source = source.inner
    return source


def gap_of(source: Source) -> int:
    """Return the largest gap in bytes between two ranges that is cheaper to read than to skip."""
    return getattr(source, "gap", COALESCE_GAP)


def requests_at_once(source: Source) -> int:
    """Return how many reads of a source are worth making at the same time."""
    return getattr(source, "requests_at_once", 1)


def costs_no_request(source: Source) -> bool:
    """Return whether reads come from a disk or from memory, not from a store that answers requests."""
    return requests_at_once(source) == 1


def file_at(io: FileIO, location: str) -> InputFile:
    """Return a file of ``io`` for reading. Raises :class:`StorageError` for a location with control characters."""
    refuse_control_characters(location)
    return io.new_input(location)


def refuse_control_characters(location: str) -> None:
    """Raise :class:`StorageError` for a location with control characters.

    pyiceberg's parser of URLs drops tabs and line breaks, so it would open, replace or delete another file.
    """
    if CONTROL.search(location):
        raise StorageError("the name of a file must not have control characters", file=location)


@runtime_checkable
class ChecksLocations(Protocol):
    """A ``FileIO`` that allows some locations only. Local files are opened without the ``FileIO``, so it is asked."""

    def check_location(self, location: str) -> None:
        """Raise :class:`StorageError` for a location that is not allowed."""


def open_source(path: AnyPath, io: FileIO | None = None, size: int | None = None) -> Source:
    """Open a local path, a ``file:`` URL or, through ``io`` (default: pyiceberg's choice), any other location.

    Raises :class:`StorageError` if a local file cannot be opened or ``io`` does not allow the location, and
    :class:`UsageError` for an ``https:`` URL and for anything but one path.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(
            "a file is named by one path",
            found=type(path).__name__,
            hint="inspect, probe, verify, embed, strip, extract and convert take several.",
        )
    path = os.fspath(path)
    refuse_control_characters(path)
    opener: object = io  # type checkers do not take a RepeatedIO for a FileIO
    if isinstance(opener, RepeatedIO):
        opener = io = opener.io
    if isinstance(opener, ChecksLocations):
        opener.check_location(path)
    local = local_path(path)
    if local is not None:
        return LocalSource(local)
    check_scheme(path, io)
    if io is None:
        from pyiceberg.io import load_file_io

        io = load_file_io(location=path)
    return FileIOSource(io, path, size)


def check_scheme(url: str, io: FileIO | None) -> None:
    """Raise :class:`UsageError` for a URL of the web, which pyiceberg's own file systems do not open."""
    scheme = url.partition("://")[0].lower()
    if io is None and scheme in ("http", "https", "ftp"):
        raise UsageError(
            f"a file cannot be read over {scheme}://",
            file=without_credentials(url),
            hint="Download it first, or name it by the URL of its object store, such as s3://bucket/key.",
        )


def has_cheap_ranges(path: str, io: FileIO, size: int) -> bool:
    """Return whether reading a whole file through a source saves requests: it is remote, and short or on fsspec."""
    if local_path(path) is not None:
        return False
    return size <= REMOTE_TAIL or fsspec_of(file_at(io, path)) is not None


def local_path(location: str) -> str | None:
    """Return the local path that a location names, ``None`` for an object store or another host."""
    if location.startswith("file:"):
        rest = location[5:]
        return "/" + rest.lstrip("/") if not rest.startswith("//") or rest.startswith("///") else None
    return None if "://" in location else location


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
