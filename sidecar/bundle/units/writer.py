"""Writes ``sidecar-units-v1``: header, sections, table of contents (see ``sections`` and ``envelope``).

    header | files | bounds | partitions | schemas | (fingerprints) | unit_counts | coverage |
    (fingerprints) | manifests | lengths | TOC

The data for every lookup is last, so that one read of the file's tail gets it: the lengths of pieces, the listed
manifests, coverage and, up to 12 KiB, the fingerprints.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from sidecar.bundle.envelopes.checksum import BlobContext, seal
from sidecar.bundle.envelopes.envelope import (
    HEADER_BYTES,
    MAX_INT64,
    SEGMENT_BYTES,
    UNITS_MAGIC,
    UNITS_VERSION,
    encode_toc,
    header_for,
)
from sidecar.bundle.model import UNLISTED, FieldBounds, FileEntry, SegmentHeader, UnitsTable
from sidecar.bundle.sections import (
    BOUNDS,
    COVERAGE,
    FILES,
    FILES_PER_BATCH,
    FILES_PER_COLUMN,
    FILES_PER_FINGERPRINTS,
    FINGERPRINTS,
    KINDS,
    LENGTHS,
    MANIFESTS,
    PARTITIONS,
    SCHEMAS,
    UNIT_COUNTS,
    Section,
)
from sidecar.bundle.units import arrow_tables
from sidecar.bundle.units.coverage import encode_coverage
from sidecar.bundle.units.fingerprints import FINGERPRINT_BYTES, fingerprint
from sidecar.errors import UsageError

TAIL_FINGERPRINTS = 12 << 10
"""Fingerprints up to this many bytes are stored near the table of contents."""
_SPOOL_BYTES = 64 << 20
_COPY_BYTES = 4 << 20


@dataclass
class UnitsBlob:
    """A finished units blob, in memory or in a temporary file. Bundles refer to it by digests of its TOC."""

    toc: bytes
    length: int
    num_units: int
    _spool: IO[bytes]

    def pieces(self) -> Iterator[bytes]:
        """Yield the blob's bytes. Works once, because it releases the temporary file."""
        with self._spool:
            self._spool.seek(0)
            while data := self._spool.read(_COPY_BYTES):
                yield data


def encode_units_blob(header: SegmentHeader, table: UnitsTable) -> UnitsBlob:
    """Encode a units table. Raises :class:`UsageError` for a table that contradicts itself."""
    _check(header, table)
    writer = _SectionWriter(BlobContext(header.segment_id))
    files = table.files
    writer.add(FILES, (arrow_tables.encode_files(part) for part in _parts(files, FILES_PER_BATCH)))
    for field_id in sorted({field_id for file in files for field_id in file.bounds}):
        writer.add(BOUNDS, (_bounds(part, field_id) for part in _parts(files, FILES_PER_COLUMN)), field_id)
    writer.add(PARTITIONS, map(arrow_tables.encode_partitions, _parts(files, FILES_PER_COLUMN)))
    writer.add(SCHEMAS, [arrow_tables.encode_schemas(table.schemas)])
    parts = _parts(files, FILES_PER_FINGERPRINTS)
    fingerprints = (b"".join(fingerprint(file.identity) for file in part) for part in parts)
    # A lookup reads the end of the blob first. Few fingerprints come with it; many would take the place of other parts.
    small = len(files) * FINGERPRINT_BYTES <= TAIL_FINGERPRINTS
    if not small:
        writer.add(FINGERPRINTS, fingerprints)
    width = _add_unit_counts(writer, files)
    writer.add(COVERAGE, map(encode_coverage, table.coverage))
    if small:
        writer.add(FINGERPRINTS, fingerprints)
    writer.add(MANIFESTS, [arrow_tables.encode_manifests(table.manifests)])
    writer.add_lengths()
    content = {
        "kind": "units",
        "version": UNITS_VERSION,
        "table": header.table_uuid,
        "segment": header.segment_id.hex(),
        "snapshot": header.snapshot_id,
        "sequence": header.sequence_number,
        "created": header.created_at,
        "files": len(files),
        "units": table.num_units,
        "unit_width": width,
        "toc_offset": writer.position,
        "sections": [section.encode() for section in writer.sections],
    }
    toc = encode_toc(content)
    return UnitsBlob(toc, writer.position + len(toc), table.num_units, writer.finish(toc))


class _SectionWriter:
    """Writes pieces one after the other, after room for the header."""

    def __init__(self, place: BlobContext) -> None:
        # Not closed here: the UnitsBlob closes it.
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115
        self._spool.write(bytes(HEADER_BYTES))
        self._place = place
        self._lengths: list[int] = []
        self.position = HEADER_BYTES
        self.sections: list[Section] = []

    def add(self, name: str, pieces: Iterable[bytes], field_id: int = 0) -> None:
        place = BlobContext(self._place.segment, field_id)
        start, lengths, digests = self.position, [], []
        for ordinal, data in enumerate(pieces):
            piece = data + seal(place.context(KINDS[name], ordinal), data)
            self._spool.write(piece)
            lengths.append(len(piece))
            digests.append(hashlib.sha256(piece).digest())
            self.position += len(piece)
        if len(lengths) != 1:
            self._lengths += lengths
        self.sections.append(Section(name, field_id, start, len(lengths), self.position - start, b"".join(digests)))

    def add_lengths(self) -> None:
        self.add(LENGTHS, [np.array(self._lengths, "<u4").tobytes()])

    def finish(self, toc: bytes) -> IO[bytes]:
        self._spool.write(toc)
        self._spool.seek(0)
        self._spool.write(header_for(UNITS_MAGIC, toc, self.position, UNITS_VERSION).encode())
        return self._spool


def _parts(files: Sequence[FileEntry], size: int) -> Iterator[Sequence[FileEntry]]:
    return (files[at : at + size] for at in range(0, len(files), size))


def _bounds(files: Sequence[FileEntry], field_id: int) -> bytes:
    nothing = FieldBounds()
    return arrow_tables.encode_bounds([FieldBounds(*file.bounds.get(field_id, nothing)) for file in files])


def _add_unit_counts(writer: _SectionWriter, files: Sequence[FileEntry]) -> int:
    """Add the section unless each file has one unit. Returns the bytes of a count, 0 without a section."""
    counts = np.array([len(file.units) for file in files], np.int64)
    if not len(counts) or (counts == 1).all():
        return 0
    width = next(width for width in (1, 2, 4) if counts.max() < 1 << (8 * width))
    numbers = counts.astype(f"<u{width}")
    writer.add(
        UNIT_COUNTS,
        (numbers[at : at + FILES_PER_COLUMN].tobytes() for at in range(0, len(files), FILES_PER_COLUMN)),
    )
    return width


def _check(header: SegmentHeader, table: UnitsTable) -> None:
    """Raise :class:`UsageError` for a segment that every reader would refuse."""
    if len(header.segment_id) != SEGMENT_BYTES:
        raise UsageError("a segment id must have 16 bytes", found=len(header.segment_id))
    files, manifests = table.files, table.manifests
    end = 0
    for ordinal, manifest in enumerate(manifests):
        members = files[manifest.first_file : manifest.first_file + manifest.live_files]
        whole = manifest.first_file == end and len(members) == manifest.live_files
        if not whole or any(file.manifest != ordinal for file in members):
            raise UsageError("a listed manifest's files are not side by side", file=manifest.path)
        if not 0 <= manifest.schema < len(table.schemas):
            raise UsageError("a listed manifest names a schema that is not in the table", file=manifest.path)
        end = manifest.first_file + manifest.live_files
    if any(file.manifest != UNLISTED for file in files[end:]):
        raise UsageError("files of unlisted manifests must follow the others", expected=UNLISTED)
    for file in files:
        identity = file.identity
        if not (0 <= identity.file_size <= MAX_INT64 and 0 <= identity.record_count <= MAX_INT64):
            raise UsageError("a file's size or record count is impossible", file=file.path)
        if not 0 <= identity.file_sequence_number <= MAX_INT64:
            raise UsageError("a file's sequence number is impossible", file=file.path)
    units = table.num_units
    for coverage in table.coverage:
        if len(coverage.codes) != units:
            raise UsageError("coverage must have a state for each unit", expected=units, found=len(coverage.codes))
