"""A Dagster asset that does a night's work on sidecars, and a check that asks whether a table is covered.

from sidecar.integrations.dagster import care_asset, status_check

sidecars = care_asset(["shop.*"], catalog="lake", deps=["orders"])
covered = status_check("shop.orders", asset=sidecars, catalog="lake", min_coverage=95)
definitions = dagster.Definitions(assets=[sidecars], asset_checks=[covered])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster

import sidecar
from sidecar.integrations.outcome import CareOptions, facts_of, failure_of, may_help_to_retry, row_of, status_facts

if TYPE_CHECKING:
    from typing_extensions import Unpack


def care_asset(
    tables: str | Sequence[str],
    *,
    name: str = "sidecars",
    key_prefix: str | Sequence[str] | None = None,
    group_name: str | None = None,
    deps: Iterable[Any] | None = None,
    **options: Unpack[CareOptions],
) -> dagster.AssetsDefinition:
    """Return an asset that runs :func:`sidecar.care` when it is materialized.

    ``tables``: names or globs of names.
    ``name``, ``key_prefix``, ``group_name``, ``deps``: as for ``dagster.asset``; ``deps`` are what writes the tables.
    ``options``: those of :func:`sidecar.care`.

    The metadata has the counts of the run, a row for each table and the path of the page. A failure of a table, a
    missed limit or a lost data file raises ``dagster.Failure`` after all tables were cared for. Retries of the run are
    allowed only if storage or another commit was in the way.
    """

    @dagster.asset(
        name=name,
        key_prefix=key_prefix,
        group_name=group_name,
        deps=deps,
        kinds={"iceberg"},
        description=f"Indexes of {tables if isinstance(tables, str) else ', '.join(tables)}, kept by sidecar",
    )
    def sidecars() -> dagster.MaterializeResult[Any]:
        report = sidecar.care(tables, **options)
        metadata = _metadata(report)
        failure = failure_of(report)
        if failure is not None:
            raise dagster.Failure(failure, metadata=metadata, allow_retries=may_help_to_retry(report))
        return dagster.MaterializeResult(metadata=metadata)

    return sidecars


def status_check(
    table: str,
    *,
    asset: Any,
    catalog: str | None = None,
    max_behind: timedelta | None = None,
    min_coverage: float | None = None,
    name: str | None = None,
    blocking: bool = False,
) -> dagster.AssetChecksDefinition:
    """Return a check that asks :func:`sidecar.status` for the limits of one table. It reads no data file.

    ``asset``: the asset that the check belongs to, by its definition or key.
    ``catalog``: that of the name. ``max_behind``, ``min_coverage``: limits, as for :func:`sidecar.status`.
    ``name``: by default the table's, with underscores. ``blocking``: whether what comes after the asset waits for it.

    The check has passed if no limit is missed. Its metadata says what is missed and what to type.
    """
    own_name = name or "sidecar_of_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in table)

    @dagster.asset_check(
        asset=asset, name=own_name, blocking=blocking, description=f"Is {table} covered by its sidecar?"
    )
    def covered() -> dagster.AssetCheckResult:
        opened = sidecar.open_table(table, catalog)
        found = sidecar.status(opened, max_behind=max_behind, min_coverage=min_coverage, quick=True)
        return dagster.AssetCheckResult(
            passed=not found.missed,
            description="; ".join(one.text for one in found.missed) or None,
            metadata=dict(status_facts(found)),
        )

    return covered


def _metadata(report: sidecar.results.CareReport) -> dict[str, Any]:
    rows = [row_of(one) for one in report.tables]
    metadata: dict[str, Any] = dict(facts_of(report))
    if "page" in metadata:
        metadata["page"] = dagster.MetadataValue.path(str(metadata["page"]))
    if rows:
        metadata["result"] = dagster.MetadataValue.table(
            records=[dagster.TableRecord(row) for row in rows],
            schema=dagster.TableSchema(
                [
                    dagster.TableColumn(column, "string" if column in ("table", "result") else "float")
                    for column in rows[0]
                ]
            ),
        )
    return metadata
