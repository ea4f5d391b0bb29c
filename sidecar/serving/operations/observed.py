"""Watches a planner: counts what it does, and writes one line of JSON a plan.

Lines have no literals, no paths of files and no tokens.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Literal

from pyiceberg.table import Table

from sidecar.errors import SidecarError
from sidecar.iceberg.table_names import shown_name
from sidecar.serving.answers import Caller, Identifier, PlanAnswer, PlanFacts, Planner
from sidecar.serving.operations.counters import Counters
from sidecar.serving.operations.metrics import observe_seconds, sample

log = logging.getLogger(__name__)

LONGEST_AGENT = 80
"""Characters of a client's name in a log line."""


class ObservedPlanner:
    """A planner whose answers are those of ``inner``, counted and logged."""

    def __init__(self, inner: Planner, counters: Counters) -> None:
        self._inner = inner
        self._counters = counters

    def plan(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        """See :meth:`Planner.plan`."""
        return self._observed("plan", self._inner.plan, table, identifier, request, caller)

    def tasks(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        """See :meth:`Planner.tasks`."""
        return self._observed("tasks", self._inner.tasks, table, identifier, request, caller)

    def mode(self, table: Table, identifier: Identifier) -> Literal["server", "client"]:
        """See :meth:`Planner.mode`."""
        return self._inner.mode(table, identifier)

    def _observed(
        self,
        route: str,
        answer: Callable[[Table, Identifier, bytes, Caller], PlanAnswer],
        table: Table,
        identifier: Identifier,
        request: bytes,
        caller: Caller,
    ) -> PlanAnswer:
        start = time.perf_counter()
        done: PlanAnswer | None = None
        result = "failed"
        try:
            done = answer(table, identifier, request, caller)
            result = "ok"
        except SidecarError as error:
            result = error.kind
            raise
        finally:
            seconds = time.perf_counter() - start
            self._count(route, result, seconds, None if done is None else done.facts)
            line = _line(route, result, seconds, identifier, caller, done)
            log.info("%s", json.dumps(line, separators=(",", ":")))
        return done

    def _count(self, route: str, result: str, seconds: float, facts: PlanFacts | None) -> None:
        counters = self._counters
        counters.add(sample("sidecar_plans_total", route=route, result=result))
        observe_seconds(counters, "sidecar_plan_seconds", seconds)
        if facts is None or route == "tasks":
            return
        counters.add("sidecar_plan_files_total", facts.files_total)
        counters.add("sidecar_plan_files_kept_total", facts.files_kept)
        counters.add("sidecar_index_bytes_total", facts.index_bytes_read)
        if facts.sentinel:
            counters.add("sidecar_plan_sentinels_total")
        if facts.fallback:
            counters.add(sample("sidecar_fallbacks_total", reason=facts.fallback))


def _line(
    route: str, result: str, seconds: float, identifier: Identifier, caller: Caller, done: PlanAnswer | None
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "event": route,
        "table": shown_name(tuple(filter(None, identifier))),
        "result": result,
        "seconds": round(seconds, 6),
        "client": (caller.client_version or caller.user_agent)[:LONGEST_AGENT],
    }
    if done is not None:
        facts = done.facts
        line |= {
            "snapshot_id": facts.snapshot_id,
            "files_total": facts.files_total,
            "files_kept": facts.files_kept,
            "dropped": dict(facts.dropped),
            "index_bytes_read": facts.index_bytes_read,
            "sentinel": facts.sentinel,
            "fallback": facts.fallback,
            "answer_bytes": sum(map(len, done.body)),
        }
    return line
