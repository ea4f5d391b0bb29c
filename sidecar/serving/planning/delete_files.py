"""Finds the delete files that apply to a data file, as Iceberg's scan planning says.

A deletion vector applies to the one file that it names, and then no other position delete does. pyiceberg's own index
reads manifests as those of format version 2, where a vector does not say which file it is for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType

from sidecar.iceberg.listing import read_checked
from sidecar.iceberg.manifests import LATEST, LatestFields, latest_fields
from sidecar.serving.protocol.encoding import encode_file

_PATH_FIELD = 2147483546
"""The reserved id of the column ``file_path`` of position delete files."""


@dataclass(frozen=True)
class DeleteFile:
    """A live delete file."""

    file: DataFile
    latest: LatestFields
    sequence_number: int
    spec_id: int
    partition: tuple[Any, ...]
    is_partitioned: bool = True
    """Whether the spec divides files at all. In version 1 dropped fields stay in a spec, with the transform void."""

    @property
    def is_vector(self) -> bool:
        """Whether the file is a deletion vector."""
        return self.file.content == DataFileContent.POSITION_DELETES and self.file.file_format == FileFormat.PUFFIN

    @property
    def target(self) -> str | None:
        """The path of the only data file to which position deletes apply; ``None`` if they name more than one."""
        if self.latest.referenced_data_file is not None:
            return self.latest.referenced_data_file
        lower, upper = _path_bounds(self.file)
        return lower.decode("utf-8", "surrogateescape") if lower is not None and lower == upper else None

    def may_name(self, path: bytes) -> bool:
        """Return whether position deletes can name a data file, by the bounds of the paths."""
        lower, upper = _path_bounds(self.file)
        # Some writers cut an upper bound without rounding it up.
        return (lower is None or path >= lower) and (upper is None or path <= upper or path.startswith(upper))


def _path_bounds(file: DataFile) -> tuple[bytes | None, bytes | None]:
    return (file.lower_bounds or {}).get(_PATH_FIELD), (file.upper_bounds or {}).get(_PATH_FIELD)


def partition_of(file: DataFile) -> tuple[Any, ...]:
    """Return the partition of a file as a key: NaN equals itself in it."""
    values = (file.partition[place] for place in range(len(file.partition)))
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in values)


def read_delete_manifest(io: Any, line: ManifestFile, spec: PartitionSpec) -> tuple[DeleteFile, ...]:
    """Read the live delete files of a manifest, whose spec is ``spec``. Raises the errors of :func:`read_checked`."""
    is_partitioned = any(not isinstance(part.transform, VoidTransform) for part in spec.fields)
    live = (
        raw.entry for raw in read_checked(io, line, LATEST).entries if raw.entry.status != ManifestEntryStatus.DELETED
    )
    return tuple(
        DeleteFile(
            entry.data_file,
            latest_fields(entry.data_file),
            entry.sequence_number or 0,
            line.partition_spec_id,
            partition_of(entry.data_file),
            is_partitioned,
        )
        for entry in live
    )


class SnapshotDeletes:
    """The live delete files of one snapshot, arranged by the data files to which they apply."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        self._vectors: dict[str, list[DeleteFile]] = {}
        self._by_path: dict[str, list[DeleteFile]] = {}
        self._by_partition: dict[tuple[int, tuple[Any, ...]], list[DeleteFile]] = {}
        self._equality: dict[tuple[int, tuple[Any, ...]], list[DeleteFile]] = {}
        self._everywhere: list[DeleteFile] = []
        self._encoded: dict[tuple[int, bool], bytes] = {}
        self.count = 0
        for delete in deletes:
            self.count += 1
            self._add(delete)

    def _add(self, delete: DeleteFile) -> None:
        key = delete.spec_id, delete.partition
        if delete.file.content == DataFileContent.EQUALITY_DELETES:
            if delete.partition and delete.is_partitioned:
                self._equality.setdefault(key, []).append(delete)
            else:
                self._everywhere.append(delete)
            return
        target = delete.target
        if target is None:
            self._by_partition.setdefault(key, []).append(delete)
        else:
            (self._vectors if delete.is_vector else self._by_path).setdefault(target, []).append(delete)

    def applying_to(
        self, path: str, sequence_number: int, spec_id: int, partition: tuple[Any, ...]
    ) -> list[DeleteFile]:
        """Return the delete files that apply to a data file.

        ``sequence_number`` is the data sequence number of the file, ``partition`` that of :func:`partition_of`.
        """
        key = spec_id, partition
        equality = [*self._everywhere, *self._equality.get(key, ())]
        found = [delete for delete in equality if sequence_number < delete.sequence_number]
        vectors = [one for one in self._vectors.get(path, ()) if sequence_number <= one.sequence_number]
        if vectors:
            return [*found, max(vectors, key=lambda one: one.sequence_number)]
        name = path.encode("utf-8", "surrogateescape")
        positions = [*self._by_path.get(path, ())]
        positions += [delete for delete in self._by_partition.get(key, ()) if delete.may_name(name)]
        return found + [delete for delete in positions if sequence_number <= delete.sequence_number]

    def encoded(self, delete: DeleteFile, partition_types: Sequence[IcebergType], for_pyiceberg: bool) -> bytes:
        """Return a delete file as JSON."""
        key = id(delete), for_pyiceberg
        if key not in self._encoded:
            self._encoded[key] = encode_file(
                delete.file, delete.spec_id, partition_types, delete.latest, for_pyiceberg=for_pyiceberg
            )
        return self._encoded[key]
