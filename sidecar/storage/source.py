"""Byte sources: what all format code reads from.

A source has a name, a length and ranged reads. Format code reads through a source, so one decoder
serves local files, object stores and Spark tasks. A caller that already knows the length (from a manifest
entry, a statistics entry) passes it in and saves a request.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

from sidecar.errors import DamagedFileError
from sidecar.storage.costs import COALESCE_GAP

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
