"""Finds the delete files that apply to a data file.

The Iceberg specification ("Scan Planning") says which do:

- A deletion vector: to the one data file that its manifest entry names. Then no other position delete does.
- A position delete file: to the files that it names, of its spec and partition. Both apply to data files whose data
  sequence number is not greater than their own.
- An equality delete file: to files with smaller data sequence numbers in its spec and partition, or to all files if its
  spec divides nothing.

The spec says whether a delete file has a partition, never its values: a partition of NULL is a partition as any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from sidecar.iceberg.listing import live_entries
from sidecar.iceberg.manifests import LATEST, LatestFields, latest_fields

PATH_FIELD = 2147483546
"""The reserved id of the column ``file_path`` of position delete files."""
_SUFFIXES = (".parquet", ".orc", ".avro")
PartitionTuple = tuple[Any, ...]


class FileKey(NamedTuple):
    """The facts of a data file, beside its path, that decide which delete files apply to it."""

    sequence_number: int
    """The data sequence number."""
    spec_id: int
    partition: PartitionTuple
    """That of :func:`partition_of`."""

    @property
    def partition_key(self) -> tuple[int, PartitionTuple]:
        """The partition in its spec."""
        return self.spec_id, self.partition


def divides_files(spec: PartitionSpec) -> bool:
    """Return whether a spec has partitions. In version 1, dropped fields stay in a spec, with the transform void."""
    return any(not isinstance(part.transform, VoidTransform) for part in spec.fields)


def partition_of(file: DataFile) -> PartitionTuple:
    """Return the partition of a file as a key: NaN equals itself in it.

    NULL at the end is left out, so that a manifest that lacks fields of its spec has NULL in them, as for Java.
    """
    values = [file.partition[place] for place in range(len(file.partition))]
    while values and values[-1] is None:
        values.pop()
    return tuple(map(comparable, values))


def comparable(value: Any) -> Any:
    """Return a partition value that equals itself: NaN does not."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def path_bounds(file: DataFile) -> tuple[bytes | None, bytes | None]:
    """Return the least and the greatest path (UTF-8) that a position delete file names, ``None`` if not known."""
    return (file.lower_bounds or {}).get(PATH_FIELD), (file.upper_bounds or {}).get(PATH_FIELD)


def only_path(file: DataFile) -> str | None:
    """Return the path of the only data file that a position delete file names, by its bounds; ``None`` if not known."""
    lower, upper = path_bounds(file)
    return None if lower is None or lower != upper else lower.decode("utf-8", "surrogateescape")


def may_be_cut(path: str) -> bool:
    """Return whether two equal bounds of paths may both be the beginning of longer ones."""
    return not path.endswith(_SUFFIXES)


def is_within(path: bytes, lower: bytes | None, upper: bytes | None) -> bool:
    """Return whether a path can be between two bounds of paths."""
    # Some writers cut an upper bound without rounding it up, so longer paths with this prefix are inside too.
    return (lower is None or path >= lower) and (upper is None or path <= upper or path.startswith(upper))


@dataclass(frozen=True)
class DeleteFile:
    """A live delete file."""

    file: DataFile
    latest: LatestFields
    sequence_number: int
    spec_id: int
    partition: PartitionTuple
    is_partitioned: bool = True
    """Whether the spec divides the files: one without fields, or with void ones alone, does not."""
    is_doubtful: bool = False
    """Whether the partition is not known: the table lacks the spec, or the manifest lacks some of its fields."""

    @classmethod
    def of(cls, entry: ManifestEntry, spec: PartitionSpec | None) -> DeleteFile:
        """Return the delete file of an entry. ``spec`` is ``None`` if the table does not have it."""
        file = entry.data_file
        is_partitioned = spec is None or divides_files(spec)
        is_short = spec is not None and len(file.partition) < len(spec.fields)
        return cls(
            file,
            latest_fields(file),
            entry.sequence_number or 0,
            file.spec_id,
            partition_of(file),
            is_partitioned,
            spec is None or (is_partitioned and is_short),
        )

    @property
    def is_equality(self) -> bool:
        """Whether the file deletes by values, not by positions."""
        return self.file.content == DataFileContent.EQUALITY_DELETES

    @property
    def is_vector(self) -> bool:
        """Whether the file is a deletion vector."""
        return self.file.content == DataFileContent.POSITION_DELETES and self.file.file_format == FileFormat.PUFFIN

    @property
    def target(self) -> str | None:
        """The path of the only data file to which position deletes apply; ``None`` if they may name more than one."""
        return self.latest.referenced_data_file or only_path(self.file)

    def may_name(self, path: bytes) -> bool:
        """Return whether position deletes can name a data file, by the bounds of the paths."""
        return is_within(path, *path_bounds(self.file))


def read_delete_files(io: FileIO, line: ManifestFile, spec: PartitionSpec | None) -> list[DeleteFile]:
    """Read the live delete files of a manifest, whose spec is ``spec``, ``None`` if the table does not have it.

    Raises the errors of :func:`live_entries`.
    """
    return [DeleteFile.of(entry, spec) for entry in live_entries(io, line, LATEST)]


class SnapshotDeletes:
    """The live delete files of one snapshot, arranged by the data files to which they apply."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        self._vectors: dict[str, list[DeleteFile]] = {}
        self._by_path: dict[str, list[DeleteFile]] = {}
        self._by_partition: dict[tuple[int, PartitionTuple], list[DeleteFile]] = {}
        self._equality: dict[tuple[int, PartitionTuple], list[DeleteFile]] = {}
        self._everywhere: list[DeleteFile] = []
        self._doubtful: list[DeleteFile] = []
        self.count = 0
        for delete in deletes:
            self.count += 1
            self._add(delete)

    def _add(self, delete: DeleteFile) -> None:
        key = delete.spec_id, delete.partition
        if delete.is_equality:
            if delete.is_doubtful:
                self._doubtful.append(delete)
            if delete.is_partitioned:
                self._equality.setdefault(key, []).append(delete)
            else:
                self._everywhere.append(delete)
            return
        target = delete.target
        if target is None or (delete.latest.referenced_data_file is None and may_be_cut(target)):
            self._by_partition.setdefault(key, []).append(delete)
        if target is not None:
            (self._vectors if delete.is_vector else self._by_path).setdefault(target, []).append(delete)

    def applying_to(self, path: str, file: FileKey) -> list[DeleteFile]:
        """Return the delete files that apply to a data file."""
        return [*self.equality_of(file), *self.positions_of(path, file)]

    def positions_of(self, path: str, file: FileKey) -> list[DeleteFile]:
        """Return the position deletes and the deletion vector that apply to a data file."""
        vectors = [one for one in self._vectors.get(path, ()) if file.sequence_number <= one.sequence_number]
        if vectors:
            return [max(vectors, key=lambda one: one.sequence_number)]
        name = path.encode("utf-8", "surrogateescape")
        found = [*self._by_path.get(path, ())]
        found += [one for one in self._by_partition.get(file.partition_key, ()) if one.may_name(name)]
        return list({id(one): one for one in found if file.sequence_number <= one.sequence_number}.values())

    def equality_of(self, file: FileKey) -> Iterator[DeleteFile]:
        """Yield the equality deletes that apply to a data file."""
        for delete in chain(self._everywhere, self._equality.get(file.partition_key, ())):
            if file.sequence_number < delete.sequence_number:
                yield delete

    def doubtful_of(self, file: FileKey) -> Iterator[DeleteFile]:
        """Yield the equality deletes of which it is not known whether they apply to a data file."""
        return (delete for delete in self._doubtful if file.sequence_number < delete.sequence_number)


class EqualityDeletes:
    """The equality deletes that may apply to the files of a plan, and the sequence numbers of these files, by path.

    Two live entries can have the same path. The smaller number lets more deletes apply.
    """

    def __init__(self) -> None:
        self.deletes = SnapshotDeletes(())
        self.sequence_numbers: dict[str, int] = {}
        self._files: dict[str, list[FileKey]] = {}

    def add(self, path: str, file: FileKey) -> None:
        """Add a data file."""
        if self.sequence_numbers.setdefault(path, file.sequence_number) > file.sequence_number:
            self.sequence_numbers[path] = file.sequence_number
        if self.deletes.count:
            self._files.setdefault(path, []).append(file)

    def may_apply_to(self, path: str) -> bool:
        """Return whether an equality delete applies to a data file, or may."""
        return next(self._deletes_of(path), None) is not None

    def applying_to(self, path: str) -> list[DeleteFile]:
        """Return the equality deletes that apply to a data file; those that only may are :attr:`is_doubtful`."""
        return list({id(delete): delete for delete in self._deletes_of(path)}.values())

    def _deletes_of(self, path: str) -> Iterator[DeleteFile]:
        for file in self._files.get(path, ()):
            yield from self.deletes.equality_of(file)
            yield from self.deletes.doubtful_of(file)
