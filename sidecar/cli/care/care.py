"""``sidecar care``: what a night does to the sidecars of tables, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from sidecar.cli import humanize
from sidecar.cli.care.refresh import outcome
from sidecar.cli.care.spans import MaxBehind, MinCoverage, duration, share
from sidecar.cli.many.tables import Cells, draw_lines, warn_of_tables
from sidecar.cli.many.targets import Tables
from sidecar.cli.options import AllowPlaintext, DryRun, EngineOption, KeyPlace, chosen_catalog, encryption_keys
from sidecar.cli.output import announce_dry_run, error_text, escaped, facts, output
from sidecar.results.choices import CareStep

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.reports.caring import CaredTable, CareReport

ALL_STEPS = ", ".join(get_args(CareStep))


def care(
    tables: Tables,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="STEP", help=f"Only these steps, in this order: {ALL_STEPS}. Repeat."),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Let gc keep files younger than this: 3d, 36h."),
    ] = "3d",
    max_behind: MaxBehind = None,
    min_coverage: MinCoverage = None,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE", help="The HTML page about all tables, in the place of an older one."),
    ] = None,
    engine: EngineOption = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    dry_run: DryRun = False,
) -> None:
    """Do a night's work on the sidecars of tables.

    It repairs registrations, indexes what is new (refresh), removes registrations that no plan needs (expire), deletes
    sidecar files that no metadata names (gc), checks the limits, and writes a page. A failed refresh skips expire and
    gc of its table; a failed table does not stop the others. A table with gc.enabled=false keeps registrations and
    files. The exit code is 1 after a failure, a missed limit or a lost file, else 4 if no sidecar can be registered.

    \b
    Examples:
      sidecar care 'crm.*' --report lake.html --min-coverage 95%
      sidecar care 'crm.*' --dry-run
      sidecar care crm.orders --only refresh --only check --max-behind 1h
    """
    out = output()
    age = duration(older_than, "--older-than")
    longest = None if max_behind is None else duration(max_behind, "--max-behind")
    least = None if min_coverage is None else share(min_coverage, "--min-coverage")
    from sidecar import care as care_for_tables

    with out.holding_warnings("", []):  # the result has them by table
        done = care_for_tables(
            tables,
            catalog=chosen_catalog(),
            only=cast("list[CareStep] | None", only),  # care checks the names
            older_than=age,
            max_behind=longest,
            min_coverage=least,
            report=report,
            engine=engine,
            encryption_keys=encryption_keys(keys),
            allow_plaintext=allow_plaintext,
            dry_run=dry_run,
        )
    warn_of_tables((one.table, text) for one in done.tables for text in one.warnings)
    out.warn(done.warnings())
    out.result(done, draw, each="tables", exits=[one.exit_code for one in done.tables], failed=done.exit_code)


def draw(to: Console, done: CareReport) -> None:
    """Draw a line for each table, the counts, and where the page is."""
    announce_dry_run(to, done.dry_run)
    draw_lines(to, [{"table": one.table, **cells(one)} for one in done.tables], done.counts())
    if done.page is not None:
        to.print(facts([("page", f"{escaped(done.page.path)} ({humanize.size(done.page.bytes)})")]))


def cells(done: CaredTable) -> Cells:
    """The columns of one table's line."""
    share_covered = None if done.check is None else done.check.share_covered
    return {
        **done.step_counts(),
        "covered": None if share_covered is None else f"{int(share_covered * 1000) / 10:g} %",
        "time": done.seconds,
        "result": _result(done),
    }


def _result(done: CaredTable) -> str:
    """What went wrong and what to do, else why the table was left alone, else how its refresh ended."""
    found = [f"{step}: {error_text(error, hint=True)}" for step, error in done.errors.items()]
    found += [missed.text for missed in done.missed]
    found += [done.left_alone] if done.left_alone else []
    if done.has_lost_files and done.check is not None:
        found.append(done.check.to_do[0].why)
    if done.refresh is not None and (not found or done.refresh.files_failed):
        found.append(outcome(done.refresh))
    alone = {one.left_alone for one in (done.expire, done.gc) if one is not None and one.left_alone}
    return "; ".join([*found, *sorted(alone)]) or "done"
