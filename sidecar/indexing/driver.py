"""Runs a build: pins the snapshot, indexes its files, fixes all positions once, writes and registers the sidecar.

Only metadata needs memory in proportion to the table: the listing, and one record for each unit and column. Filters
stay with the engine and pass through as finished regions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from pyiceberg.table import Table

from sidecar.bundle.model import UnitState
from sidecar.conversion.harvest import GOOD, HarvestRule
from sidecar.conversion.protection import refusal
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import BuildEngine
from sidecar.errors import StorageError
from sidecar.iceberg.catalog import held, show_commit
from sidecar.iceberg.listing import ListedFile
from sidecar.iceberg.refs import is_empty, schema_at, snapshot_id_of
from sidecar.iceberg.registering import Registration
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.assemble import Indexed, collect, encrypted_of, select
from sidecar.indexing.declaration import ColumnWish, declared_as, save_declaration
from sidecar.indexing.dry_run import PlannedBuild, nothing_planned, planned_build
from sidecar.indexing.engine import Engine
from sidecar.indexing.engine_choice import choose_build_engine, engine_for
from sidecar.indexing.options import BuildKind, FilterFormat
from sidecar.indexing.packing import make_tasks
from sidecar.indexing.preparing import PreparedBuild, prepare
from sidecar.indexing.previous.build_state import outcome_of
from sidecar.indexing.report import BuildReport, blob_report, empty_report, log_line, make_report
from sidecar.indexing.request import BuildRequest
from sidecar.indexing.sketch_groups import group_files
from sidecar.indexing.writing import Registrar, bytes_carried
from sidecar.run_log import log_run
from sidecar.run_steps import reached

log = logging.getLogger(__name__)


@overload
def build(
    table: Table,
    columns: Sequence[str] | None = None,
    *,
    kinds: Sequence[BuildKind] | None = None,
    fpp: float | Literal["auto"] | None = None,
    harvest: HarvestRule = GOOD,
    filter_format: FilterFormat = "auto",
    engine: BuildEngine | None = None,
    at: int | str | None = None,
    spark: Any = None,
    threads: int | None = None,
    full: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    save: bool = False,
    dry_run: Literal[False] = False,
) -> BuildReport: ...


@overload
def build(
    table: Table,
    columns: Sequence[str] | None = None,
    *,
    kinds: Sequence[BuildKind] | None = None,
    fpp: float | Literal["auto"] | None = None,
    harvest: HarvestRule = GOOD,
    filter_format: FilterFormat = "auto",
    engine: BuildEngine | None = None,
    at: int | str | None = None,
    spark: Any = None,
    threads: int | None = None,
    full: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    save: bool = False,
    dry_run: Literal[True],
) -> PlannedBuild: ...


def build(
    table: Table,
    columns: Sequence[str] | None = None,
    *,
    kinds: Sequence[BuildKind] | None = None,
    fpp: float | Literal["auto"] | None = None,
    harvest: HarvestRule = GOOD,
    filter_format: FilterFormat = "auto",
    engine: BuildEngine | None = None,
    at: int | str | None = None,
    spark: Any = None,
    threads: int | None = None,
    full: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    save: bool = False,
    dry_run: bool = False,
) -> BuildReport | PlannedBuild:
    """Index columns of a table's snapshot and register the sidecar.

    ``table``: a table of pyiceberg. It is refreshed after the commit.
    ``columns``: names of primitive columns (``a``, ``struct.field``, ``list.element``). By default those that the table
    declares (:mod:`sidecar.indexing.declaration`), or else those that the last sidecar has.
    ``kinds``: ``bloom``, ``theta``, ``page-index``; by default what the table declares for a column, what the last
    sidecar has of it if its columns are taken, or else the first two.
    ``fpp``: target false-positive rate, or ``auto``: 1 % or one over the number of units, whichever is smaller, at up
    to 32 bits per value. The default is as for ``kinds``, and ``auto`` in the end.
    ``harvest``: filters of data files are reused if they are ``good`` (at most 1 % by their bits), ``always`` or
    ``never``; page indexes are reused unless ``never``.
    ``filter_format``: the filters of ORC units. ``parquet`` builds split-block filters from their values, ``orc`` uses
    ORC filters (with ``auto`` rates at the writers' 1 %), ``auto`` reuses the file's own as ``harvest`` says and else
    builds split-block filters.
    ``engine``: ``local`` runs in this process, ``spark`` on ``spark`` or an embedded session; ``auto`` uses ``spark``
    if one is given, else this process for tables up to 4 GiB or if Spark cannot start. The default is ``auto``.
    ``at``: the snapshot to index: a snapshot id, a branch or a tag; by default the current snapshot. ``columns`` are
    names of the schema in which a plan reads it.
    ``spark``: a Spark session.
    ``threads``: threads of this process, or cores of an embedded Spark session; by default all cores.
    ``full``: index all files again. By default, files that the sidecar of the snapshot or of its nearest ancestor has
    indexed are not indexed again; its segments are carried over, including those of other columns.
    ``force``: register even if an existing statistics file cannot be read and is lost.
    ``encryption_keys``: they open encrypted data files; columns without their key are not indexed. A column that is
    encrypted in some file goes into the sidecar encrypted if ``bundle_keys`` of the keys name it; then it is encrypted
    for all files and has no sketch and no bounds.
    ``allow_plaintext``: such a column goes in as plaintext without a bundle key, and its blobs say so. Otherwise the
    build is an error.
    ``save``: let the table declare these columns, kinds and rates after the build, in a second commit.
    ``dry_run``: do everything up to the first data file and nothing after it, and return a :class:`PlannedBuild`: the
    files that would be indexed, the engine, and whether the table would get a commit. No data file is opened, so
    damaged files and columns that are encrypted in files do not show.

    Damage costs only the file or column chunk that it hits, and the report says so. Raises :class:`UsageError` before
    any work for unknown columns and wrong options, and before anything is written for encrypted columns that would go
    into a plaintext sidecar; and the errors of :func:`sidecar.iceberg.registering.register`. In a table without a
    snapshot there is nothing to index: nothing is written, and the report's ``snapshot_id`` is ``None``.
    """
    request = BuildRequest(
        columns=columns,
        kinds=kinds,
        fpp=fpp,
        harvest=harvest,
        filter_format=filter_format,
        engine=engine,
        spark=spark,
        threads=threads,
        full=full,
        force=force,
        encryption_keys=encryption_keys,
        allow_plaintext=allow_plaintext,
    )
    with held(table) as own:
        request = replace(request, schema=schema_at(own, at))
        return _build(own, snapshot_id_of(own, at), request, save=save, dry_run=dry_run)


def _build(
    table: Table, snapshot_id: int | None, request: BuildRequest, *, save: bool, dry_run: bool
) -> BuildReport | PlannedBuild:
    result: BuildReport | PlannedBuild
    if is_empty(table, snapshot_id):
        request.check_options()
        wishes: Sequence[ColumnWish] = request.wishes(table, None, {})[0]
        rate = "auto" if request.fpp is None else request.fpp
        result = (nothing_planned if dry_run else empty_report)(rate, request.seconds())
    else:
        with prepare(table, snapshot_id, request) as prepared:
            wishes = prepared.asked
            result = plan_build(prepared) if dry_run else run_build(prepared)
    if save and not dry_run:
        save_declaration(table, declared_as(wishes))
    return result


def plan_build(prepared: PreparedBuild) -> PlannedBuild:
    """Return what :func:`run_build` would do. Opens no data file and writes nothing.

    Raises the errors of :func:`sidecar.iceberg.registering.check_mergeable` if the table would get a commit.
    """
    request, table = prepared.request, prepared.table
    planned = planned_build(prepared, choose_build_engine(prepared.files, request.chosen_engine(), request.spark))
    log_run(log, lambda: planned.log_line(name_of(table)), planned.warnings)
    return planned


def run_build(prepared: PreparedBuild) -> BuildReport:
    """Index the files of a prepared build, and register the sidecar unless it is registered as it would be.

    Raises the errors of :func:`build` that come after the first data file.
    """
    request, table = prepared.request, prepared.table
    engine, why = engine_for(table, prepared.files, request.chosen_engine(), request.spark, request.threads)
    try:
        report = _Build(prepared, engine, why).run()
    finally:
        engine.close()
    log_run(log, lambda: log_line(report, name_of(table), request.what), report.warnings)
    return report


@dataclass
class _Build:
    """One build while it runs. The engine keeps the filters between the stages."""

    prepared: PreparedBuild
    engine: Engine
    why: str

    def run(self) -> BuildReport:
        prepared, earlier, plan = self.prepared, self.prepared.earlier, self.prepared.plan
        listing, options, counts = prepared.listing, plan.options, earlier.counts
        indexable = prepared.to_index
        reached("build: index")
        groups = group_files(indexable)
        records = self.engine.index(make_tasks(groups, self.engine.name), plan)
        encrypted = encrypted_of(records, options)
        selection = select(listing, {file.ordinal for file in prepared.files}, encrypted, options.in_clear)
        indexed = collect(selection.files, records)
        indexed.encrypted = encrypted
        self._check_any_read(indexable, indexed)
        self._check_protected(indexed)
        for field_id, sketch in counts.sketches.items():
            indexed.count(field_id, sketch)
        for field_id in indexed.sketches:
            indexed.marks[field_id] = prepared.marks(field_id, indexed.counted(field_id))
        report = make_report(listing, indexed, plan.columns, options, (self.engine.name, self.why))
        report.files_left = len(prepared.left)
        report.files_indexed -= report.files_left
        outcome = outcome_of(prepared, {file.ordinal for file in indexable} - indexed.failed.keys())
        report.carry(earlier, outcome.behind, prepared.notes)
        is_refresh = prepared.request.merge_up_to is not None  # which builds only what is needed
        if indexable or is_refresh or not earlier.is_registered(prepared.table, listing.snapshot_id):
            reached("build: register")
            registrar = Registrar(prepared, self.engine.kept, outcome.state)
            self._add_registration(report, registrar.register(selection, indexed, groups))
            report.bytes_carried = bytes_carried(prepared.table, plan, earlier)
            show_commit(prepared.table)
        report.seconds = prepared.request.seconds()
        return report

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
            for column in self.prepared.plan.columns
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
        if self.prepared.listing.delete_files and self.prepared.plan.options.theta:
            report.warnings.append(
                "the snapshot has delete files: distinct counts are upper bounds, because they include deleted rows"
            )
