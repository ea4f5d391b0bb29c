"""The data files and delete files of one snapshot, with the manifests that are kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType

from sidecar.iceberg.manifests import LATEST, read_manifests
from sidecar.planning.bound_columns import may_match
from sidecar.planning.listed_files import Flags
from sidecar.planning.struct_nulls import keeping_struct_nulls
from sidecar.planning.task_planner import Evaluators, count_files, evaluators_of
from sidecar.serving.planning.bounded_cache import BoundedCache
from sidecar.serving.planning.data_manifests import ENTRY_BYTES, DataManifest
from sidecar.serving.planning.delete_files import DeleteFile, SnapshotDeletes, partition_of, read_delete_manifest


@dataclass(frozen=True)
class ManifestCaches:
    """What is kept of manifests, for all tables of a server."""

    data: BoundedCache[tuple[object, ...], DataManifest]
    deletes: BoundedCache[tuple[object, ...], SnapshotDeletes]
    delete_manifests: BoundedCache[tuple[object, ...], tuple[DeleteFile, ...]]
    lines: BoundedCache[tuple[object, ...], list[ManifestFile]]

    @classmethod
    def of_size(cls, most: int) -> ManifestCaches:
        """Return empty caches that take up to about ``most`` bytes."""
        return cls(
            BoundedCache(most * 3 // 4, lambda manifest: manifest.weight),
            BoundedCache(most // 8, lambda deletes: ENTRY_BYTES + _DELETE_BYTES * deletes.count),
            BoundedCache(most // 16, lambda deletes: ENTRY_BYTES + _DELETE_BYTES * len(deletes)),
            BoundedCache(most // 16, lambda lines: ENTRY_BYTES + _LINE_BYTES * len(lines)),
        )


_FOR_EACH_BYTE = 12
"""Bytes of memory for each byte of a compressed data manifest: 7 were measured for manifests that compress badly."""
_DELETE_BYTES = 4000
_LINE_BYTES = 2000


class LiveSnapshot:
    """The live files of a snapshot of a table that its caller may read.

    Manifests are read when they are needed. ``scope`` keeps what callers with different rights read apart, and
    ``for_pyiceberg`` is the kind of client that asks.
    """

    def __init__(
        self, table: Table, snapshot: Snapshot, caches: ManifestCaches, scope: object = None, *, for_pyiceberg: bool
    ) -> None:
        self._for_pyiceberg = for_pyiceberg
        self.table = table
        self.snapshot = snapshot
        self._caches = caches
        self._scope = scope, str(table.metadata.table_uuid)

    @cached_property
    def lines(self) -> list[ManifestFile]:
        """The lines of the manifest list."""
        path = self.snapshot.manifest_list
        return self._caches.lines.get((*self._scope, path), lambda: read_manifests(self.table.io, path, LATEST))

    @cached_property
    def data_lines(self) -> list[ManifestFile]:
        """The lines of data manifests."""
        return [line for line in self.lines if line.content == ManifestContent.DATA]

    @property
    def count(self) -> int:
        """The number of live data files, as the manifest list says."""
        return count_files(self.data_lines)

    @cached_property
    def manifests(self) -> list[DataManifest]:
        """All data manifests, in order."""
        return [self.manifest(line) for line in self.data_lines]

    def manifest(self, line: ManifestFile) -> DataManifest:
        """Return the data manifest of a line."""
        types = self.partition_types(line.partition_spec_id)
        return self._caches.data.get(
            self._key_of(line, types), lambda: DataManifest(self.table.io, line, types, self._for_pyiceberg)
        )

    def known_manifest(self, line: ManifestFile) -> DataManifest | None:
        """Return the data manifest of a line if it is in memory."""
        return self._caches.data.find(self._key_of(line, self.partition_types(line.partition_spec_id)))

    def _key_of(self, line: ManifestFile, types: list[IcebergType]) -> tuple[object, ...]:
        return (*self._scope, line.manifest_path, line.sequence_number, tuple(map(str, types)))

    @property
    def fits_memory(self) -> bool:
        """Whether all data manifests can probably be kept in memory at the same time."""
        return _FOR_EACH_BYTE * sum(line.manifest_length for line in self.data_lines) <= self._caches.data.most

    @cached_property
    def starts(self) -> list[int]:
        """The ordinal of the first file of each manifest, and the number of all files."""
        return list(accumulate(map(len, self.manifests), initial=0))

    @cached_property
    def deletes(self) -> SnapshotDeletes:
        """The live delete files."""
        # Deletes are kept as JSON, which has partition values, and these have types of the present schema.
        key = (*self._scope, self.snapshot.manifest_list, self.table.metadata.current_schema_id)
        return self._caches.deletes.get(key, self._read_deletes)

    def _read_deletes(self) -> SnapshotDeletes:
        chosen = [line for line in self.lines if line.content == ManifestContent.DELETES]
        return SnapshotDeletes(delete for line in chosen for delete in self._deletes_of(line))

    def _deletes_of(self, line: ManifestFile) -> tuple[DeleteFile, ...]:
        key = (*self._scope, line.manifest_path, line.sequence_number)
        spec = self.table.metadata.specs()[line.partition_spec_id]
        return self._caches.delete_manifests.get(key, lambda: read_delete_manifest(self.table.io, line, spec))

    def partition_types(self, spec_id: int) -> list[IcebergType]:
        """Return the types of a spec's partition values."""
        spec = self.table.metadata.specs()[spec_id]
        return [field.field_type for field in spec.partition_type(self.table.schema()).fields]


class FilesByBounds:
    """Which files of a snapshot may match by partitions and bounds, as their manifests say.

    ``table`` has the schema that the columns of ``row_filter`` are named in. No file is left out that pyiceberg's own
    planning would keep.
    """

    def __init__(self, files: LiveSnapshot, table: Table, row_filter: BooleanExpression) -> None:
        self._files = files
        self._row_filter = row_filter
        self._table = table
        self._flags: dict[str, Flags] = {}
        kept = keeping_struct_nulls(row_filter, table.schema())
        self._bound = bind(table.schema(), kept, case_sensitive=True)

    @cached_property
    def _evaluators(self) -> Evaluators:
        scan = self._table.scan(row_filter=self._row_filter, snapshot_id=self._files.snapshot.snapshot_id)
        return evaluators_of(scan)

    def flags(self) -> Iterator[tuple[DataManifest, Flags]]:
        """Yield each data manifest with bool[files]: those that may match."""
        for manifest in self._files.manifests:
            yield manifest, self.flags_of(manifest)

    def known_flags(self, line: ManifestFile) -> Flags | None:
        """Return the files of a manifest that may match; ``None`` if the manifest is not in memory."""
        manifest = self._files.known_manifest(line)
        return None if manifest is None else self.flags_of(manifest)

    def flags_of(self, manifest: DataManifest) -> Flags:
        """Return bool[files] of a manifest: those that may match."""
        path = manifest.line.manifest_path
        if path not in self._flags:
            self._flags[path] = self._evaluated(manifest)
        return self._flags[path]

    def _evaluated(self, manifest: DataManifest) -> Flags:
        if isinstance(self._bound, AlwaysTrue):
            return np.ones(len(manifest), np.bool_)
        if isinstance(self._bound, AlwaysFalse) or not self._evaluators.manifest(manifest.line):
            return np.zeros(len(manifest), np.bool_)
        flags = may_match(self._bound, manifest.bounds, len(manifest))
        if self._evaluators.partition_field_ids(manifest.spec_id):
            matches = self._evaluators.partition(manifest.spec_id)
            known: dict[object, bool] = {}
            for at in np.flatnonzero(flags).tolist():
                key = manifest.partitions[at]
                if key not in known:
                    known[key] = matches(manifest.file(at))
                flags[at] = known[key]
        return flags

    def smallest(self, is_wanted: Callable[[DataFile, int], bool], others: set[str]) -> tuple[DataManifest, int] | None:
        """Return the manifest and place of the smallest file that may match, is wanted, and is not among ``others``."""
        found = [
            (manifest.sizes[at], manifest, at)
            for manifest, flags in self.flags()
            for at in np.flatnonzero(flags).tolist()
            if manifest.paths[at] not in others
        ]
        for _, manifest, at in sorted(found, key=lambda one: one[0]):
            if is_wanted(manifest.file(at), manifest.spec_id):
                return manifest, at
        return None

    def is_decided_by_partition(self, file: DataFile, spec_id: int) -> bool:
        """Return whether the partition of a file decides that all of its rows match.

        NULL and NaN decide nothing: pyiceberg says that ``x != 1`` holds for them, which its rows contradict.
        """
        if {None, "NaN"} & {*partition_of(file)}:
            return False
        return isinstance(self._evaluators.residual(file, spec_id), AlwaysTrue)
