"""Uploads an object to S3 in parts, and has S3 itself copy ranges of earlier objects into it.

Used where a table's ``FileIO`` is pyiceberg's ``FsspecFileIO`` with s3fs: the requests are those of its ``call_s3``.
Arrow's client has no request that copies a range. A file that it writes is uploaded by s3fs, where that is installed,
once there is a range to copy and s3fs reaches the object with the properties of the ``FileIO`` (:class:`ArrowUpload`).

A part of a multipart upload is either bytes (UploadPart) or a range of an object (UploadPartCopy), of 5 MiB to 5 GiB;
only the last part may be smaller. So a copied range of 5 MiB or more does not come through this process, apart from
the bytes at its start that fill the part before it up to 5 MiB. Not even these do where the copied object has the
bytes of that part just before the range.

What is copied must be the object whose bytes the caller has checked. Before the first copy of an object its ETag is
asked for, and its end is compared with what the source has read of it. Each copy names that ETag, and S3 refuses it if
the object is a different one by then.

The object appears with the last request (CompleteMultipartUpload, or PutObject if it is short). An upload that fails is
aborted. The parts of a killed run stay until the bucket's lifecycle rule for incomplete uploads removes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sidecar.dependencies.pyiceberg import fsspec_of
from sidecar.errors import StorageError
from sidecar.run import in_turn
from sidecar.run_log import size as size_text
from sidecar.storage.costs import REQUESTS_AT_ONCE
from sidecar.storage.locations import file_at, scheme_of
from sidecar.storage.remote import FileIOSource, fetch
from sidecar.storage.source import Source, check_range, stored_file

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, OutputFile

log = logging.getLogger(__name__)

MIN_PART = 5 << 20
"""Bytes of the smallest part that is not the last one."""
WRITTEN_PART = 32 << 20
"""Bytes of a part that this process uploads; so much is held in memory. S3 takes 10,000 parts."""
COPIED_PART = 256 << 20
"""The most bytes that one request copies. Twice the smallest part or more, so that half of it is a part too."""
CHECKED_END = 32 << 10
"""Bytes at the end of an object that are compared before it is copied from; a sidecar's footer is there."""
WORTH_ANOTHER_CLIENT = 32 << 20
"""Bytes that pass through this process only because of the client, from which on a run says so."""
_SAME_HEAD = 64 << 10
"""Bytes before a range that may be those of the copied object, as where a sidecar begins with the earlier base."""
_OF_ARROW = {"s3.role-arn", "client.role-arn"}
"""Properties that only Arrow's client heeds: s3fs would come with other keys."""


def s3_upload(output: OutputFile, io: FileIO) -> S3Upload | ArrowUpload | None:
    """Return an upload of ``output``, ``None`` unless it is on S3 and s3fs is there. It sends no request yet."""
    filesystem = fsspec_of(output)
    if hasattr(filesystem, "call_s3"):
        return S3Upload(filesystem, output.location)
    return ArrowUpload(output, io.properties) if _can_help(io) and _is_on_s3(output.location) else None


def why_carried_through(io: FileIO, location: str, length: int) -> list[str]:
    """Return a warning if ``length`` bytes that S3 could copy itself pass through this process."""
    if length < WORTH_ANOTHER_CLIENT or not _is_on_s3(location):
        return []
    if _can_help(io) if _is_arrow(io) else hasattr(fsspec_of(file_at(io, location)), "call_s3"):
        return []
    is_other = not _is_arrow(io) or not _OF_ARROW.isdisjoint(io.properties)
    way = ", and in the catalog py-io-impl: pyiceberg.io.fsspec.FsspecFileIO (it takes no role)" if is_other else ""
    return [
        f"{size_text(length)} of the earlier sidecar were read and sent back to S3: Arrow's client copies no ranges "
        f"inside the store. s3fs does: pip install s3fs{way}"
    ]


def _is_on_s3(location: str) -> bool:
    return scheme_of(location) in ("s3", "s3a", "s3n")


def _is_arrow(io: FileIO) -> bool:
    return type(io).__module__ == "pyiceberg.io.pyarrow"


def _can_help(io: FileIO) -> bool:
    """Return whether s3fs can write what Arrow's client would: it is installed, and has the same keys."""
    return _is_arrow(io) and _OF_ARROW.isdisjoint(io.properties) and find_spec("s3fs") is not None


@dataclass(frozen=True)
class _StoredObject:
    """An object of which ranges are copied, as it was when its ETag was asked for."""

    source: Source
    place: Mapping[str, str]
    etag: str


@dataclass
class _PendingCopy:
    """A range that is copied as soon as it is known not to go on. Neighbouring blobs become one range."""

    origin: _StoredObject
    source: Source
    """The object, opened for reading: bytes that are read of it may be checked."""
    offset: int
    length: int


class S3Upload:
    """An object that is being written, front to back. It appears when it is closed. Methods raise what s3fs raises."""

    def __init__(self, filesystem: Any, location: str) -> None:
        self._filesystem = filesystem
        self._location = location
        self._place = _place(filesystem, location)
        self._buffer = bytearray()
        self._parts: list[dict[str, Any]] = []
        self._upload: dict[str, str] | None = None
        self._pending: _PendingCopy | None = None
        self._origins: dict[str, _StoredObject | None] = {}

    def write(self, data: memoryview) -> int:
        """Append ``data``; return its length in bytes."""
        self._copy_pending()
        self._append(data)
        return len(data)

    def copy(self, source: Source, offset: int, length: int) -> None:
        """Append ``length`` bytes of ``source`` from ``offset``, inside the store where that is possible.

        Raises :class:`sidecar.errors.DamagedFileError` if the source does not have them, and :class:`StorageError` if
        the object was replaced meanwhile.
        """
        check_range(source.name, source.size, offset, length)
        origin, last = self._origin(stored_file(source)), self._pending
        if origin is not None and last is not None and (last.origin, last.offset + last.length) == (origin, offset):
            last.length += length
            return
        self._copy_pending()
        if origin is None:
            self._read(source, offset, length)
        else:
            self._pending = _PendingCopy(origin, source, offset, length)

    def can_copy(self, source: Source) -> bool:
        """Return whether the store copies from ``source``, and begin the upload if so. Raises what s3fs raises."""
        # This read ends in time where s3fs does not reach the store. The requests of an upload have no such limit.
        fetch(self._filesystem, source.name, source.size - CHECKED_END, CHECKED_END)
        return self._origin(source) is not None and bool(self._multipart())

    def close(self) -> None:
        """Make the object appear."""
        self._copy_pending()
        if self._upload is None:
            self._call("put_object", **self._place, Body=bytes(self._buffer))
        else:
            if self._buffer:
                self._send(len(self._buffer))
            self._call("complete_multipart_upload", **self._upload, MultipartUpload={"Parts": self._parts})
        self._upload = None
        self._filesystem.invalidate_cache(self._location)

    def discard(self) -> None:
        """Give the upload up: nothing appears, and S3 removes its parts."""
        if self._upload is not None:
            self._call("abort_multipart_upload", **self._upload)
            self._upload = None

    def _append(self, data: bytes | memoryview) -> None:
        self._buffer += data
        while len(self._buffer) >= WRITTEN_PART:
            self._send(WRITTEN_PART)

    def _read(self, source: Source, offset: int, length: int) -> None:
        for data in _parts_of(source, offset, length):
            self._append(data)

    def _send(self, length: int) -> None:
        """Upload the first bytes of the buffer as a part."""
        body = bytes(self._buffer[:length])
        part = self._next_part()
        self._parts.append({**part, "ETag": self._call("upload_part", **self._multipart(), **part, Body=body)["ETag"]})
        del self._buffer[:length]

    def _copy_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        origin, offset, length = pending.origin, pending.offset, pending.length
        can_copy = self._origins[origin.source.name] is not None
        held = len(self._buffer)
        # If the copied object has what is held just before the range, that is copied too, and not uploaded.
        if can_copy and 0 < held <= min(offset, _SAME_HEAD) and length >= MIN_PART and self._is_before(pending):
            offset, length, self._buffer = offset - held, length + held, bytearray()
        # Only the last part of an object may be short, so the start of the range fills up what is held.
        missing = max(MIN_PART - len(self._buffer), 0) if self._buffer else 0
        if can_copy and length >= missing + MIN_PART:
            self._read(pending.source, offset, missing)
            offset, length = offset + missing, length - missing
            if self._buffer:
                self._send(len(self._buffer))
            if self._copy_parts(origin, offset, length):
                return
        self._read(pending.source, offset, length)

    def _is_before(self, pending: _PendingCopy) -> bool:
        """Return whether the copied object has what is held just before the range: then that is copied with it."""
        return pending.source.read(pending.offset - len(self._buffer), len(self._buffer)) == self._buffer

    def _copy_parts(self, origin: _StoredObject, offset: int, length: int) -> bool:
        """Have S3 copy a range. ``False``: it does not do that, and the range is not in the object."""
        count = -(-length // COPIED_PART)
        ends = [offset + length * number // count for number in range(count + 1)]
        first, upload = self._next_part()["PartNumber"], self._multipart()
        copy_from = {"CopySource": origin.place, "CopySourceIfMatch": origin.etag}

        def copy_part(part: tuple[int, tuple[int, int]]) -> dict[str, Any]:
            number, (start, end) = part
            numbered = {"PartNumber": first + number}
            copied = self._call(
                "upload_part_copy", **upload, **numbered, **copy_from, CopySourceRange=f"bytes={start}-{end - 1}"
            )
            return {**numbered, "ETag": copied["CopyPartResult"]["ETag"]}

        try:
            parts = list(in_turn(copy_part, list(enumerate(pairwise(ends))), REQUESTS_AT_ONCE))
        except Exception as error:
            if _s3_code(error) in ("PreconditionFailed", "412"):
                raise StorageError(
                    "the file was replaced while it was copied from",
                    file=origin.source.name,
                    hint="Try again when no other program writes to it.",
                ) from error
            # Bytes that come through this process take the place of these parts; a real error shows up there.
            log.debug("the store does not copy from %s: %s", origin.source.name, type(error).__name__)
            self._origins[origin.source.name] = None
            return False
        self._parts += parts
        return True

    def _origin(self, source: Source) -> _StoredObject | None:
        """Return the object to copy from, ``None`` if the bytes must come through this process."""
        if source.name not in self._origins:
            self._origins[source.name] = self._object_at(source)
        return self._origins[source.name]

    def _object_at(self, source: Source) -> _StoredObject | None:
        if not isinstance(source, FileIOSource) or source.size < MIN_PART:
            return None
        if not _is_on_s3(source.name):
            return None
        place, end = _place(self._filesystem, source.name), source.size
        try:
            head = self._call("head_object", **place)
            # Read after the ETag was asked for: a copy that names the ETag is of the object that was compared.
            found = fetch(self._filesystem, source.name, end - CHECKED_END, CHECKED_END)
        except Exception as error:
            log.debug("nothing is copied inside the store from %s: %s", source.name, type(error).__name__)
            return None
        is_same = head["ContentLength"] == end and found == source.read(end - CHECKED_END, CHECKED_END)
        return _StoredObject(source, place, head["ETag"]) if is_same else None

    def _next_part(self) -> dict[str, int]:
        return {"PartNumber": len(self._parts) + 1}

    def _multipart(self) -> dict[str, str]:
        """Return what names the multipart upload, which begins with its first part."""
        if self._upload is None:
            self._upload = {**self._place, "UploadId": self._call("create_multipart_upload", **self._place)["UploadId"]}
        return self._upload

    def _call(self, request: str, **arguments: Any) -> Any:
        return self._filesystem.call_s3(request, **arguments)


def _parts_of(source: Source, offset: int, length: int) -> Iterator[bytes]:
    """Yield ``length`` bytes of ``source`` from ``offset``, in parts that are written at once."""
    return (
        source.read(at, min(WRITTEN_PART, offset + length - at)) for at in range(offset, offset + length, WRITTEN_PART)
    )


class ArrowUpload:
    """An object that Arrow's client writes, or else s3fs: as soon as there is a long range that S3 itself can copy.

    Until it is known which, up to :data:`WRITTEN_PART` bytes are held. No object may be there.
    """

    def __init__(self, output: OutputFile, properties: Mapping[str, str]) -> None:
        self._output = output
        self._properties = properties
        self._held = bytearray()
        self._stream: Any = None

    def write(self, data: memoryview) -> int:
        """Append ``data``; return its length in bytes."""
        if self._stream is None and len(self._held) + len(data) <= WRITTEN_PART:
            self._held += data
        else:
            self._begin().write(data)
        return len(data)

    def copy(self, source: Source, offset: int, length: int) -> None:
        """See :meth:`S3Upload.copy`."""
        origin = stored_file(source)
        if self._stream is None and length >= 2 * MIN_PART and _is_on_s3(origin.name):
            self._begin(self._by_s3fs(origin))
        if isinstance(self._stream, S3Upload):
            self._stream.copy(source, offset, length)
            return
        for data in _parts_of(source, offset, length):
            self.write(memoryview(data))

    def close(self) -> None:
        """Make the object appear."""
        self._begin().close()

    def discard(self) -> None:
        """Give the upload up. What Arrow's client has begun appears, and has to be deleted."""
        if self._stream is not None:
            self._stream.discard() if isinstance(self._stream, S3Upload) else self._stream.close()

    def _begin(self, upload: S3Upload | None = None) -> Any:
        if self._stream is None:
            self._stream = upload or self._output.create(overwrite=True)
            self._stream.write(memoryview(self._held))
            self._held = bytearray()
        return self._stream

    def _by_s3fs(self, source: Source) -> S3Upload | None:
        """Return an upload by s3fs that has begun, ``None`` if s3fs does not reach the object to copy from."""
        try:
            from pyiceberg.io.fsspec import FsspecFileIO

            output = FsspecFileIO(dict(self._properties)).new_output(self._output.location)
            upload = S3Upload(fsspec_of(output), output.location)
            return upload if upload.can_copy(source) else None
        except Exception as error:  # Arrow's client goes on
            log.debug("s3fs does not write %s: %s", self._output.location, type(error).__name__)
            return None


def _place(filesystem: Any, location: str) -> dict[str, str]:
    bucket, key, _ = filesystem.split_path(location)
    return {"Bucket": bucket, "Key": key}


def _s3_code(error: BaseException) -> object:
    """Return the code of S3's answer, which s3fs keeps at the cause of its errors."""
    response: Any = getattr(error.__cause__, "response", None) or getattr(error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, Mapping) else None
