"""``sidecar verify``: check structure and checksums, with ``--data`` against the data too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.options import (
    Catalog,
    Json,
    KeyPlace,
    Ref,
    Snapshot,
    Target,
    encryption_keys,
    is_path,
    refuse_table_options,
)
from sidecar.cli.output import Output, escaped, table
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.crypto.keys import EncryptionKeys


def verify(
    target: Target,
    catalog: Catalog = None,
    data: Annotated[
        bool,
        typer.Option(
            "--data", help="Look up every value in its filter, and compare page indexes with pages."
        ),
    ] = False,
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample",
            metavar="SHARE",
            help="Like --data, for a random share of the row groups or files, such as 0.1.",
        ),
    ] = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    keys: KeyPlace = None,
    prefixes: Annotated[
        Path | None,
        typer.Option(
            "--aad-prefixes",
            metavar="FILE",
            help="Check instead that the encrypted files of a folder or table have these AAD prefixes, one a line.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the indexes of a file or a table for errors.

    The exit code is 1 if there is a problem. Without --data, only structure and checksums are checked.

    \b
    Examples:
      sidecar verify db.lineitem --data
      sidecar verify ./part-0.parquet --sample 0.1
    """
    out = Output(as_json=as_json)
    if prefixes is not None:
        found = _parts(target, catalog, snapshot, ref, prefixes, encryption_keys(keys))
    elif is_path(target):
        refuse_table_options(catalog, snapshot, ref)
        from sidecar import verify_file

        found = verify_file(target, data=data, sample=sample, encryption_keys=encryption_keys(keys))
    else:
        from sidecar import open_table, verify_table

        opened, given_keys = open_table(target, catalog), encryption_keys(keys)
        found = verify_table(opened, snapshot, ref=ref, data=data, sample=sample, encryption_keys=given_keys)
    out.result(found, draw)
    if found["problems"]:
        raise typer.Exit(1)


def _parts(
    target: str,
    catalog: str | None,
    snapshot: int | None,
    ref: str | None,
    prefixes: Path,
    keys: EncryptionKeys | None,
) -> dict[str, Any]:
    """Check that the encrypted files of a folder or a table are all there."""
    from sidecar import open_table, verify_parts

    if keys is None:
        raise UsageError("--aad-prefixes needs --encryption-keys: without keys, files cannot be told apart")
    try:
        expected = [line for line in prefixes.read_text().splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the AAD prefixes", file=str(prefixes)) from error
    if Path(target).is_dir():
        refuse_table_options(catalog, snapshot, ref)
        found = (path for path in Path(target).rglob("*") if path.is_file())
        return verify_parts(sorted(str(p) for p in found if p.name[0] not in "._"), expected, keys)
    if is_path(target):
        return verify_parts([target], expected, keys)
    from sidecar.iceberg.listing import list_snapshot
    from sidecar.iceberg.refs import snapshot_id_of

    table = open_table(target, catalog)
    listed = list_snapshot(table, snapshot_id_of(table, snapshot, ref)).files
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
        return "there was nothing to check"
    if "looked_up" not in found:
        scope = found.get("scope")
        return f"[green]fine[/]: {checked} ({scope})" if scope else f"[green]fine[/]: {checked}"
    data = {key: humanize.count(count) for key, count in found["looked_up"].items()}
    of_units = f"of {data['units']} of {data['units_total']} units"
    compared = f", {data['indexes']} indexes compared" if found["looked_up"]["indexes"] else ""
    left = found["looked_up"].get("files_not_indexed")
    missed = f"; {humanize.count(left)} data files are not indexed" if left else ""
    if found["looked_up"]["values"]:
        return f"[green]fine[/]: {checked}, {data['values']} values {of_units} looked up{compared}{missed}"
    if compared:
        return f"[green]fine[/]: {checked}, {data['indexes']} indexes {of_units} compared, no filters{missed}"
    return f"structure fine: {checked}; nothing was there to look up: no filter and no index"


def _cell(value: Any) -> str:
    return "" if value is None else escaped(str(value))
