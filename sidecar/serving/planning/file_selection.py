"""Chooses the files of a snapshot that a request needs, by the sidecar or else by manifests.

Where filters leave nothing, or only files of which all rows match, Spark takes a DELETE for one of whole files and
commits it as such. Iceberg then finds, by bounds, files that may match in part, and the statement fails. So one file
that bounds keep and that does not match wholly is returned too: the *sentinel*. Spark asks for all columns then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, advisory
from sidecar.iceberg.find_sidecar import Opener
from sidecar.iceberg.predicate import as_expression
from sidecar.planning.file_pruner import BROAD
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.listed_files import ManifestsInMemory
from sidecar.planning.plan import FlaggedFiles, Plan
from sidecar.planning.planner import plan_with
from sidecar.planning.whole_match import WholeMatch
from sidecar.serving.planning.data_manifests import DataManifest
from sidecar.serving.planning.helpless_predicates import HelplessPredicates
from sidecar.serving.planning.live_snapshot import FilesByBounds, LiveSnapshot
from sidecar.serving.planning.scan_binding import ScanBinding
from sidecar.serving.protocol.errors import place_of

log = logging.getLogger(__name__)

DIRECT_FILES = 500
"""The most files that are encoded one by one. More are joined from manifests that are kept in memory."""
_LOOKED_AT = 100
"""Files that are decoded to see whether all of many files match wholly."""
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

    tasks: Sequence[FileScanTask] = ()
    """The files that a plan kept; empty if they were chosen by manifests."""
    ordinals: Sequence[int] | None = None
    """The files that manifests keep, as ordinals of the snapshot's live files; ``None`` if a plan chose them."""
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    """Data sequence numbers of the files in ``tasks``, by path."""
    sentinel: tuple[DataManifest, int] | None = None
    """A file that is returned only so that Spark's DELETE works: its manifest and its place in it."""
    is_decided: Callable[[DataFile, int], bool] = lambda file, spec_id: False
    """Whether the partition of a file decides that all of its rows match."""
    index_bytes: int = 0
    fallback: str = ""
    """Why the sidecar was not asked or not believed; empty if it was."""


def select_files(
    files: LiveSnapshot,
    binding: ScanBinding,
    *,
    wants_sentinel: bool,
    helpless: HelplessPredicates,
    opener: Opener,
    encryption_keys: EncryptionKeys | None = None,
) -> FileSelection:
    """Choose the files for one meaning of a request.

    With many files, a predicate that filters cannot answer is answered by the bounds that are kept in memory. Page
    indexes could drop a few files more, but the plan would take longer than reading them. ``helpless`` remembers for
    which predicates the sidecar has no filters, and ``opener`` opens sidecars.

    Where filters leave more than :data:`DIRECT_FILES`, the files come as ordinals: their tasks are in memory, and
    records of so many files take longer to decode than page indexes could save.

    ``wants_sentinel`` says that a client may delete by this plan. ``encryption_keys`` open encrypted sidecars. Raises
    errors about the table's own metadata, none about a sidecar.
    """
    row_filter, is_exact = _canonical(binding)
    try:
        found, reason = _by_sidecar(files, binding.table, row_filter, wants_sentinel, helpless, opener, encryption_keys)
    except Exception as error:
        _note(error)
        found, reason = None, FAILED
    if found is None:
        found = FileSelection(ordinals=_by_manifests(files, binding.table, row_filter))
    is_decided = _decider(files, binding.table, row_filter) if is_exact else _never
    return replace(found, is_decided=is_decided, fallback=reason)


def _by_sidecar(
    files: LiveSnapshot,
    table: Table,
    row_filter: BooleanExpression,
    wants_sentinel: bool,
    helpless: HelplessPredicates,
    opener: Opener,
    encryption_keys: EncryptionKeys | None,
) -> tuple[FileSelection | None, str]:
    """Choose the files by the sidecar; ``None`` if it is not asked. The text says why it was not asked or believed."""
    if isinstance(row_filter, AlwaysTrue):
        return None, NOTHING_ASKED
    version = table.metadata_location, files.snapshot.snapshot_id
    asks_filters = _asks_filters(row_filter, table.schema()) and not helpless.knows(version, row_filter)
    if not asks_filters and files.count >= BROAD:
        return None, NO_INDEX_HELPS
    by_bounds = FilesByBounds(files, table, row_filter)
    planned = plan_with(
        table,
        row_filter,
        files.snapshot.snapshot_id,
        allow_equality_deletes=True,
        encryption_keys=encryption_keys,
        opener=opener,
        lines=files.lines,
        in_memory=_in_memory(files, by_bounds) if files.fits_memory else None,
    )
    if asks_filters:
        helpless.learn(version, row_filter, planned)
    whole = WholeMatch(table.metadata, row_filter)
    found = FileSelection(index_bytes=planned.index_bytes_read)
    if isinstance(planned, FlaggedFiles):
        many = _ManyFiles(files, by_bounds, planned)
        sentinel = many.sentinel(whole) if wants_sentinel and many.dropped else None
        found = replace(found, ordinals=many.ordinals, sentinel=sentinel)
    else:
        dropped = planned.funnel.dropped_by_filter + planned.funnel.dropped_by_page_index
        sentinel = _sentinel(whole, by_bounds, planned) if wants_sentinel and dropped else None
        tasks, numbers = planned.tasks, planned.sequence_numbers
        found = replace(found, tasks=tasks, sequence_numbers=numbers, sentinel=sentinel)
    return found, _fallback(planned) if asks_filters or planned.warnings else ""


def _in_memory(files: LiveSnapshot, by_bounds: FilesByBounds) -> ManifestsInMemory:
    return ManifestsInMemory(DIRECT_FILES, by_bounds.known_flags, lambda line: files.manifest(line).fingerprints)


class _ManyFiles:
    """The files that filters and bounds keep, if they are many."""

    def __init__(self, files: LiveSnapshot, by_bounds: FilesByBounds, flagged: FlaggedFiles) -> None:
        self._by_bounds = by_bounds
        self._kept: list[tuple[DataManifest, npt.NDArray[np.int64]]] = []
        self.ordinals: list[int] = []
        self.dropped = 0
        """The files that filters dropped."""
        for start, (manifest, flags) in zip(files.starts, by_bounds.flags(), strict=False):
            by_filters = flagged.by_manifest.get(manifest.line.manifest_path)
            kept = flags
            if by_filters is not None and len(by_filters) == len(flags):
                kept = flags & by_filters
            self.dropped += int(flags.sum() - kept.sum())
            places = np.flatnonzero(kept)
            self._kept.append((manifest, places))
            self.ordinals += (places + start).tolist()

    def sentinel(self, whole: WholeMatch) -> tuple[DataManifest, int] | None:
        """Return a sentinel unless one of the first files does not match wholly. One too many does no harm."""
        first = ((manifest, at) for manifest, places in self._kept for at in places.tolist())
        if not all(whole.holds(manifest.file(at), manifest.spec_id) for manifest, at in islice(first, _LOOKED_AT)):
            return None
        paths = {manifest.paths[at] for manifest, places in self._kept for at in places.tolist()}
        return self._by_bounds.smallest(lambda file, spec_id: not whole.holds(file, spec_id), paths)


def _by_manifests(files: LiveSnapshot, table: Table, row_filter: BooleanExpression) -> Sequence[int]:
    """Return the ordinals of the files that partitions and bounds keep; of all files if these cannot be compared.

    Raises errors about the table's own metadata.
    """
    try:
        ordinals: list[int] = []
        by_bounds = FilesByBounds(files, table, row_filter)
        for start, (_, flags) in zip(files.starts, by_bounds.flags(), strict=False):
            ordinals += (np.flatnonzero(flags) + start).tolist()
        return ordinals
    except SidecarError:
        raise
    except Exception as error:
        _note(error)
        return range(files.starts[-1])


def _decider(files: LiveSnapshot, table: Table, row_filter: BooleanExpression) -> Callable[[DataFile, int], bool]:
    """Return the question if the partition of a file decides that all of its rows match; no if that is not known."""
    by_bounds = FilesByBounds(files, table, row_filter)

    def is_decided(file: DataFile, spec_id: int) -> bool:
        try:
            return by_bounds.is_decided_by_partition(file, spec_id)
        except Exception as error:
            _note(error)
            return False

    return is_decided


def _never(file: DataFile, spec_id: int) -> bool:
    return False


def _note(error: Exception) -> None:
    """Log that a plan does without what has failed."""
    advisory(error)
    log.warning("a part of a plan is left out after %s", place_of(error))


def _canonical(binding: ScanBinding) -> tuple[BooleanExpression, bool]:
    """Return a filter that binds to itself, and whether exactly the rows that meet the request meet it."""
    try:
        schema = binding.table.schema()
        row_filter = as_expression(binding.filter.expression, schema)
        bind(schema, row_filter, case_sensitive=True)
        return row_filter, binding.filter.is_exact
    except Exception as error:
        _note(error)
        return AlwaysTrue(), False


def _asks_filters(row_filter: BooleanExpression, schema: Schema) -> bool:
    question = FileQuestion(bind(schema, row_filter, case_sensitive=True), schema)
    return question.for_filters.condition is not None


def _fallback(planned: Plan | FlaggedFiles) -> str:
    if planned.sidecar is None:
        is_needed = isinstance(planned, FlaggedFiles) or planned.funnel.dropped_by_metadata < planned.funnel.total
        return UNREADABLE if planned.warnings else NO_SIDECAR if is_needed else ""
    if planned.is_locked:  # which is a warning, too
        return LOCKED
    return DAMAGED if planned.warnings else ""


def _sentinel(whole: WholeMatch, by_bounds: FilesByBounds, planned: Plan) -> tuple[DataManifest, int] | None:
    """Return the smallest file that bounds keep and that does not match wholly, if no kept file is such a file."""
    if not all(whole.holds(task.file, task.file.spec_id) for task in planned.tasks):
        return None
    return by_bounds.smallest(lambda file, spec_id: not whole.holds(file, spec_id), {*planned.kept_files})
