"""Answers questions of planning from one segment: the files, units and indexes that one build added to a table.

Nothing here raises unless strict. If something cannot be read or verified, the answer is "may match". The causes go to
:class:`Damage`, which keeps one line for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.bundle.envelopes.encryption import digest_of
from sidecar.bundle.field_blob import FieldBlob, OpenedBlob
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.indexes.page_indexes import PageIndexBlob, StoredPageIndex
from sidecar.bundle.indexes.row_indexes import RowIndexBlob, StoredRowIndex
from sidecar.bundle.kinds.blob_forms import BLOB_FORMS
from sidecar.bundle.model import Coverage, FileEntry, ListedManifest, SegmentHeader, StoredColumn
from sidecar.bundle.sections import FILES_PER_BATCH
from sidecar.bundle.toc import TocEntry
from sidecar.bundle.units.coverage import CoverageRuns
from sidecar.bundle.units.fingerprints import FingerprintIndex, Fingerprints
from sidecar.bundle.units.reader import UnitsReader
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.probes import FieldQuestion
from sidecar.puffin.types import ORC_BLOOM, PAGE_INDEX, ROW_INDEX, SBBF, THETA_GROUPS
from sidecar.questions.narrowing import Units
from sidecar.questions.row_ranges import RowRanges

if TYPE_CHECKING:
    from sidecar.bundle.sketches.sketch_blob import SketchGroupsBlob

_T = TypeVar("_T")

REMEMBERED_FILES = 4096
"""The most file entries that a segment keeps in memory once they were read."""

_TOC_COPIES, _FILE_BYTES, _UNIT_BYTES = 10, 300, 8
"""About what a segment takes in memory: for each byte of its tables of contents as decoded objects, for each file with
its fingerprint in an index, and for each unit and coverage."""


ColumnNames = Callable[[int], "str | None"]
"""Return the name of the column with a field id, ``None`` if there is no such column."""


class Damage:
    """Collects the damage of a sidecar, each cause once. If strict, raises it instead.

    ``columns`` returns the names of columns for messages.
    """

    def __init__(self, file: str, strict: bool = False, columns: ColumnNames | None = None) -> None:
        self.causes: list[SidecarError] = []
        self.warnings: list[str] = []
        """The text of each cause."""
        self.strict = strict
        self._file = file
        self.columns = columns

    def known_column(self, field_id: int) -> str | None:
        """Return the name of a field's column, ``None`` if it is unknown."""
        return None if self.columns is None else self.columns(field_id)

    def column(self, field_id: int) -> str:
        """Return a field's name for messages: the name of its column if known, else ``field`` and its id."""
        return self.known_column(field_id) or f"field {field_id}"

    def add(self, cause: SidecarError | str, field_id: int | None = None) -> None:
        """Record a cause. ``field_id`` is given if the cause is about the index of a field."""
        error = cause if isinstance(cause, SidecarError) else DamagedFileError(cause)
        if field_id is not None:
            error = copy(error)  # one error of a key retriever is the answer for several fields
            error.column = self.column(field_id)
        if error.file is None:
            error.file = self._file
        if self.strict:
            raise error
        if str(error) not in self.warnings:
            self.warnings.append(str(error))
            self.causes.append(error)


class Segment:
    """The files and units that one build added, and the indexes of some fields. Nothing here raises unless strict."""

    def __init__(
        self, units: UnitsReader, entry: TocEntry, damage: Damage, first_file: int = 0, first_unit: int = 0
    ) -> None:
        self.entry = entry
        self.units = units
        self.first_file, self.first_unit = first_file, first_unit
        """The running numbers of its first file and unit in the sidecar."""
        self.opened: dict[str, dict[int, OpenedBlob]] = {blob_type: {} for blob_type in BLOB_FORMS}
        """The blobs of fields by type and field id."""
        self.entries: list[TocEntry] = [entry]
        """All blobs of the segment, the units blob first."""
        self.units_digest = digest_of(entry.toc)
        """SHA-256 of the units blob's table of contents."""
        self._damage = damage
        self._files: dict[int, FileEntry] = {}

    @property
    def header(self) -> SegmentHeader:
        """Identity of the segment: table, snapshot, sequence number, time."""
        return self.units.toc.header

    @property
    def id(self) -> str:
        """The segment id as 32 hexadecimal digits."""
        return self.header.segment_id.hex()

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was indexed."""
        return self.header.snapshot_id

    @property
    def bundles(self) -> dict[int, FilterBundle]:
        """Split-block filters by field id."""
        return cast("dict[int, FilterBundle]", self.opened[SBBF])

    @property
    def orc_bundles(self) -> dict[int, FilterBundle]:
        """ORC filters by field id."""
        return cast("dict[int, FilterBundle]", self.opened[ORC_BLOOM])

    @property
    def page_index_blobs(self) -> dict[int, PageIndexBlob]:
        """Page indexes of Parquet files by field id."""
        return cast("dict[int, PageIndexBlob]", self.opened[PAGE_INDEX])

    @property
    def row_index_blobs(self) -> dict[int, RowIndexBlob]:
        """Row indexes of ORC files by field id."""
        return cast("dict[int, RowIndexBlob]", self.opened[ROW_INDEX])

    @property
    def sketch_blobs(self) -> dict[int, SketchGroupsBlob]:
        """Sketches of groups of files by field id. Builds read them, plans never do."""
        return cast("dict[int, SketchGroupsBlob]", self.opened[THETA_GROUPS])

    @property
    def columns(self) -> dict[int, StoredColumn | None]:
        """The columns with indexes by field id, as they were named then; ``None``: the name is withheld."""
        found: dict[int, StoredColumn | None] = {}
        for toc in (blob.toc for blobs in self.opened.values() for blob in blobs.values()):
            found[toc.field_id] = toc.column and found.get(toc.field_id, toc.column)
        return found

    @property
    def num_files(self) -> int:
        """Number of listed files."""
        return self.units.toc.num_files

    @property
    def num_units(self) -> int:
        """Number of units of all listed files."""
        return self.units.toc.num_units

    def own_units(self, flags: Units) -> Units:
        """Return the flags of the segment's units, as a view. ``flags`` is bool[units of the sidecar]."""
        return flags[self.first_unit :][: self.num_units]

    @property
    def fields(self) -> dict[int, tuple[StoredGroup, ...]]:
        """The groups of each field with filters, by field id: split-block filters first, then ORC filters."""
        return {field_id: self.groups_of(field_id) for field_id in dict.fromkeys((*self.bundles, *self.orc_bundles))}

    def groups_of(self, field_id: int) -> tuple[StoredGroup, ...]:
        """Return the groups of one field, as :attr:`fields`, without a look at the others."""
        return tuple(group for bundle in self.bundles_of(field_id) for group in bundle.toc.groups)

    @property
    def blobs(self) -> list[FieldBlob[Any]]:
        """The blobs of all fields that may be encrypted: all but sketches."""
        opened = (blob for blobs in self.opened.values() for blob in blobs.values())
        return [blob for blob in opened if isinstance(blob, FieldBlob)]

    def offset_of(self, blob_type: str, field_id: int) -> int:
        """Return where the blob of a field begins in the file."""
        return next(e.offset for e in self.entries if (e.blob_type, e.fields) == (blob_type, (field_id,)))

    def bundles_of(self, field_id: int) -> list[FilterBundle]:
        """Return the bundles of a field that exist: split-block filters first, then ORC filters."""
        return [bundles[field_id] for bundles in (self.bundles, self.orc_bundles) if field_id in bundles]

    def might_match(self, question: FieldQuestion) -> Units:
        """Return which units might hold one of the probed values in the field; all units in doubt.

        A unit with filters in both bundles is kept only if neither excludes the values.
        """
        keep = np.ones(self.num_units, np.bool_)
        for bundle in self.bundles_of(question.field_id):
            keep &= bundle.might_match(question)
        return keep

    def page_indexes(self, field_id: int, units: Iterable[int]) -> dict[int, StoredPageIndex]:
        """Return the page indexes of these units, as unchanged Thrift bytes. Units without one are left out.

        Reads the needed table pieces and entries, with neighbours joined. Use an entry only if the column is
        still found in the file as its ``kind.resolution`` says.
        """
        blob = self.page_index_blobs.get(field_id)
        return {} if blob is None else blob.read(units)

    def page_index(self, field_id: int, unit: int) -> StoredPageIndex | None:
        """Return the page index of one unit, ``None`` if it has none or it cannot be read."""
        return self.page_indexes(field_id, [unit]).get(unit)

    def row_indexes(self, field_id: int, units: Iterable[int]) -> dict[int, StoredRowIndex]:
        """Return the RowIndexEntry of these units of ORC files, as unchanged protobuf bytes.

        Units without one are left out. Reads as :meth:`page_indexes` does, and the same condition on
        ``kind.resolution`` applies.
        """
        blob = self.row_index_blobs.get(field_id)
        return {} if blob is None else blob.read(units)

    def file_ordinal(self, file: DataFileIdentity) -> int | None:
        """Return the ordinal of the listed file that is the same as a live file of the table; else ``None``.

        Reads nothing for files that were added after the segment's snapshot.
        """
        if 0 < self.header.sequence_number < file.file_sequence_number or self._index is None:
            return None
        return self._index.find(file)

    def repeated_files(self) -> dict[int, tuple[DataFileIdentity, int, tuple[bytes | None, ...]]]:
        """Return the identity, spec and partition of files that are listed more than once, by ordinal.

        A search by fingerprint finds none of these files. Copies of one partition have the same indexes.
        """
        again = [] if self._index is None else self._index.repeated
        partitions = self.partitions() if again else None
        if partitions is None:
            return {}
        rows = zip(again, self.files(again), partitions.take(again).to_pylist(), strict=True)
        return {i: (e.identity, p["spec_id"], tuple(p["partition"])) for i, e, p in rows if e is not None}

    def named_file(self, path: str, file_size: int, record_count: int) -> int | None:
        """Return the ordinal of the only listed file with this path, size and record count; else ``None``.

        The live file may have other content that came to the path later. Use :meth:`file_ordinal` to exclude that.
        """
        return None if self._index is None else self._index.find_named(path, file_size, record_count)

    @property
    def fingerprints(self) -> Fingerprints | None:
        """The fingerprints of all files; ``None`` if they cannot be read."""
        return self._certain(self.units.fingerprints)

    @cached_property
    def _index(self) -> FingerprintIndex | None:
        if self._first_units is None:
            return None  # if the units of files are unknown, no file can be answered for
        fingerprints = self.fingerprints
        return None if fingerprints is None else FingerprintIndex(fingerprints)

    @cached_property
    def _first_units(self) -> npt.NDArray[np.int64] | None:
        return self._certain(self.units.first_units)

    @property
    def unit_ranges(self) -> npt.NDArray[np.int64]:
        """int64[files + 1]: the units of file i are ``[unit_ranges[i], unit_ranges[i + 1])``; all zeros if unknown."""
        first = self._first_units
        return np.zeros(self.num_files + 1, np.int64) if first is None else first

    @cached_property
    def _without_units(self) -> RowRanges:
        return RowRanges.of_rows(np.flatnonzero(self.unit_ranges[1:] == self.unit_ranges[:-1]))

    def files_with(self, units: RowRanges) -> RowRanges:
        """Return the ordinals of the files that have some of these units, and of all files that have no units."""
        if not units:
            return self._without_units
        first = self.unit_ranges
        starts = np.searchsorted(first, units.pairs[:, 0], side="right") - 1
        ends = np.searchsorted(first, units.pairs[:, 1] - 1, side="right")
        found = np.concatenate((np.stack([starts, ends], axis=1), self._without_units.pairs))
        return RowRanges(np.minimum(found, self.num_files))  # a unit is in no file if the units of files are unknown

    @cached_property
    def listed_manifests(self) -> list[ListedManifest]:
        """Manifests whose live files are all in the segment; empty if they cannot be read."""
        return (None if self._first_units is None else self._certain(self.units.manifests)) or []

    @cached_property
    def schemas(self) -> list[str]:
        """Avro schemas of manifest entries, by ordinal; empty if they cannot be read."""
        return self._certain(self.units.schemas) or []

    @cached_property
    def coverage_runs(self) -> list[CoverageRuns]:
        """States of all units as they are stored, one entry for each field and kind; empty if they cannot be read."""
        return self._certain(self.units.coverage_runs) or []

    @cached_property
    def coverages(self) -> list[Coverage]:
        """States of all units, one entry for each field and kind; empty if they cannot be read."""
        return self._certain(self.units.coverage) or []

    def coverage(self, field_id: int, kind: str) -> Coverage | None:
        """Return the states of all units for a field and kind, ``None`` if they are unknown."""
        for coverage in self.coverages:
            if (coverage.field_id, coverage.kind) == (field_id, kind):
                return coverage
        return None

    def files(self, wanted: Sequence[int]) -> list[FileEntry | None]:
        """Return the files with these ordinals, without bounds and partitions; ``None`` where one cannot be read.

        Keeps up to :data:`REMEMBERED_FILES` in memory, because a plan needs its survivors more than once.
        """
        missing = [ordinal for ordinal in wanted if ordinal not in self._files]
        read = self._read_files(missing) if missing else {}
        found = [self._files.get(ordinal, read.get(ordinal)) for ordinal in wanted]
        if len(self._files) + len(read) <= REMEMBERED_FILES:
            self._files.update(read)
        return found

    def file_columns(self, wanted: npt.NDArray[np.int64]) -> pa.Table | None:
        """Return columns of many files, in this order, see :meth:`UnitsReader.file_columns`; ``None`` if in doubt."""
        return self._certain(partial(self.units.file_columns, wanted))

    def forget_files(self) -> None:
        """Forget the files that were read."""
        self._files.clear()

    @property
    def memory(self) -> int:
        """About how many bytes of memory the segment takes while it remembers no files."""
        coverages = 1 + len(self.__dict__.get("coverages", ()))  # the others are not decoded
        tocs = sum(len(entry.toc) for entry in self.entries)
        return _TOC_COPIES * tocs + _FILE_BYTES * self.num_files + _UNIT_BYTES * coverages * self.num_units

    def ordinals_of(self, fingerprints: Fingerprints) -> npt.NDArray[np.int64]:
        """Return int64[n]: the ordinals of live files of the table by their fingerprints; -1 for files not listed.

        Reads nothing if all files were added after the segment's snapshot.
        """
        found, newest = np.full(len(fingerprints), -1, np.int64), self.header.sequence_number
        old = (newest <= 0) | (fingerprints["sequence"] <= newest)
        if old.any() and self._index is not None:
            found[old] = self._index.find_all(fingerprints[old])
        return found

    def _read_files(self, wanted: Sequence[int]) -> dict[int, FileEntry]:
        files: list[FileEntry] | None = self._certain(partial(self.units.files, wanted))
        if files is not None:
            return dict(zip(wanted, files, strict=True))
        single: dict[int, FileEntry] = {}
        for batch in sorted({ordinal // FILES_PER_BATCH for ordinal in wanted}):
            members = [ordinal for ordinal in wanted if ordinal // FILES_PER_BATCH == batch]
            entries = self._certain(partial(self.units.files, members))
            single.update(zip(members, entries or (), strict=entries is not None))
        return single

    def bounds(self, field_id: int) -> pa.Table | None:
        """Return the bounds of a field, one row for each file; ``None`` if there are none or they cannot be read."""
        return self._certain(partial(self.units.bounds, field_id))

    def hold(self, field_ids: Iterable[int], partitions: bool, files: npt.NDArray[np.int64] | None) -> None:
        """Read what :meth:`bounds`, :meth:`partitions` and :meth:`files` will be asked for, in few reads."""
        self._certain(partial(self.units.hold, field_ids, partitions, files))

    def partitions(self) -> pa.Table | None:
        """Return the partition tuples, one row for each file; ``None`` if they cannot be read."""
        return self._certain(self.units.partitions)

    def _certain(self, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except SidecarError as error:
            self._damage.add(error)
            return None


def by_age(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments, oldest first."""
    return sorted(segments, key=lambda segment: (segment.header.sequence_number, segment.header.created_at))


def named_columns(segments: Iterable[Segment]) -> dict[int, StoredColumn]:
    """Return the newest name of each column with indexes, by field id, unless one of the segments withholds it."""
    segments = by_age(segments)
    withheld = withheld_columns(segments)
    found = {i: column for segment in segments for i, column in segment.columns.items()}
    return {i: column for i, column in found.items() if column is not None and i not in withheld}


def withheld_columns(segments: Iterable[Segment]) -> set[int]:
    """Return the ids of fields whose names one of the segments withholds."""
    return {field_id for segment in segments for field_id, column in segment.columns.items() if column is None}
