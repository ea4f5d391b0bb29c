"""Sources of file sets: manifests that a sidecar lists, a manifest that was opened, files that a catalog planned.

A source finds the places of its files in the sidecar: by their position in a manifest that is listed unchanged, else by
their fingerprints, else by their path within the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import ListedManifest
from sidecar.bundle.units.fingerprints import FINGERPRINT, FINGERPRINT_BYTES, fingerprint
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.manifests import identity_of
from sidecar.iceberg.statistics_files.sidecar_files import Places, SidecarFiles, Unsearched
from sidecar.planning.files.file_set import FileSet, Line, RowSpans, SetRows

Kind = tuple[int, int]
"""A spec id, and the number of the Avro schema of records. Partition tuples compare only within one spec and one
schema."""
NOWHERE = Places.joined([])


@dataclass(frozen=True, eq=False)
class ListedManifests:
    """Manifests that segments list unchanged, in the order of their files there. A row is a file's running number."""

    files: SidecarFiles
    lines: Sequence[Line]
    listings: Sequence[Sequence[ListedManifest]]
    """For each manifest, how segments list it. Its rows are those of the first one."""
    spans: RowSpans
    entries: Mapping[int, ManifestEntry] = field(default_factory=dict)
    is_numbered: ClassVar[bool] = True

    @classmethod
    def of(cls, files: SidecarFiles, lines: Iterable[Line]) -> ListedManifests | None:
        """Return those manifests whose files no other one claims; ``None`` if there are none."""
        ordered = sorted(lines, key=lambda line: files.listings(line.file)[0].first_file)
        own = [files.listings(line.file)[0] for line in ordered]
        spans = np.array([(m.first_file, m.first_file + m.live_files) for m in own], np.int64).reshape(-1, 2)
        shared = spans[1:, 0] < np.maximum.accumulate(spans[:, 1])[:-1]
        if shared.any():
            claimed = np.append(shared, False) | np.append(False, shared)
            return cls.of(files, [line for line, also in zip(ordered, claimed.tolist(), strict=True) if not also])
        return cls(files, ordered, [files.listings(line.file) for line in ordered], spans) if ordered else None

    @property
    def places(self) -> Sequence[int]:
        """The places of the manifests in the manifest list."""
        return [line.place for line in self.lines]

    @cached_property
    def listed(self) -> Sequence[ListedManifest]:
        """The manifests as the first segment lists them."""
        return [listing[0] for listing in self.listings]

    def is_counted(self, files: SidecarFiles) -> bool:
        """Return whether segments list the manifests of the files."""
        return True

    def holding(self, entries: Mapping[int, ManifestEntry]) -> ListedManifests:
        """Return the source with other entries."""
        return ListedManifests(self.files, self.lines, self.listings, self.spans, entries)

    def manifest_of(self, rows: SetRows) -> npt.NDArray[np.int64]:
        """Return the manifest of each row, as an ordinal of :attr:`lines`."""
        manifests: npt.NDArray[np.int64] = self.spans[:, 1].searchsorted(rows, "right")
        return manifests

    def kinds_of(self, rows: SetRows) -> tuple[Sequence[Kind], Ordinals]:
        """Return the kinds of records of ``rows``, and for each row which of these its record has."""
        known: dict[Kind, int] = {}
        numbers = [
            known.setdefault((line.file.partition_spec_id, manifest.schema), len(known))
            for line, manifest in zip(self.lines, self.listed, strict=True)
        ]
        return [*known], np.array(numbers)[self.manifest_of(rows)]

    def listed_at(self, rows: SetRows, files: SidecarFiles, fields: Collection[int] | None = None) -> Places:
        """Return the rows themselves, and the places of the files in other segments that list them.

        All segments list the files of a manifest in the same order.
        """
        found = [Places(np.arange(len(rows)), rows)]
        manifests = self.manifest_of(rows) if len(self.files.segments) > 1 else rows
        for also in range(1, max(map(len, self.listings), default=0)):
            firsts = np.array([listing[also].first_file if also < len(listing) else -1 for listing in self.listings])
            at = np.flatnonzero(firsts[manifests] >= 0)
            own = manifests[at]
            found.append(Places(at, firsts[own] + rows[at] - self.spans[own, 0]))
        known = Places.joined(found)
        unsearched = files.unsearched(len(rows), known, fields=fields)
        if not unsearched:
            return known
        fingerprints = files.fingerprints(rows)
        return Places.joined([known, *(one.search(fingerprints) for one in unsearched)])


@dataclass(frozen=True, eq=False)
class OpenedManifest:
    """A manifest that was opened. A row is the position of a file among the ``count`` live ones."""

    line: Line
    count: int
    entries: Mapping[int, ManifestEntry]
    is_numbered: ClassVar[bool] = False

    @property
    def places(self) -> Sequence[int]:
        """The place of the manifest in the manifest list."""
        return (self.line.place,)

    @property
    def spans(self) -> RowSpans:
        """The rows of the manifest."""
        return np.array([(0, self.count)])

    def is_counted(self, files: SidecarFiles) -> bool:
        """Return whether segments list the manifest of the files."""
        return bool(files.listings(self.line.file))

    def holding(self, entries: Mapping[int, ManifestEntry]) -> OpenedManifest:
        """Return the source with other entries."""
        return replace(self, entries=entries)

    def listed_at(self, rows: SetRows, files: SidecarFiles, fields: Collection[int] | None = None) -> Places:
        """Return the places of files in all segments, by their fingerprints or by an earlier path."""
        unsearched = files.unsearched(len(rows), NOWHERE, self.line.file)
        identities = [identity_of(self.entries[row]) for row in rows.tolist()] if unsearched else []
        return located(files, unsearched, identities)


def opened(line: Line, count: int, entries: Mapping[int, ManifestEntry]) -> FileSet[OpenedManifest]:
    """Return those of the ``count`` live files of an opened manifest that have an entry, by their positions."""
    return FileSet.all(OpenedManifest(line, count, entries)).having(entries)


@dataclass(frozen=True, eq=False)
class PlannedFiles:
    """Files that a catalog planned. A row is the position of a file in its plan.

    ``identities`` has ``None`` for files whose identity is ambiguous or unknown.
    """

    paths: Sequence[str]
    identities: Sequence[DataFileIdentity | None]
    places: ClassVar[tuple[int, ...]] = (0,)
    is_numbered: ClassVar[bool] = False
    entries: ClassVar[Mapping[int, ManifestEntry]] = {}

    @property
    def spans(self) -> RowSpans:
        """All rows."""
        return np.array([(0, len(self.paths))])

    def is_counted(self, files: SidecarFiles) -> bool:
        """Return False: the manifests of the files are unknown."""
        return False

    def holding(self, entries: Mapping[int, ManifestEntry]) -> PlannedFiles:
        """Return this source: a catalog returns no entries."""
        return self

    def listed_at(self, rows: SetRows, files: SidecarFiles, fields: Collection[int] | None = None) -> Places:
        """Return the places of files in all segments, by their fingerprints or by an earlier path."""
        unsearched = files.unsearched(len(rows), NOWHERE)
        return located(files, unsearched, [self.identities[row] for row in rows.tolist()])


def located(
    files: SidecarFiles, unsearched: Sequence[Unsearched], identities: Sequence[DataFileIdentity | None]
) -> Places:
    """Return the places of files that are known by their identity, also under an earlier path."""
    if not unsearched:
        return NOWHERE
    fingerprints = np.frombuffer(b"".join(map(_fingerprint, identities)), FINGERPRINT)
    found = Places.joined([one.search(fingerprints) for one in unsearched])
    listed = np.zeros(len(identities), np.bool_)
    listed[found.at] = True
    moved = [
        (at, number)
        for at in np.flatnonzero(~listed).tolist()
        if (file := identities[at]) is not None and file.is_certain
        for number in files.under_earlier_path(file)
        if any(one.has(number) for one in unsearched)
    ]
    return Places.joined([found, Places(*np.array(moved, np.int64).reshape(-1, 2).T)]) if moved else found


def _fingerprint(file: DataFileIdentity | None) -> bytes:
    """Return the fingerprint of a file; zeros, which no segment has, for one that no sidecar can list."""
    try:
        return bytes(FINGERPRINT_BYTES) if file is None or not file.is_certain else fingerprint(file)
    except ValueError:
        return bytes(FINGERPRINT_BYTES)
