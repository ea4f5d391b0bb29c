"""The sidecar as a sieve: asked about manifests and data files that would be read, counting what becomes of them.

First come the manifests that need not be opened, as the sidecar lists their entries (:meth:`Sieve.known`). Of others,
filters judge the files one by one as they come by (:meth:`Sieve.keep`), page indexes those that are left all together
(:meth:`Sieve.narrow`). The index is opened at once if the predicate asks something of filters, or if there are so many
files that reading their bounds in the sidecar is cheaper than reading manifests; else when page indexes could say more
than the bounds of the files do, and the sidecar's name says that it has some. A sidecar is advisory: whatever goes
wrong with it becomes a warning, and from then on files are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.protection import ENCRYPTED
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError
from sidecar.iceberg.refs import generations
from sidecar.iceberg.resolve import resolution_holds
from sidecar.iceberg.statistics import find_sidecar, may_have_pages
from sidecar.planning.funnel import Funnel, SidecarUsed
from sidecar.planning.internals import Evaluators
from sidecar.planning.key_pruning import TOO_MANY, Asked, Bounded, KeyPruner
from sidecar.planning.key_sets import KeySet
from sidecar.planning.listed_files import Answered, ListedFiles, is_worth_it
from sidecar.planning.may_match import Question
from sidecar.planning.moved import Moved
from sidecar.planning.page_pruning import PagePruner
from sidecar.planning.row_groups import KeptRowGroups, StoredPages
from sidecar.planning.verdicts import DAMAGED, MAY_MATCH, UNREADABLE, Counts, Place, Verdict, Verdicts
from sidecar.source import open_source

NOT_ASKED = "no part of the predicate is one that the index can answer"
NO_SIDECAR = "no sidecar"
BROAD = 2000
"""Files in the manifests to read from which on the sidecar's bounds are used for predicates without a question."""
SOME_GROUPS = "may match in some row groups"
SOME_PAGES = "may match in some pages"

T = TypeVar("T")

_AskedFiles = list[tuple[DataFile, list[Place]]]
"""Files with the places in which segments list them."""


class Sieve:
    """Keeps or drops the data files of one plan.

    ``bound`` is the whole predicate, for bounds and page indexes; ``keys`` are those of a join's other side;
    ``manifests`` are the data manifests of the snapshot.
    """

    def __init__(
        self,
        table: Table,
        snapshot: Snapshot,
        question: Question | None,
        bound: BooleanExpression | None = None,
        keys: KeySet | None = None,
        manifests: Sequence[ManifestFile] = (),
    ) -> None:
        self.used: SidecarUsed | None = None
        self.row_groups: dict[str, KeptRowGroups] = {}
        """What is left of files of which something is known, by path."""
        self.stored: StoredPages | None = None
        self.notes: tuple[str, ...] = ()
        self.encryption_keys: EncryptionKeys | None = None
        """Those of encrypted bundles."""
        self._table = table
        self._snapshot = snapshot
        self._question = question
        self._sidecar: SidecarFile | None = None
        self._moved: Moved | None = None
        self._verdicts: Verdicts | None = None
        self._is_open = False
        self._narrows = question is not None
        """Whether what is left is shown to page indexes."""
        self._manifests = manifests
        self._otherwise = Verdict(True, NOT_ASKED)
        self._bound = AlwaysTrue() if bound is None else bound
        self._warnings: list[str] = []
        self._kept: dict[str, str] = {}
        self.answered: set[str] = set()
        """Paths of kept files that filters answered for, all that the predicate asks of filters."""
        self._keys = None if keys is None else KeyPruner(keys, self._resolution_holds)
        self._judged_by_keys = 0
        self._dropped = 0
        self._dropped_by_bounds = 0
        self._dropped_by_pages = 0
        self._groups: Counter[str] = Counter()

    def known(
        self, lines: Sequence[ManifestFile], evaluators: Evaluators
    ) -> Mapping[str, list[ManifestEntry]]:
        """Entries of those among ``lines``, data manifests, that need not be opened; see :mod:`listed_files`."""
        if self._question is not None:
            self._open_for_question()
        elif is_worth_it(lines, self._bound, evaluators, BROAD):
            self._advised(self._open, None)
        if self._verdicts is None:
            return {}
        found = self._advised(partial(self._answer, self._verdicts, lines, evaluators), Answered())
        self._dropped += found.dropped
        return found.entries

    def _answer(self, verdicts: Verdicts, lines: Sequence[ManifestFile], evaluators: Evaluators) -> Answered:
        verdicts.place(self._manifests)
        found = ListedFiles(verdicts, self._bound, self._warnings.append).answer(lines, evaluators)
        verdicts.open(line for line in lines if line.manifest_path not in found.entries)
        return found

    def keep(self, data_file: DataFile, added: int | None = None) -> bool:
        """Whether the file has to be read; ``added``: the sequence number with which it was added, if known."""
        if self._question is not None:
            self._open_for_question()
        verdict = self._verdict(data_file, added)
        if verdict.keep:
            self._kept[data_file.file_path] = verdict.reason
            if verdict.reason == MAY_MATCH:
                self.answered.add(data_file.file_path)
        else:
            self._dropped += 1
        return verdict.keep

    def narrow(self, tasks: Sequence[FileScanTask]) -> list[FileScanTask]:
        """The tasks of files in which page indexes leave rows; :attr:`row_groups` says what they leave of each."""
        bounded = None
        if self._keys is not None:
            tasks, bounded = self._within_keys(tasks, self._keys)
            if tasks and self._question is None:
                self._advised(partial(self._open_for_keys, self._keys, bounded), None)
        if tasks and not self._narrows:
            self._advised(partial(self._open_for_pages, tasks), None)
        left: list[FileScanTask] | None = None
        if self._verdicts is not None and self._narrows:
            left = self._advised(partial(self._narrow, tasks, bounded), None)
        if self._keys is not None:
            self.notes += tuple(self._keys.notes)
        return list(tasks) if left is None else left

    def _within_keys(
        self, tasks: Sequence[FileScanTask], keys: KeyPruner
    ) -> tuple[list[FileScanTask], Bounded]:
        """The tasks of files with a key within their bounds."""
        bounded = keys.by_bounds([task.file for task in tasks])
        left = [task for task, keep in zip(tasks, bounded.keep.tolist(), strict=True) if keep]
        self._dropped_by_bounds = len(tasks) - len(left)
        self._kept = {task.file.file_path: self._kept[task.file.file_path] for task in left}
        self.answered &= self._kept.keys()
        return left, bounded.only(bounded.keep)

    def _open_for_keys(self, keys: KeyPruner, bounded: Bounded) -> None:
        reason = TOO_MANY
        if keys.can_help(bounded):
            self._otherwise = Verdict(True, NO_SIDECAR)
            self._open()
            self._narrows = True
            reason = NOT_ASKED if self._verdicts is not None else self._otherwise.reason
        self._kept = dict.fromkeys(self._kept, reason)

    def _open_for_pages(self, tasks: Sequence[FileScanTask]) -> None:
        pruner = self._pruner()
        if not any(pruner.can_help(task.file) for task in tasks):
            return
        if not may_have_pages(self._table, self._snapshot.snapshot_id):
            return
        self._open()
        self._narrows = True

    def _narrow(self, tasks: Sequence[FileScanTask], bounded: Bounded | None) -> list[FileScanTask]:
        pruner, verdicts = self._pruner(), self._verdicts
        assert verdicts is not None
        asked = [
            (f, verdicts.places(f.file_path, f.file_size_in_bytes, f.record_count))
            for f in (task.file for task in tasks)
        ]
        left, reasons, groups, by_keys = [], dict(self._kept), Counter[str](), 0
        if self._keys is not None and bounded is not None:
            tasks, asked, by_keys = self._ask_for_keys(self._keys, bounded, tasks, asked, reasons)
        found: dict[str, KeptRowGroups] = {}
        for task, (file, places), kept in zip(tasks, asked, pruner.narrow(asked), strict=True):
            path = file.file_path
            groups.update(_counts(places, kept))
            if kept is not None and not kept.kept:
                del reasons[path]
                continue
            left.append(task)
            if kept is not None:
                found[path] = kept
                reasons[path] = _reason(kept, reasons[path])
        self._dropped_by_pages = len(tasks) - len(left)
        self._dropped += by_keys
        self._kept, self._groups, self.row_groups = reasons, groups, found
        self.notes += tuple(pruner.notes)
        return left

    def _ask_for_keys(
        self,
        keys: KeyPruner,
        bounded: Bounded,
        tasks: Sequence[FileScanTask],
        asked: _AskedFiles,
        reasons: dict[str, str],
    ) -> tuple[list[FileScanTask], _AskedFiles, int]:
        """Tasks and places that the keys leave, and how many files filters dropped; ``reasons`` follow."""
        assert self._verdicts is not None
        warned = len(self.warnings)
        found: list[Asked] = keys.by_filters([places for _, places in asked], bounded)
        damaged = len(self.warnings) > warned
        left, places_left = [], []
        for task, answer in zip(tasks, found, strict=True):
            path = task.file.file_path
            self._judged_by_keys += answer.reason == MAY_MATCH
            if not answer.keep:
                del reasons[path]
                self.answered.discard(path)
                self._verdicts.units_dropped += max(len(place.alive) for place in answer.places)
                continue
            if reasons[path] in (NOT_ASKED, MAY_MATCH):
                reasons[path] = DAMAGED if damaged and answer.reason == MAY_MATCH else answer.reason
            left.append(task)
            places_left.append((task.file, answer.places))
        return left, places_left, len(found) - len(left)

    def _pruner(self) -> PagePruner:
        return PagePruner(self._bound, self._table.schema(), self._resolution_holds, self._warnings.append)

    def funnel(self, manifests: list[ManifestFile]) -> Funnel:
        """What became of the live files of ``manifests``, the data manifests of the snapshot."""
        planned, counts = len(self._kept) + self._dropped + self._dropped_by_pages, Counts(0, 0)
        if self._verdicts is not None:
            counts = self._advised(partial(self._verdicts.counts, manifests), counts)
        if self._moved is not None:
            self.notes += tuple(self._moved.notes())
        by_filter = 0 if self._verdicts is None else self._verdicts.units_dropped
        total = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests)
        total = max(total, planned + self._dropped_by_bounds)
        return Funnel(
            total=total,
            listed=counts.listed,
            indexed=max(counts.indexed, self._judged_by_pages(), self._judged_by_keys),
            dropped_by_metadata=total - planned,
            dropped_by_filter=self._dropped,
            dropped_by_page_index=self._dropped_by_pages,
            kept=len(self._kept),
            kept_because=dict(Counter(self._kept.values()).most_common()),
            row_groups=self._groups["total"] + by_filter,
            row_groups_dropped_by_filter=self._groups["filter"] + by_filter,
            row_groups_dropped_by_page_index=self._groups["page_index"],
        )

    def _judged_by_pages(self) -> int:
        return self._dropped_by_pages + sum(
            bool(kept.stored or kept.row_indexes) for kept in self.row_groups.values()
        )

    @property
    def is_locked(self) -> bool:
        """Whether the index is silent on a column as that is encrypted and its key not at hand."""
        found = self._sidecar is not None and self._sidecar.is_locked
        return found or any(ENCRYPTED in reason for reason in self._kept.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the index, each fault once."""
        found = self._warnings + (list(self._sidecar.warnings) if self._sidecar else [])
        return tuple(dict.fromkeys(found))

    @property
    def index_reads(self) -> int:
        """Reads of the sidecar file."""
        return self._sidecar.index_reads if self._sidecar else 0

    @property
    def index_bytes(self) -> int:
        """Bytes read of the sidecar file."""
        return self._sidecar.index_bytes if self._sidecar else 0

    def close(self) -> None:
        """Close the sidecar file."""
        if self._sidecar is not None:
            self._sidecar.close()

    def _open_for_question(self) -> None:
        if not self._is_open:
            self._otherwise = Verdict(True, NO_SIDECAR)
            self._advised(self._open, None)

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        found = find_sidecar(self._table, self._snapshot.snapshot_id, warnings=self._warnings)
        if found is None:
            if self._warnings:
                self._otherwise = Verdict(True, UNREADABLE)
            return
        self._sidecar = found.sidecar
        self._sidecar.use_keys(self.encryption_keys)
        behind = generations(self._table, self._snapshot.snapshot_id, found.snapshot_id)
        path, size = found.statistics.statistics_path, found.statistics.file_size_in_bytes
        self.used = SidecarUsed(path, found.snapshot_id, behind)
        self.stored = StoredPages(
            found.sidecar, partial(open_source, path, self._table.io, size), self._resolution_holds
        )
        self._moved = Moved(found.sidecar.segments, self._table.location())
        self._verdicts = Verdicts(
            found.sidecar.segments,
            self._question,
            self._resolution_holds,
            found.sidecar.warnings,
            self._moved,
        )

    def _resolution_holds(self, field_id: int, resolution: str) -> bool:
        """Whether a column would still be found in a file as it was when the file was indexed."""
        table = self._table
        return resolution_holds(resolution, field_id, table.metadata.name_mapping(), table.schema())

    def _verdict(self, data_file: DataFile, added: int | None) -> Verdict:
        if self._verdicts is None or self._question is None:
            return self._otherwise
        path, size, rows = data_file.file_path, data_file.file_size_in_bytes, data_file.record_count
        return self._advised(partial(self._verdicts.of, path, size, rows, added), self._otherwise)

    def _advised(self, ask: Callable[[], T], otherwise: T) -> T:
        """An answer of the index; as no query may fail because of one, a failure ends the asking."""
        try:
            return ask()
        except Exception as error:
            what = str(error) if isinstance(error, SidecarError) else f"{type(error).__name__}: {error}"
            self._warnings.append(f"the sidecar is not used: {what}")
            self._verdicts, self._otherwise = None, Verdict(True, UNREADABLE)
            return otherwise


def _counts(places: Sequence[Place], kept: KeptRowGroups | None) -> dict[str, int]:
    """Row groups of a file that filters kept, all of them and those that were dropped."""
    if kept is None:
        return {"total": max((len(place.alive) for place in places), default=0)}
    by_pages = kept.total - len(kept.kept) - kept.by_filter
    return {"total": kept.total, "filter": kept.by_filter, "page_index": by_pages}


def _reason(kept: KeptRowGroups, before: str) -> str:
    """Why a file is kept, now that its row groups are told apart."""
    if before == DAMAGED:
        return before
    if any(rows.num_rows < unit.rows for unit, rows in zip(kept.units, kept.rows, strict=True) if rows):
        return SOME_PAGES
    if len(kept.kept) < kept.total:
        return SOME_GROUPS
    return MAY_MATCH if before == NOT_ASKED else before
