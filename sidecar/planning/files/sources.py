"""Sources of file sets: manifests that a segment lists, a manifest that was opened, files that a catalog planned.

A source finds its files in segments: by their position in a manifest if the segment lists that manifest unchanged, else
by their fingerprints, else by their path within the table. The fingerprints of all files of a segment are many bytes,
so they are read only if the segment may list a file after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import ListedManifest
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.fingerprints import FINGERPRINT, FINGERPRINT_BYTES, Fingerprints, fingerprint
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.manifests import identity_of
from sidecar.planning.files.by_filters import IndexedFiles
from sidecar.planning.files.file_set import FileSet, Line, RowSpans, SetRows

Kind = tuple[int, int]
"""A spec id, and the ordinal of the Avro schema of records. Partition tuples compare only within one of each."""


@dataclass(frozen=True, eq=False)
class ListedManifests:
    """Manifests that segment ``number`` lists unchanged, in its order. A row is a file's ordinal in the segment."""

    segment: Segment
    number: int
    lines: Sequence[Line]
    listings: Sequence[Mapping[int, ListedManifest]]
    """For each manifest, how segments list it, by segment number."""
    spans: RowSpans
    entries: Mapping[int, ManifestEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, index: IndexedFiles, number: int, lines: Iterable[Line]) -> ListedManifests | None:
        """Return manifests in the order of a segment that lists them; ``None`` if two of them claim one file."""
        ordered = sorted(lines, key=lambda line: index.listing(line.file)[number].first_file)
        listings = [index.listing(line.file) for line in ordered]
        own = [listing[number] for listing in listings]
        spans = np.array([(manifest.first_file, manifest.first_file + manifest.live_files) for manifest in own])
        if (spans[1:, 0] < spans[:-1, 1]).any():
            return None
        return cls(index.segments[number], number, ordered, listings, spans)

    @property
    def own(self) -> int:
        """The segment whose ordinals are the rows."""
        return self.number

    @property
    def places(self) -> Sequence[int]:
        """The places of the manifests in the manifest list."""
        return [line.place for line in self.lines]

    @cached_property
    def listed(self) -> Sequence[ListedManifest]:
        """The manifests as the segment lists them."""
        return [listing[self.number] for listing in self.listings]

    def is_counted(self, index: IndexedFiles) -> bool:
        """Return whether segments list the manifests of the files."""
        return True

    def holding(self, entries: Mapping[int, ManifestEntry]) -> ListedManifests:
        """Return the source with other entries."""
        return ListedManifests(self.segment, self.number, self.lines, self.listings, self.spans, entries)

    def asked(self, index: IndexedFiles) -> Sequence[int]:
        """Return the segment itself and all that have filters of a column of the question."""
        return sorted({self.number, *index.asked})

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

    def ordinals(self, number: int, rows: SetRows, index: IndexedFiles) -> Ordinals:
        """Return the ordinals of files in a segment. The order of a manifest's files is one in all segments."""
        if number == self.number:
            return rows
        firsts = np.array([listing[number].first_file if number in listing else -1 for listing in self.listings])
        if (firsts < 0).all():
            return self._searched(number, rows, index)
        manifests = self.manifest_of(rows)
        known = firsts[manifests] >= 0
        by_position: Ordinals = firsts[manifests] + rows - self.spans[manifests, 0]
        if known.all():
            return by_position
        return np.where(known, by_position, self._searched(number, rows, index))

    def _searched(self, number: int, rows: SetRows, index: IndexedFiles) -> Ordinals:
        if index.whole[number]:
            return np.full(len(rows), -1, np.int64)
        if self.entries:
            return search(index.segments[number], [identity_of(self.entries[row]) for row in rows.tolist()])
        return index.segments[number].same_files(self.segment, rows)


@dataclass(frozen=True, eq=False)
class OpenedManifest:
    """A manifest that was opened. A row is the position of a file among the ``count`` live ones."""

    line: Line
    count: int
    entries: Mapping[int, ManifestEntry]
    own: ClassVar[None] = None

    @property
    def places(self) -> Sequence[int]:
        """The place of the manifest in the manifest list."""
        return (self.line.place,)

    @property
    def spans(self) -> RowSpans:
        """The rows of the manifest."""
        return np.array([(0, self.count)])

    def is_counted(self, index: IndexedFiles) -> bool:
        """Return whether segments list the manifest of the files."""
        return bool(index.listing(self.line.file))

    def holding(self, entries: Mapping[int, ManifestEntry]) -> OpenedManifest:
        """Return the source with other entries."""
        return replace(self, entries=entries)

    def asked(self, index: IndexedFiles) -> Sequence[int]:
        """Return all segments: each may list some of the files."""
        return range(len(index.segments))

    def ordinals(self, number: int, rows: SetRows, index: IndexedFiles) -> Ordinals:
        """Return the ordinals of files in a segment, by their fingerprints or by an earlier path."""
        # A whole segment has no file of another manifest. One that lists this manifest is searched after all.
        listing = index.listing(self.line.file)
        skipped = [is_whole and other not in listing for other, is_whole in enumerate(index.whole)]
        if skipped[number]:
            return np.full(len(rows), -1, np.int64)
        return located(number, index, [identity_of(self.entries[row]) for row in rows.tolist()], skipped)


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
    own: ClassVar[None] = None
    entries: ClassVar[Mapping[int, ManifestEntry]] = {}

    @property
    def spans(self) -> RowSpans:
        """All rows."""
        return np.array([(0, len(self.paths))])

    def is_counted(self, index: IndexedFiles) -> bool:
        """Return False: the manifests of the files are unknown."""
        return False

    def holding(self, entries: Mapping[int, ManifestEntry]) -> PlannedFiles:
        """Return this source: a catalog returns no entries."""
        return self

    def asked(self, index: IndexedFiles) -> Sequence[int]:
        """Return all segments: each may list some of the files."""
        return range(len(index.segments))

    def ordinals(self, number: int, rows: SetRows, index: IndexedFiles) -> Ordinals:
        """Return the ordinals of files in a segment, by their fingerprints or by an earlier path."""
        if index.whole[number]:
            return np.full(len(rows), -1, np.int64)
        return located(number, index, [self.identities[row] for row in rows.tolist()], index.whole)


def search(segment: Segment, files: Sequence[DataFileIdentity | None]) -> Ordinals:
    """Return the ordinals of live files in a segment. Reads nothing for files that are younger than the segment."""
    newest = segment.header.sequence_number
    old = [file is not None and file.is_certain and not 0 < newest < file.file_sequence_number for file in files]
    found = np.full(len(files), -1, np.int64)
    if any(old):
        known = [file for file, is_old in zip(files, old, strict=True) if is_old and file is not None]
        found[old] = segment.ordinals_of(fingerprints_of(known))
    return found


def fingerprints_of(files: Iterable[DataFileIdentity]) -> Fingerprints:
    """Return the fingerprints of files; zeros, which no segment has, for one that no sidecar can list."""
    return np.frombuffer(b"".join(map(_fingerprint, files)), FINGERPRINT)


def _fingerprint(file: DataFileIdentity) -> bytes:
    try:
        return fingerprint(file)
    except ValueError:
        return bytes(FINGERPRINT_BYTES)


def located(
    number: int, index: IndexedFiles, files: Sequence[DataFileIdentity | None], skipped: Sequence[bool]
) -> Ordinals:
    """Return the ordinals in a segment of files that are known by their identity, also under an earlier path.

    The segments that are ``skipped`` are known to list none of the files.
    """
    found = search(index.segments[number], files)
    for at in np.flatnonzero(found < 0).tolist():
        file = files[at]
        if file is not None and file.is_certain:
            found[at] = index.files.earlier(file, skipped).get(number, -1)
    return found
