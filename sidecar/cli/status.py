"""``sidecar status``: how a table's sidecars are doing, which thresholds are missed, and what to do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.care.spans import MaxBehind, MinCoverage, duration, share
from sidecar.cli.many.tables import NO_SNAPSHOT, RESULT, Cells, View, show_tables
from sidecar.cli.many.targets import Tables
from sidecar.cli.options import At
from sidecar.cli.output import escaped, facts, table
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.iceberg.repair import RepairInfo
    from sidecar.reports.status.results import LookupCost, TableStatus


def status(
    tables: Tables,
    max_behind: MaxBehind = None,
    min_coverage: MinCoverage = None,
    at: At = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Do not look for files that nothing references, which lists the metadata folder."),
    ] = False,
) -> None:
    """Show how a table's sidecars are doing, and what to do.

    It shows coverage, time behind, what a lookup reads, the last runs, the sidecar of each branch and tag, and what
    should be repaired or deleted. No data file is read. Many tables (several, a glob) give a line for each table. The
    exit code is 1 if a table misses a threshold or lacks a data file.

    \b
    Examples:
      sidecar status db.lineitem
      sidecar status 'db.*' --max-behind 1h --min-coverage 95%
      sidecar status db.lineitem --quick --json
    """
    longest = None if max_behind is None else duration(max_behind, "--max-behind")
    least = None if min_coverage is None else share(min_coverage, "--min-coverage")
    from sidecar import status as status_of

    work = partial(status_of, at=at, max_behind=longest, min_coverage=least, quick=quick)
    show_tables(tables, work, View(cells, lambda found: bool(found.missed or found.lost), draw))


def cells(found: TableStatus) -> Cells:
    """The columns of one table's line: what is indexed, what waits, and what to do."""
    used = found.sidecar
    result = NO_SNAPSHOT if found.snapshot_id is None else "no sidecar" if used is None else ""
    if found.missed:
        result = "; ".join(one.text for one in found.missed)
    elif found.to_do and not result:
        result = found.to_do[0].why
    return {
        "files": found.files.live,
        "listed": found.files.listed,
        "columns": len(found.coverage),
        "sidecar": None if used is None else used.file_size,
        "behind": None if used is None else used.snapshots_behind,
        "repairs": len(found.repairs),
        "waiting": found.waiting.files,
        "covered": _share(found.share_covered),
        RESULT: result,
    }


def draw(to: Console, found: TableStatus) -> None:
    """Draw the coverage, the facts, a line for each branch and tag, the repairs, and what to do."""
    _draw_coverage(to, found)
    to.print(facts(_facts(found)))
    _draw_lookups(to, found.lookups)
    if found.runs:
        drawn = table("last runs", "", "indexed", "carried", "left", "time", right=(2, 3, 4, 5))
        for run in found.runs[-5:]:
            numbers = map(humanize.count, (run.indexed, run.carried, run.left))
            drawn.add_row(escaped(run.at), escaped(run.what), *numbers, humanize.duration(run.seconds))
        to.print(drawn)
    if found.refs:
        drawn = table("branch or tag", "", "snapshot", "sidecar of", "behind", right=(4,))
        for ref in found.refs:
            sidecar_of, behind = ref.statistics_snapshot_id, ref.snapshots_behind
            drawn.add_row(*map(_cell, (ref.name, ref.type, ref.snapshot_id, sidecar_of, behind)))
        to.print()
        to.print(drawn)
    if found.repairs:
        to.print()
        to.print("to be repaired by sidecar care")
        _draw_repairs(to, found.repairs)
    for missed in found.missed:
        to.print(f"missed: {missed.text}", markup=False, style="red", soft_wrap=True)
    for step in found.to_do:
        to.print(f"{step.why}: {step.command}", markup=False, soft_wrap=True)


def _draw_coverage(to: Console, found: TableStatus) -> None:
    """Draw the sidecar of a table, and its coverage by column and kind."""
    used, files = found.sidecar, found.files
    if used is None:
        state = f"{quantity(files.live, 'file')} and no sidecar"
        to.print(f"{escaped(found.table)}: {'no snapshot yet' if found.snapshot_id is None else state}")
        return
    behind = used.snapshots_behind
    age = f", {quantity(behind, 'snapshot')} behind" if behind else ""
    to.print(
        facts(
            [
                ("table", f"{escaped(found.table)}, snapshot {found.snapshot_id}"),
                ("sidecar", f"{escaped(used.path)} (of snapshot {used.snapshot_id}{age})"),
                ("size", humanize.size(used.file_size)),
                ("files", f"{humanize.count(files.listed)} of {humanize.count(files.live)} listed"),
                ("segments", humanize.count(len(found.segments))),
            ]
        )
    )
    drawn = table("column", "kind", "files", "units", "size", "distinct values", "not indexed", right=(2, 3, 4, 5))
    for column, kinds in found.coverage.items():
        for kind, entry in kinds.items():
            reasons = ", ".join(f"{humanize.count(n)} units: {why}" for why, n in (entry.not_indexed or {}).items())
            ndv, size = entry.ndv, entry.bytes
            drawn.add_row(
                escaped(column),
                escaped(kind),
                humanize.count(entry.files),
                humanize.count(entry.units),
                "" if size is None else humanize.size(size),
                "" if ndv is None else humanize.distinct(ndv, entry),
                escaped(reasons),
            )
    to.print(drawn)


def _draw_repairs(to: Console, repairs: list[RepairInfo]) -> None:
    """Draw what happens to each statistics file, and why."""
    for entry in repairs:
        line = f"  snapshot {entry.snapshot_id}, {entry.action}: {entry.statistics_path}"
        for text in (line, *(f"    {reason}" for reason in entry.reasons)):
            to.print(text, markup=False, soft_wrap=True)


def _facts(found: TableStatus) -> list[tuple[str, str]]:
    waiting, registered, loose = found.waiting, found.registered, found.unreferenced
    behind = "nothing waits"
    if waiting.files:
        files = f"{quantity(waiting.files, 'file')}, {quantity(waiting.rows, 'row')}"
        behind = f"{files}, for {humanize.duration(waiting.seconds)}{' or longer' if waiting.or_longer else ''}"
    unnamed = f"unknown: {loose.unknown_because}"
    if loose.files is not None:
        unnamed = f"{quantity(loose.files, 'file')} of sidecar, {humanize.size(loose.bytes)}"
    data_size = f"{quantity(found.rows, 'row')}, {humanize.size(found.data_bytes)}"
    deletes = f", {quantity(found.delete_files, 'delete file')}" if found.delete_files else ""
    lines = [
        ("data", data_size + deletes),
        ("covered", f"{_share(found.share_covered)} of the rows, in the least covered index"),
        ("waiting", behind),
        ("size against data", humanize.percent(found.size_share)),
        ("registered", f"{quantity(registered.files, 'file')}, {humanize.size(registered.bytes)}"),
        ("not referenced", escaped(unnamed)),
    ]
    if found.losable:
        names = ", ".join(one.ref for one in found.losable)
        lines.append(("lost", escaped(f"the sidecar of {names}, if old snapshots expired now")))
    return lines


def _draw_lookups(to: Console, lookups: dict[str, LookupCost]) -> None:
    if not lookups:
        return
    drawn = table("a lookup in", "segments", "reads", "bytes", "rate by bits", right=(1, 2, 3, 4))
    for column, cost in lookups.items():
        numbers = (humanize.count(cost.segments), humanize.count(cost.reads), humanize.size(cost.bytes_read))
        drawn.add_row(escaped(column), *numbers, humanize.percent(cost.rate))
    to.print(drawn)


def _share(covered: float | None) -> str:
    """A share of rows, rounded down: it is 100 % only if nothing is missing."""
    return "–" if covered is None else f"{int(covered * 1000) / 10:g} %"


def _cell(value: str | int | None) -> str:
    return "–" if value is None else escaped(str(value))
