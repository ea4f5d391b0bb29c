"""``sidecar strip``: a data file without filters and page indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.embed import Destination, Source
from sidecar.cli.options import Json, KeyPlace, Quiet, encryption_keys
from sidecar.cli.output import Output, escaped, facts

if TYPE_CHECKING:
    from rich.console import Console


def strip(
    source: Source,
    destination: Destination,
    keys: KeyPlace = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a data file again without filters and page indexes.

    The data is copied, not encoded again. An ORC file keeps its row index. An encrypted Parquet file stays encrypted.

    \b
    Examples:
      sidecar strip part-0.parquet bare/part-0.parquet
      sidecar strip events.orc bare/events.orc
    """
    out = Output(as_json=as_json, quiet=quiet)
    from sidecar import strip_file

    with out.progress() as progress:
        report = strip_file(source, destination, encryption_keys=encryption_keys(keys), progress=progress)
    data = report.to_dict()
    if data.get("dead_bytes"):
        out.warn([f"{data['dead_bytes']:,} bytes of filters stay as dead space between the row groups"])
    out.result(data, draw)


def draw(to: Console, data: Any) -> None:
    """Draw what was removed, and both sizes."""
    removed = [f"{sum(ways.values()):,} {_NAMES[kind]}" for kind, ways in data["ways"].items()]
    to.print(
        facts(
            [
                ("written", escaped(data["target"])),
                ("removed", ", ".join(removed) or "nothing was there"),
                ("size", f"{humanize.size(data['size_before'])} before, {humanize.size(data['size'])} now"),
            ]
        )
    )


_NAMES = {"bloom": "filters", "page-index": "page indexes"}
