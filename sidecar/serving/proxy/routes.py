"""Answers the requests of a proxy: a few by itself, all others by passing them on.

GET  /v1/config                    the upstream's answer, with our address and planning in it
GET  .../tables/{table}            the upstream's answer, with who plans in ``config``
POST .../tables, .../register      the same, in answers about new tables
POST .../tables/{table}/plan       ours, after the caller has loaded the table; also tasks
GET, DELETE .../plan/{plan-id}     ours: plans are never left pending
anything else below /v1            passed on, byte for byte
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from pyiceberg.table import Table
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sidecar.errors import SidecarError
from sidecar.serving.answers import Caller, PlanAnswer, Planner
from sidecar.serving.operations.counters import Counters
from sidecar.serving.planning.limits import Turns, run_while_wanted
from sidecar.serving.planning.served_tables import is_chosen
from sidecar.serving.protocol.encoding import PLAN_ID
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.proxy.config_answer import plans_itself, prefix_of, rewrite_config
from sidecar.serving.proxy.etags import EntityTags
from sidecar.serving.proxy.headers import (
    RawHeaders,
    for_own_load,
    for_rewritten,
    readable_by_us,
    to_client,
    to_upstream,
    without_length,
)
from sidecar.serving.proxy.upstream import CONNECTION_ERRORS, Upstream
from sidecar.serving.proxy.upstream_tables import LoadAnswer, UpstreamTables
from sidecar.serving.settings import SEND_SECONDS, ServeSettings
from sidecar.serving.table_paths import TablePath, makes_tables, table_path

log = logging.getLogger(__name__)

SIGNED = b"AWS4-HMAC"
MOST_PREFIXES = 1_000
"""Prefixes of which a worker remembers whether the upstream plans their tables."""


@dataclass(frozen=True)
class OwnLoad:
    """A table that the proxy has loaded with the rights of a caller."""

    loaded: LoadAnswer
    length: int
    """Bytes of the answer."""


class Proxy:
    """The routes before one upstream. ``planner`` answers plan requests."""

    def __init__(self, settings: ServeSettings, planner: Planner, counters: Counters) -> None:
        assert settings.upstream is not None
        self._settings = settings
        self._planner = planner
        self._upstream = Upstream(settings.upstream, counters)
        self._tables = UpstreamTables(tuple(settings.storage))
        self._tags = EntityTags(settings)
        self._turns = Turns()
        self._planned_upstream: dict[str, bool] = {}

    def routes(self) -> list[Route]:
        """Return the one route: paths are told apart before they are decoded."""
        return [Route("/v1/{path:path}", self)]  # an object is called for all methods

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close the connections to the upstream in the end."""
        yield
        await self._upstream.close()

    async def answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is answered here; ``None`` if it is to be passed on."""
        if request.headers.get("authorization", "").encode("latin-1").startswith(SIGNED):
            raise RefusedRequestError(
                "the request is signed for the name of one host (SigV4), so a proxy cannot pass it on; describe the "
                "catalog in ~/.pyiceberg.yaml and serve it with --catalog"
            )
        handler = self._handler(request)
        return None if handler is None else await handler()

    def _handler(self, request: Request) -> Callable[[], Awaitable[Response | None]] | None:
        raw_path = request.scope["raw_path"].decode("latin-1")
        if request.method == "GET" and raw_path == "/v1/config":
            return partial(self._config, request)
        path = table_path(raw_path)
        if path is None:
            return partial(self._created, request) if request.method == "POST" and makes_tables(raw_path) else None
        if request.method == "GET" and not path.rest:
            return partial(self._load, request, path)
        if request.method == "POST" and path.rest in ("plan", "tasks"):
            return partial(self._plan, request, path)
        if request.method in ("GET", "DELETE") and path.rest.startswith("plan/"):
            return partial(self._plan_by_id, request, path)
        return None

    async def _config(self, request: Request) -> Response:
        response = await self._send(request, readable_by_us(to_upstream(request.headers.raw)))
        body = await self._upstream.read(response)
        document = _json_object(body) if response.status_code == 200 else None
        if document is not None:
            self._note_planning(document)
            rewrite_config(document, self._address(request))
            body = json.dumps(document).encode()
        return _as_response(response, body)

    async def _load(self, request: Request, path: TablePath) -> Response:
        given = request.headers.get("if-none-match", "").encode("latin-1")
        known = self._tags.upstreams(given)
        headers = [pair for pair in readable_by_us(to_upstream(request.headers.raw)) if pair[0] != b"if-none-match"]
        if known:
            headers.append((b"if-none-match", b", ".join(known)))
        response = await self._send(request, headers)
        body = await self._upstream.read(response)
        if response.status_code == 200 and not await self._plans_all_upstream(request, path.prefix):
            body = await run_in_threadpool(self._with_mode, body, path)
        tag = response.headers.get("etag", "").encode("latin-1") or (known[0] if len(known) == 1 else b"")
        return _as_response(response, body, self._tags.ours(tag) if tag and response.status_code in (200, 304) else b"")

    async def _created(self, request: Request) -> Response:
        """Pass on a request that makes a table. A new table has no sidecar, so its scans are planned by clients.

        Whatever happens here, the client learns what the upstream did. The answer has no entity tag, so that the next
        load says anew who plans.
        """
        response = await self._send(request, readable_by_us(to_upstream(request.headers.raw)), request.stream())
        body = await self._upstream.read(response)
        if response.status_code == 200:
            body = await run_in_threadpool(self._with_mode, body, None)
        return _as_response(response, body)

    def _with_mode(self, body: bytes, path: TablePath | None) -> bytes:
        """Return a load-table answer that says if clients plan scans of the table; ``path`` is ``None`` for a new one.

        Otherwise the config's default holds, which a client may overrule. The upstream's word is kept. If anything goes
        wrong, the answer stays as it is.
        """
        try:
            loaded = self._tables.read(body)
            if loaded.upstreams_mode is not None or (path is not None and self._is_served(loaded, path, len(body))):
                return body
        except SidecarError as error:
            log.warning("a load-table answer is passed on as it is: %s", error)
            return body
        loaded.leave_to_clients()
        return json.dumps(loaded.document).encode()

    def _is_served(self, loaded: LoadAnswer, path: TablePath, length: int) -> bool:
        """Whether the server should plan scans of a table. Where it may not read, clients must."""
        if not loaded.is_readable() or not is_chosen(path.identifier, self._settings.tables or None):
            return False
        return self._planner.mode(self._tables.table(loaded, path, length), path.place) == "server"

    async def _plan(self, request: Request, path: TablePath) -> Response:
        found = await self._own_load(request, path)  # the body is not read for a caller who may not load the table
        if isinstance(found, Response):
            return found
        body = await request.body()
        if await self._upstream_plans(request, path, found.loaded):
            response = await self._send(request, to_upstream(request.headers.raw), body)
            return _as_response(response, await self._upstream.read(response))
        async with self._turns.of(body):
            answer = await run_while_wanted(request, self._planned, request, path, found, body)
        return Response(b"".join(answer.body), media_type="application/json")

    def _planned(self, request: Request, path: TablePath, found: OwnLoad, body: bytes) -> PlanAnswer:
        caller = Caller(request.headers.get("user-agent", ""), request.headers.get("x-client-version", ""))
        table = self._tables.table(found.loaded, path, found.length)
        answer = self._planner.plan if path.rest == "plan" else self._planner.tasks
        return answer(table, path.place, body, caller)

    async def _plan_by_id(self, request: Request, path: TablePath) -> Response | None:
        """Answer for a plan that a client fetches again or cancels. Ours are complete at once, so none is kept.

        Java ends each scan with such a request. A plan id of ours needs no load of the table.
        """
        if request.method == "DELETE" and path.rest == f"plan/{PLAN_ID}":
            return Response(status_code=204)
        found = await self._own_load(request, path)
        if isinstance(found, Response):
            return found
        if await self._upstream_plans(request, path, found.loaded):
            return None
        if request.method == "DELETE":
            return Response(status_code=204)
        raise RefusedRequestError("the plan is not kept: plans are answered at once", ErrorType.NO_SUCH_PLAN)

    async def load_for(self, request: Request, path: TablePath) -> Table:
        """Return a table as the sender of a request may load it, for the server's own pages."""
        found = await self._own_load(request, path)
        if isinstance(found, Response):
            raise RefusedRequestError("the upstream does not let you load the table", _refusal(found.status_code))
        return await run_in_threadpool(self._tables.table, found.loaded, path, found.length)

    async def _own_load(self, request: Request, path: TablePath) -> OwnLoad | Response:
        """Load the table of a request upstream with the sender's headers; an error there is the answer."""
        response = await self._upstream.send(
            "GET", path.table_path.encode("latin-1"), for_own_load(request.headers.raw)
        )
        body = await self._upstream.read(response)
        if response.status_code != 200:
            return _as_response(response, body)
        return OwnLoad(await run_in_threadpool(self._tables.read, body), len(body))

    async def _upstream_plans(self, request: Request, path: TablePath, loaded: LoadAnswer) -> bool:
        """Whether the upstream plans a table: it says so for the table, or for all tables with its prefix."""
        if loaded.upstreams_mode is not None:
            return loaded.upstreams_mode == "server"
        return await self._plans_all_upstream(request, path.prefix)

    async def _plans_all_upstream(self, request: Request, prefix: str) -> bool:
        """Whether the upstream plans all tables with a prefix.

        The answer is known for prefixes that clients got from this worker. For other prefixes the upstream's config
        without a warehouse is asked, once; it may be about another prefix.
        """
        if prefix not in self._planned_upstream:
            response = await self._upstream.send("GET", b"/v1/config", for_own_load(request.headers.raw))
            body = await self._upstream.read(response)
            document = _json_object(body) if response.status_code == 200 else None
            if document is not None:
                self._note_planning(document)
            self._planned_upstream.setdefault(prefix, False)
        return self._planned_upstream[prefix]

    def _note_planning(self, document: dict[str, Any]) -> None:
        """Remember whether the upstream plans the tables with the prefix in a config answer."""
        if len(self._planned_upstream) >= MOST_PREFIXES:
            self._planned_upstream.clear()
        self._planned_upstream[prefix_of(document)] = plans_itself(document)

    async def _send(
        self, request: Request, headers: RawHeaders, body: bytes | AsyncIterator[bytes] | None = None
    ) -> httpx.Response:
        """Send a request to the path and query that the client asked for.

        If the client states the length of the body in two ways, ``content-length`` is left out.
        """
        if body is None or "transfer-encoding" in request.headers:
            headers = without_length(headers)
        return await self._upstream.send(request.method, target_of(request.scope), headers, body)

    async def pass_on(self, request: Request, send: Send) -> None:
        """Pass a request on, and its answer back, piece by piece.

        An answer that breaks off is broken off for the client as well: the connection is closed.
        """
        response = await self._send(
            request, to_upstream(request.headers.raw), request.stream() if _has_body(request) else None
        )
        try:
            headers = to_client(response.headers.raw)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for piece in response.aiter_raw():
                sending = send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.wait_for(sending, SEND_SECONDS)
        except asyncio.TimeoutError:
            log.warning("a client did not read its answer for %g seconds", SEND_SECONDS)
            return
        except CONNECTION_ERRORS as error:
            log.warning("the upstream broke off its answer (%s)", type(error).__name__)
            return
        finally:
            await response.aclose()
        await send({"type": "http.response.body", "body": b""})

    def _address(self, request: Request) -> str:
        """Return the address by which a client reaches the proxy. The guard has checked the name in it."""
        return self._settings.public_url or f"{self._settings.scheme}://{request.headers['host']}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        request = Request(scope, receive)
        answer = await self.answer(request)
        if answer is None:
            await self.pass_on(request, send)
        else:
            await answer(scope, receive, send)


def target_of(scope: Scope) -> bytes:
    """Return the path and query of a request as they came."""
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _as_response(response: httpx.Response, body: bytes, tag: bytes = b"") -> Response:
    """Return an answer of the upstream that was read whole, with another body and tag."""
    made = Response(body, response.status_code)
    made.raw_headers = for_rewritten(to_client(response.headers.raw), len(body))
    if tag:
        made.raw_headers.append((b"etag", tag))
    if response.status_code in (204, 304):
        made.raw_headers = [pair for pair in made.raw_headers if pair[0] != b"content-length"]
    return made


def _refusal(status: int) -> ErrorType:
    """Return the error that takes the place of an upstream's error of the same status."""
    same = [one for one in ErrorType if one.status == status]
    return same[0] if same else ErrorType.BAD_GATEWAY
