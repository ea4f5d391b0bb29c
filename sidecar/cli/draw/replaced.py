"""The text output of ``sidecar embed TABLE``: what was replaced in one commit, and what was left alone."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from sidecar.cli import humanize
from sidecar.cli.options import engine_fact
from sidecar.cli.output import SHOWN, announce_dry_run, escaped, facts, table

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import EmbedTableReport, IndexCount, RefreshReport

_TAKEN_FROM = {"exact": "the file's own", "dictionary": "dictionary", "values": "values", "none": "none"}


def draw(to: Console, report: EmbedTableReport) -> None:
    """Draw what was or would be committed, one line for each column, kind and way, then the files left alone."""
    announce_dry_run(to, report.dry_run)
    to.print(facts(_summary(report)))
    if report.indexes:
        drawn = table("column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5))
        for _, index in sorted(report.indexes.items()):
            drawn.add_row(*_line(index))
        to.print(drawn)
    if report.dry_run:
        for file in report.replaced:
            to.print(f"to be replaced: {file.old_path}", markup=False, soft_wrap=True)
    by_reason = sorted(report.left_alone, key=lambda file: (file.reason, file.path))
    for reason, group in groupby(by_reason, key=lambda file: file.reason):
        paths = [file.path for file in group]
        for path in paths[:SHOWN]:
            to.print(f"left alone: {path}: {reason}", markup=False, soft_wrap=True)
        if len(paths) > SHOWN:
            to.print(f"left alone: {humanize.count(len(paths) - SHOWN)} more: {reason}", markup=False)


def _summary(report: EmbedTableReport) -> list[tuple[str, str]]:
    replaced, left_alone, failed = len(report.replaced), len(report.left_alone), len(report.failed)
    verb = "to be replaced" if report.dry_run else "replaced"
    broken = f", [red]{humanize.count(failed)} of them broken[/]" if failed else ""
    left = f"; {humanize.count(left_alone)} left alone{broken}" if left_alone else ""
    size = humanize.size(report.size_before)
    if not report.dry_run:
        size = f"{size} before, {humanize.size(report.size)} now"
    return [
        ("table", escaped(report.table)),
        ("snapshot", _snapshot(report)),
        ("files", f"{humanize.count(replaced)} of {humanize.count(replaced + left_alone)} {verb}{left}"),
        ("size", size),
        *_sidecar(report.refresh),
        *engine_fact(report),
        ("time", humanize.duration(report.seconds)),
    ]


def _sidecar(refreshed: RefreshReport | None) -> list[tuple[str, str]]:
    if refreshed is None:
        return []
    path, count = escaped(refreshed.statistics_path or "–"), humanize.count(refreshed.files_indexed)
    return [("sidecar", f"{path} ({refreshed.action}: {count} files indexed)")]


def _snapshot(report: EmbedTableReport) -> str:
    if report.snapshot_id is not None:
        return f"{report.snapshot_id} (replace), on {report.parent_snapshot_id}"
    return f"{report.parent_snapshot_id}, " + ("nothing written" if report.dry_run else "nothing to commit")


def _line(index: IndexCount) -> tuple[str, ...]:
    from sidecar.bundle.kinds.declared import KINDS

    rate = index.worst_rate
    return (
        escaped(index.column),
        KINDS[index.kind].what,
        _TAKEN_FROM[index.way],
        humanize.count(index.count),
        humanize.size(index.bytes) if index.bytes else "",
        "" if rate is None else humanize.percent(rate),
        escaped(index.reason),
    )
