"""Chooses the files of a snapshot that a request needs, by the sidecar or else by manifests.

Where filters leave nothing, or only files of which all rows match, Spark takes a DELETE for one of whole files and
commits it as such. Iceberg then finds, by bounds, files that may match in part, and the statement fails. So one file
that bounds keep and that does not match wholly is returned too: the *sentinel*. Spark asks for all columns then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
            planned = plan(
                binding.table,
                row_filter,
                snapshot_id=files.snapshot.snapshot_id,
                allow_equality_deletes=True,
                encryption_keys=encryption_keys,
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
    dropped = planned.funnel.dropped_by_filter + planned.funnel.dropped_by_page_index
    sentinel = _sentinel(binding.table, row_filter, by_bounds, planned) if wants_sentinel and dropped else None
    return FileSelection(
        planned.tasks,
        sequence_numbers=planned.sequence_numbers,
        sentinel=sentinel,
        is_decided=is_decided,
        index_bytes=planned.index_bytes_read,
        fallback=_fallback(planned) if asks_filters or planned.warnings else "",
    )


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


def _fallback(planned: Plan) -> str:
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


def _sentinel(
    table: Table, row_filter: BooleanExpression, by_bounds: FilesByBounds, planned: Plan
) -> tuple[DataManifest, int] | None:
    """Return the smallest file that bounds keep and that does not match wholly, if no kept file is such a file."""
    whole = WholeMatch(table.metadata, row_filter)
    if not all(whole.holds(task.file, task.file.spec_id) for task in planned.tasks):
        return None
    return by_bounds.smallest(lambda file, spec_id: not whole.holds(file, spec_id), {*planned.kept_files})
