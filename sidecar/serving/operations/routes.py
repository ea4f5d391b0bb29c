"""The server's own pages: health, metrics, and the sidecars of each table as JSON and in a browser.

    GET /healthz                                                     the process answers
    GET /metrics                                                     Prometheus' text
    GET /sidecar/v1/[prefix/]namespaces/{ns}/tables/{table}          what ``sidecar status`` prints, as JSON
    GET /sidecar/v1/[prefix/]namespaces/{ns}/tables/{table}/report   the page of ``sidecar report``

The last two load the table as a client does, so whoever cannot load it sees nothing of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable

from pyiceberg.table import Table
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from sidecar.iceberg.table_names import name_of
from sidecar.serving.guards import HEALTH
from sidecar.serving.operations.counters import Counters
from sidecar.serving.operations.metrics import CONTENT_TYPE, exposition
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.table_paths import TablePath, table_path

REPORT = "report"
PLACE = "/sidecar"
LoadForCaller = Callable[[Request, TablePath], Awaitable[Table]]
"""Loads a table with the rights of whoever sent a request."""

_PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def operations_routes(load: LoadForCaller, counters: Counters) -> list[Route]:
    """Return the routes. ``load`` loads tables; ``counters`` has what is measured."""

    async def health(request: Request) -> Response:
        return Response('{"status":"ok"}', media_type="application/json")

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(exposition(counters.totals()), headers={"content-type": CONTENT_TYPE})

    async def table_state(request: Request) -> Response:
        path = table_path(request.scope["raw_path"].decode("latin-1").removeprefix(PLACE))
        if path is None or path.rest not in ("", REPORT):
            raise RefusedRequestError(
                "there is no such page; /sidecar/v1/namespaces/NAMESPACE/tables/TABLE is one", ErrorType.NOT_FOUND
            )
        table = await load(request, path)
        if path.rest:
            text, policy = await run_in_threadpool(_report, table)
            framing = {"content-security-policy": f"{policy}; frame-ancestors 'none'"}
            return HTMLResponse(text, headers=_PRIVATE | framing)
        return Response(await run_in_threadpool(_status, table), headers=_PRIVATE, media_type="application/json")

    return [
        Route(HEALTH, health),
        Route("/metrics", metrics),
        Route(PLACE + "/v1/{place:path}", table_state),
    ]


def _status(table: Table) -> bytes:
    from sidecar.reports.status.table_status import status  # with numba, which a server that only plans does not need

    return json.dumps(status(table).to_dict()).encode()


def _report(table: Table) -> tuple[str, str]:
    """Return a page and its policy for browsers."""
    from sidecar.reports.page.collecting import collect_facts
    from sidecar.reports.page.facts import TableOnPage
    from sidecar.reports.page.writing import POLICY, page

    facts = collect_facts(table, with_advice=False)
    return page([TableOnPage(name_of(table), facts, None)], time.time()), POLICY
