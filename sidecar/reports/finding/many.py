"""Finds values in many tables, with one document of proof for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from pyiceberg.catalog import Catalog

from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.many_tables import each_table
from sidecar.reports.finding.evidence import FindOptions
from sidecar.reports.finding.find import find_with
from sidecar.reports.finding.results import FindReport, FoundInTables


def find_in_tables(
    names: Iterable[str],
    values: Mapping[str, object],
    options: FindOptions,
    catalog: str | Catalog | None,
    **properties: str,
) -> FoundInTables:
    """Do :func:`sidecar.find` for each table of names and globs. An error in one does not stop the others.

    A table need not have all columns. A table of another format that a glob matches is an error of its name. Raises
    :class:`UsageError` for a column that no table has, and errors of the catalog.
    """
    found: list[FindReport] = []
    failed: dict[str, SidecarError] = {}
    others: dict[str, SidecarError] = {}
    for outcome in each_table(names, partial(find_with, values=values, options=options), catalog, others, **properties):
        if outcome.result is not None:
            found.append(outcome.result)
        elif outcome.error is not None:
            failed[outcome.table] = outcome.error
    failed |= others
    asked = [one for report in found for one in report.conditions]
    had = {one.column for one in asked if one.field_ids}
    for name in values:
        if found and name not in had:
            raise UsageError("no table has the column", column=name, hint="mail|email names both columns.")
    return FoundInTables.of(found, failed)
