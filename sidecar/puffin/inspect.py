"""Describe a Puffin file, and verify its structure."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from sidecar.errors import DamagedFileError, Problem, UnsupportedFeatureError, problem_in
from sidecar.puffin import types
from sidecar.puffin.metadata import BlobMetadata, blob_to_json, shorten
from sidecar.puffin.reader import BLOB_LIMIT, FRAMING_LENGTH, MAGIC, PuffinReader
from sidecar.source import Source


def inspect_puffin(source: Source, *, footer_length: int | None = None) -> dict[str, object]:
    """Return the footer as JSON values: ``blobs`` and ``properties``, with the footer's own names.

    Raises the errors of :class:`~sidecar.puffin.reader.PuffinReader`.
    """
    reader = PuffinReader(source, footer_length=footer_length)
    return {
        "format": "puffin",
        "file": reader.name,
        "size": reader.size,
        "footer": {
            "offset": reader.footer_offset,
            "length": reader.footer_length,
            "payload_length": reader.footer_length - FRAMING_LENGTH,
            "compressed": reader.footer_compressed,
        },
        "properties": dict(reader.metadata.properties),
        "blobs": [{**blob_to_json(blob), "ours": types.is_ours(blob.type)} for blob in reader.metadata.blobs],
    }


class ContainerProblem(Problem):
    """A defect of the container, and where it is."""

    offset: int | None


def verify_puffin(
    source: Source, *, footer_length: int | None = None, limit: int = BLOB_LIMIT
) -> list[ContainerProblem]:
    """Return the problems of the container, each with its offset; empty if there are none.

    Checks the framing, the footer and the magic at the file's start, that no blobs overlap, and that no field has two
    theta sketches. Decompresses every compressed blob (up to ``limit`` bytes each). The container has no checksum
    of plain blobs; :mod:`sidecar.bundle` verifies those of sidecar. Raises only
    :class:`~sidecar.errors.StorageError`.
    """
    try:
        reader = PuffinReader(source, footer_length=footer_length)
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
    return [
        _problem(
            reader.name, 0, f"the file does not begin with the magic; expected {MAGIC!r}; found {found!r}"
        )
    ]


def _overlaps(reader: PuffinReader) -> list[ContainerProblem]:
    """Return one problem for each blob that begins before the furthest end of the blobs before it."""
    filled = sorted((b for b in reader.metadata.blobs if b.length), key=lambda b: (b.offset, b.length))
    problems, furthest = [], filled[0] if filled else None
    for _, blob in pairwise(filled):
        assert furthest is not None
        if blob.offset < furthest.offset + furthest.length:
            overlap = (
                f"the blobs {shorten(furthest.type)} at {furthest.offset} and {shorten(blob.type)} overlap"
            )
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
        reader.read_blob(blob, limit=limit)
    except (DamagedFileError, UnsupportedFeatureError) as error:
        return [_problem(reader.name, blob.offset, str(error))]
    return []


def _problem(file: str, offset: int | None, text: str) -> ContainerProblem:
    return {**problem_in(file, text), "offset": offset}
