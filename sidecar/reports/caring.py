"""Does a night's work on the sidecars of tables: repair, refresh, expire, gc, check, and a page about all of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, get_args

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.catalog import is_static
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.many_tables import each_table
from sidecar.iceberg.repair import RepairReport, repair
from sidecar.iceberg.statistics_files.registering import check_registrable
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.request import BuildMeans
from sidecar.maintenance import costs
from sidecar.maintenance.expiring import ExpireReport, expire
from sidecar.maintenance.garbage import OLDER_THAN, GarbageReport, check_age, gc
from sidecar.maintenance.refresh_report import RefreshReport
from sidecar.maintenance.refreshing import refresh_thoroughly
from sidecar.reports.page.writing import PageReport
from sidecar.reports.page.writing import report as write_page
from sidecar.reports.status.lost_files import lost_files, steps_for_lost
from sidecar.reports.status.results import MissedThreshold, NextStep, WaitingFiles
from sidecar.reports.status.table_status import check_limits, status
from sidecar.results.base import Result, plain_data
from sidecar.results.choices import BuildEngine, CareStep
from sidecar.run_log import log_run, quantity
from sidecar.storage.source import AnyPath

log = logging.getLogger(__name__)

STEPS: tuple[CareStep, ...] = get_args(CareStep)


@dataclass(frozen=True, repr=False, slots=True)
class CheckedTable(Result):
    """What the step ``check`` found out about a table, after the other steps."""

    waiting: WaitingFiles
    """The data files that wait for their indexes."""
    share_covered: float | None
    """The least share of the rows that an index covers; ``None`` without data files."""
    missed: list[MissedThreshold]
    """The limits that the table misses."""
    to_do: list[NextStep]
    """What is left to do."""
    warnings: list[str]
    """What the caller should know."""
    lost: list[str] | None
    """Data files of the snapshot that are not stored; ``None`` if nobody looked. The first step to do names them."""


@dataclass(repr=False, kw_only=True)
class CaredTable(Result):
    """What the steps of :func:`sidecar.care` did to a table. A step that did not run is ``None``."""

    table: str
    """The name of the table."""
    repair: RepairReport | None = None
    """What was repaired."""
    refresh: RefreshReport | None = None
    """What was indexed."""
    expire: ExpireReport | None = None
    """Which registrations were removed."""
    gc: GarbageReport | None = None
    """Which files were deleted."""
    check: CheckedTable | None = None
    """How the table is now."""
    left_alone: str | None = None
    """Why nothing was changed: a sidecar of the table can be registered nowhere. Else ``None``."""
    errors: dict[str, SidecarError] = field(default_factory=dict)
    """The error by step; by ``open`` if the table could not be opened."""
    seconds: float = 0.0
    """The time that it took."""

    @property
    def has_failed(self) -> bool:
        """Whether a step failed, or could not do all that it should."""
        files = (self.refresh is not None and self.refresh.files_failed) or (self.gc is not None and self.gc.failed)
        return bool(self.errors or files or (self.repair is not None and self.repair.problems))

    @property
    def missed(self) -> list[MissedThreshold]:
        """The limits that the table misses."""
        return [] if self.check is None else self.check.missed

    @property
    def has_lost_files(self) -> bool:
        """Whether a data file of the snapshot is not stored."""
        return bool(self.check is not None and self.check.lost)

    @property
    def exit_code(self) -> int:
        """The exit code for this table: 1 after a failure, a missed limit or a lost file, 4 if it was left alone."""
        return 1 if self.has_failed or self.missed or self.has_lost_files else 4 if self.left_alone else 0

    def step_counts(self) -> dict[str, int | float | None]:
        """Return what each step did in numbers, and the share of rows that is covered; ``None`` if it did not run."""
        refreshed, checked = self.refresh, self.check
        return {
            "repaired": None if self.repair is None else len(self.repair.repairs),
            "indexed": None if refreshed is None else refreshed.files_indexed,
            "left": None if refreshed is None else refreshed.files_left,
            "expired": None if self.expire is None else len(self.expire.expired),
            "deleted": None if self.gc is None else len(self.gc.files),
            "waiting": None if checked is None else checked.waiting.files,
            "covered": None if checked is None else checked.share_covered,
        }

    @property
    def warnings(self) -> list[str]:
        """What the caller should know."""
        found = [] if self.repair is None else list(self.repair.problems)
        for one in (self.refresh, self.expire, self.gc, self.check):
            found += [] if one is None else one.warnings
        return list(dict.fromkeys([*found, *([] if self.gc is None else self.gc.failed)]))


@dataclass(frozen=True, repr=False, slots=True)
class CareReport(Result):
    """What :func:`sidecar.care` did, or would do."""

    dry_run: bool
    """Whether nothing was changed."""
    tables: list[CaredTable]
    """The tables."""
    page: PageReport | None
    """The page about them; ``None`` without one."""
    page_error: SidecarError | None
    """Why there is no page although one was asked for; else ``None``."""
    seconds: float
    """The time that it took."""

    @property
    def exit_code(self) -> int:
        """The exit code of ``sidecar care``: that of the worst table (1, 4, 0), and 1 if there is no page."""
        codes = {one.exit_code for one in self.tables}
        return 1 if self.page_error is not None or 1 in codes else max(codes, default=0)

    def warnings(self) -> list[str]:
        """Return why there is no page although one was asked for. Tables have warnings of their own."""
        return [] if self.page_error is None else [f"there is no page: {self.page_error}"]

    def counts(self) -> dict[str, int]:
        """Return the number of tables, and of those that failed, miss a limit, lack data files or were left alone."""
        return {
            "tables": len(self.tables),
            "failed": sum(one.has_failed for one in self.tables),
            "under_a_limit": sum(bool(one.missed) for one in self.tables),
            "with_lost_files": sum(one.has_lost_files for one in self.tables),
            "left_alone": sum(one.left_alone is not None for one in self.tables),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {
            "dry_run": self.dry_run,
            "tables": plain_data(self.tables),
            "page": plain_data(self.page),
            "page_error": plain_data(self.page_error),
            "summary": self.counts(),
        }

    def log_line(self) -> str:
        """The report as a line of the log."""
        counts = self.counts()
        others = ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in list(counts)[1:] if counts[name])
        dry = "dry run of " if self.dry_run else ""
        return f"{dry}care of {quantity(counts['tables'], 'table')}: {others or 'all fine'}; {self.seconds:.3f} s"


def care(
    tables: str | Table | Iterable[str | Table],
    *,
    catalog: str | Catalog | None = None,
    only: Collection[CareStep] | None = None,
    older_than: timedelta = OLDER_THAN,
    max_behind: timedelta | None = None,
    min_coverage: float | None = None,
    report: AnyPath | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    dry_run: bool = False,
) -> CareReport:
    """Do a night's work on the sidecars of tables: repair, refresh, expire, gc, check, and a page.

    Example: ``sidecar.care("sales.*", catalog="lake", report="night.html")``
    ``tables``: open tables, names or globs of names. ``catalog``: that of names, as for :func:`sidecar.open_table`.
    ``only``: these steps alone.
    ``older_than``: how old files must be for gc.
    ``max_behind``, ``min_coverage``: limits, as for :func:`sidecar.status`.
    ``report``: the HTML file of the page. It is replaced.
    ``engine``, ``spark``, ``encryption_keys``, ``allow_plaintext``: as for :func:`sidecar.refresh`.
    ``dry_run``: show what would be done.

    A failure is in the result. Raises :class:`UsageError` for wrong options.
    """
    start = time.monotonic()
    unknown = sorted(set(only or ()).difference(STEPS))
    if unknown or isinstance(only, str):
        raise UsageError(f"unknown step '{only if isinstance(only, str) else unknown[0]}'", expected=", ".join(STEPS))
    check_age(older_than)
    check_limits(max_behind, min_coverage)
    means = BuildMeans(engine, spark, None, encryption_keys, allow_plaintext)
    means.chosen_engine()
    steps = STEPS if only is None else tuple(step for step in STEPS if step in only)
    for step, name, option in (
        ("check", "max_behind", max_behind),
        ("check", "min_coverage", min_coverage),
        ("report", "report", report),
    ):
        if option is not None and step not in steps:
            raise UsageError(f"{name} is for the step '{step}', which is not one of only", hint=f"Add the step {step}.")
    given = [tables] if isinstance(tables, str | Table) else list(tables)
    night = _Night(steps, older_than, max_behind, min_coverage, means, dry_run)
    done = []
    for outcome in each_table(given, night.care_for, catalog):
        done.append(outcome.result or _not_opened(outcome.table, outcome.error))
    page, page_error = None, None
    if report is not None and "report" in steps and not dry_run:
        try:
            page = write_page(given, report, catalog=catalog, advice=False)
        except SidecarError as error:
            page_error = error
    result = CareReport(dry_run, done, page, page_error, time.monotonic() - start)
    log_run(log, result.log_line, result.warnings())
    return result


@dataclass(frozen=True)
class _Night:
    """The steps for each table, and the means with which it is refreshed."""

    steps: Sequence[CareStep]
    older_than: timedelta
    max_behind: timedelta | None
    min_coverage: float | None
    means: BuildMeans
    dry_run: bool

    def care_for(self, table: Table) -> CaredTable:
        """Do the steps of one table. An error of a step does not end the others."""
        start = time.monotonic()
        done = CaredTable(table=name_of(table), left_alone=_why_left_alone(table))
        for step in self.steps:
            is_skipped = done.left_alone is not None and step != "check"
            if is_skipped or (step in ("expire", "gc") and "refresh" in done.errors):
                continue
            try:
                self._run_step(step, table, done)
            except SidecarError as error:
                if done.left_alone is None and _why_left_alone(table) is not None:
                    done.left_alone = str(error)  # a commit has shown that the catalog keeps no statistics
                else:
                    done.errors[step] = error
        done.seconds = time.monotonic() - start
        return done

    def _run_step(self, step: CareStep, table: Table, done: CaredTable) -> None:
        match step:
            case "repair":
                done.repair = repair(table, dry_run=self.dry_run)
            case "refresh":
                done.refresh = self._refreshed(table)
            case "expire":
                done.expire = expire(table, dry_run=self.dry_run)
            case "gc":
                done.gc = gc(table, older_than=self.older_than, dry_run=self.dry_run)
            case "check":
                done.check = self._checked(table, is_new=done.refresh is not None)

    def _refreshed(self, table: Table) -> RefreshReport:
        """Refresh a table. A night has the time to look for damage in all of the sidecar, and to merge a large one too,
        which a refresh with new files leaves."""
        first = refresh_thoroughly(table, self.means, self.max_behind, self.dry_run)
        if first.action == "written" and first.file_size > costs.MERGED_AT_ONCE and not self.dry_run:
            second = refresh_thoroughly(table, self.means, self.max_behind)
            first.statistics_path, first.file_size = second.statistics_path, second.file_size
            first.seconds += second.seconds
        return first

    def _checked(self, table: Table, is_new: bool) -> CheckedTable:
        """Check a table. Right after a refresh, which has looked for damage in all of the sidecar, that is quick."""
        found = status(table.refresh(), max_behind=self.max_behind, min_coverage=self.min_coverage, quick=is_new)
        is_undeclared = not found.covered and not found.warnings  # a damaged declaration is a warning
        missed = [] if is_undeclared else found.missed
        # A quick status does not look for lost files.
        files = list_snapshot(table).files if is_new and found.snapshot_id is not None else ()
        lost = lost_files(table, [file.path for file in files])
        to_do = [*steps_for_lost(table, lost), *found.to_do]
        return CheckedTable(found.waiting, found.share_covered, missed, to_do, found.warnings, lost or found.lost)


def _not_opened(table: str, error: SidecarError | None) -> CaredTable:
    """Return the result of a table that was not opened. One that sidecar does not know is not mended by another try."""
    if isinstance(error, UnsupportedFeatureError):
        return CaredTable(table=table, left_alone=str(error))
    return CaredTable(table=table, errors={} if error is None else {"open": error})


def _why_left_alone(table: Table) -> str | None:
    """Return why a sidecar of the table can be registered nowhere; ``None`` if it can."""
    if is_static(table):
        return "the table was opened from a metadata file and cannot be changed"
    try:
        check_registrable(table)
    except UnsupportedFeatureError as error:
        return str(error)
    return None
