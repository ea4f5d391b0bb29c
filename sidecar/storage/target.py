"""Byte targets: the only place where sidecar writes new data files. A file appears whole or not at all.

A local file gets a temporary name in its final folder (:mod:`sidecar.storage.temporary`), is flushed to disk and
renamed at the end.

Other programs add all files of a folder to a table, whatever their names are. So the last bytes of a local file are
written when everything else is on disk: until then no reader takes the temporary file for a Parquet or ORC file. Only
a run that is killed between these bytes and the final name leaves a whole file. Such a file may be a table's, so it is
never deleted (:func:`sidecar.storage.temporary.may_be_data_file`).

A file behind pyiceberg's ``FileIO`` is created only where no file exists. Stores publish it when the stream is closed;
after an error sidecar deletes it. On S3 through s3fs it is uploaded in parts, and an upload that fails is given up
(:mod:`sidecar.storage.s3_upload`). An existing file is never replaced, except by :func:`create_or_replace`
and :func:`write_whole`.

Work that may run twice says so (``is_repeated``): a file that has the bytes that are to be written is taken for the
result of an earlier run, which was lost after it had published the file. A file with other bytes is still an error.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sidecar.dependencies.pyiceberg import fsspec_of
from sidecar.errors import SidecarError, StorageError, UsageError, foreign_reason
from sidecar.failpoints import hit
from sidecar.storage.costs import COPY_LENGTH, FLUSHED_STEP, JOINED_WRITE, KERNEL_COPY_LENGTH
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import check_file_url, is_opened, local_path, refuse_control_characters, scheme_of
from sidecar.storage.opening import open_source
from sidecar.storage.remote import is_stored
from sidecar.storage.s3_upload import MIN_PART, ArrowUpload, S3Upload, s3_upload
from sidecar.storage.source import Source, stored_file
from sidecar.storage.stores import denied_hint, store_io
from sidecar.storage.temporary import clear_abandoned, temporary_name

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

log = logging.getLogger(__name__)


HELD_LENGTH = 8
"""Bytes that are held back until the rest of a local file is on disk. Without them neither a Parquet file (the length
of its footer, ``PAR1``) nor an ORC file (the end of its postscript, its length) can be read."""

Secrets = Mapping[str, Any]
"""Properties whose secret values are kept out of errors, see :func:`sidecar.errors.redact`."""

_PUFFIN_END = b"PFA1"
_BLOCK = 4096


class Target(Protocol):
    """A file that is being written, front to back."""

    name: str
    position: int
    """Bytes written so far."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data``. Raises :class:`StorageError` if storage fails."""

    def copy(self, source: Source, offset: int, length: int) -> None:
        """Append ``length`` bytes of ``source`` from ``offset``, in large blocks. Raises as :meth:`write` does.

        Where the kernel or the store can copy, the bytes do not come through this process.
        """

    def flush(self) -> None:
        """Write the data so far to disk. Callers that wait anyway use it, so that less work is left for the end."""


@contextlib.contextmanager
def create_target(
    path: str, io: FileIO | None = None, secrets: Secrets | None = None, is_repeated: bool = False
) -> Iterator[Target]:
    """Create a file at a local path, a ``file:`` URL or, through ``io`` (default: pyiceberg's choice), elsewhere.

    The file exists after the block ends without an error, and does not exist otherwise. What
    :func:`sidecar.errors.redact` finds of the properties ``secrets`` is in no error of a store.

    Raises :class:`UsageError` if a file exists there already, where work ``is_repeated`` only if it has other bytes,
    and :class:`StorageError`.
    """
    refuse_control_characters(path)
    local = local_path(path)
    opened = _create_local(local, is_repeated) if local is not None else _create_remote(path, io, is_repeated, secrets)
    with opened as target:
        yield target


@contextlib.contextmanager
def create_or_replace(path: str) -> Iterator[Target]:
    """Create a file at a local path, as :func:`create_target` does, but in the place of an older file.

    An older file of that name stays until the block ends, and after an error. Raises :class:`StorageError`.
    """
    refuse_control_characters(path)
    with _temporary_file(path, partial(_replace, path=path)) as target:
        yield target


def write_whole(path: str, data: bytes) -> None:
    """Write a file in the place of an older one, which stays as it is after an error. Raises :class:`StorageError`."""
    local = local_path(path)
    if local is not None:
        with create_or_replace(local) as target:
            target.write(data)
        return
    refuse_control_characters(path)
    check_file_url(path, None)
    with _storage_errors("cannot write the file", path), store_io(path).new_output(path).create(True) as stream:
        stream.write(data)


class _HalfWritten:
    """Announces once that a file has some of its bytes and is about to get others."""

    def __init__(self) -> None:
        self._is_told = False

    def note(self, position: int) -> None:
        """Note that bytes are written at ``position``."""
        if position and not self._is_told:
            self._is_told = True
            hit("target: half written")


class _LocalTarget:
    """A local file. Bytes of another local file are copied inside the kernel where it can.

    The last :data:`HELD_LENGTH` bytes so far are in memory, until :meth:`finish`.
    """

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.position = 0
        self._fd = fd
        self._held = b""
        self._begun = 0
        self._half_written = _HalfWritten()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :meth:`Target.write`."""
        self._half_written.note(self.position)
        self._begin_to_store()
        view = memoryview(data)
        if not view.nbytes:
            return
        view = view.cast("B")
        with _storage_errors("cannot write", self.name):
            if len(view) > JOINED_WRITE:
                self._store(self._held)
                self._store(view[:-HELD_LENGTH])
                self._held = bytes(view[-HELD_LENGTH:])
            else:  # one request for a short piece
                joined = self._held + view
                self._store(joined[:-HELD_LENGTH])
                self._held = joined[-HELD_LENGTH:]
        self.position += len(view)

    def copy(self, source: Source, offset: int, length: int) -> None:
        """See :meth:`Target.copy`."""
        self._half_written.note(self.position)
        self._begin_to_store()
        stored = stored_file(source)
        if isinstance(stored, LocalSource) and length > HELD_LENGTH:
            with _storage_errors("cannot write", self.name):
                self._store(self._held)
            self._held = b""
            copied = self._kernel_copy(stored, offset, length - HELD_LENGTH)
            offset, length = offset + copied, length - copied
        _copy_blocks(self, source, offset, length)

    def flush(self) -> None:
        """See :meth:`Target.flush`."""
        with _storage_errors("cannot write", self.name):
            os.fsync(self._fd)

    def finish(self) -> None:
        """Write the bytes that were held back, after all others are on disk. Raises :class:`StorageError`.

        Nobody takes a Puffin file for a data file, so all its bytes go to disk at once.
        """
        if not self._held.endswith(_PUFFIN_END):
            self.flush()
        with _storage_errors("cannot write", self.name):
            self._store(self._held)
        self.flush()

    def _begin_to_store(self) -> None:
        """Let the disk begin with the bytes so far, without waiting, so that the end has less to wait for.

        Linux begins to write what it is told not to keep; what is not yet on disk stays in its cache.
        """
        if self.position - self._begun >= FLUSHED_STEP and hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, self._begun, self.position - self._begun, os.POSIX_FADV_DONTNEED)
            self._begun = self.position

    def _store(self, data: bytes | memoryview) -> None:
        """Write bytes at the end of what is stored. Raises :class:`OSError`."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]

    def _kernel_copy(self, source: LocalSource, offset: int, length: int) -> int:
        """Return the bytes copied: fewer than ``length`` where the kernel cannot go on or the file ends."""
        copied = 0
        while copied < length and hasattr(os, "copy_file_range"):
            at, step = offset + copied, min(length - copied, KERNEL_COPY_LENGTH)
            # Whole blocks alone: XFS and Btrfs share them between the files, and then write none.
            step = min(step, -at % _BLOCK) or max(step - step % _BLOCK, min(step, _BLOCK))
            try:
                done = os.copy_file_range(source.fileno(), self._fd, step, offset_src=at)
            except OSError:  # the caller copies the rest block by block; a real error shows up there
                os.lseek(self._fd, self.position, os.SEEK_SET)  # bytes may have been written before the error
                break
            if not done:
                break
            copied += done
            self.position += done
        return copied


class _StreamTarget:
    """A file behind an output stream of a ``FileIO``, or one that is uploaded to S3 in parts."""

    def __init__(self, name: str, stream: Any, secrets: Secrets | None) -> None:
        self.name = name
        self.position = 0
        self._stream = stream
        self._secrets = secrets
        self._half_written = _HalfWritten()
        self._told = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :meth:`Target.write`."""
        self._half_written.note(self.position)
        left = memoryview(data)
        with _storage_errors("cannot write", self.name, secrets=self._secrets):
            while left:
                taken = self._stream.write(left)
                done = len(left) if taken is None else int(taken)
                left = left[done:]
                self.position += done

    @property
    def copies_inside_store(self) -> bool:
        """Whether the store copies by itself what :meth:`copy` appends."""
        return isinstance(self._stream, S3Upload | ArrowUpload)

    def copy(self, source: Source, offset: int, length: int) -> None:
        """See :meth:`Target.copy`."""
        self._half_written.note(self.position)
        if self.copies_inside_store:
            with _storage_errors("cannot copy", self.name, secrets=self._secrets):
                self._stream.copy(source, offset, length)
            self.position += length
            return
        if length >= MIN_PART and not self._told and local_path(stored_file(source).name) is None:
            log.debug("the store's client copies nothing inside the store: the bytes of %s come through", source.name)
            self._told = True
        _copy_blocks(self, source, offset, length)

    def flush(self) -> None:
        """Do nothing: object stores decide when to send data."""


class _SameTarget:
    """Compares what is written with a file that exists. Raises :class:`UsageError` as soon as they differ."""

    def __init__(self, name: str, stored: Source) -> None:
        self.name = name
        self.position = 0
        self._stored = stored

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compare ``data`` with the stored bytes that follow."""
        given = memoryview(data).cast("B")
        end = self.position + len(given)
        if end > self._stored.size or self._stored.read(self.position, len(given)) != given:
            raise _exists(self.name)
        self.position = end

    def copy(self, source: Source, offset: int, length: int) -> None:
        """Compare ``length`` bytes of ``source`` with the stored bytes that follow."""
        _copy_blocks(self, source, offset, length)

    def flush(self) -> None:
        """Do nothing: the data is there."""

    def check_whole(self) -> None:
        """Raise :class:`UsageError` if the stored file goes on."""
        if self.position != self._stored.size:
            raise _exists(self.name)


def check_folder(local: str) -> None:
    """Raise the error that writing a file at a local path would raise, as far as it shows without writing it."""
    folder = os.path.dirname(local) or "."
    with _storage_errors("cannot create the file", local, _missing(folder)):
        os.stat(os.path.join(folder, "."))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with contextlib.suppress(FileNotFoundError):
            os.lstat(local)  # the name may be too long


def _copy_blocks(target: Target, source: Source, offset: int, length: int) -> None:
    end = offset + length
    while offset < end:
        data = source.read(offset, min(end - offset, COPY_LENGTH))
        target.write(data)
        offset += len(data)


@contextlib.contextmanager
def _create_local(path: str, is_repeated: bool) -> Iterator[Target]:
    if os.path.lexists(path) and not is_repeated:
        raise _exists(path)
    with _temporary_file(path, partial(_publish, path=path, is_repeated=is_repeated)) as target:
        yield target


@contextlib.contextmanager
def _temporary_file(path: str, publish: Callable[[str], None]) -> Iterator[Target]:
    """Create a file with a temporary name; ``publish`` gives it the name ``path`` when it is whole and on disk."""
    folder = os.path.dirname(path) or "."
    clear_abandoned(folder)
    hit("target: create")
    temporary = temporary_name(path)
    with _storage_errors("cannot create the file", path, _missing(folder)):
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            target = _LocalTarget(path, fd)
            yield target
            hit("target: written")
            target.finish()
        finally:
            with _storage_errors("cannot write", path):  # some systems say here that a write failed
                os.close(fd)
        hit("target: publish")
        publish(temporary)
        _sync_folder(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _missing(folder: str) -> str | None:
    """Return a hint if the folder does not exist."""
    return None if os.path.isdir(folder) else f"The folder {folder} does not exist: make it first."


def _publish(temporary: str, path: str, is_repeated: bool) -> None:
    """Rename the finished file to its final name. Raises :class:`UsageError` if the name was taken in the meantime.

    If the work ``is_repeated``, the name may belong to a file with the same bytes, which stays.
    """
    with _storage_errors("cannot rename the finished file", path):
        try:
            _give_name(os.link, temporary, path)
        except OSError as error:
            if os.path.lexists(path):
                if not (is_repeated and filecmp.cmp(temporary, path, shallow=False)):
                    raise _exists(path) from None
            elif isinstance(error, FileExistsError):  # it is gone again
                raise _exists(path) from None
            else:  # no hard links here: rename, which would overwrite a file created since the check
                _give_name(os.rename, temporary, path)
        hit("target: published")
        # The temporary file is gone if it was renamed. If it cannot be removed now, it stays beside the new file.
        # Neither is an error: the new file has its name.
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _replace(temporary: str, path: str) -> None:
    """Rename the finished file to its final name, in the place of an older file."""
    with _storage_errors("cannot rename the finished file", path):
        _give_name(os.replace, temporary, path)


def _give_name(give: Callable[[str, str], None], temporary: str, path: str) -> None:
    """Give the finished file its final name, by a link or a rename. Raises :class:`OSError` if it has none then.

    A network file system may do it and lose the answer, or ask again and find the name taken. So an error counts only
    if the name is not that of this very file.
    """
    finished = os.lstat(temporary)
    try:
        give(temporary, path)
    except OSError:
        try:
            is_named = os.path.samestat(finished, os.lstat(path))
        except OSError:
            is_named = False
        if not is_named:
            raise


def _sync_folder(folder: str) -> None:
    """Make the new name survive a crash. Some systems cannot open folders, so errors are ignored."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _create_remote(path: str, io: FileIO | None, is_repeated: bool, secrets: Secrets | None) -> Iterator[Target]:
    check_file_url(path, io)
    io = io or store_io(path)
    hit("target: create")
    hint = f"Name a place that {type(io).__name__} can write, such as a local file."
    with _storage_errors("cannot create the file", path, None if is_opened(scheme_of(path)) else hint, secrets):
        output = io.new_output(path)
        stream: Any = None
        try:
            upload = s3_upload(output, io)
            if upload is None and fsspec_of(output) is None:
                stream = output.create(overwrite=False)
            elif is_stored(path, io):
                raise FileExistsError
            else:
                stream = upload or output.create(overwrite=True)
        except FileExistsError:
            if not is_repeated:
                raise _exists(path) from None
    if stream is None:
        with contextlib.closing(open_source(path, io)) as stored:
            same = _SameTarget(path, stored)
            yield same
            same.check_whole()
        return
    try:
        yield _StreamTarget(path, stream, secrets)
        hit("target: written")
        with _storage_errors("cannot finish the file", path, secrets=secrets):
            stream.close()
    except BaseException:
        with contextlib.suppress(Exception):
            stream.discard() if isinstance(stream, S3Upload | ArrowUpload) else stream.close()
        with contextlib.suppress(Exception):  # closing may have published the bytes written so far
            io.delete(path)
        raise


@contextlib.contextmanager
def _storage_errors(what: str, path: str, hint: str | None = None, secrets: Secrets | None = None) -> Iterator[None]:
    try:
        yield
    except SidecarError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else foreign_reason(error, secrets)
        raise StorageError(f"{what}: {reason}", file=path, hint=hint or denied_hint(path, reason)) from error


def _exists(path: str) -> UsageError:
    return UsageError("the file exists already", file=path, hint="Choose another name, or delete it first.")
