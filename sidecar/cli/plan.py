"""``sidecar plan``: the files that can hold rows for a predicate, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humane
from sidecar.cli.keys import KeyFile, read_keys
from sidecar.cli.options import Catalog, Json, KeyPlace, Predicate, Ref, Snapshot, Table, encryption_keys
from sidecar.cli.output import Output, escaped, facts, without_folder

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_FILES = 20
"""Kept files that a person is shown."""


def plan(
    table: Table,
    predicate: Predicate,
    keys: KeyFile = None,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    encryption: KeyPlace = None,
    as_json: Json = False,
) -> None:
    """Show which files can hold rows for a predicate, and what dropped the others.

    Example: sidecar plan db.lineitem "l_partkey = 42"
    """
    out = Output(as_json=as_json)
    from sidecar import open_table
    from sidecar import plan as plan_scan

    opened = open_table(table, catalog)
    found = plan_scan(
        opened,
        predicate,
        snapshot_id=snapshot,
        ref=ref,
        keys=read_keys(opened.schema, keys),
        encryption_keys=encryption_keys(encryption),
    )
    out.warn(found.warnings)
    out.result(found.to_dict(), draw)


def draw(to: Console, data: Any) -> None:
    """The funnel, what it cost, and the survivors."""
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
        to.print(f"[dim]and {humane.count(len(data['kept_files']) - SHOWN_FILES)} more: --json names all[/]")


def _part(kept: Any) -> str:
    """How much of a file is left, where that is known."""
    if kept is None:
        return ""
    groups, rows = len(kept["kept"]), kept["rows"]
    return (
        f"  {groups} of {kept['total']} row groups, "
        f"{humane.count(rows['may_match'])} of {humane.count(rows['total'])} rows"
    )


def _funnel(funnel: Any) -> list[tuple[str, str]]:
    dropped = funnel["dropped"]
    rows = [("in the snapshot", f"{humane.count(funnel['total']):>8} files")]
    for name, key in (
        ("by partition or bounds", "partition_or_bounds"),
        ("by filter", "filter"),
        ("by page index", "page_index"),
    ):
        if dropped[key]:
            rows.append((f"dropped {name}", f"{'−' + humane.count(dropped[key]):>8}"))
    reasons = funnel["kept_because"]
    because = ", ".join(
        reasons if len(reasons) == 1 else (f"{humane.count(n)} {r}" for r, n in reasons.items())
    )
    kept = f"[bold]{humane.count(funnel['kept']):>8}[/]"
    rows.append(("kept", kept + (f"  {escaped(because)}" if because else "")))
    groups = funnel["row_groups"]
    if sum(groups["dropped"].values()):
        text = f"[bold]{humane.count(groups['kept']):>8}[/] of {humane.count(groups['total'])} kept"
        rows.append(("row groups", text))
    return rows


def _cost(data: Any) -> list[tuple[str, str]]:
    used, funnel = data["sidecar"], data["funnel"]
    rows = []
    if used is not None:
        behind = used["snapshots_behind"]
        age = f", {behind} snapshot{'s' * (behind > 1)} behind" if behind else ""
        rows = [
            ("sidecar", f"{escaped(used['path'])} (snapshot {used['snapshot_id']}{age})"),
            (
                "covers",
                f"{humane.count(funnel['listed'])} files listed, {humane.count(funnel['indexed'])} indexed "
                "for this predicate",
            ),
        ]
    manifests = data["manifests"]
    if manifests["listed"]:
        listed, total = humane.count(manifests["listed"]), humane.count(manifests["total"])
        rows.append(("manifests", f"{listed} of {total} not opened, as the sidecar lists them"))
    reads = data["index_reads"]
    index = f"{humane.size(data['index_bytes_read'])} in {reads} read{'s' * (reads != 1)}"
    return [*rows, ("index", index), ("planned in", humane.duration(data["seconds"]))]
