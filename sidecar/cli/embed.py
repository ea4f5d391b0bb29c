"""``sidecar embed``: write data files again with filters and page indexes; their data is copied as it is.

``SRC DST`` writes one file, ``TABLE`` the files of a table. With ``--from`` the indexes come out of a sidecar.
"""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import embed_from as from_cli
from sidecar.cli import embed_table as table_cli
from sidecar.cli import humanize
from sidecar.cli.many import files
from sidecar.cli.many.targets import Into, source_and_target
from sidecar.cli.options import (
    DryRun,
    Engine,
    KeyPlace,
    encryption_keys,
    engine_name,
    fixed_rate,
    is_path,
    names,
    not_on_spark,
    opened_table,
)
from sidecar.cli.output import escaped, facts, output, table
from sidecar.cli.shell.choices import choice
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.embedding.many import WrittenFiles
    from sidecar.embedding.report import EmbedReport
    from sidecar.embedding.table_report import EmbedTableReport

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SRC... [DST]|TABLE",
        help="A Parquet or ORC file (path or URL), then the file to write, which must not exist yet; with --into "
        "files, folders and globs; or a table.",
    ),
]


class Placement(str, Enum):
    """Where the filters are in the file."""

    end = "end"
    row_group = "row-group"


class ReplaceRule(str, Enum):
    """Which of the filters and page indexes in the file are used as they are."""

    good = "good"
    always = "always"
    never = "never"


def embed(
    paths: Sources = None,
    bloom: Annotated[
        str | None,
        typer.Option(
            "--bloom",
            metavar="A,B",
            help="Columns that get filters; write nested ones with dots (tags.list.element).",
        ),
    ] = None,
    page_index: Annotated[bool, typer.Option("--page-index", help="Give every column a page index.")] = False,
    fpp: Annotated[str, typer.Option("--fpp", metavar="RATE", help="False-positive rate of the filters.")] = "0.01",
    placement: Annotated[
        Placement,
        choice("--placement", Placement, "Put filters at the end of the file, or after each row group."),
    ] = Placement.end,
    harvest: Annotated[
        ReplaceRule,
        choice("--harvest", ReplaceRule, "Use the indexes in the file. good: those that meet --fpp."),
    ] = ReplaceRule.good,
    dry_run: DryRun = False,
    sidecar: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH|TABLE",
            help="Take the indexes out of a Puffin file, or out of a table's sidecar.",
        ),
    ] = None,
    all_to: Annotated[
        str | None,
        typer.Option("--all-to", metavar="DIR", help="With --from: write all files of the sidecar into a folder."),
    ] = None,
    no_refresh: Annotated[
        bool, typer.Option("--no-refresh", help="Leave the sidecar of a table as it is, without the new files.")
    ] = False,
    into: Into = None,
    keys: KeyPlace = None,
    engine: Engine = None,
) -> None:
    """Write data files again with filters and page indexes.

    The data is copied, not encoded again. SRC DST writes one file, SRC... --into DIR a new file for each. TABLE
    replaces the files of a table's current snapshot in one commit, and then refreshes its sidecar.

    With --from, the indexes come out of a sidecar byte for byte: all of them, or those that --bloom and --page-index
    name. An ORC file always has a row index, so it gets only filters. Encrypted Parquet files keep their keys.

    \b
    Examples:
      sidecar embed part-0.parquet new.parquet --bloom l_partkey --page-index
      sidecar embed db.lineitem --bloom l_partkey,l_comment --dry-run
      sidecar embed bare/part-0.parquet part-0.parquet --from indexes.puffin
      sidecar embed data/ --into indexed --bloom l_partkey
    """
    out = output()
    if dry_run and (sidecar is not None or into is not None or len(paths or []) > 1):
        raise UsageError("--dry-run is for tables", hint="Files are never overwritten.")
    source, destination = _source_and_target(paths or [], into, sidecar is not None)
    columns = names(bloom) if bloom is not None else []
    if sidecar is not None:
        origin = from_cli.SidecarOrigin(
            sidecar,
            source,
            destination,
            all_to,
            columns,
            page_index,
            placement.value,
            keys,
        )
        from_cli.run(origin, out)
        out.warn(not_on_spark(engine, {"engine": "local", "engine_reason": "one sidecar is read for all files"}))
        return
    if all_to is not None:
        raise UsageError("--all-to is for --from")
    if source is None:
        raise UsageError("embed needs a file and where to write it, or a table")
    if not columns and not page_index:
        raise UsageError("nothing to embed", hint="Name columns with --bloom, or give --page-index.")
    target_rate = fixed_rate(fpp)
    _check_target(source, destination if into is None else into)
    if no_refresh and is_path(source):
        raise UsageError("--no-refresh is for tables", found=source)
    from sidecar import embed_file, embed_files, embed_table

    options: dict[str, Any] = {
        "bloom": columns,
        "page_index": page_index,
        "fpp": target_rate,
        "placement": placement.value,
        "harvest": harvest.value,
        "encryption_keys": encryption_keys(keys),
    }
    report: EmbedReport | EmbedTableReport | WrittenFiles
    if into is not None:
        report = embed_files(paths or [], into, engine=engine_name(engine), **options)
    elif destination is not None:
        report = embed_file(source, destination, **options)
    else:
        report = embed_table(
            opened_table(source), refresh=not no_refresh, dry_run=dry_run, engine=engine_name(engine), **options
        )
    shown = table_cli.draw if destination is None else draw
    if into is not None:
        shown = files.draw_written
    data = report.to_dict()
    ran = data if "engine" in data else {"engine": "local", "engine_reason": "there is one file"}
    out.warn([*report.warnings(), *not_on_spark(engine, ran)])
    each = "files" if shown is files.draw_written else None
    files.show(out, data, shown, each=each, failed=bool(report.damaged) or data.get("refresh_error") is not None)


def _source_and_target(paths: list[str], into: str | None, is_from: bool) -> tuple[str | None, str | None]:
    """The file or table and the file to write. Both are ``None`` without arguments, the second one for a table."""
    if into is not None:
        if is_from:
            raise UsageError("--into is not for --from", hint="--all-to writes all files of a sidecar.")
        return (paths[0], None) if paths else (None, None)
    if len(paths) < 2:
        return (paths[0], None) if paths else (None, None)
    return source_and_target("embed", paths)


def _check_target(source: str, destination: str | None) -> None:
    """Raise :class:`UsageError` if a file has no destination, or a table has one."""
    if destination is None and is_path(source):
        raise UsageError(
            "a file needs a destination: name DST", file=source, hint="Many files need a folder: --into DIR."
        )
    if destination is not None and output().choices.catalog is not None:
        raise UsageError("--catalog belongs to a table, which has no destination")


def draw(to: Console, data: Any) -> None:
    """Draw what was written, then one line for each column, kind and way."""
    written = [
        ("filters", data["filter_bytes"]),
        ("page indexes", data.get("page_index_bytes", 0)),
        ("dead bytes", data.get("dead_bytes", 0)),
    ]
    grown = f"{humanize.size(data['size_before'])} before, {humanize.size(data['size'])} now"
    to.print(
        facts(
            [
                ("written", escaped(data["target"])),
                ("size", grown),
                *from_cli.looked_at([data]),
                *((name, humanize.size(size)) for name, size in written if size),
                ("time", humanize.duration(data["seconds"])),
            ]
        )
    )
    drawn = table("column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5))
    own = {"exact": "as it was"} if "sidecar" in data else {}
    for key, group in groupby(sorted(data["units"], key=_line), key=_line):
        names = (key[0], key[1], {**_TAKEN_FROM, **own}[key[2]])
        drawn.add_row(*(escaped(part) for part in names), *_figures(list(group)), escaped(key[3]))
    if drawn.row_count:
        to.print(drawn)


def _line(unit: Any) -> tuple[str, str, str, str]:
    kind = {"bloom": "filter"}.get(unit["kind"], "page index")
    return unit["column"], kind, unit["way"], unit["reason"]


_TAKEN_FROM = {
    "exact": "the file's own",
    "converted": "the older form",
    "dictionary": "dictionary",
    "values": "values",
    "none": "none",
}


def _figures(units: list[Any]) -> tuple[str, str, str]:
    rates = [unit["rate_after"] for unit in units if unit["rate_after"] is not None]
    worst = humanize.percent(max(rates)) if rates else ""
    size = sum(unit["bytes"] for unit in units)
    return humanize.count(len(units)), humanize.size(size) if size else "", worst
