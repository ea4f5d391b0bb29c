"""Defines what a plan request is answered with, and the planner that the routes of both servers call.

The catalog server and the proxy load the table in their own ways. Then both ask the same planner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pyiceberg.table import Table

Identifier = tuple[str, ...]
"""The namespace's levels, and the name of the table."""


@dataclass(frozen=True)
class Caller:
    """The caller of a request, as far as the answer depends on it."""

    user_agent: str = ""
    """The header ``User-Agent``: pyiceberg 0.12 refuses NULL in partition values."""
    client_version: str = ""
    """The header ``X-Client-Version`` of Java's clients."""

    @property
    def is_pyiceberg(self) -> bool:
        """Whether the client is pyiceberg, or plans by it."""
        return self.user_agent.startswith("PyIceberg")

    @property
    def is_java(self) -> bool:
        """Whether the client is Iceberg's Java library: Spark, Flink, Hive."""
        return self.client_version.split()[:2] == ["Apache", "Iceberg"]


@dataclass(frozen=True)
class PlanFacts:
    """The facts of a plan for its log line and the metrics, without literals."""

    files_total: int = 0
    files_kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Files that are not read, by what ruled them out, as in a plan's funnel. Empty for a request of several meanings,
    and for a page."""
    index_bytes_read: int = 0
    sentinel: bool = False
    """Whether a file was returned only so that Spark's DELETE works."""
    fallback: str = ""
    """The reason why the sidecar was not asked or not believed, one of a few stable words; empty if it was asked."""
    snapshot_id: int | None = None


@dataclass(frozen=True)
class PlanAnswer:
    """The body of an answer with status 200, in pieces that are sent one after the other."""

    body: Sequence[bytes]
    facts: PlanFacts


class Planner(Protocol):
    """Answers the plan routes for a table that its caller has just loaded and may read."""

    def plan(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        """Answer ``POST .../plan``. Raises errors of :mod:`sidecar.errors` for what is wrong with the request."""

    def tasks(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        """Answer ``POST .../tasks``: the page that a plan task stands for."""

    def mode(self, table: Table, identifier: Identifier) -> Literal["server", "client"]:
        """Return who should plan scans of the table, for ``config`` of its load-table response."""
