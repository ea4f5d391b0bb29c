"""The outcome of :func:`sidecar.care` or :func:`sidecar.status` for schedulers, the same for each of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import CommitConflictError, SidecarError, StorageError
from sidecar.reports.caring import CaredTable, CareReport
from sidecar.reports.status.results import TableStatus
from sidecar.results.choices import BuildEngine, CareStep
from sidecar.storage.source import AnyPath


class CareOptions(TypedDict, total=False):
    """The options of :func:`sidecar.care`."""

    catalog: str | None
    only: Collection[CareStep] | None
    older_than: timedelta
    max_behind: timedelta | None
    min_coverage: float | None
    report: AnyPath | None
    engine: BuildEngine | None
    spark: Any
    encryption_keys: EncryptionKeys | None
    allow_plaintext: bool
    dry_run: bool


def row_of(done: CaredTable) -> dict[str, str | int | float | None]:
    """Return a table's line: what each step did, how far the table is covered, and what went wrong."""
    return {
        "table": done.table,
        **done.step_counts(),
        "seconds": round(done.seconds, 3),
        "result": "; ".join(_failures(done)) or done.left_alone or "done",
    }


def facts_of(report: CareReport) -> dict[str, int | float | str]:
    """Return the counts of a run, its seconds, and where its page is."""
    page = {} if report.page is None else {"page": report.page.path}
    return {**report.counts(), "seconds": round(report.seconds, 3), **page}


def failure_of(report: CareReport) -> str | None:
    """Return why a run has failed, a line for each reason; ``None`` if it has not, as when a table was left alone."""
    lines = [f"{one.table}: {text}" for one in report.tables for text in _failures(one)]
    return "\n".join([*lines, *report.warnings()]) or None


def may_help_to_retry(report: CareReport) -> bool:
    """Whether a new run may do better, because storage, the catalog or another commit was in the way.

    A limit that is missed, a damaged file and a wrong call stay as they are until somebody acts.
    """
    errors = [error for one in report.tables for error in one.errors.values()]
    errors += [] if report.page_error is None else [report.page_error]
    return any(map(may_pass, errors))


def may_pass(error: SidecarError) -> bool:
    """Whether an error may be gone at the next try: storage, the catalog or another commit was in the way."""
    return isinstance(error, StorageError | CommitConflictError)


def _failures(done: CaredTable) -> list[str]:
    found = [f"{step}: {error}" for step, error in done.errors.items()]
    if done.refresh is not None:
        found += [f"not indexed: {path}: {reason}" for path, reason in done.refresh.files_failed.items()]
    found += [] if done.gc is None else list(done.gc.failed)
    found += [] if done.repair is None else list(done.repair.problems)
    found += [done.check.to_do[0].why] if done.check is not None and done.check.lost else []
    return found + [missed.text for missed in done.missed]


def status_facts(found: TableStatus) -> Mapping[str, int | float | str | list[str] | None]:
    """Return the facts of a table's status that a scheduler shows beside a check."""
    return {
        "table": found.table,
        "snapshot_id": None if found.snapshot_id is None else str(found.snapshot_id),
        "files": found.files.live,
        "waiting": found.waiting.files,
        "seconds_behind": round(found.waiting.seconds, 3),
        "covered": found.share_covered,
        "missed": [one.text for one in found.missed],
        "to_do": [one.command for one in found.to_do],
        "warnings": list(found.warnings),
    }
