"""Makes manifest entries of many records that a sidecar stores, without decoding all of each record.

:mod:`sidecar.iceberg.records.walking` proves that the records are whole and finds what planning asks of a data file:
its path, format, partition, size and rows. The rest (column sizes, counts, bounds) is most of a record, and few callers
look at it. So it is decoded when it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.typedef import Record

from sidecar.bundle.file_identity import UNKNOWN_SEQUENCE
from sidecar.dependencies.pyiceberg import record_values
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.iceberg.manifests import EntryDecoder
from sidecar.iceberg.records.walking import Numbers, RecordColumns, walk

MOST_PARTITIONS = 1000
"""The most partitions whose values are decoded, one record for each. With more, this is no faster than decoding."""

_STATUS, _SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE = 0, 1, 3, 4  # field ids of the Iceberg specification
_CONTENT, _PATH, _FORMAT, _PARTITION, _RECORDS, _SIZE = 134, 100, 101, 102, 103, 104
_LIVE = {status.value: status for status in (ManifestEntryStatus.EXISTING, ManifestEntryStatus.ADDED)}


class ListedDataFile(DataFile):
    """A data file of a walked record. A property that is not set here decodes the whole record when it is looked at."""

    content = DataFileContent.DATA
    file_path: str = ""
    file_format: FileFormat = FileFormat.PARQUET
    partition: Record = Record()
    record_count: int = 0
    file_size_in_bytes: int = 0

    def __init__(self, **known: Any) -> None:
        """``known`` has the attributes that are set, ``_spec_id``, and how to find the others: see ``_data``."""
        _set_all(self, "__dict__", known)

    @cached_property
    def _data(self) -> list[Any]:  # type: ignore[override]  # where pyiceberg's records have their values
        known = self.__dict__
        return record_values(known["_decode"](known["_raw"], known["_line"]).data_file)

    def __reduce__(self) -> Any:
        return _decoded_file, (self._data, self.spec_id)


_set_all = object.__setattr__  # pyiceberg's own looks at the name of each attribute


def _decoded_file(values: list[Any], spec_id: int) -> DataFile:
    """Return a data file that is decoded, of the values of one that may not have been."""
    file = DataFile(*values)
    file.spec_id = spec_id
    return file


@dataclass(frozen=True)
class StoredRecords:
    """Records of one writer schema from a units table, with the table's columns about the data file of each."""

    records: Sequence[bytes]
    paths: Sequence[str]
    numbers: npt.NDArray[np.int64]
    """int64[n, 5]: file size, rows, spec id, id of the snapshot that added the file, file sequence number."""


@dataclass
class EntryMaker:
    """Makes the entries of walked records.

    ``in_partition`` says whether the partition of a file can match. It is asked once for each partition. Raises
    :class:`DamagedFileError` if a record is broken, and :class:`UnsupportedFeatureError` if there are too many
    partitions or a type that manifests do not have: then records are decoded one by one.
    """

    decoder: EntryDecoder
    stored: StoredRecords
    in_partition: Callable[[DataFile], bool]
    _partitions: dict[bytes, Record | None] = field(default_factory=dict)
    _formats: dict[bytes, FileFormat] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns: RecordColumns = walk(self.stored.records, self.decoder.schema)
        needed = {_STATUS, _RECORDS, _SIZE}
        if not needed <= self._columns.numbers.keys() or (needed | {_CONTENT}) & self._columns.is_set.keys():
            raise UnsupportedFeatureError("the records lack numbers that every manifest entry has")
        if not {_PATH, _FORMAT, _PARTITION} <= self._columns.spans.keys():
            raise UnsupportedFeatureError("the records lack texts that every manifest entry has")

    def entries(self, rows: slice, line: ManifestFile) -> list[tuple[int, ManifestEntry]]:
        """Return the entries of ``rows``, all of the manifest in ``line``, with the ordinal of each record.

        They have the values that are inherited from ``line``. Files of partitions that cannot match are left out.
        Raises :class:`DamagedFileError` unless each record is that of the live data file that the units table names.
        """
        stored, found = self.stored, list[tuple[int, ManifestEntry]]()
        status = self._columns.numbers[_STATUS][rows]
        # By the specification, added entries inherit sequence numbers; in manifests of version 1, whose number is 0,
        # all do.
        inherits = (status == ManifestEntryStatus.ADDED.value) | (line.sequence_number == 0)
        snapshots = self._inherited(_SNAPSHOT, rows, line.added_snapshot_id, np.ones(len(status), np.bool_))
        sequences = self._inherited(_SEQUENCE, rows, line.sequence_number, inherits)
        file_sequences = self._inherited(_FILE_SEQUENCE, rows, line.sequence_number, inherits)
        sizes, records = self._columns.numbers[_SIZE][rows], self._columns.numbers[_RECORDS][rows]
        self._check_numbers(rows, line, (sizes, records, snapshots, file_sequences))
        texts = [self._columns.spans[i] for i in (_PATH, _FORMAT, _PARTITION)]
        spans = [place[rows].tolist() for text in texts for place in (text.starts, text.ends)]
        each = zip(
            range(rows.start, rows.stop),
            stored.records[rows],
            stored.paths[rows],
            status.tolist(),
            _or_none(snapshots),
            _or_none(sequences),
            _or_none(file_sequences),
            sizes.tolist(),
            records.tolist(),
            *spans,
            strict=True,
        )
        # Local names, because the loop below runs once for each file of a manifest.
        decode, spec_id, formats, partitions = (
            self.decoder.decode,
            line.partition_spec_id,
            self._formats,
            self._partitions,
        )
        for row, raw, path, state, snapshot, sequence, file_sequence, size, count, a, b, c, d, e, f in each:
            if raw[a:b] != path.encode():
                raise DamagedFileError("a record belongs to another file", expected=path, found=raw[a:b][:200])
            if (format_text := raw[c:d]) not in formats:
                self._add_format(format_text)
            if (partition_text := raw[e:f]) not in partitions:
                self._add_partition(partition_text, raw, line)
            if (partition := partitions[partition_text]) is None:
                continue
            file = ListedDataFile(
                file_path=path,
                file_format=formats[format_text],
                partition=partition,
                record_count=count,
                file_size_in_bytes=size,
                _spec_id=spec_id,
                _decode=decode,
                _raw=raw,
                _line=line,
            )
            found.append((row, ManifestEntry(_LIVE[state], snapshot, sequence, file_sequence, file)))
        return found

    def _inherited(
        self, field_id: int, rows: slice, value: int | None, inherits: npt.NDArray[np.bool_]
    ) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return a number of each record, and whether it has one: its own, or else that of the manifest's line."""
        numbers = self._columns.numbers.get(field_id)
        if numbers is None:
            numbers, is_set = np.zeros(len(inherits), np.int64), np.zeros(len(inherits), np.bool_)
        else:
            numbers = numbers[rows]
            own = self._columns.is_set.get(field_id)
            is_set = np.ones(len(inherits), np.bool_) if own is None else own[rows]
        if value is None:
            return numbers, is_set
        return np.where(is_set, numbers, value), is_set | inherits

    def _check_numbers(self, rows: slice, line: ManifestFile, found: Any) -> None:
        """Raise :class:`DamagedFileError` unless the numbers are those of a live data file of the units table."""
        sizes, records, (snapshots, has_snapshot), (sequences, has_sequence) = found
        size, count, spec, snapshot, sequence = self.stored.numbers[rows].T
        known = (size == sizes) & (count == records) & (spec == line.partition_spec_id)
        known &= has_snapshot & (snapshot == snapshots)
        known &= sequence == np.where(has_sequence, sequences, UNKNOWN_SEQUENCE)
        content = self._columns.numbers.get(_CONTENT)
        if content is not None:
            known &= content[rows] == DataFileContent.DATA.value
        known &= np.isin(self._columns.numbers[_STATUS][rows], list(_LIVE))
        if not known.all():
            wrong = self.stored.paths[rows][int(np.argmin(known))]
            raise DamagedFileError("a record is not that of the live data file", expected=wrong)

    def _add_format(self, text: bytes) -> None:
        try:
            self._formats[text] = FileFormat(text.decode())
        except ValueError as error:
            raise DamagedFileError("a record has an unknown file format", found=text[:20]) from error

    def _add_partition(self, text: bytes, raw: bytes, line: ManifestFile) -> None:
        """Decode the partition of a record; it is ``None`` if it cannot match."""
        if len(self._partitions) == MOST_PARTITIONS:
            raise UnsupportedFeatureError("the records are those of too many partitions")
        file = self.decoder.decode(raw, line).data_file
        self._partitions[text] = file.partition if self.in_partition(file) else None


def _or_none(numbers: tuple[Numbers, npt.NDArray[np.bool_]]) -> list[int | None]:
    values: list[int | None] = numbers[0].tolist()
    if not numbers[1].all():
        for row in np.flatnonzero(~numbers[1]).tolist():
            values[row] = None
    return values
