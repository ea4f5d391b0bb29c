"""``sidecar plan``: the files that can hold matching rows, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.many.targets import one_predicate
from sidecar.cli.options import At, KeyPlace, Predicate, TableArgument, encryption_keys, opened_table
from sidecar.cli.output import SHOWN, escaped, facts, output, table, without_folder
from sidecar.cli.shell import pictures
from sidecar.cli.shell.keys import KeyFile, read_keys
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar import Plan
    from sidecar.results import FileHistory, Funnel, KeptRowGroups


def plan(
    table: TableArgument,
    predicate: Predicate = None,
    keys: KeyFile = None,
    at: At = None,
    encryption: KeyPlace = None,
    why: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Show what each stage found about a data file of this name, kept or not."),
    ] = None,
) -> None:
    """Show which files of a table can hold matching rows, and why.

    TABLE can also be the path of a table's .metadata.json file, which needs no catalog.

    \b
    Examples:
      sidecar plan db.lineitem "l_partkey = 42"
      sidecar plan db.lineitem "l_tax > 0.07" --keys l_partkey=parts.csv
    """
    out, condition = output(), one_predicate("plan", table, predicate)
    from sidecar import plan as plan_scan

    opened = opened_table(table)
    found = plan_scan(
        opened,
        condition,
        at=at,
        keys=read_keys(opened.schema, keys),
        encryption_keys=encryption_keys(encryption),
    )
    out.warn(found.warnings)
    if why is not None:
        out.result(found.why(why), draw_why)
        return
    out.result(found, draw)


def draw_why(to: Console, found: FileHistory) -> None:
    """Draw what became of one file, what each stage found about it, and its row groups."""
    said = "kept" if found.kept else "ruled out by"
    to.print(facts([("file", escaped(found.file)), (said, f"[bold]{escaped(found.because)}[/]")]))
    stages = table("stage", "found", "columns", "segment")
    for stage in found.stages:
        segment = "" if stage.segment is None else f"{stage.segment}, of snapshot {stage.segment_snapshot_id}"
        stages.add_row(stage.stage, _verdict(stage.kept), escaped(", ".join(stage.columns)), segment)
    to.print(stages)
    if not found.row_groups:
        return
    groups = table("row group", "found", "rows that may match", "of", "by", right=(0, 2, 3))
    for group in found.row_groups:
        counts = ("" if n is None else humanize.count(n) for n in (group.may_match, group.rows))
        groups.add_row(str(group.row_group), _verdict(group.dropped_by is None), *counts, group.dropped_by or "")
    to.print(groups)


def _verdict(kept: bool) -> str:
    return "may match" if kept else "ruled out"


def draw(to: Console, found: Plan) -> None:
    """Draw the funnel, its cost, and the files that are kept."""
    if to.is_terminal and found.funnel.total:
        for line in pictures.funnel(to, _stages(found)):
            to.print(line, soft_wrap=True)
        to.print()
    to.print(facts(_funnel(found.funnel)))
    to.print()
    to.print(facts(_cost(found)))
    for note in found.notes:
        to.print(f"note: {note}", markup=False)
    paths = found.kept_files
    if not paths:
        return
    folder, files = without_folder(paths)
    to.print()
    to.print(f"files to read, in {folder}", markup=False, soft_wrap=True)
    for file, path in zip(files[:SHOWN], paths, strict=False):
        to.print(f"  {file}{_part(found.row_groups.get(path))}", markup=False, soft_wrap=True)
    if len(paths) > SHOWN:
        to.print(f"[dim]and {humanize.count(len(paths) - SHOWN)} more: --json names all[/]")


def _part(kept: KeptRowGroups | None) -> str:
    """How much of a file is left, if that is known."""
    if kept is None:
        return ""
    rows = f"{humanize.count(kept.may_match)} of {humanize.count(kept.num_rows)} rows"
    return f"  {len(kept.kept)} of {kept.total} row groups, {rows}"


def _stages(found: Plan) -> list[tuple[str, int, str]]:
    """The counts after each step, then the rows, if it is known how many of each kept file may match."""
    funnel, kept = found.funnel, found.row_groups.values()
    left, stages = funnel.total, [("in the snapshot", funnel.total, "files")]
    for name, dropped in (
        ("after partitions and bounds", funnel.dropped_by_metadata),
        ("after filters", funnel.dropped_by_filter),
        ("after page indexes", funnel.dropped_by_page_index),
    ):
        left -= dropped
        stages.append((name, left, "files"))
    if kept and len(kept) == len(found.kept_files):
        stages.append(("in these files", sum(file.num_rows for file in kept), "rows"))
        stages.append(("may match", sum(file.may_match for file in kept), "rows"))
    return stages


def _funnel(funnel: Funnel) -> list[tuple[str, str]]:
    rows = [("in the snapshot", f"{humanize.count(funnel.total):>8} files")]
    for name, dropped in (
        ("by partition or bounds", funnel.dropped_by_metadata),
        ("by filter", funnel.dropped_by_filter),
        ("by page index", funnel.dropped_by_page_index),
    ):
        if dropped:
            rows.append((f"dropped {name}", f"{'−' + humanize.count(dropped):>8}"))
    reasons = funnel.kept_because
    because = ", ".join(reasons if len(reasons) == 1 else (f"{humanize.count(n)} {r}" for r, n in reasons.items()))
    kept = f"[bold]{humanize.count(funnel.kept):>8}[/]"
    rows.append(("kept", kept + (f"  {escaped(because)}" if because else "")))
    if funnel.row_groups_dropped_by_filter + funnel.row_groups_dropped_by_page_index:
        groups = f"[bold]{humanize.count(funnel.row_groups_kept):>8}[/] of {humanize.count(funnel.row_groups)} kept"
        rows.append(("row groups", groups))
    return rows


def _cost(found: Plan) -> list[tuple[str, str]]:
    used, funnel, manifests = found.sidecar, found.funnel, found.manifests
    rows = []
    if used is not None:
        behind = used.snapshots_behind
        age = f", {quantity(behind, 'snapshot')} behind" if behind else ""
        indexed = f"{humanize.count(funnel.indexed)} indexed for this predicate"
        rows = [
            ("sidecar", f"{escaped(used.path)} (snapshot {used.snapshot_id}{age})"),
            ("covers", f"{quantity(funnel.listed, 'file')} listed, {indexed}"),
        ]
    if manifests.listed:
        listed, total = humanize.count(manifests.listed), humanize.count(manifests.total)
        rows.append(("manifests", f"{listed} of {total} not opened, as the sidecar lists them"))
    index = f"{humanize.size(found.index_bytes_read)} in {quantity(found.index_reads, 'read')}"
    return [*rows, ("index", index), ("planned in", humanize.duration(found.seconds))]
