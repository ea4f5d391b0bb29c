"""Files of a table that has moved: found again in a sidecar by their path relative to the table.

A sidecar knows files by, among others, their path as the manifests spelt it. Copy a table to another place
(``rewrite_table_path``, then ``register_table``) and manifests spell other paths, but the part behind the table's
location stays. So does it where one place is spelt in two ways (``file:/x``, ``file:///x``; ``s3:``, ``s3a:``). Where a
segment stood is seen from the manifests that it lists.

Only files of manifests that were read come here, and only those that no segment knows by their own path. All else by
which files are told apart (:mod:`sidecar.bundle.file_identity`) moves with the table and must be equal as always: a
file that came to the same relative path afterwards is another one. What is not matched is kept.
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
    """Matches files of the table that lies at ``location`` to segments of its sidecar; ``found`` counts them."""

    def __init__(self, segments: Sequence[Segment], location: str) -> None:
        self._location = normal_folder(location)
        self._places = [(number, segment, _place(segment)) for number, segment in enumerate(segments)]
        self.found = 0
        self.from_places: set[str] = set()
        """Where the table was, as far as files were matched."""

    def places(self, file: DataFileIdentity) -> list[tuple[int, int]]:
        """The segments by number that list a live file under another path, with its ordinal there."""
        normal = normal_path(file.path)
        relative = normal.removeprefix(self._location) if normal.startswith(self._location) else None
        matched = []
        for number, segment, place in self._places:
            has_moved = place is not None and relative is not None and place != self._location
            earlier = f"{place}{relative}" if has_moved else normal
            asked = (segment.file_ordinal(file._replace(path=spelt)) for spelt in spellings(earlier))
            ordinals = {ordinal for ordinal in asked if ordinal is not None}
            if len(ordinals) == 1:
                matched.append((number, ordinals.pop()))
                self.from_places.add(place or self._location)
        self.found += bool(matched)
        return matched

    def notes(self) -> list[str]:
        """A sentence about what was matched."""
        if not self.found:
            return []
        files = "1 file was" if self.found == 1 else f"{self.found} files were"
        where = " and ".join(sorted(place.rstrip("/") for place in self.from_places))
        return [f"{files} matched by their path within the table, which the sidecar knows at {where}"]


def _place(segment: Segment) -> str | None:
    """The folder that the table had when a segment was made, with a slash at its end; ``None`` if it is not certain."""
    found = {_before_metadata(manifest.path) for manifest in segment.listed_manifests}
    return found.pop() if len(found) == 1 else None


def _before_metadata(path: str) -> str | None:
    normal = normal_path(path)
    folder, separator, _ = normal.rpartition(_METADATA)
    return folder + "/" if separator else None
