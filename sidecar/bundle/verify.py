"""Verifies a whole sidecar: every checksum, every table of contents and its copy, every link between blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from sidecar.bundle.envelopes.envelope import HEADER_BYTES, VERSION, decode_toc, header_for
from sidecar.bundle.segment import ColumnNames
from sidecar.bundle.sidecar_file import MAGICS, SidecarFile
from sidecar.bundle.toc import TOC_PROPERTY, TocEntry, parse_place
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, Problem, UnsupportedFeatureError, problem_in
from sidecar.puffin.types import TOC, is_ours
from sidecar.storage.source import Source


def verify_sidecar(
    source: Source,
    *,
    encryption_keys: EncryptionKeys | None = None,
    columns: ColumnNames | None = None,
) -> list[Problem]:
    """Return all problems of the sidecar blobs of a Puffin file; empty if it is sound. Reads the whole file.

    ``columns`` names the columns of fields. Without it, a problem names the path by which the sidecar found the column,
    or its field id. Encrypted blobs whose key is not in ``encryption_keys`` cannot be checked, which is a problem too.

    Raises only :class:`~sidecar.errors.StorageError`.
    """
    try:
        sidecar = SidecarFile.open(source, encryption_keys=encryption_keys, columns=columns)
    except (DamagedFileError, UnsupportedFeatureError) as error:
        return [problem_in(source.name, str(error))]
    problems: list[Problem] = []
    name = sidecar.damage.column
    for segment in sidecar.segments:
        for entry in segment.entries:
            column = name(entry.fields[0]) if entry.fields else None
            problems += _problems(source.name, partial(_check_own_toc, sidecar, entry), column)
        problems += _problems(source.name, segment.units.verify)
        for blob in (blob for blobs in segment.opened.values() for blob in blobs.values()):
            problems += [problem_in(source.name, text, name(blob.toc.field_id)) for text in blob.verify()]
    problems += [problem_in(source.name, str(cause), cause.column) for cause in sidecar.damage.causes]
    problems += [problem_in(source.name, text) for text in footer_problems(sidecar)]
    return problems


def footer_problems(sidecar: SidecarFile) -> Iterator[str]:
    """Check that the footer agrees with the directory and the segments. Reads nothing more of an open sidecar."""
    yield from _directory_problems(sidecar)
    yield from _snapshot_problems(sidecar)


def _directory_problems(sidecar: SidecarFile) -> Iterator[str]:
    """Check that the footer has exactly one directory, at the place in the file's property."""
    places = [(blob.offset, blob.length) for blob in sidecar.puffin.metadata.blobs if blob.type == TOC]
    text = sidecar.puffin.metadata.properties.get(TOC_PROPERTY)
    if not places and text is None and not sidecar.segments:
        return
    if len(places) != 1:
        yield f"the footer has {len(places)} {TOC} blobs, not one"
    try:
        if text is not None and places and parse_place(text)[:2] != places[0]:
            yield f"the property {TOC_PROPERTY} and the footer have different places for the directory"
    except DamagedFileError as error:
        yield str(error)


def _snapshot_problems(sidecar: SidecarFile) -> Iterator[str]:
    """Check that all sidecar blobs belong to one snapshot, and that footer and segments agree on its number."""
    blobs = [blob for blob in sidecar.puffin.metadata.blobs if is_ours(blob.type)]
    counts = Counter((blob.snapshot_id, blob.sequence_number) for blob in blobs)
    if len(counts) > 1:
        found = ", ".join(f"{snapshot} (sequence number {number})" for snapshot, number in counts)
        yield f"the footer has sidecar blobs of several snapshots, expected one snapshot: {found}"
    for segment in sidecar.segments:
        numbers = {number for snapshot, number in counts if snapshot == segment.snapshot_id}
        if not numbers <= {segment.header.sequence_number}:
            yield (
                f"the footer has another sequence number for snapshot {segment.snapshot_id} than its segment; "
                f"expected {segment.header.sequence_number}; found {', '.join(map(str, sorted(numbers)))}"
            )


def _problems(file: str, check: Callable[[], None], column: str | None = None) -> list[Problem]:
    try:
        check()
    except (DamagedFileError, UnsupportedFeatureError) as error:
        return [problem_in(file, str(error), column)]
    return []


def _check_own_toc(sidecar: SidecarFile, entry: TocEntry) -> None:
    """Check that header and table of contents in the blob are the bytes that were used."""
    offset = entry.length - len(entry.toc)
    version = decode_toc(entry.toc).get("version", VERSION)
    expected = header_for(MAGICS[entry.blob_type], entry.toc, offset, version).encode()
    found = sidecar.puffin.read_at(entry.offset, HEADER_BYTES)
    if found != expected:
        raise DamagedFileError(
            "a blob's header does not match its table of contents",
            file=sidecar.source.name,
            offset=entry.offset,
            expected=expected.hex(),
            found=found.hex(),
        )
    if sidecar.puffin.read_at(entry.offset + offset, len(entry.toc)) != entry.toc:
        raise DamagedFileError(
            "a blob's table of contents differs from the directory's copy",
            file=sidecar.source.name,
            offset=entry.offset + offset,
        )
