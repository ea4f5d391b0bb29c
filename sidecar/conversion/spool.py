"""Keeps indexes in an unnamed temporary file until they are written to their target."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sidecar.errors import StorageError, UnsupportedFeatureError

_COPY_LENGTH = 8 << 20
_MOST_SENT = 0x7C00_0000
"""Bytes of a spool that may be sent to another process: rows of Spark, and single reads of Linux, end below 2 GiB."""


class Spool:
    """An unnamed temporary file, written at its end and read anywhere. Any thread may append. Close it to free it."""

    def __init__(self) -> None:
        try:
            self._file = tempfile.TemporaryFile(prefix="sidecar-")  # noqa: SIM115 closed by close()
        except OSError as error:
            raise StorageError(f"cannot make a temporary file: {error.strerror}", hint="Set TMPDIR.") from error
        self._lock = threading.Lock()
        self._end = 0
        self._map: mmap.mmap | None = None

    def append(self, data: bytes | memoryview) -> int:
        """Append ``data`` and return its offset. Raises :class:`StorageError` if the disk is full."""
        start = self.reserve(len(data))
        view, at = memoryview(data), start
        while view:
            try:
                written = os.pwrite(self._file.fileno(), view, at)
            except OSError as error:
                raise _no_room(error) from error
            view, at = view[written:], at + written
        return start

    def write(self, data: memoryview) -> None:
        """Append ``data``, as to a stream."""
        self.append(data)

    def reserve(self, length: int) -> int:
        """Reserve ``length`` bytes, zero until written, and return their offset."""
        with self._lock:
            start = self._end
            self._end += length
        return start

    def array(self) -> npt.NDArray[np.uint8]:
        """Map all bytes as a writable uint8 array. Bytes that are appended later are not in it."""
        if self._end == 0:
            return np.zeros(0, np.uint8)
        if self._map is None or len(self._map) < self._end:
            try:
                self._file.truncate(self._end)
                if hasattr(os, "posix_fallocate"):  # a full disk is an error here, not a fault in the mapping
                    os.posix_fallocate(self._file.fileno(), 0, self._end)
            except OSError as error:
                raise _no_room(error) from error
            self._map = mmap.mmap(self._file.fileno(), self._end)
        return np.frombuffer(self._map, np.uint8)

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes at ``offset``."""
        return os.pread(self._file.fileno(), length, offset)

    def append_all(self, other: Spool) -> int:
        """Append all bytes of another spool and return their offset. Raises :class:`StorageError` as :meth:`append`."""
        start = self._end
        for at in range(0, other._end, _COPY_LENGTH):
            self.append(other.read(at, min(_COPY_LENGTH, other._end - at)))
        return start

    def __reduce__(self) -> tuple[Callable[[bytes], Spool], tuple[bytes]]:
        """Send all bytes to another process, which has a temporary file of its own."""
        if self._end > _MOST_SENT:
            raise UnsupportedFeatureError(
                "the indexes of one file take more than another process can send at once",
                expected=f"at most {_MOST_SENT:,} bytes",
                found=self._end,
                hint="Choose the engine 'local', or fewer columns.",
            )
        return _spool_with, (self.read(0, self._end),)

    def close(self) -> None:
        """Free the disk space."""
        self._map = None  # arrays that view the mapping keep it until they are freed
        self._file.close()


def _spool_with(data: bytes) -> Spool:
    spool = Spool()
    spool.append(data)
    return spool


def _no_room(error: OSError) -> StorageError:
    return StorageError(
        f"cannot write to the temporary folder: {error.strerror}", hint="Set TMPDIR to one with more room."
    )
