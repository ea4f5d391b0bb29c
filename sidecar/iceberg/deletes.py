"""Which data files of a snapshot have deletes: files whose rows are not simply all their rows.

By the Iceberg specification ("Scan Planning"), a position delete file applies to a data file of the same spec
and partition whose data sequence number is not greater than its own, or to the one file that it names; an
equality delete file applies to data files of smaller data sequence numbers in its partition, or everywhere if
its spec is unpartitioned. Which files position deletes name is read from them; where that cannot be done, bounds
of their ``file_path`` column narrow them. The answer errs towards "applies": paths that differ only in how
their scheme is spelt count as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from io import IOBase
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.types import NestedField

from sidecar.errors import SidecarError
from sidecar.iceberg.listing import READERS, ListedFile, SnapshotManifest
from sidecar.iceberg.manifests import ManifestContents, entry_decoder, read_manifest
from sidecar.iceberg.paths import spellings
from sidecar.source import SourceFile, open_source

EQUALITY = "equality deletes apply to it"
POSITION = "position deletes apply to it"
_PATH, _PATH_FIELD = "file_path", 2147483546  # reserved, in position delete files
_MOST_READ = 64 << 20
"""Bytes of a position delete file beyond which its bounds have to do."""

PartitionKey = tuple[int, tuple[tuple[int, Any], ...]]
"""A spec id, and the value of each partition field by field id."""


@dataclass
class DeleteIndex:
    """The live delete files of a snapshot, by what they may apply to."""

    everywhere: list[_Delete] = field(default_factory=list)
    """Those of unpartitioned specs."""
    by_partition: dict[PartitionKey, list[_Delete]] = field(default_factory=dict)
    by_path: dict[str, int] = field(default_factory=dict)
    """The greatest sequence number of position deletes that name one file."""

    def reason(self, file: ListedFile, manifest: SnapshotManifest) -> str | None:
        """Why ``file``, an entry of ``manifest``, counts as having deletes; ``None`` if none applies."""
        paths = spellings(file.path)
        if any(self.by_path.get(path, -1) >= file.sequence_number for path in paths):
            return POSITION
        fields = entry_decoder(manifest.avro_schema).partition_fields
        key = _partition_key(file.spec_id, file.data_file, fields)
        for delete in (*self.everywhere, *self.by_partition.get(key, ())):
            if delete.may_apply(file.sequence_number, paths):
                return EQUALITY if delete.equality else POSITION
        return None


@dataclass
class EqualityDeletes:
    """The equality deletes that planning came across, and the data files that it kept."""

    deletes: list[ManifestEntry] = field(default_factory=list)
    sequence_numbers: dict[str, int] = field(default_factory=dict)

    def see(self, entry: ManifestEntry) -> None:
        """Take note of an entry."""
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            self.deletes.append(entry)
        else:
            path, sequence = entry.data_file.file_path, entry.sequence_number or 0
            # two live entries may have one path: deletes that apply to the older one count
            self.sequence_numbers[path] = min(sequence, self.sequence_numbers.get(path, sequence))

    def apply_to(self, file: DataFile) -> bool:
        """Whether one of them can delete rows of a file that was seen."""
        sequence = self.sequence_numbers.get(file.file_path, -1)
        return any(
            sequence < (entry.sequence_number or 0) and _covers(entry.data_file, file)
            for entry in self.deletes
        )


def _covers(delete: DataFile, file: DataFile) -> bool:
    """Whether an equality delete file is of the file's partition, or of an unpartitioned spec."""
    values = [_comparable(delete.partition[i]) for i in range(len(delete.partition))]
    if not values:
        return True
    own = [_comparable(file.partition[i]) for i in range(len(file.partition))]
    return delete.spec_id == file.spec_id and values == own


@dataclass(frozen=True)
class _Delete:
    """One delete file; ``lower`` and ``upper`` are bounds of the paths that it names."""

    sequence_number: int
    equality: bool
    lower: bytes | None
    upper: bytes | None

    def may_apply(self, sequence_number: int, paths: Iterable[str]) -> bool:
        """Whether it can delete rows of a data file, given all spellings of its path."""
        if self.equality:
            return sequence_number < self.sequence_number
        return sequence_number <= self.sequence_number and any(self._within(path.encode()) for path in paths)

    def _within(self, path: bytes) -> bool:
        above = self.lower is None or path >= self.lower
        # an upper bound cut short by a writer that did not round it up is no bound
        return above and (self.upper is None or path <= self.upper or path.startswith(self.upper))


def read_deletes(io: FileIO, lines: Iterable[ManifestFile]) -> DeleteIndex:
    """Read the delete manifests among ``lines``, the manifest list of one snapshot.

    Raises :class:`sidecar.errors.DamagedFileError` or :class:`sidecar.errors.StorageError` naming a manifest.
    """
    index = DeleteIndex()
    chosen = [line for line in lines if line.content == ManifestContent.DELETES]
    with ThreadPoolExecutor(READERS) as pool:
        for contents in pool.map(lambda line: read_manifest(io, line), chosen):
            entries = list(_live(contents))
            for entry, paths in zip(
                entries, pool.map(lambda e: _named(io, e.data_file), entries), strict=True
            ):
                _add(index, entry, contents.partition_fields, paths)
    return index


def _live(contents: ManifestContents) -> Iterator[ManifestEntry]:
    return (raw.entry for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED)


def _named(io: FileIO, file: DataFile) -> frozenset[str] | None:
    """The files that a position delete file names; ``None`` for other deletes and where it is not certain."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    lower, upper = ((bounds or {}).get(_PATH_FIELD) for bounds in (file.lower_bounds, file.upper_bounds))
    if lower is not None and lower == upper:
        return frozenset([lower.decode("utf-8", "surrogateescape")])
    if file.file_format != FileFormat.PARQUET or file.file_size_in_bytes > _MOST_READ:
        return None
    try:
        with closing(open_source(file.file_path, io, file.file_size_in_bytes)) as source:
            read = pq.ParquetFile(
                pa.PythonFile(cast(IOBase, SourceFile(source)), "r"), read_dictionary=[_PATH]
            ).read([_PATH])
        paths = read[_PATH]
        if len(paths) != file.record_count or paths.null_count:
            return None
        return frozenset(str(path) for path in paths.unique().to_pylist())
    except (SidecarError, pa.ArrowException, KeyError, ValueError, OSError):
        return None


def _add(
    index: DeleteIndex, entry: ManifestEntry, fields: Sequence[NestedField], paths: frozenset[str] | None
) -> None:
    file, sequence = entry.data_file, entry.sequence_number or 0
    if paths is not None:
        for path in paths:
            index.by_path[path] = max(sequence, index.by_path.get(path, sequence))
        return
    equality = file.content == DataFileContent.EQUALITY_DELETES
    lower = None if equality else (file.lower_bounds or {}).get(_PATH_FIELD)
    upper = None if equality else (file.upper_bounds or {}).get(_PATH_FIELD)
    delete = _Delete(sequence, equality, lower, upper)
    if fields:
        key = _partition_key(file.spec_id, file, fields)
        index.by_partition.setdefault(key, []).append(delete)
    else:
        index.everywhere.append(delete)


def _partition_key(spec_id: int, file: DataFile, fields: Sequence[NestedField]) -> PartitionKey:
    """Equal for equal partitions, whichever types their manifests give the values."""
    values = ((part.field_id, _comparable(file.partition[position])) for position, part in enumerate(fields))
    return spec_id, tuple(sorted(values, key=lambda pair: pair[0]))


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
