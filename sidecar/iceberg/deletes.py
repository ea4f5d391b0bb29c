"""Finds the data files of a snapshot that may have deleted rows.

The Iceberg specification ("Scan Planning") says which data files a delete file applies to:

- A position delete file: the one file that it names, or files of the same spec and partition whose data sequence
  number is not greater than its own.
- An equality delete file: files with smaller data sequence numbers in its partition, or in all partitions if its spec
  is unpartitioned.

Position delete files are read to find the data files that they name. If one cannot be read, the bounds of its
``file_path`` column narrow them. In doubt a delete applies: paths that differ only in the spelling of their scheme
count as equal.
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
"""Position delete files of more than this many bytes are not read; only their bounds are used."""

PartitionKey = tuple[int, tuple[tuple[int, Any], ...]]
"""A spec id and pairs of partition field id and value, sorted by field id."""


@dataclass
class DeleteIndex:
    """The live delete files of a snapshot, arranged by the data files to which they may apply."""

    everywhere: list[_Delete] = field(default_factory=list)
    """Delete files of unpartitioned specs."""
    by_partition: dict[PartitionKey, list[_Delete]] = field(default_factory=dict)
    by_path: dict[str, int] = field(default_factory=dict)
    """Path of a data file -> greatest sequence number of the position deletes that name it."""

    def reason(self, file: ListedFile, manifest: SnapshotManifest) -> str | None:
        """Return why ``file``, an entry of ``manifest``, may have deletes; ``None`` if no delete file applies."""
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
    """The equality deletes that a plan met, and the sequence numbers of the data files that it kept."""

    deletes: list[ManifestEntry] = field(default_factory=list)
    sequence_numbers: dict[str, int] = field(default_factory=dict)

    def see(self, entries: Iterable[ManifestEntry]) -> None:
        """Add live manifest entries, of delete files or of data files."""
        sequences = self.sequence_numbers
        for entry in entries:
            file = entry.data_file
            if file.content == DataFileContent.EQUALITY_DELETES:
                self.deletes.append(entry)
                continue
            sequence = entry.sequence_number or 0
            # Two live entries can have the same path. The smaller number lets more deletes apply.
            if sequences.setdefault(file.file_path, sequence) > sequence:
                sequences[file.file_path] = sequence

    def apply_to(self, file: DataFile) -> bool:
        """Return whether an equality delete can delete rows of a data file that was added with :meth:`see`."""
        return bool(self.deletes) and next(self.applying_to(file), None) is not None

    def applying_to(self, file: DataFile) -> Iterator[DataFile]:
        """Yield the equality delete files that can delete rows of a data file that was added with :meth:`see`."""
        sequence = self.sequence_numbers.get(file.file_path, -1)
        for entry in self.deletes:
            if sequence < (entry.sequence_number or 0) and _covers(entry.data_file, file):
                yield entry.data_file


def _covers(delete: DataFile, file: DataFile) -> bool:
    """Return whether an equality delete file has the same partition as the data file, or an unpartitioned spec."""
    values = [_comparable(delete.partition[i]) for i in range(len(delete.partition))]
    if _may_be_unpartitioned(values):
        return True
    own = [_comparable(file.partition[i]) for i in range(len(file.partition))]
    return delete.spec_id == file.spec_id and values == own


@dataclass(frozen=True)
class _Delete:
    """A delete file; ``lower`` and ``upper`` are the bounds (UTF-8) of the paths that it names, if known."""

    sequence_number: int
    equality: bool
    lower: bytes | None
    upper: bytes | None

    def may_apply(self, sequence_number: int, paths: Iterable[str]) -> bool:
        """Return whether the delete file can delete rows of a data file; ``paths`` are all spellings of its path."""
        # Equality deletes apply to older files only, position deletes also to files of the same commit.
        if self.equality:
            return sequence_number < self.sequence_number
        return sequence_number <= self.sequence_number and any(self._within(path.encode()) for path in paths)

    def _within(self, path: bytes) -> bool:
        above = self.lower is None or path >= self.lower
        # Some writers truncate an upper bound without rounding it up, so longer paths with this prefix are inside too.
        return above and (self.upper is None or path <= self.upper or path.startswith(self.upper))


def read_deletes(io: FileIO, lines: Iterable[ManifestFile]) -> DeleteIndex:
    """Read the delete manifests among ``lines``, the manifest list of one snapshot.

    Raises :class:`sidecar.errors.DamagedFileError` or :class:`sidecar.errors.StorageError` with the manifest's path.
    """
    index = DeleteIndex()
    chosen = [line for line in lines if line.content == ManifestContent.DELETES]
    with ThreadPoolExecutor(READERS) as pool:
        for contents in pool.map(lambda line: read_manifest(io, line), chosen):
            entries = list(_live(contents))
            for entry, paths in zip(entries, pool.map(lambda e: _named(io, e.data_file), entries), strict=True):
                _add(index, entry, contents.partition_fields, paths)
    return index


def _live(contents: ManifestContents) -> Iterator[ManifestEntry]:
    return (raw.entry for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED)


def _named(io: FileIO, file: DataFile) -> frozenset[str] | None:
    """Return the paths that a position delete file names; ``None`` for other deletes and if that is not certain."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    lower, upper = ((bounds or {}).get(_PATH_FIELD) for bounds in (file.lower_bounds, file.upper_bounds))
    if lower is not None and lower == upper:
        return frozenset([lower.decode("utf-8", "surrogateescape")])
    if file.file_format != FileFormat.PARQUET or file.file_size_in_bytes > _MOST_READ:
        return None
    try:
        with closing(open_source(file.file_path, io, file.file_size_in_bytes)) as source:
            read = pq.ParquetFile(pa.PythonFile(cast(IOBase, SourceFile(source)), "r"), read_dictionary=[_PATH]).read(
                [_PATH]
            )
        paths = read[_PATH]
        if len(paths) != file.record_count or paths.null_count:
            return None
        return frozenset(str(path) for path in paths.unique().to_pylist())
    except (SidecarError, pa.ArrowException, KeyError, ValueError, OSError):
        return None


def _add(index: DeleteIndex, entry: ManifestEntry, fields: Sequence[NestedField], paths: frozenset[str] | None) -> None:
    file, sequence = entry.data_file, entry.sequence_number or 0
    if paths is not None:
        for path in paths:
            index.by_path[path] = max(sequence, index.by_path.get(path, sequence))
        return
    equality = file.content == DataFileContent.EQUALITY_DELETES
    lower = None if equality else (file.lower_bounds or {}).get(_PATH_FIELD)
    upper = None if equality else (file.upper_bounds or {}).get(_PATH_FIELD)
    delete = _Delete(sequence, equality, lower, upper)
    if not _may_be_unpartitioned([file.partition[position] for position in range(len(fields))]):
        key = _partition_key(file.spec_id, file, fields)
        index.by_partition.setdefault(key, []).append(delete)
    else:
        index.everywhere.append(delete)


def _may_be_unpartitioned(values: Sequence[Any]) -> bool:
    """Return whether a delete file with these partition values may apply to files of all partitions.

    In version 1 a spec whose fields were all removed has void fields, whose values are NULL, and divides nothing. A
    partition of NULL looks the same, so its deletes are taken to apply everywhere: that keeps what may be deleted.
    """
    return all(value is None for value in values)


def _partition_key(spec_id: int, file: DataFile, fields: Sequence[NestedField]) -> PartitionKey:
    """Return a key that is equal for equal partitions, even if manifests store the values in different types."""
    values = ((part.field_id, _comparable(file.partition[position])) for position, part in enumerate(fields))
    return spec_id, tuple(sorted(values, key=lambda pair: pair[0]))


def _comparable(value: Any) -> Any:
    """Return a value that equals itself: NaN does not, so partitions with NaN would never match."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
