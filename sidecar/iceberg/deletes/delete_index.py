"""Finds the data files of a snapshot that may have deleted rows.

:mod:`sidecar.iceberg.deletes.delete_files` says which data files a delete file applies to. Here position delete files
are read to find the data files that they name. If one cannot be read, the bounds of its ``file_path`` column narrow
them. In doubt a delete applies: paths that differ only in the spelling of their scheme count as equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from io import IOBase
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from sidecar.access import Access
from sidecar.errors import SidecarError
from sidecar.iceberg.deletes.delete_files import (
    comparable,
    divides_files,
    is_within,
    may_be_cut,
    only_path,
    path_bounds,
)
from sidecar.iceberg.listing import READERS, SnapshotFile, SnapshotManifest, readers_of
from sidecar.iceberg.manifests import ManifestContents, entry_decoder, read_manifest
from sidecar.iceberg.paths import spellings
from sidecar.run import in_turn
from sidecar.storage.source import SourceFile

EQUALITY = "equality deletes apply to it"
POSITION = "position deletes apply to it"
_PATH = "file_path"
_MOST_READ = 64 << 20
"""Position delete files of more than this many bytes are not read; only their bounds are used."""

PartitionKey = tuple[int, tuple[tuple[int, Any], ...]]
"""A spec id and pairs of partition field id and value, sorted by field id, without those that are NULL."""


@dataclass
class DeleteIndex:
    """The live delete files of a snapshot, arranged by the data files to which they may apply."""

    everywhere: list[_Delete] = field(default_factory=list)
    """Delete files of specs that divide nothing, and those whose partition is not known."""
    by_partition: dict[PartitionKey, list[_Delete]] = field(default_factory=dict)
    by_path: dict[str, int] = field(default_factory=dict)
    """Path of a data file -> greatest sequence number of the position deletes that name it."""

    def reason(self, file: SnapshotFile, manifest: SnapshotManifest) -> str | None:
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
        return sequence_number <= self.sequence_number and any(
            is_within(path.encode(), self.lower, self.upper) for path in paths
        )


def read_deletes(table: Table, lines: Iterable[ManifestFile]) -> DeleteIndex:
    """Read the delete manifests among ``lines``, the manifest list of one snapshot of a table.

    Raises :class:`sidecar.errors.DamagedFileError` or :class:`sidecar.errors.StorageError` with the manifest's path.
    """
    index, access, specs = DeleteIndex(), Access(table.io), table.metadata.specs()
    chosen = [line for line in lines if line.content == ManifestContent.DELETES]
    read = in_turn(partial(read_manifest, table.io), chosen, readers_of(chosen))
    for line, contents in zip(chosen, read, strict=True):
        entries, fields = list(_live(contents)), contents.partition_fields
        spec = specs.get(line.partition_spec_id)
        is_known = spec is not None and divides_files(spec) and len(fields) >= len(spec.fields)
        files = [entry.data_file for entry in entries]
        for entry, paths in zip(entries, in_turn(partial(_named, access), files, READERS), strict=True):
            _add(index, entry, fields if is_known else None, paths)
    return index


def _live(contents: ManifestContents) -> Iterator[ManifestEntry]:
    return (raw.entry for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED)


def _named(access: Access, file: DataFile) -> frozenset[str] | None:
    """Return the paths that a position delete file names; ``None`` for other deletes and if that is not certain."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    if (path := only_path(file)) is not None and not may_be_cut(path):
        return frozenset([path])
    if file.file_format != FileFormat.PARQUET or file.file_size_in_bytes > _MOST_READ:
        return None
    try:
        with closing(access.open(file.file_path, file.file_size_in_bytes)) as source:
            read = pq.ParquetFile(pa.PythonFile(cast(IOBase, SourceFile(source)), "r"), read_dictionary=[_PATH]).read(
                [_PATH]
            )
        paths = read[_PATH]
        if len(paths) != file.record_count or paths.null_count:
            return None
        return frozenset(str(path) for path in paths.unique().to_pylist())
    except (SidecarError, pa.ArrowException, KeyError, ValueError, OSError):
        return None


def _add(
    index: DeleteIndex, entry: ManifestEntry, fields: Sequence[NestedField] | None, paths: frozenset[str] | None
) -> None:
    """Add a delete file. ``fields`` are those of its partition, ``None`` if it may apply to files of all partitions."""
    file, sequence = entry.data_file, entry.sequence_number or 0
    if paths is not None:
        for path in paths:
            index.by_path[path] = max(sequence, index.by_path.get(path, sequence))
        return
    equality = file.content == DataFileContent.EQUALITY_DELETES
    delete = _Delete(sequence, equality, *((None, None) if equality else path_bounds(file)))
    if fields is None:
        index.everywhere.append(delete)
    else:
        index.by_partition.setdefault(_partition_key(file.spec_id, file, fields), []).append(delete)


def _partition_key(spec_id: int, file: DataFile, fields: Sequence[NestedField]) -> PartitionKey:
    """Return a key that is equal for equal partitions, whatever order and types the manifests have their fields in.

    A field that a manifest lacks is NULL, so NULLs are left out.
    """
    values = ((part.field_id, comparable(file.partition[place])) for place, part in enumerate(fields))
    return spec_id, tuple(sorted((pair for pair in values if pair[1] is not None), key=lambda pair: pair[0]))
