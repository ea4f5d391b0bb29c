"""``sidecar strip``: a data file without filters and page indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.targets import Into, source_and_target
from sidecar.cli.options import Engine, EngineName, KeyPlace, encryption_keys, engine_name, not_on_spark
from sidecar.cli.output import escaped, facts, output

if TYPE_CHECKING:
    from rich.console import Console


def strip(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC... [DST]",
            help="A Parquet or ORC file (path or URL), then the file to write, which must not exist yet; with --into "
            "files, folders and globs.",
        ),
    ],
    into: Into = None,
    keys: KeyPlace = None,
    engine: Engine = None,
) -> None:
    """Write a data file again without filters and page indexes.

    The data is copied, not encoded again. An ORC file keeps its row index. An encrypted Parquet file stays encrypted.

    \b
    Examples:
      sidecar strip part-0.parquet bare/part-0.parquet
      sidecar strip events.orc bare/events.orc
      sidecar strip data/ --into stripped
    """
    out = output()
    if into is not None:
        _strip_files(paths, into, keys, engine)
        return
    source, destination = source_and_target("strip", paths)
    from sidecar import strip_file

    report = strip_file(source, destination, encryption_keys=encryption_keys(keys))
    data = report.to_dict()
    if data.get("dead_bytes"):
        out.warn([f"{data['dead_bytes']:,} bytes of filters stay as dead space between the row groups"])
    out.warn(not_on_spark(engine, {"engine": "local", "engine_reason": "there is one file"}))
    out.result(data, draw)


def _strip_files(paths: list[str], into: str, keys: str | None, engine: EngineName | None) -> None:
    from sidecar import strip_files
    from sidecar.cli.many import files

    out = output()
    report = strip_files(
        paths,
        into,
        encryption_keys=encryption_keys(keys),
        engine=engine_name(engine),
    )
    data = report.to_dict()
    out.warn(not_on_spark(engine, data))
    files.show(out, data, files.draw_written)


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
