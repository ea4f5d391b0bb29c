"""Plans a query: finds the files of a snapshot, and the row groups and rows of them, that can match a predicate.

The sidecar is that of the snapshot or of its nearest ancestor. A manifest that it lists unchanged is not opened:
the sidecar's filters and bounds decide which of its files are left, and scan tasks are made of the sidecar's records of
these. Other manifests are read as pyiceberg reads them. The sidecar is asked about each data file that pyiceberg would
read, and the file is dropped only if filters or page indexes prove that no row of it matches. Deletes come from the
manifest list and are matched to all files that are left.

The sidecar is opened only if it can answer the predicate: by filters, by page indexes, or by bounds if thousands of
files would have to be read from manifests. A query that no index can help reads none of it.

pyiceberg does not apply equality deletes. They are an error only if they can apply to a file that is left.

A sidecar is advisory. An error in it becomes a warning of the plan, and files are kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, Table

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, foreign_reason
from sidecar.iceberg.deletes import EqualityDeletes
from sidecar.iceberg.find_sidecar import Opener
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.manifests import read_manifests
from sidecar.iceberg.predicate import as_expression
from sidecar.iceberg.refs import as_it_was, snapshot_id_of
from sidecar.planning.file_pruner import FilePruner
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.funnel import ManifestUse
from sidecar.planning.key_sets import Keys, KeySet, key_set
from sidecar.planning.listed_files import ManifestsInMemory
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.plan import FlaggedFiles, Plan
from sidecar.planning.struct_nulls import keeping_struct_nulls
from sidecar.planning.task_planner import plan_tasks
from sidecar.run_log import counted, log_run, quantity

log = logging.getLogger(__name__)


def plan(
    table: Table,
    predicate: str | BooleanExpression,
    *,
    snapshot_id: int | None = None,
    ref: str | None = None,
    case_sensitive: bool = True,
    keys: Mapping[str, Keys] | None = None,
    allow_equality_deletes: bool = False,
    encryption_keys: EncryptionKeys | None = None,
) -> Plan:
    """Find the files of a snapshot of ``table`` that can hold rows for ``predicate``.

    This is the snapshot ``snapshot_id``, that of the branch or tag ``ref``, or the current one. ``case_sensitive`` says
    whether the names of columns are.

    ``keys``, ``{column: Arrow array or list}``, are the keys of a join's other side, up to millions: a row must also
    have one of them (a semi-join). Integers and decimals may be narrower or wider than the column if every key fits.
    ``allow_equality_deletes`` is for callers whose engine applies these deletes when it reads the kept files, as Spark
    does.

    ``encryption_keys`` open encrypted bundles of the sidecar and encrypted data files. Without its key, a bundle keeps
    all files, with one warning.

    ``predicate`` and ``keys`` name columns of the table's present schema. If the table was replaced after the snapshot,
    a column id may have another type in it; then they name columns of the snapshot's own schema.

    Raises :class:`sidecar.errors.UsageError` for a predicate or keys that do not fit the table and for an unknown
    snapshot, :class:`UnsupportedFeatureError` for equality deletes that can apply to a file that is left,
    :class:`StorageError` or :class:`sidecar.errors.DamagedFileError` if the table's own metadata cannot be read. No
    error in a sidecar raises.
    """
    snapshot_id = snapshot_id_of(table, snapshot_id, ref)
    table = as_it_was(table, snapshot_id)
    schema = table.schema()
    row_filter = as_expression(predicate, schema, case_sensitive)
    join_keys = None if keys is None else key_set(keys, schema, case_sensitive)
    planned = plan_with(
        table,
        row_filter,
        snapshot_id,
        join_keys=join_keys,
        allow_equality_deletes=allow_equality_deletes,
        encryption_keys=encryption_keys,
    )
    assert isinstance(planned, Plan)  # flags come only to callers that have manifests in memory
    return planned


def plan_with(
    table: Table,
    row_filter: BooleanExpression,
    snapshot_id: int | None,
    *,
    join_keys: KeySet | None = None,
    allow_equality_deletes: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    opener: Opener | None = None,
    lines: Sequence[ManifestFile] | None = None,
    in_memory: ManifestsInMemory | None = None,
) -> Plan | FlaggedFiles:
    """Do what :func:`plan` does, for a caller that may keep manifests and sidecars in memory.

    ``table`` has the schema of ``row_filter``, an expression with exact literals. ``opener`` opens sidecars, as
    :class:`OpenedSidecar` says. ``lines`` are those of the snapshot's manifest list, if the caller has read it. With
    ``in_memory``, the files come as flags if there are many.
    """
    started = time.perf_counter()
    schema = table.schema()
    if join_keys is not None and (within := join_keys.within()) is not None:
        row_filter = And(row_filter, as_expression(within, schema))
    bound = bind(schema, keeping_struct_nulls(row_filter, schema), case_sensitive=True)
    question = FileQuestion(bound, schema)
    asked = question.for_filters
    if snapshot_id is None and table.metadata.current_snapshot() is None:
        seconds = time.perf_counter() - started
        return Plan(table, None, False, row_filter, notes=asked.notes, seconds=seconds, keys=join_keys)
    snapshot = snapshot_of(table, snapshot_id)
    if lines is None:
        lines = read_manifests(table.io, snapshot.manifest_list)
    data_lines = [line for line in lines if line.content == ManifestContent.DATA]
    fields = extract_field_ids(bound) | ({join_keys.field_id} if join_keys is not None else set())
    opened = OpenedSidecar(table, snapshot, asked.condition, encryption_keys, fields, opener)
    pruner, manifest_use = FilePruner(opened, question, join_keys, data_lines, in_memory), ManifestUse()
    try:
        scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
        tasks, deletes = _tasks(scan, lines, pruner, manifest_use)
        deleted = frozenset(task.file.file_path for task in tasks if deletes.apply_to(task.file))
        if deleted and not allow_equality_deletes:
            raise equality_deletes_error(min(deleted))
        if pruner.flags is not None:
            return FlaggedFiles(
                pruner.flags,
                pruner.indexed(data_lines),
                opened.used,
                opened.warnings,
                pruner.is_locked,
                opened.index_bytes,
            )
        funnel = pruner.funnel(data_lines)
    finally:
        opened.close()
    planned = Plan(
        table,
        snapshot.snapshot_id,
        snapshot_id is not None,
        row_filter,
        tasks,
        funnel,
        sidecar=opened.used,
        notes=(*asked.notes, *pruner.notes),
        warnings=opened.warnings,
        index_bytes_read=opened.index_bytes,
        index_reads=opened.index_reads,
        seconds=time.perf_counter() - started,
        row_groups=pruner.row_groups,
        answered=frozenset(pruner.answered),
        stored=opened.stored,
        keys=join_keys,
        equality_deletes=deleted,
        sequence_numbers=deletes.sequence_numbers,
        manifests=manifest_use,
        encryption_keys=encryption_keys,
        is_locked=pruner.is_locked,
    )
    log_run(log, lambda: log_line(planned), planned.warnings)
    return planned


def log_line(planned: Plan) -> str:
    """A plan for the log: what was dropped, and why the other files are kept. It has no values of the predicate."""
    funnel = planned.funnel
    dropped = {
        "by partitions or bounds": funnel.dropped_by_metadata,
        "by filters": funnel.dropped_by_filter,
        "by page indexes": funnel.dropped_by_page_index,
    }
    return (
        f"plan of {'.'.join(planned.table.name())}: {funnel.kept:,} of {funnel.total:,} files kept "
        f"({counted(funnel.kept_because)}), dropped {counted(dropped)}; "
        f"{planned.index_bytes_read:,} index bytes in {quantity(planned.index_reads, 'read')}; {planned.seconds:.3f} s"
    )


def equality_deletes_error(path: str) -> UnsupportedFeatureError:
    """Make the error for a data file from which equality deletes may have removed rows that would be returned."""
    return UnsupportedFeatureError(
        "equality deletes may apply to a file of the plan, and pyiceberg does not apply them",
        file=path,
        hint="Read the table with Spark, Trino or DuckDB's iceberg extension.",
    )


def _tasks(
    scan: DataScan, lines: Sequence[ManifestFile], pruner: FilePruner, manifest_use: ManifestUse
) -> tuple[list[FileScanTask], EqualityDeletes]:
    """Return pyiceberg's tasks for the files that the pruner keeps, and the equality deletes that the plan met.

    Errors of pyiceberg become :class:`StorageError` or :class:`UnsupportedFeatureError`.
    """
    deletes = EqualityDeletes()
    snapshot = scan.snapshot()
    where = None if snapshot is None else snapshot.manifest_list
    try:
        tasks = pruner.prune_pages(
            plan_tasks(scan, lines, pruner.keep_files, deletes.see, pruner.answer_listed, manifest_use)
        )
    except SidecarError:
        raise
    except OSError as error:
        raise StorageError(f"pyiceberg cannot plan the scan: {foreign_reason(error)}", file=where) from error
    except Exception as error:
        raise UnsupportedFeatureError(f"pyiceberg cannot plan the scan: {foreign_reason(error)}", file=where) from error
    return tasks, deletes
