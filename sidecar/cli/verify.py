"""``sidecar verify``: checks structure and checksums, with ``--data`` against the data too."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import Cells, View, run_tables
from sidecar.cli.many.targets import Targets, are_paths, are_several_tables, check_there
from sidecar.cli.options import (
    At,
    EngineOption,
    KeyPlace,
    encryption_keys,
    not_on_spark,
    opened_table,
    storage_for,
)
from sidecar.cli.output import escaped, output, table
from sidecar.errors import UsageError
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import Verification


LookUpAll = Annotated[
    bool,
    typer.Option("--data", help="Look up every value in its filter, and compare page indexes with pages."),
]
SampleShare = Annotated[
    float | None,
    typer.Option(
        "--sample",
        metavar="SHARE",
        help="Like --data, for a random share of the row groups or files, such as 0.1.",
    ),
]
ComparedFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        metavar="FILE",
        help="Compare a Puffin file with this data file (or folder, or glob): identity, and every value. Repeat.",
    ),
]
PrefixFile = Annotated[
    Path | None,
    typer.Option(
        "--aad-prefixes",
        metavar="FILE",
        help="Check instead that the encrypted files of a folder or table have these AAD prefixes, one a line.",
    ),
]


def verify(
    targets: Targets,
    data: LookUpAll = False,
    sample: SampleShare = None,
    at: At = None,
    keys: KeyPlace = None,
    against: ComparedFiles = None,
    prefixes: PrefixFile = None,
    engine: EngineOption = None,
) -> None:
    """Check the indexes of files or tables for errors.

    The exit code is 1 if there is a problem. Without --data, only structure and checksums are checked. Many files
    (several, a folder, a glob) give a line for each file.

    \b
    Examples:
      sidecar verify db.lineitem --data
      sidecar verify ./part-0.parquet --sample 0.1
      sidecar verify 'data/**/*.parquet' --data
      sidecar verify ./indexes.puffin --against ./part-0.parquet
    """
    out = output()
    import sidecar
    from sidecar.cli.many import files

    options: dict[str, Any] = {
        "data": data,
        "sample": sample,
        "against": against or None,
        "aad_prefixes": None if prefixes is None else _lines(prefixes),
        "encryption_keys": encryption_keys(keys),
        "engine": engine,
    }
    if are_paths(targets, at):
        if len(targets) == 1:
            check_there(targets[0])
        found = sidecar.verify(targets, io=storage_for(targets, against), **options)
    else:
        options["at"] = at
        if against:
            raise UsageError("--against is for a Puffin file, not for a table")
        if are_several_tables(targets):
            if prefixes is not None:
                raise UsageError("--aad-prefixes checks one folder or table", found=f"{len(targets)} of them")
            run_tables(targets, partial(sidecar.verify, **options), View(cells, lambda found: not found.ok))
            return
        found = sidecar.verify(opened_table(targets[0]), **options)
    out.warn(not_on_spark(engine, found))
    drawn = files.draw_verified if len(found) > 1 or found.failed else draw if are_paths(targets, at) else draw_table
    files.show(out, found, drawn, each="files" if found.files else None, failed=not found.ok)


def _lines(prefixes: Path) -> list[str]:
    """The AAD prefixes in a file, one a line."""
    try:
        return [line for line in prefixes.read_text().splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the AAD prefixes", file=str(prefixes)) from error


def cells(found: Verification) -> Cells:
    """The columns of one table's line, with the first problem."""
    first = "fine" if found.checked else found.scope or ""
    for problem in found.problems[:1]:
        first = problem.problem
    return {
        "checked": found.checked,
        "values looked up": None if found.looked_up is None else found.looked_up.values,
        "problems": len(found.problems),
        "result": first,
    }


def draw(to: Console, found: Verification, what: str = "checked") -> None:
    """Draw one line for each problem, or what was checked."""
    if not found.problems:
        to.print(_success_line(found, what))
        return
    drawn = table("file", "unit", "column", "problem")
    for problem in found.problems:
        drawn.add_row(*map(_cell, (problem.file, problem.unit, problem.column, problem.problem)))
    to.print(drawn)


def draw_table(to: Console, found: Verification) -> None:
    """Draw one line for each problem of a table, or what was checked: data files are no part of that number."""
    draw(to, found, "sidecars and manifests checked")


def _success_line(found: Verification, what: str) -> str:
    """The line for a result without problems. It says what was checked, and never "fine" if nothing was."""
    checked, scope = f"{humanize.count(found.checked)} {what}", f" ({found.scope})" if found.scope else ""
    if not found.checked:
        return f"there was nothing to check{scope}"
    counts = found.looked_up
    if counts is None:
        return f"[green]fine[/]: {checked}{scope}"
    unit = "units" if counts.files_not_indexed is None and counts.files_not_given is None else "data files"
    of_units = f"of {humanize.count(counts.units)} of {humanize.count(counts.units_total)} {unit}"
    compared = f", {humanize.count(counts.indexes)} indexes compared" if counts.indexes else ""
    missed = f"; {quantity(counts.files_not_indexed, 'data file')} without an index" if counts.files_not_indexed else ""
    if counts.files_not_given:
        missed += f"; {quantity(counts.files_not_given, 'listed file')} not given"
    if counts.values:
        return (
            f"[green]fine[/]: {checked}, {humanize.count(counts.values)} values {of_units} looked up{compared}{missed}"
        )
    if compared:
        indexes = f"{humanize.count(counts.indexes)} indexes {of_units} compared"
        return f"[green]fine[/]: {checked}, {indexes}, no filters{missed}"
    why = found.scope or "no value with a filter, and no index"
    return f"structure fine: {checked}; nothing was there to look up: {why}{missed}"


def _cell(value: str | int | None) -> str:
    return "" if value is None else escaped(str(value))
