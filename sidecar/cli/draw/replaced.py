"""The text output of ``sidecar embed TABLE``: what was replaced in one commit, and what was left alone."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.options import engine_fact
from sidecar.cli.output import announce_dry_run, escaped, facts, table

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 20
"""How many of the files left alone the text output names for each reason; JSON names all."""
_TAKEN_FROM = {"exact": "the file's own", "dictionary": "dictionary", "values": "values", "none": "none"}


def draw(to: Console, data: Any) -> None:
    """Draw what was or would be committed, one line for each column, kind and way, then the files left alone."""
    is_dry = announce_dry_run(to, data)
    to.print(facts(_summary(data)))
    if data["indexes"]:
        drawn = table("column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5))
        for index in data["indexes"]:
            drawn.add_row(*_line(index))
        to.print(drawn)
    if is_dry:
        for file in data["replaced"]:
            to.print(f"to be replaced: {file['old_path']}", markup=False, soft_wrap=True)
    by_reason = sorted(data["left_alone"], key=lambda file: (file["reason"], file["path"]))
    for reason, group in groupby(by_reason, key=lambda file: file["reason"]):
        paths = [file["path"] for file in group]
        for path in paths[:_SHOWN]:
            to.print(f"left alone: {path}: {reason}", markup=False, soft_wrap=True)
        if len(paths) > _SHOWN:
            to.print(f"left alone: {humanize.count(len(paths) - _SHOWN)} more: {reason}", markup=False)


def _summary(data: Any) -> list[tuple[str, str]]:
    files = data["files"]
    verb = "to be replaced" if data["dry_run"] else "replaced"
    failed = f", [red]{humanize.count(files['failed'])} of them broken[/]" if files["failed"] else ""
    left = f"; {humanize.count(files['left_alone'])} left alone{failed}" if files["left_alone"] else ""
    size = humanize.size(data["size_before"])
    if not data["dry_run"]:
        size = f"{size} before, {humanize.size(data['size'])} now"
    return [
        ("table", escaped(data["table"])),
        ("snapshot", _snapshot(data)),
        ("files", f"{humanize.count(files['replaced'])} of {humanize.count(files['total'])} {verb}{left}"),
        ("size", size),
        *_sidecar(data["refresh"]),
        *engine_fact(data),
        ("time", humanize.duration(data["seconds"])),
    ]


def _sidecar(refreshed: Any) -> list[tuple[str, str]]:
    if refreshed is None:
        return []
    path, count = escaped(refreshed["statistics_path"] or "–"), humanize.count(refreshed["files_indexed"])
    return [("sidecar", f"{path} ({refreshed['action']}: {count} files indexed)")]


def _snapshot(data: Any) -> str:
    if data["snapshot_id"] is not None:
        return f"{data['snapshot_id']} (replace), on {data['parent_snapshot_id']}"
    return f"{data['parent_snapshot_id']}, " + ("nothing written" if data["dry_run"] else "nothing to commit")


def _line(index: Any) -> tuple[str, ...]:
    from sidecar.bundle.kinds.declared import KINDS

    rate = index["worst_rate"]
    return (
        escaped(index["column"]),
        KINDS[index["kind"]].what,
        _TAKEN_FROM[index["way"]],
        humanize.count(index["count"]),
        humanize.size(index["bytes"]) if index["bytes"] else "",
        "" if rate is None else humanize.percent(rate),
        escaped(index["reason"]),
    )
