"""Chooses the files of a snapshot that a request needs, by the sidecar or else by manifests.

Where filters leave nothing, or only files of which all rows match, Spark takes a DELETE for one of whole files and
commits it as such. Iceberg then finds, by bounds, files that may match in part, and the statement fails. So one file
that bounds keep and that does not match wholly is returned too: the *sentinel*. Spark asks for all columns then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, advisory
from sidecar.iceberg.predicate import as_expression
from sidecar.planning.file_pruner import BROAD
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.planning.whole_match import WholeMatch
from sidecar.serving.planning.data_manifests import DataManifest
from sidecar.serving.planning.helpless_predicates import HelplessPredicates
from sidecar.serving.planning.live_snapshot import FilesByBounds, LiveSnapshot
from sidecar.serving.planning.scan_binding import ScanBinding
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
    encryption_keys: EncryptionKeys | None = None,
) -> FileSelection:
    """Choose the files for one meaning of a request.

    With many files, a predicate that filters cannot answer is answered by the bounds that are kept in memory. Page
    indexes could drop a few files more, but the plan would take longer than reading them. ``helpless`` remembers for
    which predicates the sidecar has no filters.

    ``wants_sentinel`` says that a client may delete by this plan. ``encryption_keys`` open encrypted sidecars. Raises
    errors about the table's own metadata, none about a sidecar.
    """
    row_filter, is_exact = _canonical(binding)
    try:
        found, reason = _by_sidecar(files, binding.table, row_filter, wants_sentinel, helpless, encryption_keys)
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
    encryption_keys: EncryptionKeys | None,
) -> tuple[FileSelection | None, str]:
    """Choose the files by the sidecar; ``None`` if it is not asked. The text says why it was not asked or believed."""
    if isinstance(row_filter, AlwaysTrue):
        return None, NOTHING_ASKED
    version = table.metadata_location, files.snapshot.snapshot_id
    asks_filters = _asks_filters(row_filter, table.schema()) and not helpless.knows(version, row_filter)
    if not asks_filters and files.count >= BROAD:
        return None, NO_INDEX_HELPS
    planned = plan(
        table,
        row_filter,
        snapshot_id=files.snapshot.snapshot_id,
        allow_equality_deletes=True,
        encryption_keys=encryption_keys,
    )
    if asks_filters:
        helpless.learn(version, row_filter, planned)
    dropped = planned.funnel.dropped_by_filter + planned.funnel.dropped_by_page_index
    found = FileSelection(
        planned.tasks,
        sequence_numbers=planned.sequence_numbers,
        sentinel=_sentinel(files, table, row_filter, planned) if wants_sentinel and dropped else None,
        index_bytes=planned.index_bytes_read,
    )
    return found, _fallback(planned) if asks_filters or planned.warnings else ""


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


def _fallback(planned: Plan) -> str:
    if planned.sidecar is None:
        is_needed = planned.funnel.dropped_by_metadata < planned.funnel.total
        return UNREADABLE if planned.warnings else NO_SIDECAR if is_needed else ""
    if planned.warnings:
        return DAMAGED
    return LOCKED if planned.is_locked else ""


def _sentinel(
    files: LiveSnapshot, table: Table, row_filter: BooleanExpression, planned: Plan
) -> tuple[DataManifest, int] | None:
    """Return the smallest file that bounds keep and that does not match wholly, if no kept file is such a file."""
    whole = WholeMatch(table.metadata, row_filter)
    if not all(whole.holds(task.file, task.file.spec_id) for task in planned.tasks):
        return None
    by_bounds = FilesByBounds(files, table, row_filter)
    return by_bounds.smallest(lambda file, spec_id: not whole.holds(file, spec_id), {*planned.kept_files})
