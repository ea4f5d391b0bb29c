"""Airflow operators: a night's work on sidecars, and a task that fails while a table misses a limit.

from sidecar.integrations.airflow import SidecarCareOperator, SidecarStatusOperator

care = SidecarCareOperator(task_id="sidecars", tables="shop.*", options={"catalog": "lake"})
covered = SidecarStatusOperator(task_id="covered", table="shop.orders", catalog="lake", min_coverage=95)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

import sidecar
from sidecar.errors import SidecarError
from sidecar.integrations.outcome import (
    CareOptions,
    facts_of,
    failure_of,
    may_help_to_retry,
    may_pass,
    row_of,
    status_facts,
)


class SidecarCareOperator(BaseOperator):
    """Runs :func:`sidecar.care`. Its XCom has the counts of the run, and a row for each table under ``result``.

    ``tables``: names or globs of names. ``options``: those of :func:`sidecar.care`. Both may have templates.

    A failure of a table, a missed limit or a lost data file fails the task after all tables were cared for. Airflow
    tries again only if storage or another commit was in the way. A table that can be registered nowhere is left alone
    and is no failure.
    """

    template_fields: Sequence[str] = ("tables", "options")
    ui_color = "#dcebf5"

    def __init__(self, *, tables: str | Sequence[str], options: CareOptions | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.options = options

    def execute(self, context: Any) -> dict[str, Any]:
        """Care for the tables."""
        try:
            report = sidecar.care(self.tables, **(self.options or {}))
        except SidecarError as error:
            raise _failed(str(error), may_retry=may_pass(error)) from error
        for one in report.tables:
            for warning in one.warnings:
                self.log.warning("%s: %s", one.table, warning)
        failure = failure_of(report)
        if failure is not None:
            raise _failed(failure, may_retry=may_help_to_retry(report))
        return {**facts_of(report), "result": [row_of(one) for one in report.tables]}


class SidecarStatusOperator(BaseOperator):
    """Asks :func:`sidecar.status` for the limits of one table; reads no data file. Its XCom says what to do.

    ``table``: the name. ``catalog``: that of the name. ``max_behind``, ``min_coverage``: limits, as for
    :func:`sidecar.status`.

    A limit that is missed fails the task. Airflow may try again, since a job that indexes may be under way.
    """

    template_fields: Sequence[str] = ("table", "catalog")
    ui_color = "#dcebf5"

    def __init__(
        self,
        *,
        table: str,
        catalog: str | None = None,
        max_behind: timedelta | None = None,
        min_coverage: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.catalog = catalog
        self.max_behind = max_behind
        self.min_coverage = min_coverage

    def execute(self, context: Any) -> dict[str, Any]:
        """Return the facts of the table's status."""
        try:
            opened = sidecar.open_table(self.table, self.catalog)
            found = sidecar.status(opened, max_behind=self.max_behind, min_coverage=self.min_coverage, quick=True)
        except SidecarError as error:
            raise _failed(str(error), may_retry=may_pass(error)) from error
        if found.missed:
            steps = "".join(f"\n{one.why}: {one.command}" for one in found.to_do)
            raise _failed("; ".join(one.text for one in found.missed) + steps, may_retry=True)
        return dict(status_facts(found))


def _failed(text: str, *, may_retry: bool) -> AirflowException:
    """Return the exception after which Airflow tries again, or does not."""
    return AirflowException(text) if may_retry else AirflowFailException(text)
