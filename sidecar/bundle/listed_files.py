"""The files that a segment lists, batch by batch, with limits on what a file may claim."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.bundle.model import FileEntry
from sidecar.bundle.sections import FILES_PER_BATCH
from sidecar.bundle.segment import Damage, Segment
from sidecar.errors import SidecarError, UnsupportedFeatureError

MOST_UNITS = 1 << 19
"""The most row groups of a segment that are named one by one. A predicate could leave fewer, but needs the table."""


def check_listable(segment: Segment) -> None:
    """Raise :class:`UnsupportedFeatureError` if the segment has too many files or units to name them one by one."""
    found = max(segment.num_files, segment.num_units)
    if found > MOST_UNITS:
        raise UnsupportedFeatureError(
            "the sidecar lists too many row groups to name them one by one",
            expected=f"at most {MOST_UNITS} in a segment",
            found=found,
            hint="Ask by the name of its table.",
        )


def listed_batches(segment: Segment, damage: Damage) -> Iterator[tuple[int, list[FileEntry] | None]]:
    """Yield (ordinal of the first file, files) of each batch. A batch that cannot be read is ``None`` and damage."""
    for batch in range(-(-segment.num_files // FILES_PER_BATCH)):
        try:
            files: list[FileEntry] | None = segment.units.file_batches([batch])[batch]
        except SidecarError as error:
            damage.add(error)
            files = None
        yield batch * FILES_PER_BATCH, files
