"""The data files that a sidecar lists, found by what the table says of them today.

A sidecar identifies a file by its path, as the manifests spelled it, and by other facts. If a table is copied to
another location (``rewrite_table_path``, then ``register_table``), its manifests have other paths, but the part after
the table's location stays the same. The same is true if one location is spelled in two ways (``file:/x``,
``file:///x``; ``s3:``, ``s3a:``). The paths of the manifests that a segment lists show where the table was then.

A file is looked for under an earlier path only if no segment lists it under its present one. The other facts of its
identity (:mod:`sidecar.bundle.file_identity`) move with the table and must be equal as always. So a file that was
written to the same relative path later does not match. A file without a match is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress
from operator import not_

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.segment import Segment
from sidecar.iceberg.paths import normal_folder, normal_path, spellings

_METADATA = "/metadata/"


class SidecarFiles:
    """The files of ``segments`` of the sidecar of a table that is at ``location`` today. Nothing is read at first."""

    def __init__(self, segments: Iterable[Segment], location: str) -> None:
        self.segments = list(segments)
        self.moved = 0
        """The number of files that were found under an earlier path."""
        self.earlier_locations: set[str] = set()
        """Earlier locations of the table at which files were found."""
        self._table_location = location
        self._location = normal_folder(location)
        self._earlier: dict[DataFileIdentity, dict[int, int]] = {}

    def of(self, segments: Iterable[Segment]) -> SidecarFiles:
        """Return the files of other segments of the same sidecar."""
        return SidecarFiles(segments, self._table_location)

    def find(self, file: DataFileIdentity) -> dict[int, int]:
        """Return the ordinal of a live file in each segment that lists it, by number, also under an earlier path."""
        asked = ((number, segment.file_ordinal(file)) for number, segment in enumerate(self.segments))
        return {number: ordinal for number, ordinal in asked if ordinal is not None} or self._places(file)

    def earlier(self, file: DataFileIdentity, skipped: Sequence[bool] | None = None) -> dict[int, int]:
        """Return what :meth:`find` returns of a file that no segment lists under its present path; else nothing.

        The segments that are ``skipped`` are known not to list it.
        """
        if file not in self._earlier:
            asked = self.segments if skipped is None else compress(self.segments, map(not_, skipped))
            is_listed = any(segment.file_ordinal(file) is not None for segment in asked)
            self._earlier[file] = {} if is_listed else self._places(file)
        return self._earlier[file]

    def _places(self, file: DataFileIdentity) -> dict[int, int]:
        """Return the ordinal of a live file in each segment that lists it under another path, by number."""
        normal = normal_path(file.path)
        relative = normal.removeprefix(self._location) if normal.startswith(self._location) else None
        found = dict[int, int]()
        for number, (segment, location) in enumerate(zip(self.segments, self._locations, strict=True)):
            has_moved = location is not None and relative is not None and location != self._location
            earlier = f"{location}{relative}" if has_moved else normal
            # A fingerprint has the exact spelling of a path, so each usual spelling is looked up.
            looked_up = (segment.file_ordinal(file._replace(path=path)) for path in spellings(earlier))
            ordinals = {ordinal for ordinal in looked_up if ordinal is not None}
            if len(ordinals) == 1:  # two spellings that are listed as two files decide nothing
                found[number] = ordinals.pop()
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
        manifests = (manifest for segment in self.segments for manifest in segment.listed_manifests)
        return not all(manifest.path.startswith(spelt) for manifest in manifests)

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
