"""``sidecar strip``: a data file without filters and page indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humane
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
    """Write a Parquet or ORC file again without its filters and page indexes; its data is copied.

    The row index of an ORC file stays. Encrypted Parquet files stay encrypted.

    Example: sidecar strip indexed/part-0.parquet bare/part-0.parquet
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
    """How much went away."""
    removed = [f"{sum(ways.values()):,} {_NAMES[kind]}" for kind, ways in data["ways"].items()]
    to.print(
        facts(
            [
                ("written", escaped(data["target"])),
                ("removed", ", ".join(removed) or "nothing was there"),
                ("size", f"{humane.size(data['size_before'])} before, {humane.size(data['size'])} now"),
            ]
        )
    )


_NAMES = {"bloom": "filters", "page-index": "page indexes"}
