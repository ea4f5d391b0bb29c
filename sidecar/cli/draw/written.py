"""The text of what ``embed`` and ``strip`` wrote: one file with its indexes, or a line for each of many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sidecar.cli import humanize
from sidecar.cli.many.files import draw_failed
from sidecar.cli.options import engine_fact
from sidecar.cli.output import escaped, facts, table, without_folder
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import EmbedReport, Outcome, WrittenFiles

_TAKEN_FROM = {
    "exact": "the file's own",
    "converted": "the older form",
    "dictionary": "dictionary",
    "values": "values",
    "none": "none",
}


def draw_embedded(to: Console, report: WrittenFiles) -> None:
    """Draw the one file with a line for each column, kind and way; of several, a line for each file."""
    if len(report) != 1 or report.failed:
        _draw_many(to, report)
        return
    (file,) = report.files
    new = file.written
    parts = [("filters", new.filter_bytes), ("page indexes", new.page_index_bytes), ("dead bytes", new.dead_bytes)]
    to.print(
        facts(
            [
                ("written", escaped(file.target)),
                ("size", _size_change(file.size_before, new.size)),
                *_looked_at([file]),
                *((name, humanize.size(size)) for name, size in parts if size),
                *engine_fact(report),
                ("time", humanize.duration(file.seconds)),
            ]
        )
    )
    drawn = table("column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5))
    own = {"exact": "as it was"} if file.sidecar else {}
    for key, group in groupby(sorted(file.outcomes, key=column_and_way), key=column_and_way):
        names = (key[0], key[1], {**_TAKEN_FROM, **own}[key[2]])
        drawn.add_row(*(escaped(part) for part in names), *_figures(list(group)), escaped(key[3]))
    if drawn.row_count:
        to.print(drawn)


def draw_stripped(to: Console, report: WrittenFiles) -> None:
    """Draw what was removed from the one file, and both sizes; of several files, a line for each."""
    from sidecar.bundle.kinds.declared import KINDS

    if len(report) != 1 or report.failed:
        _draw_many(to, report)
        return
    (file,) = report.files
    removed = [f"{sum(ways.values()):,} {KINDS[kind].plural}" for kind, ways in file.ways().items()]
    lines = [("written", escaped(file.target)), ("removed", ", ".join(removed) or "nothing was there")]
    to.print(facts([*lines, ("size", _size_change(file.size_before, file.written.size)), *engine_fact(report)]))


def _draw_many(to: Console, report: WrittenFiles) -> None:
    """Draw one line for each new file, then the totals."""
    _, names = without_folder([file.target for file in report.files])
    drawn = table("file", "before", "now", "filters", "page indexes", right=(1, 2, 3, 4))
    for name, file in zip(names, report.files, strict=True):
        new = file.written
        sizes = (file.size_before, new.size, new.filter_bytes, new.page_index_bytes)
        drawn.add_row(escaped(name), *map(humanize.size, sizes))
    to.print(drawn)
    read = [("read", f"{humanize.size(report.sidecar_bytes)} of the sidecar")] if report.sidecar_bytes else []
    before, now = sum(file.size_before for file in report.files), sum(file.written.size for file in report.files)
    lines = [
        ("written", f"{quantity(len(report.files), 'file')} in {escaped(report.into)}"),
        ("size", _size_change(before, now)),
        *read,
        *_looked_at(report.files),
        *engine_fact(report),
        ("time", humanize.duration(report.seconds)),
    ]
    to.print(facts(lines))
    draw_failed(to, report.failed, report.others)


def _size_change(before: int, now: int) -> str:
    return f"{humanize.size(before)} before, {humanize.size(now)} now"


def _looked_at(files: Sequence[EmbedReport]) -> list[tuple[str, str]]:
    """Lines with the proofs of the files and what was compared; none if no file came from a sidecar."""
    witnesses = [file.witness for file in files if file.sidecar]
    if not witnesses:
        return []
    proofs = dict.fromkeys(escaped(one.proof or "none, so all values were looked up") for one in witnesses)
    pages, values = sum(one.pages for one in witnesses), sum(one.values for one in witnesses)
    return [
        ("proof", ", ".join(proofs)),
        ("looked at", f"{humanize.count(pages)} pages, {humanize.count(values)} values asked for"),
    ]


def column_and_way(unit: Outcome) -> tuple[str, str, str, str]:
    """Return what the units of one line of the text have in common: column, index, way, reason."""
    from sidecar.bundle.kinds.declared import KINDS

    return unit.column, KINDS[unit.kind].what, unit.way, unit.reason


def _figures(units: Sequence[Outcome]) -> tuple[str, str, str]:
    rates = [unit.rate_after for unit in units if unit.rate_after is not None]
    worst = humanize.percent(max(rates)) if rates else ""
    size = sum(unit.bytes for unit in units)
    return humanize.count(len(units)), humanize.size(size) if size else "", worst
