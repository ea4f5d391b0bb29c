"""``sidecar status``: how a table's sidecars are doing, which thresholds are missed, and what to do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.care.spans import MaxBehind, MinCoverage, duration, share
from sidecar.cli.many.tables import NO_SNAPSHOT, RESULT, Cells, run_tables
from sidecar.cli.many.targets import Tables, are_several_tables
from sidecar.cli.options import At, opened_table
from sidecar.cli.output import escaped, facts, output, table
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console


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
    exit code is 1 if a table misses a threshold.

    \b
    Examples:
      sidecar status db.lineitem
      sidecar status 'db.*' --max-behind 1h --min-coverage 95%
      sidecar status db.lineitem --quick --json
    """
    out = output()
    longest = None if max_behind is None else duration(max_behind, "--max-behind")
    least = None if min_coverage is None else share(min_coverage, "--min-coverage")
    from sidecar import status as status_of

    work = partial(status_of, at=at, max_behind=longest, min_coverage=least, quick=quick)
    if are_several_tables(tables):
        run_tables(out, tables, work, cells, lambda one: bool(one["missed"]))
        return
    data = work(opened_table(tables[0]))
    out.warn(data.warnings)
    out.result(data.to_dict(), draw, failed=bool(data.missed))


def cells(data: Any) -> Cells:
    """The columns of one table's line: what is indexed, what waits, and what to do."""
    used = data["sidecar"]
    found: Cells = {"files": data["files"]["live"], "listed": data["files"]["listed"]}
    found["columns"] = len(data["coverage"])
    found["sidecar"] = None if used is None else used["file_size"]
    found["behind"] = None if used is None else used["snapshots_behind"]
    found["repairs"] = len(data["repairs"])
    found[RESULT] = NO_SNAPSHOT if data["snapshot_id"] is None else "no sidecar" if used is None else ""
    found["waiting"] = data["waiting"]["files"]
    found["covered"] = _share(data["share_covered"])
    if data["missed"]:
        found[RESULT] = "; ".join(one["text"] for one in data["missed"])
    elif data["to_do"] and not found[RESULT]:
        found[RESULT] = data["to_do"][0]["why"]
    return found


def draw(to: Console, data: Any) -> None:
    """Draw the coverage, the facts, a line for each branch and tag, the repairs, and what to do."""
    _draw_coverage(to, data)
    to.print(facts(_facts(data)))
    _draw_lookups(to, data["lookups"])
    if data["runs"]:
        drawn = table("last runs", "", "indexed", "carried", "left", "time", right=(2, 3, 4, 5))
        for run in data["runs"][-5:]:
            numbers = (humanize.count(run[name]) for name in ("indexed", "carried", "left"))
            drawn.add_row(escaped(run["at"]), escaped(run["what"]), *numbers, humanize.duration(run["seconds"]))
        to.print(drawn)
    if data["refs"]:
        drawn = table("branch or tag", "", "snapshot", "sidecar of", "behind", right=(4,))
        for ref in data["refs"]:
            shown = (ref["name"], ref["type"], ref["snapshot_id"], ref["statistics_snapshot_id"])
            drawn.add_row(*map(_cell, shown), _cell(ref["snapshots_behind"]))
        to.print()
        to.print(drawn)
    if data["repairs"]:
        to.print("\nto be repaired by sidecar care")
        _draw_repairs(to, data["repairs"])
    for missed in data["missed"]:
        to.print(f"missed: {missed['text']}", markup=False, style="red", soft_wrap=True)
    for step in data["to_do"]:
        to.print(f"{step['why']}: {step['command']}", markup=False, soft_wrap=True)


def _draw_coverage(to: Console, data: Any) -> None:
    """Draw the sidecar of a table, and its coverage by column and kind."""
    used, files = data["sidecar"], data["files"]
    if used is None:
        state = f"{quantity(files['live'], 'file')} and no sidecar"
        to.print(f"{escaped(data['table'])}: {'no snapshot yet' if data['snapshot_id'] is None else state}")
        return
    behind = used["snapshots_behind"]
    age = f", {quantity(behind, 'snapshot')} behind" if behind else ""
    to.print(
        facts(
            [
                ("table", f"{escaped(data['table'])}, snapshot {data['snapshot_id']}"),
                ("sidecar", f"{escaped(used['path'])} (of snapshot {used['snapshot_id']}{age})"),
                ("size", humanize.size(used["file_size"])),
                ("files", f"{humanize.count(files['listed'])} of {humanize.count(files['live'])} listed"),
                ("segments", humanize.count(len(data["segments"]))),
            ]
        )
    )
    drawn = table("column", "kind", "files", "units", "size", "distinct values", "not indexed", right=(2, 3, 4, 5))
    for column, kinds in data["coverage"].items():
        for kind, entry in kinds.items():
            reasons = ", ".join(f"{humanize.count(n)} units: {why}" for why, n in entry.get("not_indexed", {}).items())
            ndv, size = entry.get("ndv"), entry.get("bytes")
            drawn.add_row(
                escaped(column),
                escaped(kind),
                humanize.count(entry.get("files")),
                humanize.count(entry.get("units")),
                "" if size is None else humanize.size(size),
                "" if ndv is None else humanize.distinct(ndv, entry),
                escaped(reasons),
            )
    to.print(drawn)


def _draw_repairs(to: Console, repairs: Any) -> None:
    """Draw what happens to each statistics file, and why."""
    for entry in repairs:
        line = f"  snapshot {entry['snapshot_id']}, {entry['action']}: {entry['statistics_path']}"
        for text in (line, *(f"    {reason}" for reason in entry["reasons"])):
            to.print(text, markup=False, soft_wrap=True)


def _facts(data: Any) -> list[tuple[str, str]]:
    waiting, registered, loose = data["waiting"], data["registered"], data["unreferenced"]
    behind = "nothing waits"
    if waiting["files"]:
        files = f"{quantity(waiting['files'], 'file')}, {quantity(waiting['rows'], 'row')}"
        behind = f"{files}, for {humanize.duration(waiting['seconds'])}{' or longer' if waiting['or_longer'] else ''}"
    unnamed = f"unknown: {loose['unknown_because']}"
    if loose["files"] is not None:
        unnamed = f"{quantity(loose['files'], 'file')} of sidecar, {humanize.size(loose['bytes'])}"
    data_size = f"{quantity(data['rows'], 'row')}, {humanize.size(data['data_bytes'])}"
    deletes = f", {quantity(data['delete_files'], 'delete file')}" if data["delete_files"] else ""
    lines = [
        ("data", data_size + deletes),
        ("covered", f"{_share(data['share_covered'])} of the rows, in the least covered index"),
        ("waiting", behind),
        ("size against data", humanize.percent(data["size_share"])),
        ("registered", f"{quantity(registered['files'], 'file')}, {humanize.size(registered['bytes'])}"),
        ("not referenced", escaped(unnamed)),
    ]
    if data["losable"]:
        names = ", ".join(one["ref"] for one in data["losable"])
        lines.append(("lost", escaped(f"the sidecar of {names}, if old snapshots expired now")))
    return lines


def _draw_lookups(to: Console, lookups: Any) -> None:
    if not lookups:
        return
    drawn = table("a lookup in", "segments", "reads", "bytes", "rate by bits", right=(1, 2, 3, 4))
    for column, cost in lookups.items():
        numbers = (humanize.count(cost["segments"]), humanize.count(cost["reads"]), humanize.size(cost["bytes_read"]))
        drawn.add_row(escaped(column), *numbers, humanize.percent(cost["rate"]))
    to.print(drawn)


def _share(covered: float | None) -> str:
    """A share of rows, rounded down: it is 100 % only if nothing is missing."""
    return "–" if covered is None else f"{int(covered * 1000) / 10:g} %"


def _cell(value: Any) -> str:
    return "–" if value is None else escaped(str(value))
