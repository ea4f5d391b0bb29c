"""Runs a build: pins the snapshot, indexes its files, fixes all positions once, writes and registers the sidecar.

Only metadata needs memory in proportion to the table: the listing, and one record for each unit and column. Filters
stay with the engine and pass through as finished regions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.model import UnitState
from sidecar.bundle.sketches.upper_bound import AlsoCounted
from sidecar.config import configured
from sidecar.convert.harvest import GOOD, HarvestRule
from sidecar.convert.outcome import Progress
from sidecar.convert.protection import Protection, refusal
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import StorageError, refuse_text
from sidecar.iceberg.catalog import show_commit
from sidecar.iceberg.listing import ListedFile, Listing, list_snapshot, snapshot_of
from sidecar.iceberg.refs import is_empty, snapshot_id_of
from sidecar.iceberg.registering import Registration, check_writable
from sidecar.iceberg.resolve import TableColumn, resolve_columns
from sidecar.indexing.assemble import Indexed, collect, encrypted_of, select
from sidecar.indexing.dry_run import PlannedBuild, nothing_planned, planned_build
from sidecar.indexing.earlier import Earlier, look_back
from sidecar.indexing.earlier_sketches import count_again
from sidecar.indexing.engine import Engine
from sidecar.indexing.engine_choice import choose_engine, engine_for
from sidecar.indexing.options import (
    USUAL_KINDS,
    BuildEngine,
    BuildKind,
    FilterFormat,
    check_options,
    options_of,
)
from sidecar.indexing.packing import make_tasks
from sidecar.indexing.report import BuildReport, blob_report, empty_report, log_line, make_report
from sidecar.indexing.sketch_groups import group_files
from sidecar.indexing.tasks import BuildPlan
from sidecar.indexing.writing import Registrar
from sidecar.kernels.announcing import announces_compiling
from sidecar.run_log import log_run

log = logging.getLogger(__name__)


@overload
def build(
    table: Table,
    columns: Sequence[str],
    *,
    kinds: Sequence[BuildKind] = USUAL_KINDS,
    fpp: float | Literal["auto"] = "auto",
    harvest: HarvestRule = GOOD,
    filter_format: FilterFormat = "auto",
    engine: BuildEngine | None = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    spark: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
    lg_k: int = 12,
    full: bool = False,
    exact: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    dry_run: Literal[False] = False,
) -> BuildReport: ...


@overload
def build(
    table: Table,
    columns: Sequence[str],
    *,
    kinds: Sequence[BuildKind] = USUAL_KINDS,
    fpp: float | Literal["auto"] = "auto",
    harvest: HarvestRule = GOOD,
    filter_format: FilterFormat = "auto",
    engine: BuildEngine | None = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    spark: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
    lg_k: int = 12,
    full: bool = False,
    exact: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    dry_run: Literal[True],
) -> PlannedBuild: ...


@announces_compiling
def build(
    table: Table,
    columns: Sequence[str],
    *,
    kinds: Sequence[BuildKind] = USUAL_KINDS,
    fpp: float | Literal["auto"] = "auto",
    harvest: HarvestRule = GOOD,
    filter_format: FilterFormat = "auto",
    engine: BuildEngine | None = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    spark: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
    lg_k: int = 12,
    full: bool = False,
    exact: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    dry_run: bool = False,
) -> BuildReport | PlannedBuild:
    """Index columns of a table's snapshot and register the sidecar.

    ``table``: a table of pyiceberg. It is refreshed after the commit.
    ``columns``: names of primitive columns (``a``, ``struct.field``, ``list.element``).
    ``kinds``: ``bloom``, ``theta``, ``page-index``; by default the first two.
    ``fpp``: target false-positive rate, or ``auto``: 1 % or one over the number of units, whichever is smaller, at up
    to 32 bits per value.
    ``harvest``: filters of data files are reused if they are ``good`` (at most 1 % by their bits), ``always`` or
    ``never``; page indexes are reused unless ``never``.
    ``filter_format``: the filters of ORC units. ``parquet`` builds split-block filters from their values, ``orc`` uses
    ORC filters (with ``auto`` rates at the writers' 1 %), ``auto`` reuses the file's own as ``harvest`` says and else
    builds split-block filters.
    ``engine``: ``local`` runs in this process, ``spark`` on ``spark`` or an embedded session; ``auto`` uses ``spark``
    if one is given, else this process for tables up to 4 GiB or if Spark cannot start. By default the configured one
    (:mod:`sidecar.config`), else ``auto``.
    ``snapshot_id``: the snapshot to index; by default the current one.
    ``ref``: a branch or tag whose snapshot is indexed instead.
    ``spark``: a Spark session.
    ``threads``: threads of this process, or cores of an embedded Spark session; by default the configured number, else
    all cores.
    ``progress``: called as work goes on.
    ``lg_k``: log2 of a sketch's entries, 7 to 20.
    ``full``: index all files again. By default, files that the sidecar of the snapshot or of its nearest ancestor has
    indexed are not indexed again; its segments are carried over, including those of other columns.
    ``exact``: read all live files of each group of files again that has lost a file, to count distinct values without
    those of removed files. By default this is done when more than 5 % of a group's rows were removed, and smaller
    counts are marked as upper bounds. Rows that delete files remove are counted in any case.
    ``force``: register even if an existing statistics file cannot be read and is lost.
    ``encryption_keys``: they open encrypted data files; columns without their key are not indexed. A column that is
    encrypted in some file goes into the sidecar encrypted if ``bundle_keys`` of the keys name it; then it is encrypted
    for all files and has no sketch and no bounds.
    ``allow_plaintext``: such a column goes in as plaintext without a bundle key, and its blobs say so. Otherwise the
    build is an error.
    ``dry_run``: do everything up to the first data file and nothing after it, and return a :class:`PlannedBuild`: the
    files that would be indexed, the engine, and whether the table would get a commit. No data file is opened, so
    damaged files and columns that are encrypted in files do not show.

    Damage costs only the file or column chunk that it hits, and the report says so. Raises :class:`UsageError` before
    any work for unknown columns and wrong options, and before anything is written for encrypted columns that would go
    into a plaintext sidecar; and the errors of :func:`sidecar.iceberg.registering.register`. In a table without a
    snapshot there is nothing to index: nothing is written, and the report's ``snapshot_id`` is ``None``.
    """
    start = time.monotonic()
    snapshot_id = snapshot_id_of(table, snapshot_id, ref)
    refuse_text(columns=columns, kinds=kinds)
    if is_empty(table, snapshot_id):
        resolve_columns(table.schema(), columns)
        check_options(kinds, harvest, filter_format, engine or "auto")
        empty = nothing_planned if dry_run else empty_report
        return empty(fpp, time.monotonic() - start)
    snapshot = snapshot_of(table, snapshot_id)
    schema = _schema(table, snapshot)
    wanted = _typed(table, snapshot, resolve_columns(schema, columns))
    if engine is None:
        engine = configured("engine") if spark is None else "auto"
    threads = configured("threads") if threads is None else threads
    check_options(kinds, harvest, filter_format, engine)
    if engine == "spark" and spark is None:
        from sidecar.spark.session import check_available

        check_available()
    check_writable(table)
    show = progress or _silent
    show("listing files")
    listing = list_snapshot(table, snapshot.snapshot_id)
    protection = Protection(encryption_keys, allow_plaintext)
    protection.check([column.path for column in wanted])
    sealed = frozenset(column.field_id for column in wanted if protection.seals(column.path))
    options = replace(
        options_of(listing, kinds, fpp, harvest, filter_format, lg_k),
        sealed=sealed,
        in_clear=frozenset(c.field_id for c in wanted) - sealed if allow_plaintext else frozenset(),
    )
    plan = BuildPlan(wanted, schema, table.name_mapping(), options, encryption_keys)
    earlier = look_back(table, listing, plan, None if fpp == "auto" else options.fpp, full, exact)
    try:
        files = [file for file in listing.files if file.ordinal not in earlier.served]
        if dry_run:
            chosen = choose_engine([*files, *earlier.counts.files], engine, spark)
            planned = planned_build(table, listing, plan, earlier, chosen, force, start)
            log_run(log, lambda: planned.log_line(".".join(table.name())), planned.warnings)
            return planned
        runner, why = engine_for(table, [*files, *earlier.counts.files], engine, spark, threads)
        try:
            registrar = Registrar(table, listing, plan, earlier, runner, show, force, protection)
            report = _Build(listing, files, plan, earlier, runner, why, show, registrar).run(start)
        finally:
            runner.close()
    finally:
        earlier.close()
    log_run(log, lambda: log_line(report, ".".join(table.name())), report.warnings)
    return report


@dataclass
class _Build:
    """One build while it runs. The engine keeps the filters between the stages."""

    listing: Listing
    files: Sequence[ListedFile]
    """Files of the listing that no earlier segment serves."""
    plan: BuildPlan
    earlier: Earlier
    engine: Engine
    why: str
    progress: Progress
    registrar: Registrar

    def run(self, start: float) -> BuildReport:
        indexable = [file for file in self.files if file.not_indexable is None]
        options, counts = self.plan.options, self.earlier.counts
        problems = count_again(counts, self.engine, self.plan, self.progress)
        groups = group_files(indexable)
        records = self.engine.index(make_tasks(groups), self.plan, self.progress)
        encrypted = encrypted_of(records, options)
        selection = select(self.listing, {file.ordinal for file in self.files}, encrypted, options.in_clear)
        indexed = collect(selection.files, records, options.lg_k)
        indexed.encrypted = encrypted
        self._check_any_read(indexable, indexed)
        self._check_protected(indexed)
        for field_id, sketch in counts.sketches.items():
            indexed.count(field_id, sketch)
        for field_id in indexed.sketches:
            indexed.upper_bounds[field_id] = self._also_counted(field_id)
        report = make_report(self.listing, indexed, self.plan.columns, self.plan.options, (self.engine.name, self.why))
        report.carry(self.earlier)
        report.warnings += problems
        if indexable or counts.rewritten or not self.earlier.is_registered(self.listing.snapshot_id):
            self._add_registration(report, self.registrar.register(selection, indexed, groups))
            show_commit(self.registrar.table)
        report.seconds = time.monotonic() - start
        return report

    def _also_counted(self, field_id: int) -> set[AlsoCounted]:
        """Return what the sketch of a field counts although no live row may have it."""
        removed = {AlsoCounted.REMOVED_FILES} if field_id in self.earlier.counts.inexact else set[AlsoCounted]()
        return removed | ({AlsoCounted.ROW_DELETES} if self.listing.delete_files else set())

    def _check_any_read(self, files: Sequence[ListedFile], indexed: Indexed) -> None:
        """Raise :class:`StorageError` if no file could be read: an empty sidecar must not replace the present one."""
        if files and indexed.unread.issuperset(file.ordinal for file in files):
            first = files[0]
            raise StorageError(
                f"no data file could be read, so nothing was registered: {indexed.failed[first.ordinal]}",
                file=first.path,
                hint="Check paths and credentials.",
            )

    def _check_protected(self, indexed: Indexed) -> None:
        """Raise :class:`UsageError` if an encrypted column would go into a plaintext sidecar without permission."""
        refused = [
            column.path
            for column in self.plan.columns
            if any(unit.columns[column.field_id].reason == UnitState.REFUSED for unit in indexed.units)
            or any(unit.columns[column.field_id].theta_reason == UnitState.REFUSED for unit in indexed.units)
            or any(
                column.field_id in unit.pages and unit.pages[column.field_id].reason == UnitState.REFUSED
                for unit in indexed.units
            )
        ]
        if refused:
            raise refusal(refused)

    def _add_registration(self, report: BuildReport, registration: Registration) -> None:
        report.statistics_path = registration.statistics_path
        report.file_size = registration.file_size
        report.blobs = [blob_report(blob) for blob in registration.blobs]
        report.warnings += registration.notes
        if self.listing.delete_files and self.plan.options.theta:
            report.warnings.append(
                "the snapshot has delete files: distinct counts are upper bounds, because they include deleted rows"
            )


def _schema(table: Table, snapshot: Snapshot) -> Schema:
    """Return the schema for column names: the table's present one for its current snapshot, else the snapshot's."""
    current = table.metadata.current_snapshot()
    if snapshot.schema_id is None or (current and current.snapshot_id == snapshot.snapshot_id):
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _typed(table: Table, snapshot: Snapshot, columns: Sequence[TableColumn]) -> tuple[TableColumn, ...]:
    """Return ``columns`` with their types in the snapshot's own schema, which sketches are hashed in."""
    own = table.schemas().get(snapshot.schema_id) if snapshot.schema_id is not None else None
    if own is None:
        return tuple(columns)
    types = {c.field_id: str(own.find_type(c.field_id)) for c in columns if c.field_id in own.field_ids}
    return tuple(replace(column, type=types.get(column.field_id, column.type)) for column in columns)


def _silent(what: str, done: int | None = None, total: int | None = None) -> None:
    """Ignore progress."""
