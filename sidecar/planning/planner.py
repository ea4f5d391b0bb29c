"""Which files of a snapshot, and which row groups and rows of them, can hold rows for a predicate.

Manifests that the snapshot's sidecar, or that of its nearest ancestor, lists as they stand in the manifest list are
not opened: their files are told apart by the sidecar's filters and bounds, and scan tasks are made of the records
that it has of those that are left. Other manifests are read as pyiceberg does it, and every data file that it would
read is shown to the sidecar, and dropped only if that proves that no row of it matches: by filters, then by page
indexes. Deletes are those of the manifest list, matched to files of both.

The index is opened only for a predicate that it can answer: by filters, by page indexes, or, where thousands of files
would be read from manifests, by bounds. A query that no index can help reads none of it.

Equality deletes, which pyiceberg does not apply, count only if they can apply to a file that is left.

A sidecar is advisory. Whatever is wrong with it becomes a warning of the plan, and the files are kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, Table

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError
from sidecar.iceberg.deletes import EqualityDeletes
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.manifests import read_manifests
from sidecar.iceberg.predicate import as_expression
from sidecar.iceberg.refs import as_it_was, snapshot_id_of
from sidecar.planning.file_pruner import FilePruner
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.funnel import ManifestUse
from sidecar.planning.key_sets import Keys, key_set
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.plan import Plan
from sidecar.planning.task_planner import plan_tasks


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
    """The files of a snapshot (that of branch or tag ``ref``, or the current one) that can hold rows for ``predicate``.

    ``keys``, ``{column: Arrow array}``, are those of a join's other side, up to millions: rows must have one of them
    too (a semi-join). An integer array may have another width than its column, nothing else may differ.
    ``allow_equality_deletes`` is for whoever has the kept files read by an engine that applies them, as Spark does.

    ``encryption_keys`` open encrypted bundles of the sidecar, which otherwise keep all their files with one warning,
    and encrypted data files that the plan's rows are read from.

    ``predicate`` and ``keys`` name columns of the table's present schema. A snapshot from before the table was replaced
    may have another type under a column's id; then they name those of the snapshot's own schema.

    Raises :class:`sidecar.errors.UsageError` for a predicate or keys that do not fit the table and for an unknown
    snapshot, :class:`UnsupportedFeatureError` for equality deletes that can apply to a file that is left,
    :class:`StorageError` or :class:`sidecar.errors.DamagedFileError` where the table's own metadata cannot be
    read. Nothing that is wrong with a sidecar raises.
    """
    started = time.perf_counter()
    snapshot_id = snapshot_id_of(table, snapshot_id, ref)
    table = as_it_was(table, snapshot_id)
    schema = table.schema()
    row_filter = as_expression(predicate, schema, case_sensitive)
    join_keys = None if keys is None else key_set(keys, schema, case_sensitive)
    if join_keys is not None and (within := join_keys.within()) is not None:
        row_filter = And(row_filter, as_expression(within, schema))
    bound = bind(schema, row_filter, case_sensitive=True)
    question = FileQuestion(bound, schema)
    asked = question.for_filters
    if snapshot_id is None and table.metadata.current_snapshot() is None:
        seconds = time.perf_counter() - started
        return Plan(table, None, False, row_filter, notes=asked.notes, seconds=seconds, keys=join_keys)
    snapshot = snapshot_of(table, snapshot_id)
    lines = read_manifests(table.io, snapshot.manifest_list)
    data_lines = [line for line in lines if line.content == ManifestContent.DATA]
    fields = extract_field_ids(bound) | ({join_keys.field_id} if join_keys is not None else set())
    opened = OpenedSidecar(table, snapshot, asked.condition, encryption_keys, fields)
    pruner, manifest_use = FilePruner(opened, question, join_keys, data_lines), ManifestUse()
    try:
        scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
        tasks, deleted = _tasks(scan, lines, pruner, manifest_use)
        if deleted and not allow_equality_deletes:
            raise equality_deletes_error(min(deleted))
        funnel = pruner.funnel(data_lines)
    finally:
        opened.close()
    return Plan(
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
        manifests=manifest_use,
        encryption_keys=encryption_keys,
        is_locked=pruner.is_locked,
    )


def equality_deletes_error(path: str) -> UnsupportedFeatureError:
    """For rows of a data file that would be given back although equality deletes may have removed them."""
    return UnsupportedFeatureError(
        "equality deletes, which pyiceberg does not apply, can delete rows of a file that is to be read",
        file=path,
        hint="Read the table with Spark, Trino or DuckDB's iceberg extension.",
    )


def _tasks(
    scan: DataScan, lines: Sequence[ManifestFile], pruner: FilePruner, manifest_use: ManifestUse
) -> tuple[list[FileScanTask], frozenset[str]]:
    """pyiceberg's tasks for the files that the pruner keeps, those of them with equality deletes, and its errors."""
    deletes = EqualityDeletes()
    try:
        tasks = pruner.prune_pages(
            plan_tasks(scan, lines, pruner.keep_file, deletes.see, pruner.answer_listed, manifest_use)
        )
    except SidecarError:
        raise
    except OSError as error:
        raise StorageError(f"pyiceberg cannot plan the scan: {error}") from error
    except Exception as error:
        raise UnsupportedFeatureError(
            f"pyiceberg cannot plan the scan: {type(error).__name__}: {error}"
        ) from error
    return tasks, frozenset(task.file.file_path for task in tasks if deletes.apply_to(task.file))
