"""Indexes for the tables that a dbt run has written, as the models declare them.

A model says in its configuration what is indexed::

    {{ config(materialized="incremental", meta={"sidecar": {"columns": ["id", "customer"]}}) }}

``dbt build && python -m sidecar.integrations.dbt --catalog lake`` then builds or refreshes the sidecars of the models
that succeeded. ``meta={"sidecar": true}`` keeps what the table declares itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sidecar
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError
from sidecar.iceberg.table_names import shown_name
from sidecar.integrations.outcome import CareOptions, facts_of, row_of
from sidecar.reports.caring import CareReport

if TYPE_CHECKING:
    from typing_extensions import Unpack

LARGEST_ARTIFACT = 512 << 20
"""Bytes of an artifact of dbt that are read. A manifest has about 100 kB for each model of a large project at most."""

WITH_ROWS = ("table", "incremental", "snapshot", "seed")
"""Materializations that write a table."""


@dataclass(frozen=True)
class DbtTable:
    """A table that a dbt run has written, and whose model asks for indexes."""

    name: str
    """The table's name in its catalog: the schema and the alias of the model."""
    columns: tuple[str, ...]
    """The columns that the model declares; none if the table's own declaration counts."""


def tables_of_run(target: str | Path = "target") -> list[DbtTable]:
    """Return the tables of the last dbt run that succeeded and ask for indexes, in the order in which they were run.

    ``target``: the folder in which dbt wrote ``manifest.json`` and ``run_results.json``.

    Raises :class:`StorageError` if they are not there, :class:`DamagedFileError` if they are not JSON of dbt, and
    :class:`UsageError` for a declaration that makes no sense.
    """
    nodes = _artifact(Path(target) / "manifest.json", "nodes", dict)
    path = Path(target) / "run_results.json"
    try:
        return _tables_of(nodes, _artifact(path, "results", list))
    except (AttributeError, KeyError, TypeError) as error:
        raise DamagedFileError("the artifact of dbt has another form than dbt's", file=str(path)) from error


def _tables_of(nodes: Any, results: Any) -> list[DbtTable]:
    found = []
    for result in results:
        node = nodes.get(result.get("unique_id"), {})
        config = node.get("config") or {}
        if result.get("status") == "success" and config.get("materialized") in WITH_ROWS:
            declared = (config.get("meta") or node.get("meta") or {}).get("sidecar")
            if declared is not None and declared is not False:
                found.append(DbtTable(shown_name((node["schema"], node["alias"])), _columns(declared, node["name"])))
    return found


def care_for_run(target: str | Path = "target", **options: Unpack[CareOptions]) -> CareReport:
    """Build what the models of the last dbt run declare, then run :func:`sidecar.care` for their tables.

    ``target``: the folder of dbt's artifacts. ``options``: those of :func:`sidecar.care`.

    Without such a table nothing is done. Columns that a model declares are saved as the table's own declaration, so
    that other jobs keep them. A build that fails is an error ``build`` of its table in the result, and does not stop
    the others.
    """
    tables = tables_of_run(target)
    if not tables:  # a run that wrote no such table is no mistake
        return CareReport(bool(options.get("dry_run")), [], None, None, 0.0)
    failed = {} if options.get("dry_run") else {one.name: error for one in tables if (error := _built(one, options))}
    report = sidecar.care([one.name for one in tables], **options)
    for done in report.tables:
        if done.table in failed:
            done.errors["build"] = failed[done.table]
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run :func:`care_for_run` from the command line, print a line of JSON for each table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sidecar.integrations.dbt", description=main.__doc__)
    parser.add_argument("--target", default="target", help="the folder of dbt's artifacts")
    parser.add_argument("--catalog", help="pyiceberg's catalog of the tables")
    parser.add_argument(
        "--min-coverage", type=float, help="the least share of rows that each index covers, in per cent"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done to tables that declare columns")
    given = parser.parse_args(arguments)
    try:
        report = care_for_run(
            given.target, catalog=given.catalog, min_coverage=given.min_coverage, dry_run=given.dry_run
        )
    except SidecarError as error:
        print(json.dumps({"error": error.to_dict()}))
        return 2 if isinstance(error, UsageError) else 1
    for done in report.tables:
        print(json.dumps(row_of(done)))
    print(json.dumps(facts_of(report)))
    return report.exit_code


def _built(one: DbtTable, options: CareOptions) -> SidecarError | None:
    """Build the columns that a model declares. Return what went wrong."""
    if not one.columns:
        return None
    try:
        sidecar.build(
            sidecar.open_table(one.name, options.get("catalog")),
            list(one.columns),
            save=True,
            engine=options.get("engine"),
            spark=options.get("spark"),
            encryption_keys=options.get("encryption_keys"),
            allow_plaintext=options.get("allow_plaintext", False),
        )
    except SidecarError as error:
        return error
    return None


def _artifact(path: Path, key: str, kind: type[Any]) -> Any:
    try:
        size = path.stat().st_size
        if size > LARGEST_ARTIFACT:
            raise DamagedFileError(
                "the artifact of dbt is too large", file=str(path), expected=f"at most {LARGEST_ARTIFACT}", found=size
            )
        found = json.loads(path.read_bytes())
    except OSError as error:
        hint = "Run dbt first, or name its folder with --target."
        raise StorageError(f"cannot read the artifact of dbt: {error.strerror}", file=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise DamagedFileError("the artifact of dbt is not JSON", file=str(path)) from error
    if not isinstance(found, dict) or not isinstance(found.get(key), kind):
        raise DamagedFileError(f"the artifact of dbt has no '{key}'", file=str(path))
    return found[key]


def _columns(declared: Any, model: str) -> tuple[str, ...]:
    columns = declared.get("columns", []) if isinstance(declared, dict) else [] if declared is True else None
    columns = [columns] if isinstance(columns, str) else columns
    unknown = isinstance(declared, dict) and set(declared) - {"columns"}
    if unknown or not isinstance(columns, list) or not all(isinstance(one, str) and one for one in columns):
        raise UsageError(
            f"the model '{model}' declares no columns that make sense",
            expected='meta={"sidecar": true} or {"sidecar": {"columns": ["id"]}}',
            found=declared,
        )
    return tuple(columns)


if __name__ == "__main__":
    raise SystemExit(main())
