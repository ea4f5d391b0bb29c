"""Reads ``sidecar-units-v1``. The bytes are described in ``envelope``, ``sections`` and ``arrow_tables``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.envelope import MAX_INT64, UNITS_VERSION, decode_toc, integer, kept, member, segment_bytes
from sidecar.bundle.model import Coverage, FileEntry, ListedManifest, SegmentHeader
from sidecar.bundle.sections import (
    BOUNDS,
    COVERAGE,
    FILES,
    FILES_PER_BATCH,
    FILES_PER_COLUMN,
    FILES_PER_FINGERPRINTS,
    FINGERPRINTS,
    LENGTHS,
    MANIFESTS,
    PARTITIONS,
    SCHEMAS,
    UNIT_COUNTS,
    ReadRanges,
    Section,
    SectionReader,
    decode_sections,
)
from sidecar.bundle.units import arrow_tables
from sidecar.bundle.units.coverage import CoverageRuns, decode_coverage, decode_runs
from sidecar.bundle.units.fingerprints import FINGERPRINT, FINGERPRINT_BYTES, Fingerprints, fingerprint
from sidecar.errors import DamagedFileError, UnsupportedFeatureError

MAX_UNITS = 1 << 28
"""The most files or units of a segment that is read, because sets of units are kept in memory."""
END_BYTES = 32 << 10
"""The most bytes from numbers of units to lengths of pieces that are read together."""
_MIN_INT64 = -MAX_INT64 - 1


@dataclass(frozen=True)
class UnitsToc:
    """The decoded table of contents of a units blob."""

    header: SegmentHeader
    num_files: int
    num_units: int
    unit_width: int
    toc_offset: int
    sections: tuple[Section, ...]


@kept
def decode_units_toc(toc: bytes) -> UnitsToc:
    """Decode a verified TOC. Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`."""
    content = decode_toc(toc)
    if content.get("kind") != "units":
        raise DamagedFileError("this is not the table of contents of units", found=repr(content.get("kind"))[:40])
    if content.get("version") != UNITS_VERSION:
        raise UnsupportedFeatureError(
            "the units have an unknown version",
            expected=UNITS_VERSION,
            found=repr(content.get("version"))[:40],
            hint="Rebuild the sidecar.",
        )
    offset = integer(content, "toc_offset")
    return UnitsToc(
        header=_segment_header(content),
        num_files=integer(content, "files", high=MAX_UNITS),
        num_units=integer(content, "units", high=MAX_UNITS),
        unit_width=integer(content, "unit_width", high=4),
        toc_offset=offset,
        sections=tuple(decode_sections(member(content, "sections", list), offset)),
    )


def _segment_header(content: dict[str, Any]) -> SegmentHeader:
    return SegmentHeader(
        table_uuid=member(content, "table", str),
        snapshot_id=integer(content, "snapshot", _MIN_INT64),
        sequence_number=integer(content, "sequence", _MIN_INT64),
        created_at=member(content, "created", str),
        segment_id=segment_bytes(content),
    )


class UnitsReader:
    """Reads the units table of one segment piece by piece. All returned data is verified.

    Methods raise :class:`DamagedFileError` for damage, and the errors of ``read_ranges``. Row i of a table by file
    is the file with ordinal i.
    """

    def __init__(self, toc: UnitsToc, read_ranges: ReadRanges) -> None:
        self.toc = toc
        self._sections = SectionReader(read_ranges, toc.sections, BlobContext(toc.header.segment_id))

    def fingerprints(self) -> Fingerprints:
        """Return one fingerprint for each file."""
        data = self._read_by_file(FINGERPRINTS, FINGERPRINT_BYTES, FILES_PER_FINGERPRINTS)
        return np.frombuffer(data, FINGERPRINT)

    def first_units(self) -> npt.NDArray[np.int64]:
        """Return int64[files + 1]: the first unit ordinal of each file, then the number of units."""
        files, units, width = self.toc.num_files, self.toc.num_units, self.toc.unit_width
        if not width:
            if files != units:
                raise DamagedFileError("the numbers of files and units differ", expected=files, found=units)
            return np.arange(files + 1, dtype=np.int64)
        if width not in (1, 2, 4):
            raise DamagedFileError("the unit counts have an impossible width", found=width)
        self._hold_end()
        counts = np.frombuffer(self._read_by_file(UNIT_COUNTS, width, FILES_PER_COLUMN), f"<u{width}")
        first = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        if first[-1] != units:
            raise DamagedFileError(
                "the units of the files do not add up to all units", expected=units, found=int(first[-1])
            )
        return first

    def files(self, ordinals: Sequence[int]) -> list[FileEntry]:
        """Return the files with these ordinals, in this order. Reads their batches and decodes no other file."""
        wanted: dict[int, list[int]] = {}
        for ordinal in sorted(set(ordinals)):
            wanted.setdefault(ordinal // FILES_PER_BATCH, []).append(ordinal)
        files: dict[int, FileEntry] = {}
        for members, batch in zip(wanted.values(), self._file_tables(list(wanted)), strict=True):
            rows = [ordinal % FILES_PER_BATCH for ordinal in members]
            files.update(zip(members, arrow_tables.files_of(batch, rows), strict=True))
        return [files[ordinal] for ordinal in ordinals]

    def file_columns(self, ordinals: npt.NDArray[np.int64]) -> pa.Table:
        """Return one row for each of many files, in this order: all columns of their batches except row groups."""
        batches = np.unique(ordinals // FILES_PER_BATCH)
        tables = [table.drop_columns(["units"]) for table in self._file_tables(batches.tolist())]
        # All batches but the last one of the blob are full.
        rows = np.searchsorted(batches, ordinals // FILES_PER_BATCH) * FILES_PER_BATCH + ordinals % FILES_PER_BATCH
        files = pa.concat_tables(tables).combine_chunks()
        return files if np.array_equal(rows, np.arange(files.num_rows)) else files.take(pa.array(rows))

    def file_batches(self, batches: Sequence[int]) -> dict[int, list[FileEntry]]:
        """Return batches of at most 64 files, by the batches' ordinals."""
        return dict(zip(batches, map(arrow_tables.files_of, self._file_tables(batches)), strict=True))

    def _file_tables(self, batches: Sequence[int]) -> list[pa.Table]:
        section = self._by_file(FILES, FILES_PER_BATCH)
        tables = []
        for batch, data in zip(batches, self._sections.read(section, batches), strict=True):
            table = arrow_tables.decode_file_table(data)
            if table.num_rows != min(FILES_PER_BATCH, self.toc.num_files - batch * FILES_PER_BATCH):
                raise DamagedFileError(f"batch {batch} has the wrong number of files", found=table.num_rows)
            lists: Any = table["units"]
            units = sum(len(chunk.flatten()) for chunk in lists.chunks)
            if units > self.toc.num_units:
                raise DamagedFileError(
                    f"batch {batch} has more row groups than the segment",
                    expected=self.toc.num_units,
                    found=units,
                )
            tables.append(table)
        return tables

    def bytes_of_files(self, ordinals: npt.NDArray[np.int64]) -> int:
        """Return about how many bytes :meth:`files` reads for these ordinals."""
        section = self._by_file(FILES, FILES_PER_BATCH)
        batches = len(np.unique(ordinals // FILES_PER_BATCH))
        return batches * section.length // max(section.count, 1)

    def bytes_of_columns(self, field_ids: Iterable[int], partitions: bool) -> int:
        """Return how many bytes :meth:`bounds` reads for these fields, plus :meth:`partitions` if ``partitions``."""
        sections = [self._sections.find(BOUNDS, field_id) for field_id in field_ids]
        sections += [self._sections.find(PARTITIONS)] if partitions else []
        return sum(section.length for section in sections if section is not None)

    @property
    def bounded_fields(self) -> list[int]:
        """Field ids with recorded bounds."""
        return [section.field_id for section in self.toc.sections if section.name == BOUNDS]

    def hold(self, field_ids: Iterable[int], partitions: bool, files: npt.NDArray[np.int64] | None) -> None:
        """Read :meth:`bounds` of fields, :meth:`partitions` and the batches of ``files`` together.

        Each piece is kept until it is asked for.
        """
        found = [self._sections.find(BOUNDS, field_id) for field_id in field_ids]
        found += [self._sections.find(PARTITIONS)] if partitions else []
        pieces: list[tuple[Section, Sequence[int] | None]] = [(one, None) for one in found if one is not None]
        if files is not None:
            batches = np.unique(files // FILES_PER_BATCH).tolist()
            pieces.append((self._by_file(FILES, FILES_PER_BATCH), batches))
        self._sections.hold(pieces)

    def bounds(self, field_id: int) -> pa.Table | None:
        """Return columns lower, upper (binary), value_count, null_count, nan_count; ``None`` if not recorded."""
        if self._sections.find(BOUNDS, field_id) is None:
            return None
        return self._read_table(BOUNDS, arrow_tables.BOUNDS_SCHEMA, field_id)

    def partitions(self) -> pa.Table:
        """Return columns spec_id, partition (list of serialized single values)."""
        return self._read_table(PARTITIONS, arrow_tables.PARTITION_SCHEMA)

    def schemas(self) -> list[str]:
        """Return the Avro schemas of manifest entries, by ordinal."""
        return [*arrow_tables.decode_schemas(self._sections.read(self._single(SCHEMAS))[0])]

    def manifests(self) -> list[ListedManifest]:
        """Return the listed manifests whose files are all in the segment."""
        self._hold_end()
        found = arrow_tables.decode_manifests(self._sections.read(self._single(MANIFESTS))[0])
        return [m for m in found if 0 <= m.first_file <= m.first_file + m.live_files <= self.toc.num_files]

    def coverage(self) -> list[Coverage]:
        """Return the states of all units, one entry for each field and kind."""
        return [decode_coverage(piece, self.toc.num_units) for piece in self._coverage_pieces()]

    def coverage_runs(self) -> list[CoverageRuns]:
        """Return the states of all units as they are stored, one entry for each field and kind."""
        return [decode_runs(piece, self.toc.num_units) for piece in self._coverage_pieces()]

    def _coverage_pieces(self) -> list[bytes]:
        section = self._sections.find(COVERAGE)
        return self._sections.read(section) if section else []

    def verify(self) -> None:
        """Read and decode everything. Raises at the first damage."""
        fingerprints = self.fingerprints()
        self.first_units()
        self.partitions()
        self.schemas()
        self.manifests()
        self.coverage_runs()
        for field_id in self.bounded_fields:
            self.bounds(field_id)
        for batch in range(self._by_file(FILES, FILES_PER_BATCH).count):
            _check_fingerprints(self.file_batches([batch])[batch], fingerprints[batch * FILES_PER_BATCH :])
        for section in self.toc.sections:
            self._sections.ranges(section)

    def _hold_end(self) -> None:
        """Read at once what each lookup needs, which is near the blob's end. One read serves all of it."""
        self._sections.hold_together([UNIT_COUNTS, MANIFESTS, LENGTHS], END_BYTES)

    def _single(self, name: str) -> Section:
        section = self._sections.find(name)
        if section is None or section.count != 1:
            raise DamagedFileError(f"the units blob does not have its {name}")
        return section

    def _by_file(self, name: str, files_per_piece: int, field_id: int = 0) -> Section:
        section = self._sections.find(name, field_id)
        if section is None or section.count != -(-self.toc.num_files // files_per_piece):
            raise DamagedFileError(f"the units blob does not have the {name} of all files")
        return section

    def _read_by_file(self, name: str, width: int, files_per_piece: int) -> bytes:
        """Return the pieces of a section with ``width`` bytes for each file, concatenated."""
        data = b"".join(self._sections.read(self._by_file(name, files_per_piece)))
        if len(data) != width * self.toc.num_files:
            raise DamagedFileError(f"{name} do not cover all files", expected=self.toc.num_files)
        return data

    def _read_table(self, name: str, schema: pa.Schema, field_id: int = 0) -> pa.Table:
        """Return a table with one row for each file."""
        pieces = self._sections.read(self._by_file(name, FILES_PER_COLUMN, field_id))
        tables = [arrow_tables.decode_table(piece, schema) for piece in pieces]
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        if table.num_rows != self.toc.num_files:
            raise DamagedFileError(f"{name} do not cover all files", expected=self.toc.num_files)
        return table.combine_chunks()


def _check_fingerprints(files: Sequence[FileEntry], fingerprints: Fingerprints) -> None:
    for file, stored in zip(files, fingerprints[: len(files)], strict=True):
        try:
            expected = fingerprint(file.identity)
        except ValueError as error:
            raise DamagedFileError(f"the numbers of {file.path} are out of range", found=str(file.identity)) from error
        if stored.tobytes() != expected:
            raise DamagedFileError(f"the fingerprint of {file.path} does not match its entry")
