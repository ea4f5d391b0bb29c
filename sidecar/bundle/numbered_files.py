"""The files and units of several segments as those of one, by running numbers.

Numbers are given once, when a sidecar is opened: the files and the units of a segment follow those of the segment
before it. Segments that are left out leave a gap, so a number means the same file in each selection of segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.bundle.field_blob import FieldBlob
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.indexes.page_indexes import StoredPageIndex
from sidecar.bundle.indexes.row_indexes import StoredRowIndex
from sidecar.bundle.model import NO_TABLE, Coverage, CoverageState, FileEntry, ListedManifest
from sidecar.bundle.runs import IndexOfField
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.arrow_tables import BOUNDS_SCHEMA
from sidecar.bundle.units.fingerprints import FINGERPRINT, Fingerprints
from sidecar.filters.arrays import Flags, Ordinals
from sidecar.filters.probes import FieldQuestion
from sidecar.puffin.types import ORC_BLOOM, PAGE_INDEX, ROW_INDEX, SBBF
from sidecar.questions.narrowing import Units

SCHEMAS_OF_SEGMENT = 1 << 32
"""A number above that of any segment's Avro schemas, so that schemas of several segments are numbered without a
read."""


ASKED_BLOBS = (SBBF, ORC_BLOOM, PAGE_INDEX, ROW_INDEX)
"""The types of blobs that plans ask."""


class FieldFilters(NamedTuple):
    """The filters of one field for ``num_units`` units from ``first_unit`` on. Bundles have ordinals of these."""

    bundles: tuple[FilterBundle, ...]
    first_unit: int
    num_units: int


NOT_RECORDED = CoverageState("")
"""The state of units in segments that record none for a field and kind."""


class NumberedFiles:
    """Files and units of ``segments``. A method takes and returns running numbers, unless it says otherwise."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = list(segments)

    @property
    def num_files(self) -> int:
        """The number behind the last file."""
        return self.segments[-1].first_file + self.segments[-1].num_files if self.segments else 0

    @property
    def num_units(self) -> int:
        """The number behind the last unit."""
        return self.segments[-1].first_unit + self.segments[-1].num_units if self.segments else 0

    @cached_property
    def unit_ranges(self) -> npt.NDArray[np.int64]:
        """int64[files + 1]: the units of file i are ``[unit_ranges[i], unit_ranges[i + 1])``.

        Of a segment in which the units of files are unknown, no file is ever found.
        """
        if len(self.segments) == 1 and not self.segments[0].first_file and not self.segments[0].first_unit:
            return self.segments[0].unit_ranges
        ranges = np.zeros(self.num_files + 1, np.int64)
        for segment in self.segments:
            end = segment.first_file + segment.num_files
            ranges[segment.first_file : end + 1] = segment.first_unit + segment.unit_ranges
        return ranges

    def units_of(self, numbers: Ordinals) -> Ordinals:
        """Return the units of files, one file after the other."""
        first = self.unit_ranges[numbers]
        counts = self.unit_ranges[numbers + 1] - first
        return np.asarray(np.arange(counts.sum()) + np.repeat(first - counts.cumsum() + counts, counts), np.int64)

    def files_of_units(self, units: Ordinals) -> Ordinals:
        """Return int64[units]: the file of each unit; -1 if the units of files are unknown."""
        found = np.full(len(units), -1, np.int64)
        for segment, at, ordinals in self.of_units(units):
            files = segment.unit_ranges.searchsorted(ordinals, "right") - 1
            known = files < segment.num_files
            found[at[known]] = segment.first_file + files[known]
        return found

    def count_files_about(self, field_id: int, numbers: Collection[int]) -> int:
        """Return the number of files in segments that have an index of a field, or one of the files ``numbers``."""
        held = {self.owner(number) for number in numbers}
        asked = (
            segment.num_files
            for at, segment in enumerate(self.segments)
            if at in held or any(field_id in segment.opened[blob_type] for blob_type in ASKED_BLOBS)
        )
        return sum(asked)

    def count_flags(self, flags: Flags, numbers: Ordinals) -> Ordinals:
        """Return how many units of each file have a flag. ``flags`` is bool[units]."""
        before = np.concatenate(([0], np.cumsum(flags)))
        return before[self.unit_ranges[numbers + 1]] - before[self.unit_ranges[numbers]]

    def in_some_unit(self, flags: Flags, numbers: Ordinals) -> Flags:
        """Return bool[numbers]: whether a flag is set in some unit of the file."""
        return self.count_flags(flags, numbers) > 0

    def in_all_units(self, flags: Flags, numbers: Ordinals) -> Flags:
        """Return bool[numbers]: whether a flag is set in all units of the file; False for files without units."""
        units = self.unit_ranges[numbers + 1] - self.unit_ranges[numbers]
        whole: Flags = (units > 0) & (self.count_flags(flags, numbers) == units)
        return whole

    @cached_property
    def recorded(self) -> list[IndexOfField]:
        """The fields and kinds of which segments record the states of units, those of the newest segment first."""
        found = (states for segment in reversed(self.segments) for states in segment.coverages)
        return list(dict.fromkeys((states.field_id, states.kind) for states in found))

    def coverage(self, field_id: int, kind: str) -> tuple[Coverage, Flags]:
        """Return the states of all units for a field and kind, and bool[files]: whether a segment records them."""
        states, codes = {NOT_RECORDED: 0}, np.zeros(self.num_units, np.int32)
        recorded = np.zeros(self.num_files, np.bool_)
        for segment in self.segments:
            found = segment.coverage(field_id, kind)
            if found is not None:
                own = np.array([states.setdefault(state, len(states)) for state in found.states], np.int32)
                codes[segment.first_unit : segment.first_unit + segment.num_units] = own[found.codes]
                recorded[segment.first_file : segment.first_file + segment.num_files] = True
        return Coverage(field_id, kind, tuple(states), codes), recorded

    def stored_bytes(self, field_id: int, blob_types: Iterable[str]) -> int:
        """Return the bytes of the blobs of a field that have these types."""
        blobs = (segment.opened[blob_type].get(field_id) for segment in self.segments for blob_type in blob_types)
        return sum(blob.stored_bytes for blob in blobs if blob is not None)

    @property
    def bounded_fields(self) -> list[int]:
        """The fields with recorded bounds."""
        return list(dict.fromkeys(i for segment in self.segments for i in segment.units.bounded_fields))

    @property
    def field_blobs(self) -> list[FieldBlob[Any]]:
        """The blobs of all fields that may be encrypted: all but sketches."""
        return [blob for segment in self.segments for blob in segment.blobs]

    @property
    def filtered_fields(self) -> list[int]:
        """The fields with filters."""
        return self.fields_of(SBBF, ORC_BLOOM)

    def fields_of(self, *blob_types: str) -> list[int]:
        """Return the fields with blobs of some types."""
        opened = (segment.opened[blob_type] for segment in self.segments for blob_type in blob_types)
        return list(dict.fromkeys(field_id for blobs in opened for field_id in blobs))

    def is_plain(self, number: int) -> bool:
        """Return whether a file was listed as a plain file, not as one of a table."""
        return self.segments[self.owner(number)].header.table_uuid == NO_TABLE

    @property
    def listed_manifests(self) -> list[ListedManifest]:
        """The manifests that segments list, as each lists them."""
        return [manifest for segment in self.segments for manifest in segment.listed_manifests]

    def count_segments(self, field_id: int) -> int:
        """Return the number of segments with filters of a field."""
        return sum(bool(segment.bundles_of(field_id)) for segment in self.segments)

    def units_with_filters(self, field_id: int) -> Units:
        """Return bool[units]: which units have a filter of a field."""
        units = np.zeros(self.num_units, np.bool_)
        for _, _, members in self.groups_of(field_id):
            units[members] = True
        return units

    def might_match(self, question: FieldQuestion) -> Units:
        """Return which units might hold one of the probed values in the field: see :meth:`Segment.might_match`."""
        keep = np.ones(self.num_units, np.bool_)
        for segment in self.segments:
            own = segment.own_units(keep)
            own &= segment.might_match(question)
        return keep

    def groups_of(self, field_id: int) -> Iterator[tuple[FilterBundle, StoredGroup, Ordinals]]:
        """Yield the groups of filters of a field, each with its bundle and the units of its members."""
        for segment in self.segments:
            for bundle in segment.bundles_of(field_id):
                for group in bundle.toc.groups:
                    yield bundle, group, segment.first_unit + group.ordinals()

    def numbers_of(self, file: DataFileIdentity) -> list[int]:
        """Return the numbers of the listed files that are the same as a live file of the table, one a segment."""
        asked = ((segment, segment.file_ordinal(file)) for segment in self.segments)
        return [segment.first_file + ordinal for segment, ordinal in asked if ordinal is not None]

    def named_as(self, path: str, file_size: int, record_count: int) -> list[int]:
        """Return the numbers of the only files of their segments with these facts, see :meth:`Segment.named_file`."""
        asked = ((segment, segment.named_file(path, file_size, record_count)) for segment in self.segments)
        return [segment.first_file + ordinal for segment, ordinal in asked if ordinal is not None]

    def are_in_all(self, numbers: Collection[int]) -> bool:
        """Return whether each segment has one of the files."""
        return len({self.owner(number) for number in numbers}) == len(self.segments)

    def entries(self, numbers: Sequence[int]) -> list[FileEntry | None]:
        """Return files, see :meth:`Segment.files`."""
        found: list[FileEntry | None] = [None] * len(numbers)
        for segment, at, ordinals in self.of_files(np.array(numbers, np.int64)):
            for place, entry in zip(at.tolist(), segment.files(ordinals.tolist()), strict=True):
                found[place] = entry
        return found

    def fields_with(self, number: int, *blob_types: str) -> set[int]:
        """Return the fields with blobs of these types in the segment that has the file ``number``."""
        opened = self.segments[self.owner(number)].opened
        return {field_id for blob_type in blob_types for field_id in opened[blob_type]}

    def states_of(self, number: int, kind: str, units: Sequence[int]) -> Iterator[tuple[int, list[CoverageState]]]:
        """Yield the fields of which the segment with the file ``number`` records a kind, and the states of units."""
        segment = self.segments[self.owner(number)]
        own = np.array(units, np.int64) - segment.first_unit
        for found in segment.coverages:
            if found.kind == kind:
                yield found.field_id, [found.states[code] for code in found.codes[own].tolist()]

    def filters_of(self, field_id: int, number: int) -> FieldFilters:
        """Return the filters of a field in the segment that has the file ``number``."""
        segment = self.segments[self.owner(number)]
        return FieldFilters(tuple(segment.bundles_of(field_id)), segment.first_unit, segment.num_units)

    def owner(self, number: int) -> int:
        """Return the place, among :attr:`segments`, of the one that has the file ``number``."""
        return bisect_right(self.segments, number, key=lambda segment: segment.first_file) - 1

    def stored_indexes(
        self, field_id: int, units: Iterable[int], *blob_types: str
    ) -> dict[int, StoredPageIndex | StoredRowIndex]:
        """Return page indexes and row indexes by unit, or those of a blob type: see :meth:`Segment.page_indexes`."""
        return {
            segment.first_unit + unit: stored
            for segment, _, ordinals in self.of_units(units)
            for blob_type, read in ((PAGE_INDEX, segment.page_indexes), (ROW_INDEX, segment.row_indexes))
            if not blob_types or blob_type in blob_types
            for unit, stored in read(field_id, ordinals.tolist()).items()
        }

    def fingerprints(self, numbers: Ordinals) -> Fingerprints:
        """Return the fingerprints of files; zeros, which no segment has, where they cannot be read."""
        found = np.zeros(len(numbers), FINGERPRINT)
        for segment, at, ordinals in self.of_files(numbers):
            known = segment.fingerprints
            if known is not None:
                found[at] = known[ordinals]
        return found

    def schema(self, number: int) -> str | None:
        """Return an Avro schema of manifest entries; ``None`` if there is none or it cannot be read."""
        at, ordinal = divmod(number, SCHEMAS_OF_SEGMENT)
        schemas = self.segments[at].schemas if 0 <= at < len(self.segments) else []
        return schemas[ordinal] if ordinal < len(schemas) else None

    def bounds(self, field_id: int, numbers: Ordinals) -> pa.Table | None:
        """Return the bounds of a field, one row for each of the files, nulls for those without any.

        ``None`` if no file has any. ``numbers`` rise.
        """
        parts = [(_rows_at(segment.bounds(field_id), own), len(own)) for segment, _, own in self.of_files(numbers)]
        if all(part is None for part, _ in parts):
            return None
        return _joined([_nulls(count) if part is None else part for part, count in parts])

    def partitions(self, numbers: Ordinals) -> pa.Table | None:
        """Return the partition tuples, one row for each of the files; ``None`` if in doubt. ``numbers`` rise."""
        return _joined([_rows_at(segment.partitions(), ordinals) for segment, _, ordinals in self.of_files(numbers)])

    def file_columns(self, numbers: Ordinals) -> pa.Table | None:
        """Return columns of many files, see :meth:`Segment.file_columns`; ``None`` if in doubt. ``numbers`` rise."""
        return _joined([segment.file_columns(ordinals) for segment, _, ordinals in self.of_files(numbers)])

    def hold(self, field_ids: Iterable[int], partitions: bool, numbers: Ordinals, entries: bool) -> None:
        """Read what :meth:`bounds`, :meth:`partitions` and, if ``entries``, :meth:`entries` will be asked for."""
        for segment, _, ordinals in self.of_files(numbers):
            segment.hold(field_ids, partitions, ordinals if entries else None)

    def columns_are_smaller(self, field_ids: Iterable[int], partitions: bool, numbers: Ordinals) -> bool:
        """Return whether bounds (and partitions) of all files are fewer bytes than the records of ``numbers``."""
        columns = records = 0
        for segment, _, ordinals in self.of_files(numbers):
            columns += segment.units.bytes_of_columns(field_ids, partitions)
            records += segment.units.bytes_of_files(ordinals)
        return columns < records

    def of_files(self, numbers: Ordinals) -> Iterator[tuple[Segment, Ordinals, Ordinals]]:
        """Yield each segment that has some of the files: which of these, and their ordinals in the segment."""
        yield from self._split(self._first_files, numbers)

    def of_units(self, units: Iterable[int] | Ordinals) -> Iterator[tuple[Segment, Ordinals, Ordinals]]:
        """Yield each segment that has some of the units: which of these, and their ordinals in the segment."""
        yield from self._split(self._first_units, units if isinstance(units, np.ndarray) else np.array([*units], int))

    def _split(self, firsts: Ordinals, numbers: Ordinals) -> Iterator[tuple[Segment, Ordinals, Ordinals]]:
        if len(self.segments) == 1 and len(numbers):
            yield self.segments[0], np.arange(len(numbers)), numbers - firsts[0] if firsts[0] else numbers
        elif len(numbers):
            owners = firsts.searchsorted(numbers, "right") - 1
            for owner in np.unique(owners).tolist():
                at = np.flatnonzero(owners == owner)
                yield self.segments[owner], at, numbers[at] - firsts[owner]

    @cached_property
    def _first_files(self) -> Ordinals:
        return np.array([segment.first_file for segment in self.segments], np.int64)

    @cached_property
    def _first_units(self) -> Ordinals:
        return np.array([segment.first_unit for segment in self.segments], np.int64)


def _rows_at(table: pa.Table | None, ordinals: Ordinals) -> pa.Table | None:
    return None if table is None else table.take(pa.array(ordinals, pa.int64()))


def _joined(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """Return the rows of all tables; ``None`` if there is none, or one is ``None``."""
    found = [table for table in tables if table is not None]
    if len(found) < max(len(tables), 1):
        return None
    return found[0] if len(found) == 1 else pa.concat_tables(found).combine_chunks()


def _nulls(count: int) -> pa.Table:
    columns = [pa.nulls(count, field.type) for field in BOUNDS_SCHEMA]
    return pa.Table.from_arrays(columns, schema=BOUNDS_SCHEMA)
