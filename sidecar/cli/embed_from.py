"""``sidecar embed --from``: put filters and page indexes of a sidecar back into data files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.options import encryption_keys, is_path, opened_table
from sidecar.cli.output import Output, escaped, facts, output
from sidecar.errors import UsageError
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class SidecarOrigin:
    """The arguments of the command line."""

    sidecar: str
    source: str | None
    destination: str | None
    all_to: str | None
    bloom: Sequence[str]
    page_index: bool
    placement: str
    keys: str | None


def run(origin: SidecarOrigin, out: Output) -> None:
    """Write one file, or all files of the sidecar."""
    _check(origin)
    from sidecar import embed_all_from, embed_from

    everything = not origin.bloom and not origin.page_index
    with ExitStack() as stack:
        sidecar, table = _opened(origin, stack)
        options: dict[str, Any] = {
            "bloom": None if everything else origin.bloom,
            "page_index": None if everything or origin.page_index else [],
            "placement": origin.placement,
            "encryption_keys": encryption_keys(origin.keys),
            "table": table,
            "io": None if table is None else table.io,
        }
        if origin.all_to is not None:
            reports = embed_all_from(sidecar, origin.all_to, **options)
        else:
            source, target = origin.source or "", origin.destination or ""
            reports = [embed_from(sidecar, source, target, **options)]
    for report in reports:
        out.warn(report.warnings())
    failed = any(report.damaged for report in reports)
    if origin.all_to is None:
        from sidecar.cli.embed import draw

        out.result(reports[0].to_dict(), draw, failed=failed)
    else:
        data = {"files": [report.to_dict() for report in reports]}
        out.result(data, draw_all, each="files", failed=failed)


def _check(origin: SidecarOrigin) -> None:
    if origin.all_to is not None:
        if origin.source is not None:
            raise UsageError("--all-to writes all files of the sidecar: give no SRC and DST")
    elif origin.source is None or origin.destination is None:
        raise UsageError("embedding from a sidecar needs SRC and DST, or --all-to")
    if output().choices.catalog is not None and is_path(origin.sidecar):
        raise UsageError("--catalog is for a table, but --from is a path")


def _opened(origin: SidecarOrigin, stack: ExitStack) -> tuple[Any, Any]:
    """A path as it is and None; or the open sidecar of a table's current snapshot and the table."""
    if is_path(origin.sidecar):
        return origin.sidecar, None
    from sidecar import open_sidecar

    table = opened_table(origin.sidecar)
    sidecar = open_sidecar(table, encryption_keys=encryption_keys(origin.keys))
    stack.callback(sidecar.close)
    return sidecar, table


def draw_all(to: Console, data: Any) -> None:
    """Draw what was written in total."""
    files = data["files"]
    written = sum(file["size"] for file in files)
    ways: dict[str, int] = {}
    for file in files:
        for kinds in file["ways"].values():
            for way, count in kinds.items():
                ways[way] = ways.get(way, 0) + count
    to.print(
        facts(
            [
                ("written", f"{quantity(len(files), 'file')}, {humanize.size(written)}"),
                ("indexes", ", ".join(f"{humanize.count(n)} {escaped(way)}" for way, n in ways.items())),
                (
                    "read",
                    f"{humanize.size(max((f['sidecar_bytes'] for f in files), default=0))} of the sidecar",
                ),
                *looked_at(files),
                ("time", humanize.duration(sum(file["seconds"] for file in files))),
            ]
        )
    )


def looked_at(files: Sequence[Any]) -> list[tuple[str, str]]:
    """Lines with the proofs of the files and what was checked; none if no file came from a sidecar."""
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
