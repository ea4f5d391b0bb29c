"""The data files that a sidecar lists, found by what the table says of them today.

A file is found by its place in a manifest that a segment lists unchanged, else by its fingerprint, else under an
earlier path. Fingerprints of all files of a segment are many bytes, so they are read only if the segment may list a
file after all: not if all of its files are in manifests that it lists.

A sidecar identifies a file by its path, as the manifests spelled it, and by other facts. If a table is copied to
another location (``rewrite_table_path``, then ``register_table``), its manifests have other paths, but the part after
the table's location stays the same. The same is true if one location is spelled in two ways (``file:/x``,
``file:///x``; ``s3:``, ``s3a:``). The paths of the manifests that a segment lists show where the table was then.

A file is looked for under an earlier path only if no segment lists it under its present one. The other facts of its
identity (:mod:`sidecar.bundle.file_identity`) move with the table and must be equal as always. So a file that was
written to the same relative path later does not match. A file without a match is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from pyiceberg.manifest import ManifestFile

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import ListedManifest
from sidecar.bundle.numbered_files import SCHEMAS_OF_SEGMENT, NumberedFiles
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.fingerprints import Fingerprints
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.paths import normal_folder, normal_path, spellings
from sidecar.iceberg.recorded_entries import is_listed

_METADATA = "/metadata/"


class Places(NamedTuple):
    """Where a sidecar lists some files: their ``numbers``, and ``at``, which of the files each number is of.

    Each segment that lists a file has a number of its own for it.
    """

    at: Ordinals
    numbers: Ordinals

    @classmethod
    def joined(cls, parts: Sequence[Places]) -> Places:
        """Return all places."""
        if len(parts) == 1:
            return parts[0]
        none = np.empty(0, np.int64)
        at, numbers = zip((none, none), *parts, strict=True)
        return cls(np.concatenate(at), np.concatenate(numbers))


class Unsearched(NamedTuple):
    """A segment that may list some files, ``at`` their places among those asked about."""

    segment: Segment
    at: Ordinals

    def search(self, fingerprints: Fingerprints) -> Places:
        """Return the places of those files that the segment lists, given the fingerprints of all."""
        ordinals = self.segment.ordinals_of(fingerprints[self.at])
        known = ordinals >= 0
        return Places(self.at[known], self.segment.first_file + ordinals[known])

    def has(self, number: int) -> bool:
        """Return whether a number is of a file of the segment."""
        return self.segment.first_file <= number < self.segment.first_file + self.segment.num_files


class SidecarFiles(NumberedFiles):
    """The files of ``segments`` of the sidecar of a table that is at ``location`` today. Nothing is read at first."""

    def __init__(self, segments: Iterable[Segment], location: str) -> None:
        super().__init__(segments)
        self.moved = 0
        """The number of files that were found under an earlier path."""
        self.earlier_locations: set[str] = set()
        """Earlier locations of the table at which files were found."""
        self._table_location = location
        self._location = normal_folder(location)
        self._earlier: dict[DataFileIdentity, list[int]] = {}
        self._listings: dict[int, tuple[ManifestFile, list[ListedManifest]]] = {}
        self._whole = [False] * len(self.segments)
        """Segments whose files are all in manifests that they list: files of other manifests are not in them."""

    def of(self, segments: Iterable[Segment]) -> SidecarFiles:
        """Return the files of other segments of the same sidecar."""
        return SidecarFiles(segments, self._table_location)

    def find(self, file: DataFileIdentity) -> list[int]:
        """Return the numbers of a live file, one for each segment that lists it, also under an earlier path."""
        return self.numbers_of(file) or self.under_earlier_path(file)

    def earlier(self, file: DataFileIdentity) -> list[int]:
        """Return what :meth:`find` returns of a file that no segment lists under its present path; else nothing."""
        return [] if self.numbers_of(file) else self.under_earlier_path(file)

    def under_earlier_path(self, file: DataFileIdentity) -> list[int]:
        """Return the numbers of a live file that is listed under another path than its present one."""
        if file not in self._earlier:
            self._earlier[file] = self._moved(file)
        return self._earlier[file]

    def listings(self, line: ManifestFile) -> list[ListedManifest]:
        """Return how segments list a manifest that is as today's manifest list has it: one for each that does.

        The first file and the schema are running numbers.
        """
        known = self._listings.get(id(line))
        if known is None or known[0] is not line:
            found = (self._listed(line, at) for at in range(len(self.segments)))
            known = line, [listed for listed in found if listed is not None]
            self._listings[id(line)] = known
        return known[1]

    def _listed(self, line: ManifestFile, at: int) -> ListedManifest | None:
        listed, first = self._by_path[at].get(line.manifest_path), self.segments[at].first_file
        if listed is None or not is_listed(line, listed):
            return None
        if not at and not first:
            return listed
        schema = at * SCHEMAS_OF_SEGMENT + listed.schema if 0 <= listed.schema < SCHEMAS_OF_SEGMENT else -1
        return replace(listed, first_file=first + listed.first_file, schema=schema)

    @cached_property
    def _by_path(self) -> list[dict[str, ListedManifest]]:
        return [{entry.path: entry for entry in segment.listed_manifests} for segment in self.segments]

    def note_manifests(self, lines: Iterable[ManifestFile]) -> None:
        """Take note of all data manifests of the snapshot, to find the segments that list nothing beside them."""
        inside: list[dict[str, int]] = [{} for _ in self.segments]  # a list may name a manifest twice
        for line in lines:
            for listed in self.listings(line):
                inside[self.owner(listed.first_file)][listed.path] = listed.live_files
        counts = (sum(live_files.values()) for live_files in inside)
        self._whole = [count >= segment.num_files for count, segment in zip(counts, self.segments, strict=True)]

    def unsearched(
        self, count: int, known: Places, line: ManifestFile | None = None, fields: Collection[int] | None = None
    ) -> list[Unsearched]:
        """Return the segments that may list some of ``count`` files that have no known place in them.

        ``line`` is the manifest of all the files, if they have one. A segment that lists it was not believed, so it is
        searched. With ``fields``, only segments with filters of one of these are returned.
        """
        lists = [] if line is None else [self.owner(listed.first_file) for listed in self.listings(line)]
        found = []
        for at, segment in enumerate(self.segments):
            if (self._whole[at] and at not in lists) or (
                fields is not None and segment.fields.keys().isdisjoint(fields)
            ):
                continue
            own = (known.numbers >= segment.first_file) & (known.numbers < segment.first_file + segment.num_files)
            left = np.ones(count, np.bool_)
            left[known.at[own]] = False
            if left.any():
                found.append(Unsearched(segment, np.flatnonzero(left)))
        return found

    def _moved(self, file: DataFileIdentity) -> list[int]:
        normal = normal_path(file.path)
        relative = normal.removeprefix(self._location) if normal.startswith(self._location) else None
        found = list[int]()
        for segment, location in zip(self.segments, self._locations, strict=True):
            has_moved = location is not None and relative is not None and location != self._location
            earlier = f"{location}{relative}" if has_moved else normal
            # A fingerprint has the exact spelling of a path, so each usual spelling is looked up.
            looked_up = (segment.file_ordinal(file._replace(path=path)) for path in spellings(earlier))
            ordinals = {ordinal for ordinal in looked_up if ordinal is not None}
            if len(ordinals) == 1:  # two spellings that are listed as two files decide nothing
                found.append(segment.first_file + ordinals.pop())
                self.earlier_locations.add(location or self._location)
        self.moved += bool(found)
        return found

    @cached_property
    def _locations(self) -> list[str | None]:
        return [_location_of(segment) for segment in self.segments]

    @property
    def has_moved(self) -> bool:
        """Whether some segment was made when the table's location was another one, or was spelt in another way."""
        spelt = self._table_location.rstrip("/") + "/"
        return not all(manifest.path.startswith(spelt) for manifest in self.listed_manifests)

    def notes(self) -> list[str]:
        """Return a sentence about the files that were found under an earlier path, if any."""
        if not self.moved:
            return []
        files = "1 file was" if self.moved == 1 else f"{self.moved} files were"
        where = " and ".join(sorted(location.rstrip("/") for location in self.earlier_locations))
        return [f"{files} matched by their path within the table, which was at {where} when the sidecar was built"]


def _location_of(segment: Segment) -> str | None:
    """Return the table's folder, ending in a slash, when a segment was made; ``None`` if its manifests do not agree."""
    folders = {_before_metadata(manifest.path) for manifest in segment.listed_manifests}
    return folders.pop() if len(folders) == 1 else None


def _before_metadata(path: str) -> str | None:
    normal = normal_path(path)
    folder, separator, _ = normal.rpartition(_METADATA)
    return folder + "/" if separator else None
