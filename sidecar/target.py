"""Byte targets: the one place of sidecar that writes new data files. A target appears whole or not at all.

A local file is written under a temporary name beside its place, flushed to the disk and renamed last. The temporary
name is the file's name, 32 random hex digits and ``.sidecar-tmp``. It begins with no dot, because what removes a
table's orphan files passes such names over. A run that is killed leaves its temporary file; the next file that is
created in the same folder deletes those that nobody has written to for a day. A file behind pyiceberg's ``FileIO`` is
created where nothing may exist yet; stores publish it when the stream is closed, and after an error it is deleted
again. Neither ever replaces an existing file.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from sidecar.errors import StorageError, UsageError, foreign_reason
from sidecar.source import LocalSource, Source, local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

COPY_LENGTH = 8 << 20
"""Bytes copied at a time where the kernel cannot do it alone."""

ABANDONED_AFTER = 86_400.0
"""Seconds without a write after which a temporary file is taken for one that a killed run left."""

_KERNEL_COPY_LENGTH = 256 << 20
_CLEAR_AGAIN_AFTER = 3600.0
_TEMPORARY = re.compile(r".\.[0-9a-f]{32}\.sidecar-tmp\Z", re.DOTALL)


class Target(Protocol):
    """A file that is being written, front to back."""

    name: str
    position: int
    """Bytes written so far."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data``; :class:`StorageError` if storage fails."""

    def copy(self, source: Source, offset: int, length: int) -> None:
        """Append ``length`` bytes of ``source`` from ``offset``, in large blocks."""

    def flush(self) -> None:
        """Bring what was written so far to the disk, for whoever has to wait anyway: then less is left for the end."""


@contextlib.contextmanager
def create_target(path: str, io: FileIO | None = None) -> Iterator[Target]:
    """A target at a local path, a ``file:`` URL or, through ``io`` (else pyiceberg's choice), any other.

    The file is there when the block is left without an error, and nothing is there otherwise. Raises
    :class:`UsageError` if something is there already, and :class:`StorageError`.
    """
    local = local_path(path)
    opened = _create_local(local) if local is not None else _create_remote(path, io)
    with opened as target:
        yield target


class _LocalTarget:
    """A file of this machine; what comes from another one is copied inside the kernel where it can."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.position = 0
        self._fd = fd

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :meth:`Target.write`."""
        left = memoryview(data)
        with _storage_errors("cannot write", self.name):
            while left:
                done = os.write(self._fd, left)
                left = left[done:]
                self.position += done

    def copy(self, source: Source, offset: int, length: int) -> None:
        """See :meth:`Target.copy`."""
        if isinstance(source, LocalSource):
            copied = self._kernel_copy(source, offset, length)
            offset, length = offset + copied, length - copied
        _copy_blocks(self, source, offset, length)

    def flush(self) -> None:
        """See :meth:`Target.flush`."""
        with _storage_errors("cannot write", self.name):
            os.fsync(self._fd)

    def _kernel_copy(self, source: LocalSource, offset: int, length: int) -> int:
        """Bytes copied; fewer than asked for where the kernel or the file systems cannot, or the file ends."""
        copied = 0
        while copied < length and hasattr(os, "copy_file_range"):
            step = min(length - copied, _KERNEL_COPY_LENGTH)
            try:
                done = os.copy_file_range(source.fileno(), self._fd, step, offset_src=offset + copied)
            except OSError:  # writing the rest by hand says what is wrong, if anything is
                break
            if not done:
                break
            copied += done
            self.position += done
        return copied


class _StreamTarget:
    """A file behind an output stream."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name = name
        self.position = 0
        self._stream = stream

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :meth:`Target.write`."""
        left = memoryview(data)
        with _storage_errors("cannot write", self.name):
            while left:
                taken = self._stream.write(left)
                done = len(left) if taken is None else int(taken)
                left = left[done:]
                self.position += done

    def copy(self, source: Source, offset: int, length: int) -> None:
        """See :meth:`Target.copy`."""
        _copy_blocks(self, source, offset, length)

    def flush(self) -> None:
        """Stores decide themselves when to send what."""


def _copy_blocks(target: Target, source: Source, offset: int, length: int) -> None:
    end = offset + length
    while offset < end:
        data = source.read(offset, min(end - offset, COPY_LENGTH))
        target.write(data)
        offset += len(data)


@contextlib.contextmanager
def _create_local(path: str) -> Iterator[Target]:
    if os.path.lexists(path):
        raise _exists(path)
    _clear_abandoned(os.path.dirname(path) or ".")
    temporary = f"{path}.{uuid.uuid4().hex}.sidecar-tmp"
    with _storage_errors("cannot create the file", path):
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            yield _LocalTarget(path, fd)
            with _storage_errors("cannot write", path):
                os.fsync(fd)
        finally:
            os.close(fd)
        _publish(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class _Cleared:
    """When each folder was cleared last, so that a command that writes many files lists their folder once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[str, float] = {}

    def is_due(self, folder: str) -> bool:
        """Whether an hour has passed since; then the folder counts as cleared now."""
        now, key = time.monotonic(), os.path.abspath(folder)
        with self._lock:
            is_due = now - self._at.get(key, -math.inf) >= _CLEAR_AGAIN_AFTER
            if is_due:
                self._at[key] = now
        return is_due


_cleared = _Cleared()


def _clear_abandoned(folder: str) -> None:
    """Delete the temporary files that killed runs left in a folder; what cannot be deleted stays."""
    if not _cleared.is_due(folder):
        return
    latest = time.time() - ABANDONED_AFTER
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.search(entry.name):
                with contextlib.suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < latest:
                        os.unlink(entry.path)


def _publish(temporary: str, path: str) -> None:
    """Give the finished file its name, which nobody else may have taken meanwhile."""
    with _storage_errors("cannot rename the finished file", path):
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise _exists(path) from None
        except OSError:  # no hard links here: rename, which a file that came between would not survive
            if os.path.lexists(path):
                raise _exists(path) from None
            os.rename(temporary, path)
        else:
            os.unlink(temporary)
        _sync_folder(os.path.dirname(path) or ".")


def _sync_folder(folder: str) -> None:
    """Make the new name survive a crash; some systems cannot open folders."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _create_remote(path: str, io: FileIO | None) -> Iterator[Target]:
    if io is None:
        from pyiceberg.io import load_file_io

        io = load_file_io(location=path)
    with _storage_errors("cannot create the file", path):
        try:
            stream = io.new_output(path).create(overwrite=False)
        except FileExistsError:
            raise _exists(path) from None
    try:
        try:
            yield _StreamTarget(path, stream)
        finally:
            with _storage_errors("cannot finish the file", path):
                stream.close()
    except BaseException:
        with contextlib.suppress(Exception):  # closing may have published what was written so far
            io.delete(path)
        raise


@contextlib.contextmanager
def _storage_errors(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else foreign_reason(error)
        raise StorageError(f"{what}: {reason}", file=path) from error


def _exists(path: str) -> UsageError:
    return UsageError("the file exists already", file=path, hint="Choose another name, or delete it first.")
