"""The stages that need the tasks of the files that are left: keys of a join, and page indexes of row groups.

Row groups are told apart only here, for the files that are left. The results are one value, so if the sidecar fails
halfway, all tasks stay as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING

from pyiceberg.table import FileScanTask

from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files.by_filters import FilePlace, IndexedFiles, places_of
from sidecar.planning.files.choose import ChosenFiles
from sidecar.planning.files.file_set import DroppedBy
from sidecar.planning.funnel import KeptFilesBecause, KeptReason
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.page_pruning import PagePruner
from sidecar.planning.row_groups import KeptRowGroups

if TYPE_CHECKING:
    from sidecar.planning.keys.key_pruning import FilesWithinBounds, KeyPruner
    from sidecar.planning.keys.key_sets import KeySet


@dataclass(frozen=True)
class KeptTasks:
    """The tasks that are left, why each is, and counts of the others."""

    chosen: ChosenFiles
    tasks: list[FileScanTask]
    at: Sequence[int]
    """The position of each task among those of the chosen files."""
    reasons: list[KeptReason]
    row_groups: Mapping[str, KeptRowGroups] = field(default_factory=dict)
    """What is left of each file, by path, if its row groups are known."""
    ruled_out: Mapping[str, KeptRowGroups] = field(default_factory=dict)
    """The row groups of files that page indexes dropped, by path: none has rows that are left."""
    groups: Mapping[str, int] = field(default_factory=Counter)
    out: tuple[tuple[str, DroppedBy], ...] = ()
    """The paths of files that are out, with what dropped each."""
    judged_by_keys: int = 0
    listed: int = 0
    """The number of files that segments list and that filters were not asked about."""
    units_dropped: int = 0
    answered: frozenset[str] = frozenset()
    """Paths of kept files for which filters answered every part of the predicate that filters can answer."""
    notes: tuple[str, ...] = ()

    def only(self, keep: Sequence[bool], by: DroppedBy) -> KeptTasks:
        """Return the tasks where ``keep`` is set."""
        if all(keep):
            return self
        out = tuple((task.file.file_path, by) for task, kept in zip(self.tasks, keep, strict=True) if not kept)
        tasks = list(compress(self.tasks, keep))
        return replace(
            self,
            tasks=tasks,
            at=list(compress(self.at, keep)),
            reasons=list(compress(self.reasons, keep)),
            answered=self.answered & {task.file.file_path for task in tasks},
            out=self.out + out,
        )


def kept_tasks(tasks: list[FileScanTask], chosen: ChosenFiles) -> KeptTasks:
    """Return the tasks of chosen files with the reasons to keep them."""
    each = {id(files): [] if files.reasons is None else files.reasons.each() for files in chosen.sets if len(files)}
    reasons = [reason for _, files, rows in chosen.by_manifest for reason in each[id(files)][rows]]
    answered = (t.file.file_path for t, r in zip(tasks, reasons, strict=True) if r is KeptFilesBecause.MAY_MATCH)
    return KeptTasks(chosen, tasks, range(len(tasks)), reasons, answered=frozenset(answered))


def by_row_groups(kept: KeptTasks, opened: OpenedSidecar, question: FileQuestion, keys: KeySet | None) -> KeptTasks:
    """Return the tasks of files that keys and page indexes keep, and what they leave of each."""
    if not kept.tasks:
        return kept
    bounded, pruner = None, PagePruner(question, opened.resolutions)
    key_pruner = None if keys is None else _key_pruner(keys, opened)
    narrows = opened.question is not None
    if key_pruner is not None:
        kept, bounded = _within_keys(kept, key_pruner)
        if kept.tasks and opened.question is None:  # otherwise the sidecar is open already
            with opened.guarded():
                kept, narrows = _open_for_keys(kept, key_pruner, bounded, opened)
    if kept.tasks and not narrows:
        with opened.guarded():
            narrows = _open_for_pages(kept, pruner, opened)
    if opened.index is not None and narrows:
        with opened.guarded():
            kept = _narrow(kept, opened, opened.index, pruner, key_pruner, bounded)
    opened.warn(*pruner.warnings)
    return kept if key_pruner is None else replace(kept, notes=(*kept.notes, *key_pruner.notes))


def _key_pruner(keys: KeySet, opened: OpenedSidecar) -> KeyPruner:
    from sidecar.planning.keys.key_pruning import KeyPruner

    return KeyPruner(keys, opened.resolutions)


def _within_keys(kept: KeptTasks, keys: KeyPruner) -> tuple[KeptTasks, FilesWithinBounds]:
    """Return the tasks of files with a key within their bounds, and the keys within the bounds of each."""
    bounded = keys.by_bounds([task.file for task in kept.tasks])
    return kept.only(bounded.keep.tolist(), DroppedBy.KEY_BOUNDS), bounded.only(bounded.keep)


def _open_for_keys(
    kept: KeptTasks, keys: KeyPruner, bounded: FilesWithinBounds, opened: OpenedSidecar
) -> tuple[KeptTasks, bool]:
    reason, helps = KeptFilesBecause.TOO_MANY, keys.can_help(bounded)
    if helps:
        opened.otherwise = KeptFilesBecause.NO_SIDECAR
        opened.open()
        reason = opened.otherwise if opened.index is None else KeptFilesBecause.NOT_ASKED
    return replace(kept, reasons=[reason] * len(kept.tasks)), helps


def _open_for_pages(kept: KeptTasks, pruner: PagePruner, opened: OpenedSidecar) -> bool:
    if not any(pruner.can_help(task.file) for task in kept.tasks) or not opened.may_have_pages():
        return False
    opened.open()
    return True


def _narrow(
    kept: KeptTasks,
    opened: OpenedSidecar,
    index: IndexedFiles,
    pruner: PagePruner,
    keys: KeyPruner | None,
    bounded: FilesWithinBounds | None,
) -> KeptTasks:
    places = _places(kept, index)
    listed = 0 if opened.question is not None else _count_uncounted(kept, places, index)
    if keys is not None and bounded is not None:
        kept, places = _ask_for_keys(kept, places, keys, bounded, opened, index.files)
    asked = [(task.file, found) for task, found in zip(kept.tasks, places, strict=True)]
    groups, known, keep, reasons = Counter[str](), dict[str, KeptRowGroups](), list[bool](), list[KeptReason]()
    for (file, found), left, reason in zip(asked, pruner.narrow(index.files, asked), kept.reasons, strict=True):
        groups.update(_counts(found, left))
        keep.append(left is None or bool(left.kept))
        reasons.append(reason if left is None else _reason(left, reason))
        if left is not None:
            known[file.file_path] = left
    after = replace(kept, reasons=reasons).only(keep, DroppedBy.PAGES)
    return replace(
        after,
        row_groups={path: left for path, left in known.items() if left.kept},
        ruled_out={path: left for path, left in known.items() if not left.kept},
        groups=groups,
        listed=listed,
        notes=(*kept.notes, *pruner.notes),
    )


def _count_uncounted(kept: KeptTasks, places: Sequence[Sequence[FilePlace]], index: IndexedFiles) -> int:
    """Count files that segments list, of manifests that they do not list."""
    of_set = [(files, rows) for _, files, rows in kept.chosen.by_manifest]
    counted = [files.source.is_counted(index.files) for files, rows in of_set for _ in range(rows.stop - rows.start)]
    return sum(not counted[at] and bool(found) for at, found in zip(kept.at, places, strict=True))


def _places(kept: KeptTasks, index: IndexedFiles) -> list[list[FilePlace]]:
    """Return where segments list the file of each task; nowhere if two tasks have one path."""
    by_set = {id(files): places_of(files, index) for files in kept.chosen.sets if len(files)}
    found = [p for _, files, rows in kept.chosen.by_manifest for p in by_set[id(files)][rows]]
    often = Counter(task.file.file_path for task in kept.tasks)
    return [found[at] if often[t.file.file_path] == 1 else [] for at, t in zip(kept.at, kept.tasks, strict=True)]


def _ask_for_keys(
    kept: KeptTasks,
    places: list[list[FilePlace]],
    keys: KeyPruner,
    bounded: FilesWithinBounds,
    opened: OpenedSidecar,
    sidecar: NumberedFiles,
) -> tuple[KeptTasks, list[list[FilePlace]]]:
    """Return the tasks and places that the keys leave."""
    warned = len(opened.warnings)
    answers = keys.by_filters(sidecar, places, bounded)
    # A new warning means that a filter could not be read, so "may match" can be due to the damage.
    damaged = len(opened.warnings) > warned
    reasons = list[KeptReason]()
    for answer, reason in zip(answers, kept.reasons, strict=True):
        in_doubt = damaged and answer.reason is KeptFilesBecause.MAY_MATCH
        own = KeptFilesBecause.DAMAGED if in_doubt else answer.reason
        reasons.append(own if reason in (KeptFilesBecause.NOT_ASKED, KeptFilesBecause.MAY_MATCH) else reason)
    keep = [answer.keep for answer in answers]
    out = [answer for answer in answers if not answer.keep]
    left = replace(kept, reasons=reasons).only(keep, DroppedBy.KEYS)
    return replace(
        left,
        judged_by_keys=sum(answer.reason is KeptFilesBecause.MAY_MATCH for answer in answers),
        units_dropped=sum(max(len(place.alive) for place in answer.places) for answer in out),
    ), [answer.places for answer in answers if answer.keep]


def _counts(places: Sequence[FilePlace], kept: KeptRowGroups | None) -> dict[str, int]:
    """Count the row groups of a file: all of them, and those that filters and page indexes dropped."""
    if kept is None:
        return {"total": max((len(place.alive) for place in places), default=0)}
    by_pages = kept.total - len(kept.kept) - kept.by_filter
    return {"total": kept.total, "filter": kept.by_filter, "page_index": by_pages}


def _reason(kept: KeptRowGroups, before: KeptReason) -> KeptReason:
    """Return why a file is kept, now that its row groups have been pruned."""
    if before is KeptFilesBecause.DAMAGED:
        return before  # the damage explains more than what is left of the file
    if any(rows.num_rows < unit.rows for unit, rows in zip(kept.units, kept.rows, strict=True) if rows):
        return KeptFilesBecause.SOME_PAGES
    if len(kept.kept) < kept.total:
        return KeptFilesBecause.SOME_GROUPS
    return KeptFilesBecause.MAY_MATCH if before is KeptFilesBecause.NOT_ASKED else before
