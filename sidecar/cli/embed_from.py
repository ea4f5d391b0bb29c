"""``sidecar embed --from``: filters and page indexes put back into Parquet files, from a sidecar."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from sidecar.cli import humane
from sidecar.cli.options import encryption_keys, is_path
from sidecar.cli.output import Output, escaped, facts
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


class RestoreWay(str, Enum):
    """How filters come out of a sidecar."""

    auto = "auto"
    exact = "exact"
    values = "values"


class WitnessRule(str, Enum):
    """How many values are looked at if a file is proven to be the one that was indexed; otherwise all are."""

    page = "page"
    full = "full"
    none = "none"


@dataclass(frozen=True)
class SidecarOrigin:
    """What was asked for on the command line."""

    sidecar: str
    source: str | None
    destination: str | None
    all_to: str | None
    bloom: Sequence[str]
    page_index: bool
    placement: str
    way: RestoreWay
    witness: WitnessRule
    catalog: str | None
    keys: str | None


def run(asked: SidecarOrigin, out: Output) -> None:
    """One file, or all of them."""
    _check(asked)
    from sidecar import embed_all_from, embed_from

    everything = not asked.bloom and not asked.page_index
    with ExitStack() as stack, out.progress() as progress:
        sidecar, table = _opened(asked, stack)
        options: dict[str, Any] = {
            "bloom": None if everything else asked.bloom,
            "page_index": None if everything or asked.page_index else [],
            "placement": asked.placement,
            "encryption_keys": encryption_keys(asked.keys),
            "witness": asked.witness.value,
            "table": table,
            "io": None if table is None else table.io,
            "progress": progress,
        }
        if asked.all_to is not None:
            reports = embed_all_from(sidecar, asked.all_to, **options)
        else:
            source, target = asked.source or "", asked.destination or ""
            reports = [embed_from(sidecar, source, target, way=asked.way.value, **options)]
    for report in reports:
        out.warn(report.warnings())
    if asked.all_to is None:
        from sidecar.cli.embed import draw

        out.result(reports[0].to_dict(), draw)
    else:
        out.result({"files": [report.to_dict() for report in reports]}, draw_all)
    if any(report.damaged for report in reports):
        raise typer.Exit(1)


def _check(asked: SidecarOrigin) -> None:
    if asked.all_to is not None:
        if asked.source is not None:
            raise UsageError("--all-to writes all files that the sidecar speaks of: name no SRC and DST")
        if asked.way is not RestoreWay.auto:
            raise UsageError(
                "--all-to always takes the filters out of the sidecar", found=f"--way {asked.way.value}"
            )
    elif asked.source is None or asked.destination is None:
        raise UsageError("embedding from a sidecar needs SRC and DST, or --all-to")
    if asked.catalog is not None and is_path(asked.sidecar):
        raise UsageError("--catalog belongs to a table, but --from is a path")


def _opened(asked: SidecarOrigin, stack: ExitStack) -> tuple[Any, Any]:
    """A path as it is; of a table the sidecar of its current snapshot, open, and the table."""
    if is_path(asked.sidecar):
        return asked.sidecar, None
    from sidecar import open_sidecar, open_table

    table = open_table(asked.sidecar, asked.catalog)
    sidecar = open_sidecar(table, encryption_keys=encryption_keys(asked.keys))
    stack.callback(sidecar.close)
    return sidecar, table


def draw_all(to: Console, data: Any) -> None:
    """What was written in total."""
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
                ("written", f"{humane.count(len(files))} files, {humane.size(written)}"),
                ("indexes", ", ".join(f"{humane.count(n)} {escaped(way)}" for way, n in ways.items())),
                (
                    "read",
                    f"{humane.size(max((f['sidecar_bytes'] for f in files), default=0))} of the sidecar",
                ),
                *looked_at(files),
                ("time", humane.duration(sum(file["seconds"] for file in files))),
            ]
        )
    )


def looked_at(files: Sequence[Any]) -> list[tuple[str, str]]:
    """Lines that say which proofs the files have and what was looked at; none if no file came from a sidecar."""
    heard = [file["witness"] for file in files if "witness" in file]
    if not heard:
        return []
    proofs = ", ".join(
        dict.fromkeys(escaped(one["proof"] or "none, so all values were looked up") for one in heard)
    )
    pages, values = (sum(one[name] for one in heard) for name in ("pages", "values"))
    return [
        ("proof", proofs),
        ("looked at", f"{humane.count(pages)} pages, {humane.count(values)} values asked for"),
    ]
