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
from pyiceberg.table import FileScanTask

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
    """The files that a plan kept; empty if there are ordinals."""
    ordinals: Sequence[int] | None = None
    """The files as ordinals of the snapshot's live files, if they are many or manifests chose them; else ``None``."""
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
    schema = binding.table.schema()
    row_filter, is_exact = _canonical(binding, schema)
    by_bounds = FilesByBounds(files, binding.table, row_filter)
    version = binding.table.metadata_location, files.snapshot.snapshot_id
    asks_filters = _asks_filters(row_filter, schema) and not helpless.knows(version, row_filter)
    planned, reason = None, "" if asks_filters else NO_INDEX_HELPS
    if isinstance(row_filter, AlwaysTrue):
        reason = NOTHING_ASKED
    elif asks_filters or files.count < BROAD:
        try:
            planned = plan_with(
                binding.table,
                row_filter,
                files.snapshot.snapshot_id,
                allow_equality_deletes=True,
                encryption_keys=encryption_keys,
                opener=opener,
                lines=files.lines,
                in_memory=_in_memory(files, by_bounds) if files.fits_memory else None,
            )
        except Exception as error:
            advisory(error)  # its text is not logged, because it can have literals
            log.warning("a scan is planned by manifests after %s", type(error).__name__)
            reason = FAILED
    is_decided = by_bounds.is_decided_by_partition if is_exact else _never
    if planned is not None and asks_filters:
        helpless.learn(version, row_filter, planned)
    if planned is None:
        return FileSelection(ordinals=_ordinals(files, by_bounds), is_decided=is_decided, fallback=reason)
    chosen = FileSelection(
        is_decided=is_decided,
        index_bytes=planned.index_bytes_read,
        fallback=_fallback(planned) if asks_filters or planned.warnings else "",
    )
    whole = WholeMatch(binding.table.metadata, row_filter)
    if isinstance(planned, FlaggedFiles):
        many = _ManyFiles(files, by_bounds, planned)
        sentinel = many.sentinel(whole) if wants_sentinel and many.dropped else None
        return replace(chosen, ordinals=many.ordinals, sentinel=sentinel)
    dropped = planned.funnel.dropped_by_filter + planned.funnel.dropped_by_page_index
    sentinel = _sentinel(whole, by_bounds, planned) if wants_sentinel and dropped else None
    return replace(chosen, tasks=planned.tasks, sequence_numbers=planned.sequence_numbers, sentinel=sentinel)


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


def _never(file: DataFile, spec_id: int) -> bool:
    return False


def _canonical(binding: ScanBinding, schema: Schema) -> tuple[BooleanExpression, bool]:
    try:
        return as_expression(binding.filter.expression, schema), binding.filter.is_exact
    except SidecarError as error:
        log.info("a filter is taken as true: %s", type(error).__name__)
        return AlwaysTrue(), False


def _asks_filters(row_filter: BooleanExpression, schema: Schema) -> bool:
    question = FileQuestion(bind(schema, row_filter, case_sensitive=True), schema)
    return question.for_filters.condition is not None


def _fallback(planned: Plan | FlaggedFiles) -> str:
    if planned.sidecar is None:
        return UNREADABLE if planned.warnings else NO_SIDECAR
    if planned.warnings:
        return DAMAGED
    return LOCKED if planned.is_locked else ""


def _ordinals(files: LiveSnapshot, by_bounds: FilesByBounds) -> list[int]:
    ordinals: list[int] = []
    for start, (_, flags) in zip(files.starts, by_bounds.flags(), strict=False):
        ordinals += (np.flatnonzero(flags) + start).tolist()
    return ordinals


def _sentinel(whole: WholeMatch, by_bounds: FilesByBounds, planned: Plan) -> tuple[DataManifest, int] | None:
    """Return the smallest file that bounds keep and that does not match wholly, if no kept file is such a file."""
    if not all(whole.holds(task.file, task.file.spec_id) for task in planned.tasks):
        return None
    return by_bounds.smallest(lambda file, spec_id: not whole.holds(file, spec_id), {*planned.kept_files})
