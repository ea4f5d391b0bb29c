"""``sidecar strip``: data files without filters and page indexes."""

from __future__ import annotations

from typing import Annotated

import typer

from sidecar.cli.draw.written import draw_stripped
from sidecar.cli.many import files
from sidecar.cli.options import EngineOption, KeyPlace, encryption_keys, not_on_spark, storage_for
from sidecar.cli.output import output
from sidecar.errors import UsageError


def strip(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Parquet and ORC files (paths, URLs, folders, globs)."),
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="PATH",
            help="The new file, or the folder of several; no file is ever overwritten. Required.",
        ),
    ] = None,
    keys: KeyPlace = None,
    engine: EngineOption = None,
) -> None:
    """Write data files again without filters and page indexes.

    The data is copied, not encoded again. An ORC file keeps its row index. An encrypted Parquet file stays encrypted.

    \b
    Examples:
      sidecar strip part-0.parquet --into bare/part-0.parquet
      sidecar strip events.orc --into bare/events.orc
      sidecar strip data/ --into stripped
    """
    out = output()
    if into is None:
        raise UsageError("strip needs --into: the new file, or the folder of several")
    import sidecar

    source = paths[0] if len(paths) == 1 else paths
    report = sidecar.strip(
        source, into, io=storage_for(paths, into), encryption_keys=encryption_keys(keys), engine=engine
    )
    for file in report.files:
        if dead := file.written.dead_bytes:
            out.warn([f"{file.source}: {dead:,} bytes of filters stay as dead space between the row groups"])
    out.warn(not_on_spark(engine, report))
    files.show(out, report, draw_stripped)
