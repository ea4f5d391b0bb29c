"""Groups of sketches after their segments were merged: other ordinals of files, and fewer, larger groups.

The union of two sketches counts the values of both, so two groups become one without reading a data file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.filters.theta import ThetaSketch

MOST_FILES = 256
"""The most files of a group. After removals all files of a group may have to be read again."""
MOST_BYTES = 8 << 30
"""The most bytes of a group's files; a larger file is a group of its own."""
NO_FILE = -1
"""The new ordinal of a file that a merged segment does not list."""


def remapped(groups: Iterable[SketchGroup], new_ordinals: npt.NDArray[np.int64]) -> list[SketchGroup]:
    """Return the groups with the files' ordinals in another segment; a group without any of these files is left out.

    ``new_ordinals``: int64[files of the old segment], :data:`NO_FILE` for files that the new segment does not list.
    Sketches, rows and sizes still count those files, so that a build knows how much of a group was removed.
    """
    moved = []
    for group in groups:
        files = new_ordinals[group.files]
        files = np.unique(files[files != NO_FILE])
        if len(files):
            moved.append(replace(group, files=files))
    return moved


def joined(groups: Sequence[SketchGroup], ages: npt.NDArray[np.int64]) -> list[SketchGroup]:
    """Unite groups of one type, neighbours by age, while they stay within :data:`MOST_FILES` and :data:`MOST_BYTES`.

    ``ages``: int64[files], the sequence number with which each was added. Groups that together have more files than
    come after them stay apart: a rollback that takes n files away has fewer than n others counted again. Damaged
    sketches raise the errors of :meth:`ThetaSketch.from_bytes`.
    """
    united = []
    ordered = sorted(groups, key=lambda group: (group.type, int(ages[group.files].max()), int(group.files[0])))
    for kind, same in groupby(ordered, lambda group: group.type):
        members = list(same)
        newer = sum(len(group.files) for group in members)
        waiting: list[SketchGroup] = []
        for group in members:
            newer -= len(group.files)
            together = [*waiting, group]
            if waiting and not (_fit_one_group(together) and sum(len(one.files) for one in together) <= newer + 1):
                united.append(_union(waiting, kind))
                waiting = []
            waiting.append(group)
        united.append(_union(waiting, kind))
    return united


def _fit_one_group(groups: Sequence[SketchGroup]) -> bool:
    return sum(g.counted for g in groups) <= MOST_FILES and sum(g.size for g in groups) <= MOST_BYTES


def _union(groups: Sequence[SketchGroup], kind: str) -> SketchGroup:
    if len(groups) == 1:
        return groups[0]
    sketches = [ThetaSketch.from_bytes(group.sketch) for group in groups]
    return SketchGroup(
        files=np.unique(np.concatenate([group.files for group in groups])),
        counted=sum(group.counted for group in groups),
        rows=sum(group.rows for group in groups),
        size=sum(group.size for group in groups),
        type=kind,
        sketch=ThetaSketch.union(sketches).to_bytes(),
    )
