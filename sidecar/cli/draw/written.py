"""The text of what ``embed`` and ``strip`` wrote: one file with its indexes, or a line for each of many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.many.files import draw_failed, only_file
from sidecar.cli.options import engine_fact
from sidecar.cli.output import escaped, facts, table, without_folder
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

_TAKEN_FROM = {
    "exact": "the file's own",
    "converted": "the older form",
    "dictionary": "dictionary",
    "values": "values",
    "none": "none",
}


def draw_embedded(to: Console, data: Any) -> None:
    """Draw the one file with a line for each column, kind and way; of several, a line for each file."""
    file = only_file(data)
    if file is None:
        _draw_many(to, data)
        return
    written = [
        ("filters", file["filter_bytes"]),
        ("page indexes", file.get("page_index_bytes", 0)),
        ("dead bytes", file.get("dead_bytes", 0)),
    ]
    to.print(
        facts(
            [
                ("written", escaped(file["target"])),
                ("size", _grown(file)),
                *_looked_at([file]),
                *((name, humanize.size(size)) for name, size in written if size),
                *engine_fact(data),
                ("time", humanize.duration(file["seconds"])),
            ]
        )
    )
    drawn = table("column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5))
    own = {"exact": "as it was"} if "sidecar" in file else {}
    for key, group in groupby(sorted(file["units"], key=_line), key=_line):
        names = (key[0], key[1], {**_TAKEN_FROM, **own}[key[2]])
        drawn.add_row(*(escaped(part) for part in names), *_figures(list(group)), escaped(key[3]))
    if drawn.row_count:
        to.print(drawn)


def draw_stripped(to: Console, data: Any) -> None:
    """Draw what was removed from the one file, and both sizes; of several files, a line for each."""
    from sidecar.bundle.kinds.declared import KINDS

    file = only_file(data)
    if file is None:
        _draw_many(to, data)
        return
    removed = [f"{sum(ways.values()):,} {KINDS[kind].plural}" for kind, ways in file["ways"].items()]
    lines = [("written", escaped(file["target"])), ("removed", ", ".join(removed) or "nothing was there")]
    to.print(facts([*lines, ("size", _grown(file)), *engine_fact(data)]))


def _draw_many(to: Console, data: Any) -> None:
    """Draw one line for each new file, then the totals."""
    files = data["files"]
    _, names = without_folder([file["target"] for file in files])
    drawn = table("file", "before", "now", "filters", "page indexes", right=(1, 2, 3, 4))
    for name, file in zip(names, files, strict=True):
        drawn.add_row(
            escaped(name),
            humanize.size(file["size_before"]),
            humanize.size(file["size"]),
            humanize.size(file["filter_bytes"]),
            humanize.size(file.get("page_index_bytes", 0)),
        )
    to.print(drawn)
    read = [("read", f"{humanize.size(data['sidecar_bytes'])} of the sidecar")] if data["sidecar_bytes"] else []
    written = f"{quantity(len(files), 'file')} in {escaped(data['into'])}"
    lines = [("written", written), ("size", _grown(data)), *read, *_looked_at(files), *engine_fact(data)]
    to.print(facts([*lines, ("time", humanize.duration(data["seconds"]))]))
    draw_failed(to, data)


def _grown(data: Any) -> str:
    return f"{humanize.size(data['size_before'])} before, {humanize.size(data['size'])} now"


def _looked_at(files: Sequence[Any]) -> list[tuple[str, str]]:
    """Lines with the proofs of the files and what was compared; none if no file came from a sidecar."""
    witnesses = [file["witness"] for file in files if "witness" in file]
    if not witnesses:
        return []
    proofs = ", ".join(
        dict.fromkeys(escaped(one["proof"] or "none, so all values were looked up") for one in witnesses)
    )
    pages, values = (sum(one[name] for one in witnesses) for name in ("pages", "values"))
    return [
        ("proof", proofs),
        ("looked at", f"{humanize.count(pages)} pages, {humanize.count(values)} values asked for"),
    ]


def _line(unit: Any) -> tuple[str, str, str, str]:
    from sidecar.bundle.kinds.declared import KINDS

    return unit["column"], KINDS[unit["kind"]].what, unit["way"], unit["reason"]


def _figures(units: list[Any]) -> tuple[str, str, str]:
    rates = [unit["rate_after"] for unit in units if unit["rate_after"] is not None]
    worst = humanize.percent(max(rates)) if rates else ""
    size = sum(unit["bytes"] for unit in units)
    return humanize.count(len(units)), humanize.size(size) if size else "", worst
