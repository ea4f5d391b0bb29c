"""``sidecar verify``: check structure and checksums, with ``--data`` against the data too."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import run_tables, verify_cells
from sidecar.cli.many.targets import SkipBad, Targets, are_paths, are_several_tables, is_one_path
from sidecar.cli.options import (
    At,
    Engine,
    EngineName,
    KeyPlace,
    PuffinColumns,
    encryption_keys,
    engine_name,
    is_path,
    not_on_spark,
    opened_table,
    puffin_columns,
    refuse_table_options,
)
from sidecar.cli.output import escaped, output, table
from sidecar.errors import UsageError
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.files import Verification


def verify(
    targets: Targets,
    data: Annotated[
        bool,
        typer.Option("--data", help="Look up every value in its filter, and compare page indexes with pages."),
    ] = False,
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample",
            metavar="SHARE",
            help="Like --data, for a random share of the row groups or files, such as 0.1.",
        ),
    ] = None,
    at: At = None,
    keys: KeyPlace = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Compare a Puffin file with this data file (or folder, or glob): identity, and every value. Repeat.",
        ),
    ] = None,
    columns: PuffinColumns = None,
    prefixes: Annotated[
        Path | None,
        typer.Option(
            "--aad-prefixes",
            metavar="FILE",
            help="Check instead that the encrypted files of a folder or table have these AAD prefixes, one a line.",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    engine: Engine = None,
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
    options: dict[str, Any] = {"data": data, "sample": sample, "encryption_keys": encryption_keys(keys)}
    on_engine = {**options, "engine": engine_name(engine)}
    named = puffin_columns(columns)
    if prefixes is not None:
        found = _parts(_only(targets), at, prefixes, encryption_keys(keys))
    elif are_paths(targets, at):
        if not is_one_path(targets, skip_bad):
            if against:
                raise UsageError("--against is for one Puffin file", found=" ".join(targets))
            _verify_files(targets, skip_bad, engine, {**on_engine, "column_names": named})
            return
        from sidecar import verify_file

        out.warn(not_on_spark(engine, {"engine": "local", "engine_reason": "there is one file"}))
        found = verify_file(targets[0], **options, column_names=named, against=_data_files(against))
    else:
        from sidecar import verify_table

        if against or named:
            raise UsageError("--against and --columns are for the path of a Puffin file")
        if are_several_tables(targets, skip_bad):
            check = partial(verify_table, at=at, **on_engine)
            run_tables(out, targets, check, verify_cells, failed=lambda data: bool(data["problems"]))
            return
        found = verify_table(opened_table(targets[0]), at=at, **on_engine)
    out.result(found.to_dict(), draw, failed=bool(found.problems))


def _verify_files(paths: list[str], skip_bad: bool, engine: EngineName | None, options: dict[str, Any]) -> None:
    from sidecar import verify_files
    from sidecar.cli.many import files

    out = output()
    found = verify_files(paths, skip_bad=skip_bad, **options)
    data = found.to_dict()
    out.warn(not_on_spark(engine, data))
    files.show(out, data, files.draw_verified, each=None, failed=bool(found.problems))


def _data_files(against: list[str] | None) -> list[str] | None:
    """The data files that ``--against`` names."""
    if not against:
        return None
    from sidecar import find_files
    from sidecar.many_files.find import DATA_ENDINGS

    return list(find_files(against, endings=DATA_ENDINGS).files)


def _only(targets: list[str]) -> str:
    if len(targets) > 1:
        raise UsageError("--aad-prefixes checks one folder or table", found=f"{len(targets)} of them")
    return targets[0]


def _parts(
    target: str,
    at: str | None,
    prefixes: Path,
    keys: EncryptionKeys | None,
) -> Verification:
    """Check that the encrypted files of a folder or a table are all there."""
    from sidecar import verify_parts

    if keys is None:
        raise UsageError("--aad-prefixes needs --encryption-keys: without keys, files cannot be told apart")
    try:
        expected = [line for line in prefixes.read_text().splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the AAD prefixes", file=str(prefixes)) from error
    if Path(target).is_dir():
        refuse_table_options(at)
        found = (path for path in Path(target).rglob("*") if path.is_file())
        return verify_parts(sorted(str(p) for p in found if p.name[0] not in "._"), expected, keys)
    if is_path(target):
        return verify_parts([target], expected, keys)
    from sidecar.iceberg.listing import list_snapshot
    from sidecar.iceberg.refs import snapshot_id_of

    table = opened_table(target)
    listed = list_snapshot(table, snapshot_id_of(table, at)).files
    return verify_parts(sorted(file.path for file in listed), expected, keys, table.io)


def draw(to: Console, found: Any) -> None:
    """Draw one line for each problem, or what was checked."""
    if not found["problems"]:
        to.print(_success_line(found))
        return
    drawn = table("file", "unit", "column", "problem")
    for problem in found["problems"]:
        drawn.add_row(*(_cell(problem.get(key)) for key in ("file", "unit", "column", "problem")))
    to.print(drawn)


def _success_line(found: Any) -> str:
    """The line for a result without problems. It says what was checked, and never "fine" if nothing was."""
    checked = f"{humanize.count(found['checked'])} checked"
    if not found["checked"]:
        return f"there was nothing to check ({found['scope']})" if "scope" in found else "there was nothing to check"
    if "looked_up" not in found:
        scope = found.get("scope")
        return f"[green]fine[/]: {checked} ({scope})" if scope else f"[green]fine[/]: {checked}"
    data = {key: humanize.count(count) for key, count in found["looked_up"].items()}
    of_units = f"of {data['units']} of {data['units_total']} units"
    compared = f", {data['indexes']} indexes compared" if found["looked_up"]["indexes"] else ""
    left = found["looked_up"].get("files_not_indexed")
    missed = f"; {quantity(left, 'data file')} without an index" if left else ""
    if other := found["looked_up"].get("files_not_given"):
        missed += f"; {quantity(other, 'listed file')} not given"
    if found["looked_up"]["values"]:
        return f"[green]fine[/]: {checked}, {data['values']} values {of_units} looked up{compared}{missed}"
    if compared:
        return f"[green]fine[/]: {checked}, {data['indexes']} indexes {of_units} compared, no filters{missed}"
    return f"structure fine: {checked}; nothing was there to look up: no filter and no index"


def _cell(value: Any) -> str:
    return "" if value is None else escaped(str(value))
