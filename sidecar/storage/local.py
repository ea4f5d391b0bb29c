"""Local files, read with ``pread``."""

from __future__ import annotations

import os
import stat

from sidecar.errors import DamagedFileError, StorageError
from sidecar.storage.source import Source, check_range


class LocalSource:
    """A local file, read with ``pread``. Safe to share between threads."""

    _fd = -1

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

    __del__ = close


def _state(fd: int) -> tuple[int, int]:
    """Return the length of an open file in bytes and its modification time in nanoseconds."""
    state = os.fstat(fd)
    return state.st_size, state.st_mtime_ns


def check_unchanged(source: Source) -> None:
    """Raise :class:`StorageError` if a local file was written to since it was opened.

    A reader of values first and pages later would otherwise mix two contents. If another file took the path, the open
    one is still read, which is fine. Remote files are not checked.
    """
    while (inner := getattr(source, "inner", None)) is not None:
        source = inner
    if isinstance(source, LocalSource):
        source.check_unchanged()
