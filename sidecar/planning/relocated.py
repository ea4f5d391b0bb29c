"""Finds the files of a table that has moved in its sidecar, by their path relative to the table.

A sidecar identifies a file by its path, as the manifests spelled it, and by other facts. If a table is copied to
another location (``rewrite_table_path``, then ``register_table``), its manifests have other paths, but the part after
the table's location stays the same. The same is true if one location is spelled in two ways (``file:/x``,
``file:///x``; ``s3:``, ``s3a:``). The paths of the manifests that a segment lists show where the table was then.

Only files of manifests that are opened come here, and only those that no segment lists under their present path. The
other facts of a file's identity (:mod:`sidecar.bundle.file_identity`) move with the table and must be equal as always.
So a file that was written to the same relative path later does not match. A file without a match is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.iceberg.paths import normal_folder, normal_path, spellings

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import Segment

_METADATA = "/metadata/"


class RelocatedFiles:
    """Matches files of the table at ``location`` to segments of its sidecar; ``found`` counts the matched files."""

    def __init__(self, segments: Sequence[Segment], location: str) -> None:
        self._location = normal_folder(location)
        self._spelt = location.rstrip("/") + "/"
        self._segments = [(number, segment, _location_of(segment)) for number, segment in enumerate(segments)]
        self.found = 0
        self.earlier_locations: set[str] = set()
        """ReusableSidecar locations of the table at which files were matched."""

    def places(self, file: DataFileIdentity) -> list[tuple[int, int]]:
        """Return the segments, by number, that list a live file under another path, with its ordinal in each."""
        normal = normal_path(file.path)
        relative = normal.removeprefix(self._location) if normal.startswith(self._location) else None
        matched = []
        for number, segment, location in self._segments:
            has_moved = location is not None and relative is not None and location != self._location
            earlier = f"{location}{relative}" if has_moved else normal
            # A fingerprint has the exact spelling of a path, so each usual spelling is looked up.
            looked_up = (segment.file_ordinal(file._replace(path=path)) for path in spellings(earlier))
            ordinals = {ordinal for ordinal in looked_up if ordinal is not None}
            if len(ordinals) == 1:  # two spellings that are listed as two files decide nothing
                matched.append((number, ordinals.pop()))
                self.earlier_locations.add(location or self._location)
        self.found += bool(matched)
        return matched

    @property
    def has_moved(self) -> bool:
        """Whether some segment was made when the table's location was another one, or was spelt in another way."""
        manifests = (manifest for _, segment, _ in self._segments for manifest in segment.listed_manifests)
        return not all(manifest.path.startswith(self._spelt) for manifest in manifests)

    def notes(self) -> list[str]:
        """Return a sentence about the files that were matched, if any."""
        if not self.found:
            return []
        files = "1 file was" if self.found == 1 else f"{self.found} files were"
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
