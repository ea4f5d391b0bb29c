"""Chooses the files of a snapshot that a request needs, by the sidecar or else by manifests.

Where filters leave nothing, or only files of which all rows match, Spark takes a DELETE for one of whole files and
commits it as such. Iceberg then finds, by bounds, files that may match in part, and the statement fails. So one file
that bounds keep and that does not match wholly is returned too: the *sentinel*. Spark asks for all columns then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from sidecar.errors import SidecarError, UnsupportedFeatureError, advisory
from sidecar.iceberg.deletes.delete_files import comparable
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.iceberg.statistics_files.find_sidecar import SidecarOpener
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.planning.evaluators import Evaluators, evaluators_of
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files.by_filters import by_filters
from sidecar.planning.files.cheapest import BROAD
from sidecar.planning.files.choose import ChosenFiles
from sidecar.planning.files.file_set import DroppedBy, FileSet, Line
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.plan import Plan
from sidecar.planning.planner import Planning, count_indexed
from sidecar.planning.whole_match import WholeMatch
from sidecar.serving.planning.costs import DIRECT_FILES, SAMPLED_FILES
from sidecar.serving.planning.live_snapshot import FilesInMemory, LiveSnapshot, by_bounds_in_memory
from sidecar.serving.planning.scan_binding import ScanBinding
from sidecar.serving.planning.unindexed_predicates import UnindexedPredicates
from sidecar.serving.protocol.errors import place_of

log = logging.getLogger(__name__)

NOTHING_ASKED = "nothing-asked"
NO_INDEX_HELPS = "no-index-helps"
NO_SIDECAR = "no-sidecar"
UNREADABLE = "sidecar-unreadable"
DAMAGED = "sidecar-damaged"
LOCKED = "sidecar-locked"
FAILED = "plan-failed"


@dataclass(frozen=True)
class FileSelection:
    """The files of a snapshot that one meaning of a request needs."""

    tasks: Sequence[FileScanTask] | None = None
    """The files that a plan kept; ``None`` if they are taken from manifests in memory."""
    ordinals: Sequence[int] | None = None
    """The files from manifests in memory, as ordinals of the snapshot's live files; ``None`` if a plan chose them."""
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    """Data sequence numbers of the files in ``tasks``, by path."""
    sentinel: int | None = None
    """The ordinal of a file that is returned only so that Spark's DELETE works."""
    is_decided: Callable[[DataFile, int], bool] = lambda file, spec_id: False
    """Whether the partition of a file decides that all of its rows match."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Files that are not chosen, by what ruled them out, as in a plan's funnel."""
    evaluators: Evaluators | None = None
    """pyiceberg's evaluators of the filter; ``None`` if none were needed."""
    index_bytes: int = 0
    fallback: str = ""
    """Why the sidecar was not asked or not believed; empty if it was."""


def select_files(
    files: LiveSnapshot,
    binding: ScanBinding,
    *,
    wants_sentinel: bool,
    unindexed: UnindexedPredicates,
    opener: SidecarOpener,
) -> FileSelection:
    """Choose the files for one meaning of a request.

    With many files, a predicate that filters cannot answer is answered by the bounds that are kept in memory. Page
    indexes could drop a few files more, but the plan would take longer than reading them. ``unindexed`` remembers for
    which predicates the sidecar has no filters, and ``opener`` opens sidecars.

    Where filters leave more than :data:`DIRECT_FILES`, the files come as ordinals: their tasks are in memory, and
    records of so many files take longer to decode than page indexes could save.

    ``wants_sentinel`` says that a client may delete by this plan. Raises errors about the table's own metadata, none
    about a sidecar.
    """
    row_filter, is_exact = _canonical(files, binding)
    table = binding.table
    try:
        found = _by_sidecar(files, table, row_filter, wants_sentinel, unindexed, opener)
    except Exception as error:
        _note(error)
        found = FileSelection(fallback=FAILED)
    if found.tasks is None and found.ordinals is None:
        found = _by_manifests(files, table, row_filter, found)
    return replace(found, is_decided=_decider(found.evaluators)) if is_exact and found.evaluators else found


def _by_sidecar(
    files: LiveSnapshot,
    table: Table,
    row_filter: BooleanExpression,
    wants_sentinel: bool,
    unindexed: UnindexedPredicates,
    opener: SidecarOpener,
) -> FileSelection:
    """Choose the files by the sidecar. Without files if it is not asked."""
    if isinstance(row_filter, AlwaysTrue):
        return FileSelection(fallback=NOTHING_ASKED)
    snapshot_id = files.snapshot.snapshot_id
    version = table.metadata_location, snapshot_id
    asks_filters = _asks_filters(row_filter, table.schema()) and not unindexed.knows(version, row_filter)
    if not asks_filters and files.count >= BROAD:
        return FileSelection(fallback=NO_INDEX_HELPS)
    planning = Planning(table, row_filter, snapshot_id, files.access, opener=opener, lines=files.lines)
    whole = WholeMatch(table.metadata, row_filter)
    with closing(planning):
        chosen, opened = planning.choose(), planning.opened
        if _are_many(files, chosen, opened):
            found, indexed = _in_memory(files, chosen, planning, whole if wants_sentinel else None)
            is_locked, is_needed = opened.is_locked, True
        else:
            planned = planning.plan(chosen, allow_equality_deletes=True)
            found = _of_plan(files, planning, planned, whole if wants_sentinel else None)
            indexed, is_locked = planned.funnel.indexed, planned.is_locked
            is_needed = planned.funnel.dropped_by_metadata < planned.funnel.total
    if asks_filters:
        unindexed.learn(version, row_filter, opened, indexed, is_locked=is_locked)
    fallback = _fallback(opened, is_locked, is_needed) if asks_filters or opened.warnings else ""
    return replace(found, evaluators=planning.evaluators, index_bytes=opened.index_bytes, fallback=fallback)


def _are_many(files: LiveSnapshot, chosen: ChosenFiles, opened: OpenedSidecar) -> bool:
    """Return whether so many files are left that they are taken from manifests in memory, without decoding records."""
    if not files.fits_memory or chosen.most <= DIRECT_FILES:
        return False
    if opened.index is None:  # nothing is ruled out without the sidecar, but manifests need not be opened again
        return opened.question is not None
    # Files under other paths are looked for one by one.
    return not (chosen.others and opened.index.files.has_moved)


def _in_memory(
    files: LiveSnapshot, chosen: ChosenFiles, planning: Planning, whole: WholeMatch | None
) -> tuple[FileSelection, int]:
    """Return the files that filters and bounds keep, and the number of files that are indexed for the question."""
    opened, index = planning.opened, planning.opened.index
    every = asked = FileSet.all(FilesInMemory(files, chosen))
    bounded = by_bounds_in_memory(every, planning.question.for_manifests, planning.evaluators)
    if index is not None:
        with opened.guarded():
            asked = by_filters(every, index)
    kept = asked.within(bounded.left, DroppedBy.METADATA)
    ordinals, sentinel = kept.rows.tolist(), None
    # One sentinel too many does no harm, so only the first files are looked at.
    first = map(files.at, ordinals[:SAMPLED_FILES])
    if whole and len(kept) < len(bounded) and all(whole.holds(m.file(at), m.spec_id) for m, at in first):
        sentinel = _smallest(files, bounded, ordinals, whole, planning.evaluators)
    indexed = count_indexed(opened, planning.data_lines, [asked])[1]
    by_filter = kept.dropped()[DroppedBy.FILTER]
    dropped = _dropped(files.starts[-1] - len(kept) - by_filter, by_filter)
    return FileSelection(ordinals=ordinals, sentinel=sentinel, dropped=dropped), indexed


def _dropped(by_metadata: int, by_filter: int = 0, by_page_index: int = 0) -> dict[str, int]:
    return {"partition_or_bounds": by_metadata, "filter": by_filter, "page_index": by_page_index}


def _of_plan(files: LiveSnapshot, planning: Planning, planned: Plan, whole: WholeMatch | None) -> FileSelection:
    """Return the files that a plan kept. With ``whole`` also a sentinel, if no kept file is one already."""
    funnel, sentinel = planned.funnel, None
    by_indexes = funnel.dropped_by_filter + funnel.dropped_by_page_index
    if whole and by_indexes and all(whole.holds(task.file, task.file.spec_id) for task in planned.tasks):
        bounded = by_bounds_in_memory(_everything(files), planning.question.for_manifests, planning.evaluators)
        sentinel = _smallest(files, bounded, files.rows_of({*planned.kept_files}), whole, planning.evaluators)
    return FileSelection(
        planned.tasks,
        sequence_numbers=planned.sequence_numbers,
        sentinel=sentinel,
        dropped=_dropped(funnel.dropped_by_metadata, funnel.dropped_by_filter, funnel.dropped_by_page_index),
    )


def _smallest(
    files: LiveSnapshot,
    bounded: FileSet[FilesInMemory],
    kept: Sequence[int],
    whole: WholeMatch,
    evaluators: Evaluators,
) -> int | None:
    """Return the smallest file of a set that is not kept and does not match wholly."""
    out = np.setdiff1d(bounded.rows, np.array(kept, np.int64))
    sizes = [size for manifest in files.manifests for size in manifest.sizes]
    by_size: list[int] = sorted(out.tolist(), key=sizes.__getitem__)
    for row in by_size:
        evaluators.spend()
        manifest, at = files.at(row)
        if not whole.holds(manifest.file(at), manifest.spec_id):
            return row
    return None


def _everything(files: LiveSnapshot) -> FileSet[FilesInMemory]:
    lines = [Line(place, line) for place, line in enumerate(files.data_lines)]
    return FileSet.all(FilesInMemory(files, ChosenFiles(lines)))


def _by_manifests(
    files: LiveSnapshot, table: Table, row_filter: BooleanExpression, found: FileSelection
) -> FileSelection:
    """Return ``found`` with the files that partitions and bounds keep; with all files if these cannot be compared.

    Raises errors about the table's own metadata, and :class:`UnsupportedFeatureError` if the files of a partitioned
    table cannot be compared: Spark takes all rows of the files that it gets for whole partitions.
    """
    try:
        bound = FileQuestion(row_filter, table.schema()).for_manifests
        evaluators = evaluators_of(table.scan(row_filter=row_filter, snapshot_id=files.snapshot.snapshot_id))
        kept = by_bounds_in_memory(_everything(files), bound, evaluators)
    except SidecarError:
        raise
    except Exception as error:
        _note_all_kept(files, error)
        return replace(found, ordinals=range(files.starts[-1]), dropped=_dropped(0))
    dropped = _dropped(files.starts[-1] - len(kept))
    return replace(found, ordinals=kept.rows.tolist(), dropped=dropped, evaluators=evaluators)


def _decider(evaluators: Evaluators) -> Callable[[DataFile, int], bool]:
    """Return the question if the partition of a file decides that all of its rows match; no if that is not known."""

    def is_decided(file: DataFile, spec_id: int) -> bool:
        try:
            # NULL and NaN decide nothing: pyiceberg says that x != 1 holds for them, which its rows contradict.
            if {None, "NaN"} & {comparable(file.partition[place]) for place in range(len(file.partition))}:
                return False
            return evaluators.can_decide() and isinstance(evaluators.residual(file, spec_id), AlwaysTrue)
        except Exception as error:
            _note(error)
            return False

    return is_decided


def _note(error: Exception) -> None:
    """Log that a plan does without what has failed."""
    advisory(error)
    log.warning("a part of a plan is left out after %s", place_of(error))


def _note_all_kept(files: LiveSnapshot, error: Exception) -> None:
    """Log that all files are kept, or raise :class:`UnsupportedFeatureError` as :func:`_by_manifests` says."""
    _note(error)
    if files.is_partitioned and not files.for_pyiceberg:
        raise UnsupportedFeatureError(
            "the partitions of the table cannot be compared with the filter",
            hint="Set scan-planning-mode to client for this table.",
        ) from error


def _canonical(files: LiveSnapshot, binding: ScanBinding) -> tuple[BooleanExpression, bool]:
    """Return a filter that binds to itself, and whether exactly the rows that meet the request meet it."""
    try:
        schema = binding.table.schema()
        row_filter = as_expression(binding.filter.expression, schema)
        bound_to(schema, row_filter)
        return row_filter, binding.filter.is_exact
    except Exception as error:
        _note_all_kept(files, error)
        return AlwaysTrue(), False


def _asks_filters(row_filter: BooleanExpression, schema: Schema) -> bool:
    return FileQuestion(row_filter, schema).for_filters.condition is not None


def _fallback(opened: OpenedSidecar, is_locked: bool, is_needed: bool) -> str:
    if opened.used is None:
        return UNREADABLE if opened.warnings else NO_SIDECAR if is_needed else ""
    if is_locked:  # which is a warning, too
        return LOCKED
    return DAMAGED if opened.warnings else ""
