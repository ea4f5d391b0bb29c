"""Writes a Puffin file as a stream: blobs go to the sink as they arrive, the footer last.

Memory is bounded by one piece of data and the footer. The sink is any binary file-like object with
``write`` (pyiceberg's ``OutputStream``, a local file); the caller opens and closes it. A plain blob is a
stream of unknown length. A compressed blob is a single frame with its content size. The footer is plain
and all flags are 0: no current engine reads LZ4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.puffin import codecs
from sidecar.puffin.metadata import (
    BlobMetadata,
    FileMetadata,
    InvalidMetadataError,
    blob_from_json,
    blob_to_json,
    encode_metadata,
    file_from_json,
)
from sidecar.puffin.reader import FOOTER_LIMIT, FRAMING_LENGTH, MAGIC, PuffinReader
from sidecar.run import package_version
from sidecar.storage.source import Source

CREATED_BY = "created-by"
COPY_LENGTH = 4 * 1024 * 1024
"""Bytes of another file's blob that are copied at a time."""

Buffer = Any
"""``bytes``, ``bytearray``, ``memoryview``, a contiguous array: anything with a :class:`memoryview`."""


class Sink(Protocol):
    """A binary output stream."""

    def write(self, data: Any, /) -> Any:
        """Write bytes. Return how many were written, or ``None`` for all."""


@runtime_checkable
class CopyingSink(Sink, Protocol):
    """A sink that copies from other files itself, as a :class:`sidecar.storage.target.Target` does."""

    def copy(self, source: Source, offset: int, length: int) -> None:
        """Append ``length`` bytes of ``source`` from ``offset``."""


class WrittenFile(NamedTuple):
    """A finished file: the file size and footer size that Iceberg registers, and the footer as written."""

    file_size: int
    footer_size: int
    metadata: FileMetadata


class PuffinWriter:
    """Writes one Puffin file to ``sink``, with the memory that the module's docstring states.

    ``properties`` are the file's; ``created_by`` is always added to them (default: ``sidecar`` and its version).
    Every method raises :class:`UsageError` for a wrong call and :class:`StorageError` if the
    sink fails. After an error inside a blob, the file cannot be finished.
    """

    def __init__(
        self, sink: Sink, *, created_by: str | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        self.position = 0
        """Bytes written so far."""
        self.properties = {**(properties or {}), CREATED_BY: created_by or _created_by()}
        self.blobs: list[BlobMetadata] = []
        """Metadata of the finished blobs."""
        self._sink = sink
        self._state = "ready"
        self._validate_file()
        self._write(MAGIC)

    def add_blob(
        self,
        blob_type: str,
        fields: Sequence[int],
        snapshot_id: int,
        sequence_number: int,
        data: Buffer | Iterable[Buffer],
        codec: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> BlobMetadata:
        """Write one blob. ``data`` is bytes or an iterable of bytes; with ``codec`` ``"zstd"`` it is bytes."""
        if codec is not None:
            data = codecs.compress(codec, _bytes_view(data))
        own = dict(properties or {})
        metadata = BlobMetadata(blob_type, tuple(fields), snapshot_id, sequence_number, self.position, 0, codec, own)
        with self._adding(metadata):
            for piece in [data] if _is_buffer(data) else data:
                self._write(piece)
            self.blobs.append(replace(metadata, length=self.position - metadata.offset))
        return self.blobs[-1]

    def copy_blob(self, blob: BlobMetadata, origin: PuffinReader | Buffer) -> BlobMetadata:
        """Copy another file's blob byte for byte. ``origin`` is a reader of that file, or the blob's stored bytes.

        Nothing is decompressed. All metadata of the blob except its offset stays, including unknown keys. A sink that
        can copy does it without the bytes coming through this process.
        """
        with self._adding(replace(blob, offset=self.position)):
            start = self.position
            if isinstance(origin, PuffinReader) and isinstance(self._sink, CopyingSink):
                self._sink.copy(origin.source, blob.offset, blob.length)
                self.position += blob.length
            else:
                for piece in _raw_pieces(blob, origin):
                    self._write(piece)
            if self.position - start != blob.length:
                raise UsageError(
                    "the bytes do not have the blob's length",
                    expected=f"{blob.length} bytes",
                    found=self.position - start,
                )
            self.blobs.append(replace(blob, offset=start))
        return self.blobs[-1]

    @property
    def copies_remotely(self) -> bool:
        """Whether :meth:`copy_blob` lets the store copy the bytes, which are then nowhere on this machine."""
        return bool(getattr(self._sink, "copies_inside_store", False))

    def finish(self) -> WrittenFile:
        """Write the footer. The sink stays open, but takes no more data."""
        self._require_ready()
        metadata = self._validate_file()
        payload = encode_metadata(metadata)
        if len(payload) > FOOTER_LIMIT:
            raise UsageError(
                "the footer would be larger than readers accept",
                expected=f"at most {FOOTER_LIMIT} bytes",
                found=len(payload),
            )
        trailer = len(payload).to_bytes(4, "little", signed=True) + bytes(4) + MAGIC
        self._state = "finished"
        self._write(MAGIC + payload + trailer)
        return WrittenFile(self.position, len(payload) + FRAMING_LENGTH, metadata)

    @contextmanager
    def _adding(self, metadata: BlobMetadata) -> Iterator[None]:
        """Allow no other write while a blob is written. If the blob fails, the file cannot be finished."""
        self._require_ready()
        _validate(metadata)
        self._state = "inside a blob"
        yield
        self._state = "ready"

    def _require_ready(self) -> None:
        if self._state != "ready":
            raise UsageError(
                "the Puffin file accepts neither a blob nor the footer now",
                expected="ready",
                found=self._state,
            )

    def _validate_file(self) -> FileMetadata:
        metadata = FileMetadata(tuple(self.blobs), self.properties)
        try:
            file_from_json({"blobs": [], "properties": self.properties})
        except InvalidMetadataError as error:
            raise UsageError(error.what, expected=error.expected, found=error.found) from error
        return metadata

    def _write(self, data: Buffer) -> None:
        view = _bytes_view(data)
        while view.nbytes:
            try:
                taken = self._sink.write(view)
            except SidecarError:
                self._state = "failed"
                raise
            except Exception as error:
                self._state = "failed"
                reason = f"{type(error).__name__}: {str(error)[:200]}"
                raise StorageError(f"cannot write the Puffin file: {reason}", offset=self.position) from error
            count = view.nbytes if taken is None else int(taken)
            if not 0 < count <= view.nbytes:
                self._state = "failed"
                raise StorageError(
                    "the sink did not accept bytes",
                    offset=self.position,
                    expected=f"1 to {view.nbytes}",
                    found=count,
                )
            self.position += count
            view = view[count:]


def _validate(blob: BlobMetadata) -> None:
    """Raise :class:`UsageError` for metadata that would change on the way through the footer."""
    try:
        same = blob_from_json(blob_to_json(blob)) == blob
    except (InvalidMetadataError, TypeError, ValueError) as error:
        raise UsageError(f"the footer cannot store this blob's metadata: {error}") from error
    if not same:
        raise UsageError("the footer cannot store this blob's metadata without a change")


def _is_buffer(data: object) -> bool:
    try:
        memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _bytes_view(data: Buffer) -> memoryview:
    """Return ``data`` as bytes without a copy. Raises :class:`UsageError` unless it is contiguous."""
    try:
        view = memoryview(data)
        return view.cast("B") if view.nbytes else memoryview(b"")
    except TypeError as error:
        raise UsageError(f"the data is not contiguous bytes: {error}", found=type(data).__name__) from error


def _raw_pieces(blob: BlobMetadata, origin: PuffinReader | Buffer) -> Iterator[Buffer]:
    if not isinstance(origin, PuffinReader):
        yield origin
        return
    for start in range(0, blob.length, COPY_LENGTH):
        yield origin.read_at(blob.offset + start, min(COPY_LENGTH, blob.length - start))


def _created_by() -> str:
    version = package_version()
    return f"sidecar {version}" if version else "sidecar, run from its source"
