"""Plans a query: finds the files of a snapshot, and the row groups and rows of them, that can match a predicate.

The sidecar is that of the snapshot, of its nearest ancestor, or of another one. A manifest that it lists unchanged is
not opened: the sidecar's filters and bounds decide which of its files are left, and scan tasks are made of the
sidecar's records of these. Other manifests are read as pyiceberg reads them. The sidecar is asked about each data file
that pyiceberg would read, and the file is dropped only if filters or page indexes prove that no row of it matches.
Deletes come from the manifest list and are matched to all files that are left.

The sidecar is opened only if it can answer the predicate: by filters, by page indexes, or by bounds if thousands of
files would have to be read from manifests. A query that no index can help reads none of it.

pyiceberg does not apply equality deletes. They are an error only if they can apply to a file that is left.

A sidecar is advisory. An error in it becomes a warning of the plan, and files are kept.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import DataScan, FileScanTask, Table

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, foreign_reason
from sidecar.iceberg.deletes.delete_files import EqualityDeletes
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.live_files import LiveFiles
from sidecar.iceberg.manifests import read_manifests
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.iceberg.refs import check_readable, table_at
from sidecar.iceberg.statistics_files.find_sidecar import SidecarOpener
from sidecar.iceberg.table_names import name_of
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files.by_filters import count_listed
from sidecar.planning.files.by_row_groups import KeptTasks, by_row_groups, kept_tasks
from sidecar.planning.files.choose import ChosenFiles, FileChooser, ask_filters
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource, Line
from sidecar.planning.files.sources import PlannedFiles
from sidecar.planning.funnel import Funnel, ManifestUse, NotIndexed
from sidecar.planning.keys.key_sets import Keys, KeySet, key_set
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.plan import Plan
from sidecar.planning.plan_history import PlanHistory
from sidecar.planning.tasks import TaskMaker, count_files, data_of, have_many_files, planned_on_server
from sidecar.run import without_search_for_cycles
from sidecar.run_log import counted, log_run, quantity

log = logging.getLogger(__name__)


def plan(
    table: Table,
    predicate: str | BooleanExpression = "TRUE",
    *,
    at: int | str | None = None,
    case_sensitive: bool = True,
    keys: Mapping[str, Keys] | None = None,
    allow_equality_deletes: bool = False,
    encryption_keys: EncryptionKeys | None = None,
) -> Plan:
    """Find the files of a snapshot of ``table`` that can hold rows for ``predicate``.

    Example: ``sidecar.plan(table, "id = 42").files_kept``
    ``predicate``: text or an expression of pyiceberg; by default all rows.
    ``at``: a snapshot id, a branch or a tag; by default the current snapshot.
    ``case_sensitive``: whether the names of columns are.
    ``keys``: ``{column: Arrow array or list}``, keys of a join's other side; a row must have one of them.
    ``allow_equality_deletes``: for callers whose engine applies these deletes, as Spark does.
    ``encryption_keys``: open encrypted bundles and data files.

    The plan keeps the version of the table that it was made of. No error in a sidecar raises.

    Raises :class:`sidecar.errors.UsageError` for a predicate or keys that do not fit and an unknown snapshot,
    :class:`UnsupportedFeatureError` for equality deletes that can apply to a kept file, :class:`StorageError` or
    :class:`sidecar.errors.DamagedFileError` if the table's own metadata cannot be read.
    """
    table, snapshot_id = table_at(table, at)
    check_readable(table, snapshot_id)
    row_filter = as_expression(predicate, table.schema(), case_sensitive)
    join_keys = None if keys is None else key_set(keys, table.schema(), case_sensitive)
    planning = Planning(table, row_filter, snapshot_id, Access(table.io, encryption_keys), keys=join_keys)
    with closing(planning):
        return planning.plan(planning.choose(), allow_equality_deletes)


class Planning:
    """A plan that is made in two halves: files are chosen, then tasks are made of them. A caller may see how many.

    ``table`` has the schema of ``row_filter``, an expression with exact literals. ``access`` opens its files.
    ``opener`` opens sidecars, as :class:`OpenedSidecar` says. ``lines`` are those of the snapshot's manifest list, if
    the caller has read it.
    """

    def __init__(
        self,
        table: Table,
        row_filter: BooleanExpression,
        snapshot_id: int | None,
        access: Access,
        *,
        keys: KeySet | None = None,
        opener: SidecarOpener | None = None,
        lines: Sequence[ManifestFile] | None = None,
    ) -> None:
        self._started = time.perf_counter()
        schema = table.schema()
        if keys is not None and (within := keys.within()) is not None:
            row_filter = And(row_filter, as_expression(within, schema))
        self._table, self._row_filter, self._keys, self._access = table, row_filter, keys, access
        self.question = FileQuestion(row_filter, schema)
        is_empty = snapshot_id is None and table.metadata.current_snapshot() is None
        self._snapshot = None if is_empty else snapshot_of(table, snapshot_id)
        if lines is None:
            lines = [] if self._snapshot is None else read_manifests(table.io, self._snapshot.manifest_list)
        self._lines, self.data_lines = lines, data_of(lines)
        fields = extract_field_ids(self.question.bound) | ({keys.field_id} if keys is not None else set())
        self.opened = OpenedSidecar(table, self._snapshot, self.question.for_filters.condition, access, fields, opener)
        self._scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
        self._planned: list[FileScanTask] | None = None
        self._use = ManifestUse()

    @cached_property
    def _maker(self) -> TaskMaker:
        return TaskMaker(self._scan, self._lines, self._use)

    @property
    def evaluators(self) -> Evaluators:
        """pyiceberg's evaluators of the predicate."""
        return self._maker.evaluators

    @cached_property
    def _chooser(self) -> FileChooser:
        return FileChooser(self.opened, self.question, self.evaluators)

    def choose(self) -> ChosenFiles:
        """Choose files without reading an entry of one; a catalog may choose. Raises the errors of :func:`plan`."""
        if not self._lines:
            return ChosenFiles()
        with self._errors():
            self._planned = planned_on_server(self._scan)
            if self._planned is not None:
                return ChosenFiles()
            return self._chooser.choose([Line(place, line) for place, line in self._maker.data], self.data_lines)

    def plan(self, chosen: ChosenFiles, allow_equality_deletes: bool = False) -> Plan:
        """Make tasks of chosen files, and narrow these by keys and row groups. Raises the errors of :func:`plan`."""
        opened, deletes = self.opened, EqualityDeletes()
        with self._errors(), without_search_for_cycles(are_many=have_many_files(self._lines)):
            if not self._lines:
                kept = kept_tasks([], chosen)
            elif self._planned is not None:
                kept = _of_server(self._planned, self._lines, self._scan, opened)
            else:
                chosen = self._chooser.read(chosen)
                self._use.opened = chosen.manifests_opened
                self._use.listed = len(chosen.lines) - chosen.manifests_opened
                entries = {at: files.entries[rows] for at, files, rows in chosen.by_manifest}
                kept = kept_tasks(self._maker.tasks(entries, deletes), chosen)
        # Row groups come last, in a step of their own: if the sidecar fails here, the tasks stay as they were.
        with self._errors():
            kept = by_row_groups(kept, opened, self.question, self._keys)
        deleted = frozenset(task.file.file_path for task in kept.tasks if deletes.may_apply_to(task.file.file_path))
        if deleted and not allow_equality_deletes:
            raise equality_deletes_error(min(deleted))
        funnel = _funnel(kept, opened, self.data_lines)
        planned_files = Plan(
            self._table,
            None if self._snapshot is None else self._snapshot.snapshot_id,
            self._row_filter,
            kept.tasks,
            funnel,
            sidecar=opened.used,
            notes=(*self.question.for_filters.notes, *kept.notes, *opened.notes),
            warnings=opened.warnings,
            index_bytes_read=opened.index_bytes,
            index_reads=opened.index_reads,
            seconds=time.perf_counter() - self._started,
            row_groups=kept.row_groups,
            answered=kept.answered,
            stored=opened.stored,
            keys=self._keys,
            equality_deletes=deleted,
            sequence_numbers=deletes.sequence_numbers,
            manifests=self._use,
            access=self._access,
            is_locked=opened.is_locked or any(isinstance(one, NotIndexed) and one.is_locked for one in kept.reasons),
            history=self._history(kept),
        )
        if self._snapshot is not None:
            log_run(log, lambda: log_line(planned_files), planned_files.warnings)
        return planned_files

    def _history(self, kept: KeptTasks) -> PlanHistory:
        if not self._lines:
            return PlanHistory()
        return PlanHistory(
            self._lines,
            [files.without_entries() for files in kept.chosen.sets],
            self.question,
            None if self._planned is not None else self.evaluators,
            self.opened.index,
            dict(kept.out),
            {**kept.row_groups, **kept.ruled_out},
            None if self._keys is None else self._keys.column,
            kept.reasons,
        )

    def close(self) -> None:
        """Close the sidecar."""
        self.opened.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Make errors of pyiceberg :class:`StorageError` or :class:`UnsupportedFeatureError`."""
        where = None if self._snapshot is None else self._snapshot.manifest_list
        try:
            yield
        except SidecarError:
            raise
        except OSError as error:
            raise StorageError(f"pyiceberg cannot plan the scan: {foreign_reason(error)}", file=where) from error
        except Exception as error:
            reason = f"pyiceberg cannot plan the scan: {foreign_reason(error)}"
            raise UnsupportedFeatureError(reason, file=where) from error


def log_line(planned: Plan) -> str:
    """A plan for the log: what was dropped, and why the other files are kept. It has no values of the predicate."""
    funnel = planned.funnel
    dropped = {
        "by partitions or bounds": funnel.dropped_by_metadata,
        "by filters": funnel.dropped_by_filter,
        "by page indexes": funnel.dropped_by_page_index,
    }
    return (
        f"plan of {name_of(planned.table)}: {funnel.kept:,} of {funnel.total:,} files kept "
        f"({counted(funnel.kept_because)}), dropped {counted(dropped)}; "
        f"{planned.index_bytes_read:,} index bytes in {quantity(planned.index_reads, 'read')}; {planned.seconds:.3f} s"
    )


def equality_deletes_error(path: str) -> UnsupportedFeatureError:
    """Make the error for a data file from which equality deletes may have removed rows that would be returned."""
    return UnsupportedFeatureError(
        "equality deletes may apply to a file of the plan, and pyiceberg does not apply them",
        file=path,
        hint="Read the table with Spark (sidecar.spark_read), Trino or DuckDB's iceberg extension.",
    )


def _of_server(
    tasks: list[FileScanTask], lines: Sequence[ManifestFile], scan: DataScan, opened: OpenedSidecar
) -> KeptTasks:
    """Filter tasks that the catalog planned. The identity of each file is looked up in ``lines``."""
    live, identities = LiveFiles(scan.io, lines), list[DataFileIdentity | None]([None] * len(tasks))
    opened.open_for_question()
    if opened.index is not None:
        with opened.guarded():
            identities = [live.find(task.file) for task in tasks]
    files = ask_filters(opened, FileSet.all(PlannedFiles([task.file.file_path for task in tasks], identities)))
    return kept_tasks([tasks[row] for row in files.rows.tolist()], ChosenFiles(sets=[files]))


def count_indexed(
    opened: OpenedSidecar, lines: Iterable[ManifestFile], sets: Iterable[FileSet[FileSource]]
) -> tuple[int, int]:
    """Count the files that the sidecar lists, and those indexed for the question.

    All files of ``lines`` that a segment lists are counted. Of other manifests, files that were asked about are. A
    segment that does not list a manifest may have files of it all the same, so those are counted if they are more.
    """
    index = opened.index
    if index is None:
        return 0, 0
    listed = indexed = of_sets = 0
    with opened.guarded():
        listed, indexed = count_listed(index, lines)
        for files in sets:
            of_sets += files.counts.indexed
            if not files.source.is_counted(index.files):
                listed, indexed = listed + files.counts.listed, indexed + files.counts.indexed
    return (0, 0) if opened.index is None else (listed, max(indexed, of_sets))


def _funnel(kept: KeptTasks, opened: OpenedSidecar, lines: Sequence[ManifestFile]) -> Funnel:
    """Count what became of the live files of ``lines``, the data manifests of the snapshot."""
    chosen = kept.chosen
    listed, indexed = count_indexed(opened, lines, chosen.sets)
    out = Counter(by for _, by in kept.out)
    by_filter = sum(files.dropped()[DroppedBy.FILTER] for files in chosen.sets) + out[DroppedBy.KEYS]
    units = sum(files.counts.row_groups_dropped for files in chosen.sets) + kept.units_dropped
    units = 0 if opened.index is None else units
    planned = len(kept.tasks) + by_filter + out[DroppedBy.PAGES]
    total = max(count_files(lines), planned + out[DroppedBy.KEY_BOUNDS])  # counts in manifest lists are optional
    by_pages = out[DroppedBy.PAGES] + sum(bool(one.stored or one.row_indexes) for one in kept.row_groups.values())
    texts = Counter(reason.text for reason in kept.reasons)
    groups = Counter(kept.groups)
    return Funnel(
        total=total,
        listed=listed + kept.listed,
        indexed=max(indexed, by_pages, kept.judged_by_keys),
        dropped_by_metadata=total - planned,
        dropped_by_filter=by_filter,
        dropped_by_page_index=out[DroppedBy.PAGES],
        kept=len(kept.tasks),
        kept_because=dict(texts.most_common()),
        row_groups=groups["total"] + units,
        row_groups_dropped_by_filter=groups["filter"] + units,
        row_groups_dropped_by_page_index=groups["page_index"],
    )
