"""A REST catalog of a few tables that can be told to fail, and remembers every request as it came."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from sidecar.serving.proxy.config_answer import ASSUMED_ENDPOINTS
from tests.iceberg.cases import local

BASE = "/api/catalog"
BROKEN_OFF = 50_000


class FakeUpstream:
    """``locations``: the metadata file of each table, by name without the namespace ``db``."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.readers: dict[str, set[str]] = {}
        """The tables that a token may load; without an entry for it, a token may load nothing. Empty: no tokens."""
        self.config: dict[str, Any] = {"defaults": {}, "overrides": {}, "endpoints": list(ASSUMED_ENDPOINTS)}
        self.warehouse: str | None = None
        """The warehouse that clients must name to get the config; ``None``: they need not."""
        self.table_config: dict[str, str] = {}
        self.credentials: list[dict[str, Any]] = []
        self.tag = '"v1"'
        self.requests: list[tuple[str, bytes, bytes, dict[str, str], bytes]] = []
        """Method, raw path, query, headers and body of each request."""
        self.committed = 0

    def application(self) -> Starlette:
        return Starlette(routes=[Route(BASE + "/{path:path}", _All(self))])

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        raw: bytes = request.scope["raw_path"].removeprefix(BASE.encode())
        self.requests.append((request.method, raw, request.scope["query_string"], dict(request.headers), body))
        path = raw.decode().removeprefix("/v1/")
        if path == "config":
            known = self.warehouse is None or request.query_params.get("warehouse") == self.warehouse
            return JSONResponse(self.config) if known else failure(400, "BadRequestException")
        if path.startswith("odd/"):
            return await self._odd(path.removeprefix("odd/"), request)
        return self._tables(path.partition("/")[2], request)

    def _tables(self, path: str, request: Request) -> Response:
        name, _, rest = path.removeprefix("namespaces/db/tables/").partition("/")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.readers and token not in self.readers:
            return failure(401, "NotAuthorizedException")
        if path == "namespaces/db/tables" and request.method == "POST":
            return JSONResponse(self._loaded("t"), headers={"etag": self.tag})
        if self.readers and name not in self.readers[token]:
            return failure(403, "ForbiddenException")
        if name not in self.locations:
            return failure(404, "NoSuchTableException")
        if rest:
            return JSONResponse({"status": "completed", "planned-by": "upstream"})
        if request.method == "POST":
            self.committed += 1
            return JSONResponse(self._loaded(name))
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers={"etag": self.tag})
        document = self._loaded(name)
        if request.query_params.get("snapshots") == "refs":
            named = {ref["snapshot-id"] for ref in document["metadata"]["refs"].values()}
            document["metadata"]["snapshots"] = [
                one for one in document["metadata"]["snapshots"] if one["snapshot-id"] in named
            ]
        return JSONResponse(document, headers={"etag": self.tag})

    def _loaded(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "metadata-location": self.locations[name],
            "metadata": json.loads(local(self.locations[name]).read_text()),
            "config": self.table_config,
        }
        return found | ({"storage-credentials": self.credentials} if self.credentials else {})

    async def _odd(self, what: str, request: Request) -> Response:
        if what == "gzip":
            headers = {"content-encoding": "gzip", "x-kept": "1", "connection": "x-one", "x-one": "2"}
            return Response(gzip.compress(b"hello"), headers=headers)
        if what == "redirect":
            return RedirectResponse("http://elsewhere.example/v1/config")
        if what == "slow":
            await asyncio.sleep(1)
        if what == "cookie":
            return Response(request.headers.get("cookie", "none"), headers={"set-cookie": "session=alice"})
        if what == "broken":
            return StreamingResponse(_broken_off(), headers={"content-length": str(BROKEN_OFF)})
        if what == "broken-chunks":
            return StreamingResponse(_broken_off())
        return Response(b"odd")


async def _broken_off() -> AsyncIterator[bytes]:
    yield b"x" * (BROKEN_OFF // 2)
    raise ConnectionError


class _All:
    def __init__(self, upstream: FakeUpstream) -> None:
        self.upstream = upstream

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await (await self.upstream.answer(Request(scope, receive)))(scope, receive, send)


def failure(status: int, kind: str) -> Response:
    return JSONResponse({"error": {"message": "no", "type": kind, "code": status}}, status)
