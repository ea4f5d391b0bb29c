"""Reports the state of a table's sidecars: coverage, time behind, cost of lookups, leftovers, and what to do.

Manifests, the table's metadata and the sidecar are read, and no data file. The search for leftovers lists the metadata
folder and opens the Puffin files in it that the metadata does not name. A monitor can leave that out, and the look at
all checksums of the sidecar: then its tail and a few ranges are read.
The counts are about the sidecar that plans of the snapshot really use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.kinds.declared import THETA, USUAL_KINDS
from sidecar.bundle.runs import history_of
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.catalog import command_for, is_static
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.partial_loading import state_of_registrations
from sidecar.iceberg.refs import is_branch, is_empty, one_version, table_at
from sidecar.iceberg.repair import planned_repair
from sidecar.iceberg.resolve import encoded_name
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, find_displaced
from sidecar.iceberg.statistics_files.registered_counts import misread_warning, reads_right
from sidecar.iceberg.statistics_files.registering import check_mergeable
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.declaration import (
    ColumnDeclaration,
    NothingDeclaredError,
    built_indexes,
    declaration_of,
    declarations_of,
)
from sidecar.indexing.previous.damage import NO_DAMAGE, SidecarDamage, find_damage
from sidecar.reports.status.coverage import (
    NOTHING_WAITS,
    count_coverage,
    count_damaged,
    files_with_other_rates,
)
from sidecar.reports.status.indexes import KindCoverage, TableFileCounts, describe_indexes, live_files, opened_sidecar
from sidecar.reports.status.lookups import measure_lookups
from sidecar.reports.status.lost_files import lost_files, steps_for_lost
from sidecar.reports.status.registrations import (
    NOT_LOOKED_FOR,
    describe_refs,
    registered_sidecars,
    several_files,
    unreferenced_files,
)
from sidecar.reports.status.results import MissedThreshold, NextStep, TableStatus
from sidecar.run_log import quantity

MANY_SEGMENTS = 4
"""A lookup in more segments than this makes clearly more reads than in one."""


def status(
    table: Table,
    *,
    at: int | str | None = None,
    max_behind: timedelta | None = None,
    min_coverage: float | None = None,
    quick: bool = False,
) -> TableStatus:
    """Return the indexes of ``table``, facts about its sidecars, and what to do. No data file is read.

    Example: ``sidecar.status(table, quick=True)``
    ``at``: a snapshot id, a branch or a tag; by default the current snapshot.
    ``max_behind``: how long a data file may wait for its indexes at most; missed if unknown.
    ``min_coverage``: the least share of rows that each index of the sidecar must cover: 95 and 0.95 are 95 %.
    ``quick``: list no folders and read no whole sidecar, so ``unreferenced``, ``lost`` and damage are not known.

    Thresholds that are not met are in the result's ``missed``, errors in the sidecar in ``warnings``. A table without a
    snapshot misses none. Raises :class:`UsageError` for thresholds that make no sense.
    """
    least = check_limits(max_behind, min_coverage)
    table = one_version(table)
    seen, snapshot_id = table_at(table, at)  # names of columns are those of its schema
    planned = planned_repair(table, with_sketches=not quick)
    refs, losable = describe_refs(table)
    whole: dict[str, Any] = {
        "table": name_of(seen),
        "table_uuid": str(seen.metadata.table_uuid),
        "refs": refs,
        "repairs": planned.repairs,
        "losable": losable,
        "registered": registered_sidecars(table),
        "unreferenced": NOT_LOOKED_FOR if quick else unreferenced_files(table),
    }
    asked = _nothing() if is_empty(table, snapshot_id) else _look(table, seen, snapshot_id, quick=quick)
    warnings = [*asked.facts["warnings"], *misread_counts(seen, asked.facts["coverage"])]
    warnings += [*state_of_registrations(table), *several_files(table), *planned.problems]
    facts = {**asked.facts, "warnings": list(dict.fromkeys(warnings))}
    found = TableStatus(**facts, **whole, missed=[], to_do=[])
    found.missed.extend(_missed(found, max_behind, least))
    if not is_static(table):  # a metadata file cannot be changed
        refreshed = None if asked.declared is None else indexes_of(seen, asked.declared)
        found.to_do.extend(_to_do(table, found, refreshed, at, asked))
    return found


@dataclass(frozen=True)
class _Asked:
    """The facts about the snapshot that was asked for, and about its sidecar."""

    facts: Mapping[str, Any]
    """The attributes of the result that are about the snapshot."""
    declared: Sequence[ColumnDeclaration] | None = None
    """What a refresh indexes; ``None`` if that is not known."""
    other_rates: Mapping[str, int] = field(default_factory=dict)
    """The answer of :func:`files_with_other_rates`."""
    damaged: Sequence[tuple[str, str]] = ()
    """Damaged indexes by column and kind."""
    fault: str = ""
    """Why nothing of the sidecar is used; empty if it is."""
    is_blocked: bool = False
    """Whether no refresh can replace the statistics file of the snapshot."""


def _nothing() -> _Asked:
    """Return what is known of a table without a snapshot."""
    facts: dict[str, Any] = {
        "snapshot_id": None,
        "sidecar": None,
        "files": TableFileCounts(0, 0),
        "coverage": {},
        "segments": [],
        "warnings": [],
        "lost": [],
        "rows": 0,
        "data_bytes": 0,
        "delete_files": 0,
        "size_share": None,
        "lookups": {},
        "runs": [],
        "covered": {},
        "share_covered": None,
        "waiting": NOTHING_WAITS,
    }
    return _Asked(facts)


def _look(table: Table, seen: Table, snapshot_id: int | None, *, quick: bool) -> _Asked:
    """Return what is known of a snapshot. ``seen`` is the table with the names of columns that the snapshot has."""
    listing = list_snapshot(table, snapshot_id)
    data_bytes = sum(file.file_size for file in listing.files)
    with opened_sidecar(seen, listing) as search:
        found, passed, warnings = search.found, search.passed, search.warnings
        declared = _declared(seen, found, passed, warnings)
        live = live_files(found, listing)
        damage = find_damage(found.sidecar, found.statistics) if found and not quick else NO_DAMAGE
        counted = count_coverage(seen, listing, live, indexes_of(seen, declared or ()), damage)
        damaged = count_damaged(seen, live, damage)
        is_passed = any(entry.snapshot_id == listing.snapshot_id for entry in passed)
        warnings += [f"{text}; file {found.sidecar.source.name}" for text in damage.footer] if found else []
        warnings += [f"{kind} of {column} is damaged in {quantity(n, 'file')}" for (column, kind), n in damaged.items()]
        other_rates = files_with_other_rates(live, declared or ())
        fault = _fault_of(found, damage)
        lookups = measure_lookups(seen, found, warnings) if found else {}
        facts = {
            "snapshot_id": listing.snapshot_id,
            **describe_indexes(seen, listing, found, live, warnings),
            "lost": None if quick else lost_files(table, [file.path for file in listing.files]),
            "rows": sum(file.record_count for file in listing.files),
            "data_bytes": data_bytes,
            "delete_files": listing.delete_files,
            "size_share": found.statistics.file_size_in_bytes / data_bytes if found and data_bytes else None,
            "lookups": lookups,
            "runs": history_of(found.sidecar.puffin.metadata.properties) if found else [],
            "covered": counted.covered,
            "share_covered": counted.share,
            "waiting": counted.waiting,
        }
        is_blocked = is_passed and _is_blocked(table, listing.snapshot_id)
        return _Asked(facts, declared, other_rates, tuple(damaged), fault, is_blocked)


def _fault_of(found: FoundSidecar | None, damage: SidecarDamage) -> str:
    """Return why nothing of a sidecar is used; empty if it is."""
    causes = found.sidecar.damage.causes if found else []
    if damage or any(isinstance(cause, DamagedFileError) for cause in causes):
        return "the sidecar is damaged"
    is_unread = any(isinstance(cause, UnsupportedFeatureError) for cause in causes)
    return "indexes are of a form that this version of sidecar does not read" if is_unread else ""


def _declared(
    table: Table, found: FoundSidecar | None, passed: Sequence[StatisticsFile], warnings: list[str]
) -> list[ColumnDeclaration] | None:
    """Return what a refresh indexes. ``None`` after a damaged property, which is a warning.

    It carries over from the sidecar that one of the ``passed`` entries has displaced, which is another warning.
    """
    displaced = find_displaced(table, passed)
    if displaced is not None and displaced.displaced is not None:
        path, sentence = displaced.statistics.statistics_path, displaced.displaced.sentence
        warnings.append(f"the sidecar {path} was registered before, {sentence}; a refresh carries it over")
    try:
        carried = displaced or found
        built = built_indexes(carried.sidecar) if carried else {}
        declared, notes = declarations_of(table, table.schema(), None, None, None, built)
    except NothingDeclaredError as error:
        if declaration_of(table.properties).columns:  # all of them are gone
            warnings.append(str(error))
        return []
    except UsageError as error:
        warnings.append(str(error))
        return None
    finally:
        if displaced is not None:
            displaced.sidecar.close()
    warnings += notes
    return declared


def indexes_of(table: Table, declared: Iterable[ColumnDeclaration]) -> list[tuple[str, str]]:
    """Return the columns and kinds that a refresh indexes."""
    named = [(table.schema().find_column_name(one.column.field_id), one.kinds) for one in declared]
    return [(column, kind) for column, kinds in named if column is not None for kind in kinds]


def check_limits(max_behind: timedelta | None, min_coverage: float | None) -> float | None:
    """Return ``min_coverage`` as a share from 0 to 1. Raises :class:`UsageError` for limits that make no sense."""
    if max_behind is not None and max_behind < timedelta(0):
        raise UsageError("max_behind is negative", found=max_behind)
    if min_coverage is not None and not 0 <= min_coverage <= 100:
        raise UsageError("min_coverage is a share of rows, such as 95 (percent) or 0.95", found=min_coverage)
    return min_coverage / 100 if min_coverage is not None and min_coverage > 1 else min_coverage


def _missed(status: TableStatus, max_behind: timedelta | None, min_coverage: float | None) -> Iterator[MissedThreshold]:
    waiting, share = status.waiting, status.share_covered
    if max_behind is not None and (waiting.seconds > max_behind.total_seconds() or waiting.or_longer):
        behind = f"{timedelta(seconds=round(waiting.seconds))}{' or longer' if waiting.or_longer else ''}"
        text = f"{quantity(waiting.files, 'file')} waiting for {behind}, and the limit is {max_behind}"
        yield MissedThreshold("max_behind", max_behind.total_seconds(), waiting.seconds, text)
    if min_coverage is not None and share is not None and share < min_coverage:
        # Rounded down, so that no share below a limit looks as if it met it.
        text = f"{int(share * 1000) / 10:g} % of the rows covered, and the limit is {min_coverage * 100:g} %"
        yield MissedThreshold("min_coverage", min_coverage, share, text)


def _to_do(
    table: Table,
    status: TableStatus,
    refreshed: list[tuple[str, str]] | None,
    at: int | str | None,
    asked: _Asked,
) -> Iterator[NextStep]:
    """Yield what to do. ``refreshed`` is what a refresh indexes, ``at`` names the snapshot that was asked.

    A refresh is about branches; for a tag or an older snapshot it is a build. A refresh does not look for damage, so
    for a sidecar with a fault it is a build, too.
    """
    of_snapshot = () if at is None else ("--at", str(at))
    on_branch = at is not None and is_branch(table, at)
    is_past = not on_branch and at is not None and status.snapshot_id != table.metadata.current_snapshot_id
    named = "main" if at is None or not (is_past or on_branch) else str(at)
    yield from steps_for_lost(table, status.lost)
    blocked = ("--force",) if asked.is_blocked else ()
    place = of_snapshot if is_past or on_branch else ()
    refresh = command_for(table, "build" if is_past or asked.fault or blocked else "refresh", *place, *blocked)
    waiting = status.waiting.files
    if waiting and refreshed == [] and not status.covered:
        advise = command_for(table, "advise")
        yield NextStep("nothing is declared or indexed; advise names the columns that deserve an index", advise)
    elif waiting and refreshed != []:
        yield NextStep(f"{quantity(waiting, 'file')} {'is' if waiting == 1 else 'are'} not covered", refresh)
    elif any(one.ref == named for one in status.losable) and refreshed != []:
        yield NextStep("the sidecar is lost when the snapshot that it is registered for expires", refresh)
    elif asked.fault and not asked.damaged and refreshed != []:
        yield NextStep(asked.fault, refresh)
    if asked.other_rates:
        files = quantity(max(asked.other_rates.values()), "file")
        why = (
            f"filters of {', '.join(asked.other_rates)} have another rate than is declared: {files} to be indexed again"
        )
        yield NextStep(why, refresh)
    broken: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for column, kind in asked.damaged:
        broken.setdefault(((kind,), _naming(status, column, (kind,))), []).append(column)
    for ((kind,), naming), columns in broken.items():
        options = ["--columns", ",".join(map(encoded_name, columns)), *naming, *of_snapshot]
        yield NextStep(f"{kind} of {', '.join(columns)} is damaged", command_for(table, "build", *options))
    if refreshed is not None:
        yield from _behind(table, status, refreshed, of_snapshot)
    if status.repairs:
        why = f"{quantity(len(status.repairs), 'registration')} to be repaired"
        yield NextStep(why, command_for(table, "care", "--only", "repair"))
    if len(status.segments) > MANY_SEGMENTS:
        again = command_for(table, "build", *of_snapshot, "--full") if is_past else refresh
        yield NextStep(f"a lookup asks {len(status.segments)} segments", again)
    if status.unreferenced.deletable:
        count = quantity(status.unreferenced.deletable, "old file")
        yield NextStep(f"{count} of sidecar that nothing references", command_for(table, "care", "--only", "gc"))


def _is_blocked(table: Table, snapshot_id: int) -> bool:
    """Whether a refresh would fail because a statistics file of the snapshot, which no plan uses, cannot be read."""
    try:
        check_mergeable(table, snapshot_id)
    except DamagedFileError:
        return True
    except SidecarError:  # another try may find the file
        return False
    return False


def _behind(
    table: Table, status: TableStatus, refreshed: list[tuple[str, str]], of_snapshot: Sequence[str]
) -> Iterator[NextStep]:
    """Yield a build for the columns whose indexes lack files, and which a refresh does not index."""
    columns: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for column, kinds in status.covered.items():
        late = tuple(kind for kind, found in kinds.items() if found.waiting and (column, kind) not in refreshed)
        if late:
            columns.setdefault((late, _naming(status, column, late)), []).append(column)
    for (late, naming), names in columns.items():
        why = f"{', '.join(late)} of {', '.join(names)} lack files, and are not declared"
        options = ["--columns", ",".join(map(encoded_name, names)), *naming, *of_snapshot]
        yield NextStep(why, command_for(table, "build", *options))


def _naming(status: TableStatus, column: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options that name ``kinds`` of a column, so that its count is registered afterwards if it is now.

    A build that names theta registers the count, and one of columns alone does not.
    """
    is_kept = (counted := status.coverage.get(column, {}).get(THETA)) is None or counted.registered
    if THETA not in kinds or is_kept:
        return "--kinds", ",".join(kinds)
    others = [kind for kind in kinds if kind not in USUAL_KINDS]
    return ("--kinds", ",".join(others)) if others else ()


def misread_counts(table: Table, coverage: Mapping[str, Mapping[str, KindCoverage]]) -> Iterator[str]:
    """Yield a sentence about the registered counts by which Spark expects no rows, and what to do."""
    heard = [name for name, kinds in coverage.items() if THETA in kinds and kinds[THETA].registered]
    types = {name: str(table.schema().find_type(name)) for name in heard}
    misread = [name for name in heard if not reads_right(types[name])]
    if misread:
        again = command_for(table, "build", "--columns", ",".join(map(encoded_name, misread)))
        text = misread_warning([f"{name} ({types[name]})" for name in misread])
        yield f"{text}, or keep those of sidecar in the file alone, which Trino does not read: {again}"
