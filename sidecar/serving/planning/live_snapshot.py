"""The data files and delete files of one snapshot, with the manifests that are kept in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType

from sidecar.access import Access
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.deletes.delete_files import DeleteFile, SnapshotDeletes, read_delete_files
from sidecar.iceberg.manifests import LATEST, read_manifests
from sidecar.iceberg.statistics_files.sidecar_files import Places, SidecarFiles
from sidecar.planning.bound_columns import may_match
from sidecar.planning.budget import present_budget
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.files.choose import ChosenFiles
from sidecar.planning.files.file_set import DroppedBy, FileSet, Line, RowSpans, SetRows
from sidecar.planning.tasks import count_files
from sidecar.serving.planning.bounded_cache import BoundedCache
from sidecar.serving.planning.costs import COMPARED_AT_ONCE, DELETE_BYTES, ENTRY_BYTES, LINE_BYTES, UNPACKED
from sidecar.serving.planning.data_manifests import DataManifest
from sidecar.serving.protocol.encoding import encode_file


class ServedDeletes(SnapshotDeletes):
    """The live delete files of a snapshot. Each is encoded once."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        super().__init__(deletes)
        self._encoded: dict[tuple[int, bool], bytes] = {}

    def encoded(self, delete: DeleteFile, partition_types: Sequence[IcebergType], for_pyiceberg: bool) -> bytes:
        """Return a delete file as JSON."""
        key = id(delete), for_pyiceberg
        if key not in self._encoded:
            self._encoded[key] = encode_file(
                delete.file, delete.spec_id, partition_types, delete.latest, for_pyiceberg=for_pyiceberg
            )
        return self._encoded[key]


@dataclass(frozen=True)
class ManifestCaches:
    """The manifests that are kept in memory, for all tables of a server."""

    data: BoundedCache[tuple[object, ...], DataManifest]
    deletes: BoundedCache[tuple[object, ...], ServedDeletes]
    delete_manifests: BoundedCache[tuple[object, ...], tuple[DeleteFile, ...]]
    lines: BoundedCache[tuple[object, ...], list[ManifestFile]]

    @classmethod
    def of_size(cls, most: int) -> ManifestCaches:
        """Return empty caches that take up to about ``most`` bytes."""
        return cls(
            BoundedCache(most * 3 // 4, lambda manifest: manifest.weight),
            BoundedCache(most // 8, lambda deletes: ENTRY_BYTES + DELETE_BYTES * deletes.count),
            BoundedCache(most // 16, lambda deletes: ENTRY_BYTES + DELETE_BYTES * len(deletes)),
            BoundedCache(most // 16, lambda lines: ENTRY_BYTES + LINE_BYTES * len(lines)),
        )


class LiveSnapshot:
    """The live files of a snapshot of a table that its caller may read.

    ``access`` opens the table's files. Manifests are read when they are needed. ``scope`` keeps what callers with
    different rights read apart, and ``for_pyiceberg`` is the kind of client that asks.
    """

    def __init__(
        self,
        table: Table,
        access: Access,
        snapshot: Snapshot,
        caches: ManifestCaches,
        scope: object,
        *,
        for_pyiceberg: bool,
    ) -> None:
        self.for_pyiceberg = for_pyiceberg
        self.table = table
        self.access = access
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
    def spec_ids(self) -> set[int]:
        """The partition specs of data files."""
        return {line.partition_spec_id for line in self.data_lines}

    @property
    def is_partitioned(self) -> bool:
        """Whether data files are divided by anything."""
        specs = self.table.metadata.specs()
        return any(not specs[one].is_unpartitioned() for one in self.spec_ids)

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
        if (budget := present_budget()) is not None:
            budget.check_time()
        types = self.partition_types(line.partition_spec_id)
        return self._caches.data.get(
            self._key_of(line, types), lambda: DataManifest(self.table.io, line, types, self.for_pyiceberg)
        )

    def _key_of(self, line: ManifestFile, types: list[IcebergType]) -> tuple[object, ...]:
        return (*self._scope, line.manifest_path, line.sequence_number, tuple(map(str, types)))

    @property
    def fits_memory(self) -> bool:
        """Whether all data manifests can probably be kept in memory at the same time."""
        return UNPACKED * sum(line.manifest_length for line in self.data_lines) <= self._caches.data.most

    @cached_property
    def starts(self) -> list[int]:
        """The ordinal of the first file of each manifest, and the number of all files."""
        return list(accumulate(map(len, self.manifests), initial=0))

    @cached_property
    def deletes(self) -> ServedDeletes:
        """The live delete files."""
        # Deletes are kept as JSON, which has partition values, and these have types of the present schema.
        key = (*self._scope, self.snapshot.manifest_list, self.table.metadata.current_schema_id)
        return self._caches.deletes.get(key, self._read_deletes)

    def _read_deletes(self) -> ServedDeletes:
        chosen = [line for line in self.lines if line.content == ManifestContent.DELETES]
        return ServedDeletes(delete for line in chosen for delete in self._deletes_of(line))

    def _deletes_of(self, line: ManifestFile) -> tuple[DeleteFile, ...]:
        key = (*self._scope, line.manifest_path, line.sequence_number)
        spec = self.table.metadata.specs()[line.partition_spec_id]
        return self._caches.delete_manifests.get(key, lambda: tuple(read_delete_files(self.table.io, line, spec)))

    def partition_types(self, spec_id: int) -> list[IcebergType]:
        """Return the types of a spec's partition values."""
        spec = self.table.metadata.specs()[spec_id]
        return [field.field_type for field in spec.partition_type(self.table.schema()).fields]

    def at(self, row: int) -> tuple[DataManifest, int]:
        """Return the manifest of a file, and its place in it, by its ordinal among the live files."""
        number = bisect_right(self.starts, row) - 1
        return self.manifests[number], row - self.starts[number]

    def rows_of(self, paths: Collection[str]) -> list[int]:
        """Return the ordinals of files by their paths, rising."""
        every = (path for manifest in self.manifests for path in manifest.paths)
        return [row for row, path in enumerate(every) if path in paths]


@dataclass(frozen=True, eq=False)
class FilesInMemory:
    """The files of manifests in memory. A row is a file's ordinal among the live files of the snapshot."""

    snapshot: LiveSnapshot
    chosen: ChosenFiles
    """The manifests; where a set has them, segments list their files in the same order."""
    is_numbered: ClassVar[bool] = False
    entries: ClassVar[Mapping[int, ManifestEntry]] = {}

    @cached_property
    def places(self) -> list[int]:
        """The places of the manifests in the manifest list."""
        return [line.place for line in self.chosen.lines]

    @cached_property
    def _numbers(self) -> list[int]:
        number = {id(line): at for at, line in enumerate(self.snapshot.data_lines)}
        return [number[id(line.file)] for line in self.chosen.lines]

    @cached_property
    def spans(self) -> RowSpans:
        """The rows of each manifest."""
        starts = self.snapshot.starts
        return np.array([starts[at : at + 2] for at in self._numbers], np.int64).reshape(-1, 2)

    def parts(self, rows: SetRows) -> Iterator[tuple[Line, DataManifest, slice, Ordinals]]:
        """Yield each manifest that has some of ``rows``: which of these they are, and the places of the files in it."""
        edges = np.searchsorted(rows, self.spans).tolist()
        for line, number, (start, end) in zip(self.chosen.lines, self._numbers, edges, strict=True):
            if start < end:
                yield (
                    line,
                    self.snapshot.manifests[number],
                    slice(start, end),
                    rows[start:end] - self.snapshot.starts[number],
                )

    def is_counted(self, files: SidecarFiles) -> bool:
        """Return whether segments list all manifests of the files."""
        return all(files.listings(line.file) for line in self.chosen.lines)

    def holding(self, entries: Mapping[int, ManifestEntry]) -> FilesInMemory:
        """Return this source: its entries are in memory, in another form."""
        return self

    def listed_at(self, rows: SetRows, files: SidecarFiles, fields: Collection[int] | None = None) -> Places:
        """Return the places of files, by their places in manifests that segments list or by fingerprints.

        Only segments with filters are searched.
        """
        others, found = {line.place for line in self.chosen.others}, []
        for line, manifest, chosen, at in self.parts(rows):
            listings = [] if line.place in others else files.listings(line.file)
            own = [listed.first_file + at for listed in listings if listed.live_files == len(manifest)]
            known = Places(np.tile(np.arange(len(at)), len(own)), np.concatenate([np.empty(0, np.int64), *own]))
            unsearched = files.unsearched(len(at), known, line.file, fields)
            fingerprints = manifest.fingerprints[at] if unsearched else None
            parts = [known, *(one.search(fingerprints) for one in unsearched if fingerprints is not None)]
            found += [Places(part.at + chosen.start, part.numbers) for part in parts]
        return Places.joined(found)


def by_bounds_in_memory(
    files: FileSet[FilesInMemory], bound: BooleanExpression, evaluators: Evaluators
) -> FileSet[FilesInMemory]:
    """Rule files out by partitions and bounds. No file is dropped that pyiceberg's own planning keeps."""
    if isinstance(bound, AlwaysTrue):
        return files
    keep = np.ones(len(files), np.bool_)
    for _, manifest, chosen, at in files.source.parts(files.rows):
        if isinstance(bound, AlwaysFalse) or not evaluators.manifest(manifest.line):
            keep[chosen] = False
            continue
        evaluators.spend(len(manifest) / COMPARED_AT_ONCE)
        flags = may_match(bound, manifest.bounds, len(manifest))[at]
        if evaluators.partition_field_ids(manifest.spec_id):
            matches, known = evaluators.partition(manifest.spec_id), dict[object, bool]()
            for one in np.flatnonzero(flags).tolist():
                place = int(at[one])
                key = manifest.partitions[place]
                if key not in known:
                    known[key] = matches(manifest.file(place))
                flags[one] = known[key]
        keep[chosen] = flags
    return files.narrow(keep, DroppedBy.METADATA)
