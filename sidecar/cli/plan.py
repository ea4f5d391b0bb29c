"""``sidecar plan``: the files that can hold matching rows, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.targets import one_predicate
from sidecar.cli.options import At, KeyPlace, Predicate, Table, encryption_keys, opened_table
from sidecar.cli.output import escaped, facts, output, table, without_folder
from sidecar.cli.shell import pictures
from sidecar.cli.shell.keys import KeyFile, read_keys
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_FILES = 20
"""How many kept files the text output names; JSON names all."""


def plan(
    table: Table,
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
        out.result(found.why(why).to_dict(), draw_why)
        return
    out.result(found.to_dict(), draw)


def draw_why(to: Console, data: Any) -> None:
    """Draw what became of one file, what each stage found about it, and its row groups."""
    said = "kept" if data["kept"] else "ruled out by"
    to.print(facts([("file", escaped(data["file"])), (said, f"[bold]{escaped(data['because'])}[/]")]))
    stages = table("stage", "found", "columns", "segment")
    for one in data["stages"]:
        segment = "" if one["segment"] is None else f"{one['segment']}, of snapshot {one['segment_snapshot_id']}"
        stages.add_row(one["stage"], _verdict(one["kept"]), escaped(", ".join(one["columns"])), segment)
    to.print(stages)
    if not data["row_groups"]:
        return
    groups = table("row group", "found", "rows that may match", "of", "by", right=(0, 2, 3))
    for one in data["row_groups"]:
        counts = ("" if n is None else humanize.count(n) for n in (one["may_match"], one["rows"]))
        groups.add_row(str(one["row_group"]), _verdict(one["dropped_by"] is None), *counts, one["dropped_by"] or "")
    to.print(groups)


def _verdict(kept: bool) -> str:
    return "may match" if kept else "ruled out"


def draw(to: Console, data: Any) -> None:
    """Draw the funnel, its cost, and the files that are kept."""
    if to.is_terminal and data["funnel"]["total"]:
        for line in pictures.funnel(to, _stages(data)):
            to.print(line, soft_wrap=True)
        to.print()
    to.print(facts(_funnel(data["funnel"])))
    to.print()
    to.print(facts(_cost(data)))
    for note in data["notes"]:
        to.print(f"note: {note}", markup=False)
    if not data["kept_files"]:
        return
    folder, files = without_folder(data["kept_files"])
    to.print(f"\nfiles to read, in {folder}", markup=False, soft_wrap=True)
    for file, path in zip(files[:SHOWN_FILES], data["kept_files"], strict=False):
        to.print(f"  {file}{_part(data['row_groups'].get(path))}", markup=False, soft_wrap=True)
    if len(data["kept_files"]) > SHOWN_FILES:
        to.print(f"[dim]and {humanize.count(len(data['kept_files']) - SHOWN_FILES)} more: --json names all[/]")


def _file_row(path: str, kept: Any) -> dict[str, Any]:
    if kept is None:
        return {"file": path}
    return {
        "file": path,
        "row_groups": kept["kept"],
        "row_groups_total": kept["total"],
        "rows_may_match": kept["rows"]["may_match"],
        "rows_total": kept["rows"]["total"],
    }


def _part(kept: Any) -> str:
    """How much of a file is left, if that is known."""
    if kept is None:
        return ""
    groups, rows = len(kept["kept"]), kept["rows"]
    return (
        f"  {groups} of {kept['total']} row groups, "
        f"{humanize.count(rows['may_match'])} of {humanize.count(rows['total'])} rows"
    )


def _stages(data: Any) -> list[tuple[str, int, str]]:
    """The counts after each step, then the rows, if it is known how many of each kept file may match."""
    funnel = data["funnel"]
    left, stages = funnel["total"], [("in the snapshot", funnel["total"], "files")]
    for name, key in (
        ("after partitions and bounds", "partition_or_bounds"),
        ("after filters", "filter"),
        ("after page indexes", "page_index"),
    ):
        left -= funnel["dropped"][key]
        stages.append((name, left, "files"))
    kept = data["row_groups"].values()
    if kept and len(kept) == len(data["kept_files"]):
        stages.append(("in these files", sum(file["rows"]["total"] for file in kept), "rows"))
        stages.append(("may match", sum(file["rows"]["may_match"] for file in kept), "rows"))
    return stages


def _funnel(funnel: Any) -> list[tuple[str, str]]:
    dropped = funnel["dropped"]
    rows = [("in the snapshot", f"{humanize.count(funnel['total']):>8} files")]
    for name, key in (
        ("by partition or bounds", "partition_or_bounds"),
        ("by filter", "filter"),
        ("by page index", "page_index"),
    ):
        if dropped[key]:
            rows.append((f"dropped {name}", f"{'−' + humanize.count(dropped[key]):>8}"))
    reasons = funnel["kept_because"]
    because = ", ".join(reasons if len(reasons) == 1 else (f"{humanize.count(n)} {r}" for r, n in reasons.items()))
    kept = f"[bold]{humanize.count(funnel['kept']):>8}[/]"
    rows.append(("kept", kept + (f"  {escaped(because)}" if because else "")))
    groups = funnel["row_groups"]
    if sum(groups["dropped"].values()):
        text = f"[bold]{humanize.count(groups['kept']):>8}[/] of {humanize.count(groups['total'])} kept"
        rows.append(("row groups", text))
    return rows


def _cost(data: Any) -> list[tuple[str, str]]:
    used, funnel = data["sidecar"], data["funnel"]
    rows = []
    if used is not None:
        behind = used["snapshots_behind"]
        age = f", {quantity(behind, 'snapshot')} behind" if behind else ""
        rows = [
            ("sidecar", f"{escaped(used['path'])} (snapshot {used['snapshot_id']}{age})"),
            (
                "covers",
                f"{quantity(funnel['listed'], 'file')} listed, {humanize.count(funnel['indexed'])} indexed "
                "for this predicate",
            ),
        ]
    manifests = data["manifests"]
    if manifests["listed"]:
        listed, total = humanize.count(manifests["listed"]), humanize.count(manifests["total"])
        rows.append(("manifests", f"{listed} of {total} not opened, as the sidecar lists them"))
    index = f"{humanize.size(data['index_bytes_read'])} in {quantity(data['index_reads'], 'read')}"
    return [*rows, ("index", index), ("planned in", humanize.duration(data["seconds"]))]
