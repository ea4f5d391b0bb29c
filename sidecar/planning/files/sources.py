"""Sources of file sets: manifests that a segment lists, manifests that were opened, and files that a server planned.

A source knows which files there are, and finds the same files in segments: by their position in a manifest if the
segment lists that manifest unchanged, else by their fingerprints, else by their path within the table. Fingerprints
of all files of a segment are many bytes, so they are read only if the segment may list a file after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import ListedManifest
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.fingerprints import FINGERPRINT, FINGERPRINT_BYTES, Fingerprints, fingerprint
from sidecar.iceberg.listing import identity_of
from sidecar.planning.files.by_filters import IndexedFiles
from sidecar.planning.files.file_set import DroppedBy, FileSet, Line, Ordinals, Rows, Spans
from sidecar.questions.row_ranges import RowRanges


@dataclass(frozen=True)
class ListedManifests:
    """Manifests that segment ``number`` lists unchanged, in its order. A row is a file's ordinal in the segment."""

    segment: Segment
    number: int
    lines: Sequence[Line]
    listings: Sequence[Mapping[int, ListedManifest]]
    """For each manifest, how segments list it, by segment number."""
    spans: Spans
    entries: Mapping[int, ManifestEntry] = field(default_factory=dict)

    def is_counted(self, index: IndexedFiles) -> bool:
        """Return whether segments list the manifests of the files."""
        return True

    @property
    def own(self) -> int:
        """The segment whose ordinals are the rows."""
        return self.number

    @cached_property
    def listed(self) -> Sequence[ListedManifest]:
        """The manifests as the segment lists them."""
        return [listing[self.number] for listing in self.listings]

    @property
    def places(self) -> Sequence[int]:
        """The places of the manifests in the manifest list."""
        return [line.place for line in self.lines]

    def manifest_of(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Return the manifest of each row, as an ordinal of :attr:`lines`."""
        return np.searchsorted(self.spans[:, 1], rows, "right")

    def ordinals(self, number: int, files: FileSet, index: IndexedFiles) -> Ordinals:
        """Return the ordinals of files in a segment. The order of a manifest's files is one in all segments."""
        if number == self.number:
            return files.rows
        firsts = [listing[number].first_file if number in listing else -1 for listing in self.listings]
        if all(first < 0 for first in firsts):
            return self._searched(number, files, index)
        manifests = self.manifest_of(files.rows)
        first = np.array(firsts)[manifests]
        known = first >= 0
        found = np.where(known, first + files.rows - self.spans[manifests, 0], -1)
        if not known.all():
            found = np.where(known, found, self._searched(number, files, index))
        return found

    def _searched(self, number: int, files: FileSet, index: IndexedFiles) -> Ordinals:
        if index.whole[number]:
            return np.full(len(files), -1, np.int64)
        if self.entries:
            return search(index.segments[number], [identity_of(entry) for entry in files.entries])
        return index.segments[number].same_files(self.segment, files.rows)


@dataclass(frozen=True)
class KnownFiles:
    """Files that segments are searched for: of a manifest that was opened, or planned by a server.

    A row is a file's position. ``identity`` returns the identity of a row, ``None`` if it is ambiguous; it may read,
    and raise.
    """

    count: int
    identity: Callable[[int], DataFileIdentity | None]
    line: Line | None = None
    entries: Mapping[int, ManifestEntry] = field(default_factory=dict)
    own: None = None

    @property
    def places(self) -> Sequence[int]:
        """The place of the manifest in the manifest list."""
        return (0 if self.line is None else self.line.place,)

    @property
    def spans(self) -> Spans:
        """The rows of each manifest."""
        return np.array([(0, self.count)])

    def is_counted(self, index: IndexedFiles) -> bool:
        """Return whether segments list the manifest of the files."""
        return self.line is not None and bool(index.listing(self.line.file))

    def ordinals(self, number: int, files: FileSet, index: IndexedFiles) -> Ordinals:
        """Return the ordinals of files in a segment, by their fingerprints or by an earlier path."""
        # A whole segment has no file of another manifest. One that lists this manifest is searched after all.
        if index.whole[number] and not (self.line and number in index.listing(self.line.file)):
            return np.full(len(files), -1, np.int64)
        return located(number, index, list(map(self.identity, files.rows.tolist())))


def opened(line: Line, count: int, entries: Mapping[int, ManifestEntry]) -> FileSet:
    """Return those of the ``count`` live files of an opened manifest that have an entry, by its position."""
    source = KnownFiles(count, lambda row: identity_of(entries[row]), line, entries)
    return with_entries(FileSet.all(source), entries)


def with_entries(files: FileSet, entries: Mapping[int, ManifestEntry]) -> FileSet:
    """Return the files that have an entry, with it."""
    source: Any = files.source
    left = files.left
    if len(entries) < len(files):
        left = RowRanges.of_rows(np.fromiter(entries, np.int64, len(entries)))
    return replace(files.within(left, DroppedBy.METADATA), source=replace(source, entries=entries))


def search(segment: Segment, files: Sequence[DataFileIdentity | None]) -> Ordinals:
    """Return the ordinals of live files in a segment. Reads nothing for files that are younger than the segment."""
    newest = segment.header.sequence_number
    old = [f is not None and f.is_certain and not 0 < newest < f.file_sequence_number for f in files]
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


def located(number: int, index: IndexedFiles, files: Sequence[DataFileIdentity | None]) -> Ordinals:
    """Return the ordinals in a segment of files that are known by their identity, also under an earlier path."""
    found = search(index.segments[number], files)
    if index.moved is None:
        return found
    for at in np.flatnonzero(found < 0).tolist():
        file = files[at]
        if file is not None and file.is_certain:
            found[at] = index.moved_to(file).get(number, -1)
    return found
