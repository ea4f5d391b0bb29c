"""Describes a Puffin file, and verifies its structure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from sidecar.errors import DamagedFileError, Problem, UnsupportedFeatureError
from sidecar.puffin import types
from sidecar.puffin.metadata import BlobMetadata, blob_to_json, shorten
from sidecar.puffin.reader import BLOB_LIMIT, FRAMING_LENGTH, MAGIC, PuffinReader
from sidecar.results.base import Result
from sidecar.storage.source import Source


@dataclass(frozen=True, repr=False, slots=True)
class PuffinFooterInfo(Result):
    """The footer of a Puffin file. Numbers are bytes."""

    offset: int
    """Where the footer begins."""
    length: int
    """The length of the footer with its framing."""
    payload_length: int
    """The stored length of the footer's JSON."""
    compressed: bool
    """Whether the JSON is compressed."""


@dataclass(frozen=True, repr=False)
class PuffinBlobInfo(Result, BlobMetadata):
    """A blob as the footer describes it. The plain data has the footer's own names, such as ``snapshot-id``."""

    ours: bool = False
    """Whether the blob is of a type that sidecar writes, other than theta sketches."""

    def to_dict(self) -> dict[str, Any]:
        """Return the blob as the footer's JSON object, with ``ours``."""
        return {**blob_to_json(self), "ours": self.ours}


@dataclass(frozen=True, repr=False)
class PuffinInfo(Result):
    """The footer of a Puffin file."""

    format: Literal["puffin"]
    """The format of the file."""
    file: str
    """The path of the file."""
    size: int
    """The size of the file in bytes."""
    footer: PuffinFooterInfo
    """Where the footer is."""
    properties: dict[str, str]
    """The properties of the file, such as ``created-by``."""
    blobs: list[PuffinBlobInfo]
    """The blobs in the order of the footer."""


def inspect_puffin(source: Source) -> PuffinInfo:
    """Return what the footer says. Raises the errors of :class:`~sidecar.puffin.reader.PuffinReader`."""
    reader = PuffinReader(source)
    footer = PuffinFooterInfo(
        reader.footer_offset,
        reader.footer_length,
        reader.footer_length - FRAMING_LENGTH,
        reader.footer_compressed,
    )
    blobs = [PuffinBlobInfo(**vars(blob), ours=types.is_ours(blob.type)) for blob in reader.metadata.blobs]
    return PuffinInfo("puffin", reader.name, reader.size, footer, dict(reader.metadata.properties), blobs)


@dataclass(frozen=True, slots=True)
class ContainerProblem(Problem):
    """A defect of the container, and where it is."""

    offset: int | None
    """The offset of the defect in bytes; ``None`` for the whole file."""


def verify_puffin(source: Source, limit: int = BLOB_LIMIT) -> list[ContainerProblem]:
    """Return the problems of the container, each with its offset; empty if there are none.

    Checks the framing, the footer and the magic at the file's start, that no blobs overlap, and that no field has two
    theta sketches. Decompresses every compressed blob (up to ``limit`` bytes each). The container has no checksum
    of plain blobs; :mod:`sidecar.bundle` verifies those of sidecar. Raises only
    :class:`~sidecar.errors.StorageError`.
    """
    try:
        reader = PuffinReader(source)
    except (DamagedFileError, UnsupportedFeatureError) as error:
        return [_problem(source.name, error.offset, str(error))]
    problems = _start(reader) + _overlaps(reader) + _repeated_thetas(reader)
    for blob in reader.metadata.blobs:
        problems += _content(reader, blob, limit)
    return problems


def _start(reader: PuffinReader) -> list[ContainerProblem]:
    found = reader.read_at(0, len(MAGIC))
    if found == MAGIC:
        return []
    return [_problem(reader.name, 0, f"the file does not begin with the magic; expected {MAGIC!r}; found {found!r}")]


def _overlaps(reader: PuffinReader) -> list[ContainerProblem]:
    """Return one problem for each blob that begins before the furthest end of the blobs before it."""
    filled = sorted((b for b in reader.metadata.blobs if b.length), key=lambda b: (b.offset, b.length))
    problems, furthest = [], filled[0] if filled else None
    for _, blob in pairwise(filled):
        assert furthest is not None
        if blob.offset < furthest.offset + furthest.length:
            overlap = f"the blobs {shorten(furthest.type)} at {furthest.offset} and {shorten(blob.type)} overlap"
            problems.append(_problem(reader.name, blob.offset, overlap))
        if blob.offset + blob.length > furthest.offset + furthest.length:
            furthest = blob
    return problems


def _repeated_thetas(reader: PuffinReader) -> list[ContainerProblem]:
    counts = Counter(blob.fields for blob in reader.metadata.blobs if blob.type == types.THETA)
    return [
        _problem(
            reader.name,
            reader.footer_offset,
            f"{count} theta sketches for fields {list(fields)}",
        )
        for fields, count in counts.items()
        if count > 1
    ]


def _content(reader: PuffinReader, blob: BlobMetadata, limit: int) -> list[ContainerProblem]:
    if blob.compression_codec is None:
        return []
    try:
        reader.read_blob(blob, limit)
    except (DamagedFileError, UnsupportedFeatureError) as error:
        return [_problem(reader.name, blob.offset, str(error))]
    return []


def _problem(file: str, offset: int | None, text: str) -> ContainerProblem:
    return ContainerProblem(file, None, None, text, offset)
