"""``sidecar embed``: writes data files again with filters and page indexes; their data is copied as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.draw import replaced, written
from sidecar.cli.many import files
from sidecar.cli.many.targets import Into
from sidecar.cli.options import (
    DryRun,
    EngineOption,
    KeyPlace,
    encryption_keys,
    fixed_rate,
    is_path,
    names,
    not_on_spark,
    opened_table,
    storage_for,
)
from sidecar.cli.output import output
from sidecar.cli.shell.choices import choice
from sidecar.errors import UsageError
from sidecar.results.choices import Placement, ReuseRule

if TYPE_CHECKING:
    from sidecar.embedding.many import WrittenFiles
    from sidecar.embedding.table_report import EmbedTableReport


PathsOrTable = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH...|TABLE",
        help="Parquet and ORC files (paths, URLs, folders, globs), or a table. Without any, all that --from lists.",
    ),
]
Bloom = Annotated[
    str | None,
    typer.Option(
        "--bloom", metavar="A,B", help="Columns that get filters; write nested ones with dots (tags.list.element)."
    ),
]
PageIndexes = Annotated[bool, typer.Option("--page-index", help="Give every column a page index.")]
FilterRate = Annotated[str, typer.Option("--fpp", metavar="RATE", help="False-positive rate of the filters.")]
Where = Annotated[
    Placement, choice("--placement", Placement, "Put filters at the end of the file, or after each row group.")
]
Reused = Annotated[ReuseRule, choice("--reuse", ReuseRule, "Use the indexes in the file. good: those that meet --fpp.")]
Origin = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="PATH|TABLE", help="Take the indexes out of a Puffin file, or out of a table's sidecar."
    ),
]
Refresh = Annotated[
    bool, typer.Option("--refresh/--no-refresh", help="Refresh the sidecar of a table for the new files.")
]


def embed(
    paths: PathsOrTable = None,
    into: Into = None,
    bloom: Bloom = None,
    page_index: PageIndexes = False,
    fpp: FilterRate = "0.01",
    placement: Where = "end",
    reuse: Reused = "good",
    from_: Origin = None,
    refresh: Refresh = True,
    dry_run: DryRun = False,
    keys: KeyPlace = None,
    engine: EngineOption = None,
) -> None:
    """Write data files again with filters and page indexes.

    The data is copied, not encoded again. --into names the new file, or the folder of several. TABLE replaces the
    files of a table's current snapshot in one commit, and then refreshes its sidecar.

    With --from, the indexes come out of a sidecar byte for byte: all of them, or those that --bloom and --page-index
    name. An ORC file always has a row index, so it gets only filters. Encrypted Parquet files keep their keys.

    \b
    Examples:
      sidecar embed part-0.parquet --into new.parquet --bloom l_partkey
      sidecar embed db.lineitem --bloom l_partkey,l_comment --dry-run
      sidecar embed bare/ --into whole --from indexes.puffin
      sidecar embed data/ --into indexed --bloom l_partkey
    """
    out, io = output(), None
    source, origin = _source(paths or []), None if from_ is None else _origin(from_)
    if isinstance(source, str | list):
        place = origin if isinstance(origin, str) else None
        io = storage_for(source, into, place, beside_table=place is not origin)
    import sidecar

    report: WrittenFiles | EmbedTableReport = sidecar.embed(
        source,
        into=into,
        bloom=names(bloom) if bloom is not None else (),
        page_index=page_index,
        fpp=fixed_rate(fpp),
        placement=placement,
        reuse=reuse,
        from_=origin,
        refresh=refresh,
        dry_run=dry_run,
        io=io,
        encryption_keys=encryption_keys(keys),
        engine=engine,
    )
    out.warn([*report.warnings(), *not_on_spark(engine, report)])
    if isinstance(report, sidecar.results.WrittenFiles):
        files.show(out, report, written.draw_embedded, failed=report.damaged)
    else:
        out.result(report, replaced.draw, failed=report.damaged or report.refresh_error is not None)


def _source(paths: list[str]) -> Any:
    """The files, the open table, or ``None`` without arguments."""
    if not paths:
        return None
    if all(is_path(path) for path in paths):
        return paths[0] if len(paths) == 1 else paths
    if len(paths) > 1:
        raise UsageError("embed takes files, or one table", found=" ".join(paths))
    return opened_table(paths[0])


def _origin(place: str) -> Any:
    """The path of a Puffin file as it is, or the open table."""
    return place if is_path(place) else opened_table(place)
