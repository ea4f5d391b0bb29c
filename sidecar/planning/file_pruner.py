"""Asks the sidecar about the manifests and data files of one plan, drops files, and counts what became of them.

``OpenedSidecar`` owns the open file. ``FilePruner`` asks it in three steps:

1. :meth:`FilePruner.answer_listed` answers for manifests whose entries the sidecar lists, so they need not be opened.
2. :meth:`FilePruner.keep_files` asks filters about the files of the other manifests, one by one.
3. :meth:`FilePruner.prune_pages` asks page indexes about all files that are left, together.

The sidecar is opened in the first step if the predicate asks something of filters, or if there are so many files that
reading their bounds in the sidecar is cheaper than reading manifests. Otherwise it is opened in the third step, if
page indexes could rule out more than the bounds of the files do and the sidecar's name says that it has some. A
sidecar is advisory: an error in it becomes a warning, and from then on all files are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask

from sidecar.planning.file_question import FileQuestion
from sidecar.planning.filter_answers import Counts, FilterAnswers, ListedPlace, Verdict
from sidecar.planning.funnel import Funnel, KeptBecause, KeptReason, NotIndexed
from sidecar.planning.listed_files import (
    AnsweredManifests,
    Flags,
    ListedFiles,
    ManifestsInMemory,
    is_worth_it,
)
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.page_pruning import PagePruner
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.planning.task_planner import Evaluators, Identify, count_files

if TYPE_CHECKING:
    from sidecar.planning.key_pruning import FilesWithinBounds, KeyAnswer, KeyPruner
    from sidecar.planning.key_sets import KeySet

BROAD = 2000
"""With at least this many files, the sidecar's bounds are used even if the predicate asks nothing of filters."""

_AskedFiles = list[tuple[DataFile, list[ListedPlace]]]
"""Files, each with the places where segments list it."""


class FilePruner:
    """Keeps or drops the data files of one plan.

    ``question`` is what the whole predicate asks, also of bounds and page indexes. ``keys`` are the keys of a join's
    other side. ``manifests`` are all data manifests of the snapshot. ``in_memory`` is what the caller has of these:
    then many files become :attr:`flags`, and no tasks.
    """

    def __init__(
        self,
        opened: OpenedSidecar,
        question: FileQuestion | None = None,
        keys: KeySet | None = None,
        manifests: Sequence[ManifestFile] = (),
        in_memory: ManifestsInMemory | None = None,
    ) -> None:
        self.row_groups: dict[str, KeptRowGroups] = {}
        """The row groups that are left of each file, by path, if the sidecar knows them."""
        self.notes: tuple[str, ...] = ()
        self._opened = opened
        self._narrows = opened.question is not None
        """Whether page indexes are asked about the files that are left."""
        self._manifests = manifests
        self._in_memory = in_memory
        self.flags: Mapping[str, Flags] | None = None
        """The files that are left, by manifest path, if they are too many for tasks; see :mod:`listed_files`."""
        self._question = question or FileQuestion(AlwaysTrue(), opened.table.schema())
        self._kept: dict[str, KeptReason] = {}
        self._identify: dict[str, Identify] = {}
        self.answered: set[str] = set()
        """Paths of kept files for which filters answered every part of the predicate that filters can answer."""
        self._keys = None if keys is None else _key_pruner(keys, opened)
        self._judged_by_keys = 0
        self._dropped = 0
        self._dropped_by_bounds = 0
        self._dropped_by_pages = 0
        self._groups: Counter[str] = Counter()

    def answer_listed(self, lines: Sequence[ManifestFile], evaluators: Evaluators) -> Mapping[str, list[ManifestEntry]]:
        """Return, by path, live entries of data manifests that need not be opened; see :mod:`listed_files`."""
        opened = self._opened
        if opened.question is not None:
            opened.open_for_question()
        elif is_worth_it(lines, self._question.bound, evaluators, BROAD):
            opened.ask(opened.open, None)
        answered = AnsweredManifests()
        if opened.answers is not None:
            answered = opened.ask(partial(self._answer, opened.answers, lines, evaluators), answered)
        self.flags = answered.flags
        if opened.answers is None and opened.question is not None and self._in_memory is not None:
            # Nothing is ruled out without the sidecar, but the caller need not open the manifests again.
            self.flags = {} if count_files(lines) > self._in_memory.most_entries else None
        if self.flags is not None:
            return {line.manifest_path: [] for line in lines}
        self._dropped += answered.dropped
        return answered.entries

    def _answer(
        self, answers: FilterAnswers, lines: Sequence[ManifestFile], evaluators: Evaluators
    ) -> AnsweredManifests:
        answers.note_manifests(self._manifests)
        listed = ListedFiles(answers, self._question.bound, self._opened.warn, self._in_memory)
        answered = listed.answer(lines, evaluators)
        # Files of the other manifests come by path: segments that list them need their fingerprints after all.
        answers.expect_paths_of(line for line in lines if line.manifest_path not in answered.entries)
        return answered

    def keep_files(self, files: Sequence[tuple[DataFile, Identify]]) -> list[bool]:
        """Return of each file whether it has to be read, and count it."""
        self._opened.open_for_question()
        keep = [True] * len(files)
        if self._opened.judges:
            keep = [self._keep(file.file_path, self._opened.verdict(identify)) for file, identify in files]
        else:
            self._kept.update(dict.fromkeys((file.file_path for file, _ in files), self._opened.otherwise))
        identities = self._identify
        for file, identify in compress(files, keep):
            path = file.file_path
            # A path with two live entries gets no identity, as tasks do not say which of them they are of.
            identities[path] = _unknown if path in identities else identify
        return keep

    def _keep(self, path: str, verdict: Verdict) -> bool:
        if not verdict.keep:
            self._dropped += 1
            return False
        assert verdict.reason is not None
        self._kept[path] = verdict.reason
        if verdict.reason is KeptBecause.MAY_MATCH:
            self.answered.add(path)
        return True

    def prune_pages(self, tasks: Sequence[FileScanTask]) -> list[FileScanTask]:
        """Return the tasks of files that keys and page indexes keep; :attr:`row_groups` has what they leave of each."""
        bounded = None
        if self._keys is not None:
            tasks, bounded = self._within_keys(tasks, self._keys)
            if tasks and self._opened.question is None:  # otherwise the sidecar is open already
                self._opened.ask(partial(self._open_for_keys, self._keys, bounded), None)
        if tasks and not self._narrows:
            self._opened.ask(partial(self._open_for_pages, tasks), None)
        left: list[FileScanTask] | None = None
        if self._opened.answers is not None and self._narrows:
            left = self._opened.ask(partial(self._narrow, tasks, bounded), None)
        if self._keys is not None:
            self.notes += tuple(self._keys.notes)
        # None: the sidecar failed or was not asked, so all files are kept.
        return list(tasks) if left is None else left

    def _within_keys(
        self, tasks: Sequence[FileScanTask], keys: KeyPruner
    ) -> tuple[list[FileScanTask], FilesWithinBounds]:
        """Return the tasks of files with a key within their bounds, and the keys within the bounds of each."""
        bounded = keys.by_bounds([task.file for task in tasks])
        left = [task for task, keep in zip(tasks, bounded.keep.tolist(), strict=True) if keep]
        self._dropped_by_bounds = len(tasks) - len(left)
        self._kept = {task.file.file_path: self._kept[task.file.file_path] for task in left}
        self.answered &= self._kept.keys()
        return left, bounded.only(bounded.keep)

    def _open_for_keys(self, keys: KeyPruner, bounded: FilesWithinBounds) -> None:
        reason = KeptBecause.TOO_MANY
        if keys.can_help(bounded):
            self._opened.otherwise = KeptBecause.NO_SIDECAR
            self._opened.open()
            self._narrows = True
            reason = self._opened.otherwise if self._opened.answers is None else KeptBecause.NOT_ASKED
        self._kept = dict.fromkeys(self._kept, reason)

    def _open_for_pages(self, tasks: Sequence[FileScanTask]) -> None:
        pruner = self._pruner()
        if not any(pruner.can_help(task.file) for task in tasks):
            return
        if not self._opened.may_have_pages():
            return
        self._opened.open()
        self._narrows = True

    def _narrow(self, tasks: Sequence[FileScanTask], bounded: FilesWithinBounds | None) -> list[FileScanTask]:
        pruner, answers = self._pruner(), self._opened.answers
        assert answers is not None
        asked = [(file, answers.places(self._identify[file.file_path]())) for file in (task.file for task in tasks)]
        # Reasons and row groups are set at the end: if the sidecar fails halfway, all files stay kept as they were.
        left, reasons, groups, by_keys = [], dict(self._kept), Counter[str](), 0
        if self._keys is not None and bounded is not None:
            tasks, asked, by_keys = self._ask_for_keys(self._keys, bounded, tasks, asked, reasons)
        row_groups: dict[str, KeptRowGroups] = {}
        for task, (file, places), kept in zip(tasks, asked, pruner.narrow(asked), strict=True):
            path = file.file_path
            groups.update(_counts(places, kept))
            if kept is not None and not kept.kept:
                del reasons[path]
                continue
            left.append(task)
            if kept is not None:
                row_groups[path] = kept
                reasons[path] = _reason(kept, reasons[path])
        self._dropped_by_pages = len(tasks) - len(left)
        self._dropped += by_keys
        self._kept, self._groups, self.row_groups = reasons, groups, row_groups
        self.notes += tuple(pruner.notes)
        return left

    def _ask_for_keys(
        self,
        keys: KeyPruner,
        bounded: FilesWithinBounds,
        tasks: Sequence[FileScanTask],
        asked: _AskedFiles,
        reasons: dict[str, KeptReason],
    ) -> tuple[list[FileScanTask], _AskedFiles, int]:
        """Return the tasks and places that the keys leave, and the number of files dropped; update ``reasons``."""
        assert self._opened.answers is not None
        warned = len(self._opened.warnings)
        key_answers: list[KeyAnswer] = keys.by_filters([places for _, places in asked], bounded)
        # A new warning means that a filter could not be read, so "may match" can be due to the damage.
        damaged = len(self._opened.warnings) > warned
        left, places_left = [], []
        for task, answer in zip(tasks, key_answers, strict=True):
            path = task.file.file_path
            self._judged_by_keys += answer.reason is KeptBecause.MAY_MATCH
            if not answer.keep:
                del reasons[path]
                self.answered.discard(path)
                self._opened.answers.units_dropped += max(len(place.alive) for place in answer.places)
                continue
            if reasons[path] in (KeptBecause.NOT_ASKED, KeptBecause.MAY_MATCH):
                in_doubt = damaged and answer.reason is KeptBecause.MAY_MATCH
                reasons[path] = KeptBecause.DAMAGED if in_doubt else answer.reason
            left.append(task)
            places_left.append((task.file, answer.places))
        return left, places_left, len(key_answers) - len(left)

    def _pruner(self) -> PagePruner:
        return PagePruner(self._question, self._opened.resolution_holds, self._opened.warn)

    def funnel(self, manifests: list[ManifestFile]) -> Funnel:
        """Count what became of the live files of ``manifests``, the data manifests of the snapshot."""
        planned, counts = len(self._kept) + self._dropped + self._dropped_by_pages, Counts(0, 0)
        if self._opened.answers is not None:
            counts = self._opened.ask(partial(self._opened.answers.counts, manifests), counts)
        self.notes += tuple(self._opened.notes)
        by_filter = 0 if self._opened.answers is None else self._opened.answers.units_dropped
        total = max(count_files(manifests), planned + self._dropped_by_bounds)  # counts in manifest lists are optional
        return Funnel(
            total=total,
            listed=counts.listed,
            indexed=max(counts.indexed, self._judged_by_pages(), self._judged_by_keys),
            dropped_by_metadata=total - planned,
            dropped_by_filter=self._dropped,
            dropped_by_page_index=self._dropped_by_pages,
            kept=len(self._kept),
            kept_because=self._kept_because(),
            row_groups=self._groups["total"] + by_filter,
            row_groups_dropped_by_filter=self._groups["filter"] + by_filter,
            row_groups_dropped_by_page_index=self._groups["page_index"],
        )

    def _kept_because(self) -> dict[str, int]:
        """Count the kept files by reason, the most frequent first."""
        texts = Counter[str]()
        for reason, count in Counter(self._kept.values()).items():
            texts[reason.text] += count
        return dict(texts.most_common())

    def indexed(self, manifests: list[ManifestFile]) -> int:
        """Count the live files of ``manifests``, the data manifests of the snapshot, about which filters were asked."""
        answers = self._opened.answers
        return 0 if answers is None else self._opened.ask(lambda: answers.counts(manifests).indexed, 0)

    def _judged_by_pages(self) -> int:
        return self._dropped_by_pages + sum(bool(kept.stored or kept.row_indexes) for kept in self.row_groups.values())

    @property
    def is_locked(self) -> bool:
        """Whether the index could not answer for a column because the column is encrypted and its key is missing."""
        return self._opened.is_locked or any(
            isinstance(reason, NotIndexed) and reason.is_locked for reason in self._kept.values()
        )


def _key_pruner(keys: KeySet, opened: OpenedSidecar) -> KeyPruner:
    from sidecar.planning.key_pruning import KeyPruner

    return KeyPruner(keys, opened.resolution_holds)


def _unknown() -> None:
    return None


def _counts(places: Sequence[ListedPlace], kept: KeptRowGroups | None) -> dict[str, int]:
    """Count the row groups of a file: all of them, and those that filters and page indexes dropped."""
    if kept is None:
        return {"total": max((len(place.alive) for place in places), default=0)}
    by_pages = kept.total - len(kept.kept) - kept.by_filter
    return {"total": kept.total, "filter": kept.by_filter, "page_index": by_pages}


def _reason(kept: KeptRowGroups, before: KeptReason) -> KeptReason:
    """Return why a file is kept, now that its row groups have been pruned."""
    if before is KeptBecause.DAMAGED:
        return before  # the damage explains more than what is left of the file
    if any(rows.num_rows < unit.rows for unit, rows in zip(kept.units, kept.rows, strict=True) if rows):
        return KeptBecause.SOME_PAGES
    if len(kept.kept) < kept.total:
        return KeptBecause.SOME_GROUPS
    return KeptBecause.MAY_MATCH if before is KeptBecause.NOT_ASKED else before
