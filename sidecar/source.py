"""Byte sources: the one place of sidecar that opens files for reading.

A source is a length and ranged reads. Format code is handed one and asks it for bytes; the same decoder
so serves a local file, an object store and a Spark task. A length that is already known (from a manifest
entry, a statistics entry) is passed in and costs no request.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

from sidecar.errors import DamagedFileError, StorageError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

COALESCE_GAP = 16 * 1024
"""Ranges nearer to each other than this many bytes are fetched in one read."""


class Source(Protocol):
    """Anything with a name, a length and ranged reads."""

    name: str

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``, or :class:`DamagedFileError` if the file is too short."""

    def close(self) -> None:
        """Release what is held open; closing twice is fine."""


def check_range(name: str, size: int, offset: int, length: int) -> None:
    """Raise :class:`DamagedFileError` unless ``[offset, offset + length)`` lies inside ``size`` bytes."""
    if offset < 0 or length < 0 or offset + length > size:
        raise DamagedFileError(
            "a range lies outside the file",
            file=name,
            offset=offset,
            expected=f"at most {size} bytes",
            found=f"{length} bytes from {offset}",
        )


class BytesSource:
    """Bytes that are in memory already."""

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
        """Nothing is held open."""


class LocalSource:
    """A local file, read by ``pread``; safe to share between threads."""

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            self._fd = os.open(path, os.O_RDONLY)
            self._size = os.fstat(self._fd).st_size
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
        """The file descriptor, for what the kernel can do with it alone."""
        return self._fd

    def close(self) -> None:
        """Close the file descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1


class FileIOSource:
    """A file behind pyiceberg's ``FileIO``; opened at the first read, one stream under a lock."""

    def __init__(self, io: FileIO, path: str, size: int | None = None) -> None:
        self.name = path
        self._io = io
        self._size = size
        self._stream: Any = None
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Length in bytes; asks the storage only if it was not given."""
        if self._size is None:
            try:
                self._size = len(self._io.new_input(self.name))
            except Exception as error:
                raise StorageError(
                    f"cannot get the length: {foreign_reason(error)}", file=self.name
                ) from error
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        if self._size is not None:
            check_range(self.name, self._size, offset, length)
        with self._lock:
            try:
                if self._stream is None:
                    self._stream = self._io.new_input(self.name).open()
                self._stream.seek(offset)
                data = _read_fully(self._stream, length)
            except Exception as error:
                raise StorageError(
                    f"cannot read: {foreign_reason(error)}", file=self.name, offset=offset
                ) from error
        if len(data) != length:
            raise DamagedFileError(
                "the file ended early", file=self.name, offset=offset, expected=length, found=len(data)
            )
        return data

    def close(self) -> None:
        """Close the stream."""
        with self._lock:
            if self._stream is not None:
                self._stream.close()
                self._stream = None


class CountingSource:
    """Wraps a source and counts reads and bytes: what tests and plans report."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.name = inner.name
        self.reads = 0
        self.bytes_read = 0

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.inner.size

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`; counted."""
        self.reads += 1
        self.bytes_read += length
        return self.inner.read(offset, length)

    def close(self) -> None:
        """Close the source below."""
        self.inner.close()


class SourceFile:
    """A seekable read-only file object over a source, for libraries that want one (pyarrow)."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes from the current position (all that is left if negative)."""
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
        """The current position."""
        return self._position

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Mark as closed; the source stays open, its owner closes it."""
        self.closed = True


def read_ranges(source: Source, ranges: Sequence[tuple[int, int]], gap: int = COALESCE_GAP) -> list[bytes]:
    """Bytes of each ``(offset, length)``, fetching near neighbours in one read.

    The order of the answers is the order of ``ranges``. Ranges may overlap.
    """
    order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    out: list[bytes] = [b""] * len(ranges)
    at = 0
    while at < len(order):
        start, length = ranges[order[at]]
        end, last = start + length, at + 1
        while last < len(order) and ranges[order[last]][0] <= end + gap:
            end = max(end, sum(ranges[order[last]]))
            last += 1
        data = source.read(start, end - start)
        for i in order[at:last]:
            offset, length = ranges[i]
            out[i] = data[offset - start : offset - start + length]
        at = last
    return out


def open_source(path: str, io: FileIO | None = None, size: int | None = None) -> Source:
    """A source for a local path, a ``file:`` URL or, through ``io`` (else pyiceberg's choice), any other."""
    local = local_path(path)
    if local is not None:
        return LocalSource(local)
    if io is None:
        from pyiceberg.io import load_file_io

        io = load_file_io(location=path)
    return FileIOSource(io, path, size)


def local_path(location: str) -> str | None:
    """The path on this machine that a location names, or ``None`` for an object store or another host."""
    if location.startswith("file:"):
        rest = location[5:]
        return "/" + rest.lstrip("/") if not rest.startswith("//") or rest.startswith("///") else None
    return None if "://" in location else location


def _read_fully(stream: IO[bytes], length: int) -> bytes:
    """Read until ``length`` bytes are there or the stream ends: a short read is not the end (traps, 16)."""
    parts: list[bytes] = []
    left = length
    while left:
        part = stream.read(left)
        if not part:
            break
        parts.append(bytes(part))
        left -= len(part)
    return b"".join(parts)


def foreign_reason(error: Exception) -> str:
    """The kind and first line of a foreign error: enough to act on, short enough to hold no secret."""
    lines: Iterable[str] = str(error).splitlines()
    first = next(iter(lines), "")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__
