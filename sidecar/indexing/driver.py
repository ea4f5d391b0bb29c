"""Runs a build: pins the snapshot, indexes its files, fixes all positions once, writes and registers the sidecar.

Only metadata needs memory in proportion to the table: the listing, and one record for each unit and column. Filters
stay with the engine and pass through as finished regions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyiceberg.table import Table

from sidecar.bundle.kinds.declared import BuildKind
from sidecar.bundle.model import UnitState
from sidecar.conversion.protection import refusal
from sidecar.conversion.reuse import GOOD
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import ChosenEngine
from sidecar.errors import StorageError, UsageError
from sidecar.failpoints import hit
from sidecar.filters.sizing import fpp_for_keys
from sidecar.iceberg.catalog import held, show_commit
from sidecar.iceberg.listing import SnapshotFile
from sidecar.iceberg.refs import is_empty, schema_at, snapshot_id_of
from sidecar.iceberg.statistics_files.registering import Registration, check_mergeable
from sidecar.iceberg.statistics_files.write_statistics import statistics_folder
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.assemble import StageResults, collect, encrypted_of, select
from sidecar.indexing.declaration import ColumnDeclaration, declared_as, save_declaration
from sidecar.indexing.engine_choice import Engine, choose_build_engine, engine_for
from sidecar.indexing.packing import make_tasks
from sidecar.indexing.preparing import PreparedBuild, prepare
from sidecar.indexing.previous.build_state import state_after
from sidecar.indexing.report import BuildReport, add_stage_one, blob_report, empty_report, log_line, report_before
from sidecar.indexing.request import BuildMeans, BuildRequest
from sidecar.indexing.sketch_groups import group_files
from sidecar.indexing.writing import Registrar, bytes_carried
from sidecar.results.choices import BuildEngine, FilterFormat, NameList, ReuseRule
from sidecar.run_log import log_run
from sidecar.storage.s3_upload import why_carried_through

log = logging.getLogger(__name__)


def build(
    table: Table,
    columns: NameList | Literal["auto"] | None = None,
    *,
    kinds: Sequence[BuildKind] | None = None,
    fpp: float | Literal["auto"] | None = None,
    for_keys: int | None = None,
    reuse: ReuseRule = GOOD,
    as_: FilterFormat = "auto",
    at: int | str | None = None,
    full: bool = False,
    force: bool = False,
    save: bool = False,
    engine: BuildEngine | None = None,
    spark: Any = None,
    threads: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    dry_run: bool = False,
) -> BuildReport:
    """Index columns of a table's snapshot and register the sidecar. Files that a sidecar covers are not indexed again.

    Example: ``sidecar.build(table, ["customer", "address.city"], kinds=["bloom"], save=True)``
    ``table``: a table of pyiceberg; refreshed after the commit.
    ``columns``: primitive ones, nested with dots, or ``auto``: as ``advise`` says [as declared, else the last ones].
    ``kinds``: ``bloom``, ``theta`` (named: all counts are registered), ``page-index`` [as declared, else the first 2].
    ``fpp``: false-positive rate, or ``auto``: 1 % or less [as declared, else ``auto``].
    ``for_keys``: choose ``fpp`` for plans with so many keys: each expects a tenth of a false positive in a row group.
    ``reuse``: filters in the files: the ``good`` ones, ``always`` or ``never``.
    ``as_``: filters of ORC files: ``parquet``, ``orc``, or ``auto``: the reused, else ``parquet``.
    ``at``: a snapshot id, a branch or a tag [the current snapshot].
    ``full``: index all files again.
    ``force``: go on where an unreadable statistics file is lost.
    ``save``: let the table declare columns, kinds and rates, in a second commit.
    ``engine``: ``local``, ``spark``, or ``auto``: Spark for a session or above 4 GiB.
    ``spark``: a Spark session.
    ``threads``: of this process, or cores of an embedded session [all cores].
    ``encryption_keys``: columns without their key are not indexed.
    ``allow_plaintext``: encrypted columns may go in without a bundle key.
    ``dry_run``: open no data file, write nothing, report what a build would do.

    Damage costs the file or chunk that it hits. Raises :class:`UsageError` and :class:`CommitConflictError`.
    """
    request = BuildRequest(
        BuildMeans(engine, spark, threads, encryption_keys, allow_plaintext),
        columns=_advised(table, at) if columns == "auto" else columns,
        kinds=kinds,
        fpp=fpp if for_keys is None else _rate_for(for_keys, fpp),
        reuse=reuse,
        filter_format=as_,
        full=full,
        force=force,
    )
    with held(table) as own:
        named = replace(request, schema=schema_at(own, at))
        return _build(own, snapshot_id_of(own, at), named, save=save, dry_run=dry_run)


def _rate_for(keys: int, fpp: float | str | None) -> float:
    """Return the rate for plans with so many keys. Raises :class:`UsageError` if ``fpp`` chooses one too."""
    if fpp is not None:
        raise UsageError("fpp and for_keys both choose the rate", hint="Leave one of them out.")
    return fpp_for_keys(keys)


def _advised(table: Table, at: int | str | None) -> list[str]:
    """Return the columns that deserve filters. Raises :class:`UsageError` if there is none."""
    from sidecar.reports.advising.advise import columns_that_deserve_filters

    return columns_that_deserve_filters(table, at)


def _build(table: Table, snapshot_id: int | None, request: BuildRequest, *, save: bool, dry_run: bool) -> BuildReport:
    if is_empty(table, snapshot_id):
        request.check_options()
        declared: Sequence[ColumnDeclaration] = request.declared(table, None, {})[0]
        rate = "auto" if request.fpp is None else request.fpp
        result = empty_report(rate, request.seconds(), dry_run=dry_run)
    else:
        with prepare(table, snapshot_id, request) as prepared:
            declared = prepared.requested
            result = plan_build(prepared) if dry_run else run_build(prepared)
    if save and not dry_run:
        save_declaration(table, declared_as(declared))
    return result


def plan_build(prepared: PreparedBuild) -> BuildReport:
    """Return what :func:`run_build` would do. Opens no data file and writes nothing.

    Raises the errors of :func:`sidecar.iceberg.statistics_files.registering.check_mergeable` if the table would get a
    commit.
    """
    request, table, earlier = prepared.request, prepared.table, prepared.earlier
    engine = choose_build_engine(table, prepared.files, request.means)
    report = report_before(prepared, engine, len(make_tasks(group_files(prepared.to_index), engine.name)))
    report.dry_run = True
    if earlier.why_not:
        report.warnings.append(f"all files are indexed again: {earlier.why_not}")
    if prepared.to_index or not prepared.is_registered:
        report.warnings += check_mergeable(table, prepared.listing.snapshot_id, request.force)
        report.commits, report.folder = True, statistics_folder(table)
        report.warnings += prepared.notes_on_counts()
        report.bytes_carried = bytes_carried(table, prepared.plan, earlier)
    report.seconds = request.seconds()
    log_run(log, lambda: log_line(report, name_of(table)), report.warnings)
    return report


def run_build(prepared: PreparedBuild) -> BuildReport:
    """Index the files of a prepared build, and register the sidecar unless it is registered as it would be.

    Raises the errors of :func:`build` that come after the first data file.
    """
    request, table = prepared.request, prepared.table
    engine, why = engine_for(table, prepared.files, request.means)
    try:
        report = _Build(prepared, engine, why).run()
    finally:
        engine.close()
    log_run(log, lambda: log_line(report, name_of(table), request.what), report.warnings)
    return report


def _why_nothing(report: BuildReport) -> list[str]:
    """Return a sentence if no row group has an index of any column, although files were read."""
    if not report.units or any(one.filters or one.page_indexes or one.ndv is not None for one in report.columns):
        return []
    found = {reason for column in report.columns for reasons in column.uncovered.values() for reason in reasons}
    return [f"nothing was indexed: {', '.join(sorted(found))}"] if found else []


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
        hit("build: index")
        groups = group_files(indexable)
        tasks = make_tasks(groups, self.engine.name)
        records = self.engine.index(tasks, plan)
        encrypted = encrypted_of(records, options)
        selection = select(listing, {file.ordinal for file in prepared.files}, encrypted, options.plaintext)
        indexed = collect(selection.files, records)
        indexed.encrypted = encrypted
        self._check_any_read(indexable, indexed)
        self._check_protected(indexed)
        # Earlier segments have sketches of files that this run did not read; counts are unions with them.
        for field_id, sketch in counts.sketches.items():
            indexed.count(field_id, sketch)
        for field_id in indexed.sketches:
            indexed.marks[field_id] = prepared.marks(field_id, indexed.counted(field_id))
        report = report_before(prepared, ChosenEngine(self.engine.name, self.why), len(tasks))
        add_stage_one(report, listing, indexed)
        report.warnings += _why_nothing(report)
        state, behind = state_after(prepared, {file.ordinal for file in indexable} - indexed.failed.keys())
        report.carry(earlier, behind)
        if self._is_worth_a_file(indexed):
            hit("build: register")
            registrar = Registrar(prepared, self.engine.kept, state)
            registration = registrar.register(selection, indexed, groups)
            self._add_registration(report, registration)
            report.bytes_carried = bytes_carried(prepared.table, plan, earlier)
            place = report.statistics_path or ""
            report.warnings += why_carried_through(prepared.table.io, place, report.bytes_carried)
            show_commit(prepared.table, registration.table)
        elif indexable and not earlier.segments:
            report.warnings.append("no data file could be indexed, so no sidecar was registered")
        report.seconds = prepared.request.seconds()
        return report

    def _is_worth_a_file(self, indexed: StageResults) -> bool:
        """Return whether the sidecar would have something that the registered one lacks.

        A file that could not be indexed is tried again by each run. The first run lists it, later ones write no copy.
        """
        prepared, earlier = self.prepared, self.prepared.earlier
        is_refresh = prepared.request.merge_up_to is not None  # which builds only what is needed
        indexable = prepared.to_index
        if (not indexable and is_refresh) or any(file.ordinal not in indexed.failed for file in indexable):
            return True
        if indexable and not earlier.segments:
            return bool(prepared.left)
        return not prepared.is_registered or any(file.ordinal not in earlier.listed for file in indexable)

    def _check_any_read(self, files: Sequence[SnapshotFile], indexed: StageResults) -> None:
        """Raise :class:`StorageError` if no file could be read: an empty sidecar must not replace the present one."""
        if files and indexed.unread.issuperset(file.ordinal for file in files):
            first = files[0]
            raise StorageError(
                f"no data file could be read, so nothing was registered: {indexed.failed[first.ordinal]}",
                file=first.path,
                hint="Check paths and credentials.",
            )

    def _check_protected(self, indexed: StageResults) -> None:
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
        report.commits, report.folder = True, statistics_folder(self.prepared.table)
        report.statistics_path = registration.statistics_path
        report.file_size = registration.file_size
        report.blobs = [blob_report(blob) for blob in registration.blobs]
        report.warnings += [*registration.notes, *self.prepared.notes_on_counts()]
        if self.prepared.listing.delete_files and self.prepared.plan.options.theta:
            report.warnings.append(
                "the snapshot has delete files: distinct counts are upper bounds, because they include deleted rows"
            )
