"""The routes of a read-only REST catalog before any catalog of pyiceberg.

    GET  /v1/config
    GET  /v1/namespaces                             HEAD, GET  /v1/namespaces/{namespace}
    GET  /v1/namespaces/{namespace}/tables          HEAD, GET  /v1/namespaces/{namespace}/tables/{table}
    POST /v1/namespaces/{namespace}/tables/{table}/plan, .../tasks
    GET, DELETE  .../plan/{plan-id}

Plans are answered at once and pages are described by their tokens, so there are never plans to ask for or to cancel.
The paths are taken apart before they are decoded, because names can have slashes. The levels of a namespace are
separated by the unit separator (``%1F``).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.serving.answers import Caller, Identifier, PlanAnswer, Planner
from sidecar.serving.planning.catalog_tables import CatalogTables
from sidecar.serving.planning.limits import Turns, run_while_wanted
from sidecar.serving.protocol.encoding import PLAN_ID
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError, document_of, place_of
from sidecar.storage.remote import read_file

log = logging.getLogger(__name__)

MODE = "scan-planning-mode"
PLANNING = {MODE: "server", "rest-scan-planning-enabled": "true"}
"""Defaults with which clients ask for plans. The second name is that of pyiceberg 0.11."""
_TABLE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"POST {_TABLE}/plan",
    f"GET {_TABLE}/plan/{{plan-id}}",
    f"DELETE {_TABLE}/plan/{{plan-id}}",
    f"POST {_TABLE}/tasks",
]
"""The routes that the catalog answers; none of them writes. Java plans on a server only if the route is here."""
_JSON = "application/json"
_SEPARATOR = "\x1f"
_READ_ONLY = (
    "this catalog is read-only: it plans scans with the sidecar. Write through the catalog that it stands before."
)


@dataclass(frozen=True)
class _CatalogAnswer:
    """An answer without the web server's types, so that threads make it."""

    status: int = 200
    body: bytes | PlanAnswer = b""
    headers: dict[str, str] = field(default_factory=dict)


def catalog_routes(catalog: Catalog, planner: Planner) -> list[Route]:
    """Return the routes of ``catalog``, all below ``/v1/``.

    ``planner`` answers plan requests and says who plans the scans of each table. Routes that do not exist, and all
    errors, are answered in the protocol's form.
    """
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    return [Route("/v1/{rest:path}", _CatalogRoutes(catalog, planner).answer, methods=methods)]


class _CatalogRoutes:
    def __init__(self, catalog: Catalog, planner: Planner) -> None:
        self._catalog = catalog
        self._catalog_tables = CatalogTables(catalog)
        self._planner = planner
        self._turns = Turns()

    async def answer(self, request: Request) -> Response:
        """Answer a request. pyiceberg blocks, so it runs in a thread."""
        body = await request.body()
        async with self._turns.of(body):
            answer = await run_while_wanted(request, self._answer, request, body)
        if isinstance(answer.body, PlanAnswer):
            pieces = answer.body.body
            headers = {**answer.headers, "Content-Length": str(sum(map(len, pieces)))}
            return StreamingResponse(_stream(pieces), answer.status, headers, media_type=_JSON)
        content = b"" if request.method == "HEAD" else answer.body
        return Response(content, answer.status, answer.headers, media_type=_JSON if content else None)

    def _answer(self, request: Request, body: bytes) -> _CatalogAnswer:
        try:
            return self._routed(request, body)
        except Exception as error:
            if not isinstance(error, SidecarError):
                log.warning("%s %s failed: %s", request.method, request.url.path, place_of(error))
            document = document_of(error)
            return _CatalogAnswer(document.status, document.body)

    def _routed(self, request: Request, body: bytes) -> _CatalogAnswer:
        method, parts = request.method, _path_parts(request)
        match parts:
            case ["config"] if method == "GET":
                return _json({"defaults": PLANNING, "overrides": {}, "endpoints": ENDPOINTS})
            case ["namespaces"] if method == "GET":
                return self._namespaces(request)
            case ["namespaces", namespace] if method in ("GET", "HEAD"):
                found = self._namespace(_levels(namespace))
                return found if method == "GET" else _CatalogAnswer(204)
            case ["namespaces", namespace, "tables"] if method == "GET":
                return self._tables(_levels(namespace))
            case ["namespaces", namespace, "views"] if method == "GET":
                return _json({"identifiers": []})
            case ["namespaces", _, "views", _] if method in ("GET", "HEAD"):
                raise RefusedRequestError("the view does not exist", ErrorType.NO_SUCH_VIEW)
            case ["namespaces", namespace, "tables", table, *rest] if table:
                answer = self._table((*_levels(namespace), table), method, rest, request, body)
                if answer is not None:
                    return answer
            case _:
                pass
        if method in ("GET", "HEAD") or not _is_write(parts):
            raise RefusedRequestError("there is no such route", ErrorType.NOT_FOUND)
        raise RefusedRequestError(_READ_ONLY, ErrorType.FORBIDDEN)

    def _table(
        self, identifier: Identifier, method: str, rest: list[str], request: Request, body: bytes
    ) -> _CatalogAnswer | None:
        """Answer a request about a table; ``None`` if there is no such route."""
        caller = Caller(request.headers.get("user-agent", ""), request.headers.get("x-client-version", ""))
        match method, rest:
            case "GET", []:
                return self._loaded(identifier, request)
            case "HEAD", []:
                self._load(identifier)
                return _CatalogAnswer(204)
            case "POST", ["plan"]:
                return _CatalogAnswer(body=self._planner.plan(self._load(identifier), identifier, body, caller))
            case "POST", ["tasks"]:
                return _CatalogAnswer(body=self._planner.tasks(self._load(identifier), identifier, body, caller))
            case "GET", ["plan", _]:
                self._load(identifier)
                raise RefusedRequestError("plans are answered at once and not kept", ErrorType.NO_SUCH_PLAN)
            case "DELETE", ["plan", plan_id]:
                if plan_id != PLAN_ID:
                    self._load(identifier)
                return _CatalogAnswer(204)
            case "POST", ["metrics"]:
                return _CatalogAnswer(204)
            case _:
                return None

    def _load(self, identifier: Identifier) -> Table:
        return self._catalog_tables.load(identifier)

    def _loaded(self, identifier: Identifier, request: Request) -> _CatalogAnswer:
        table = self._load(identifier)
        mode = self._planner.mode(table, identifier)
        tag = f'"{hashlib.sha256(f"{table.metadata_location} {mode}".encode()).hexdigest()[:32]}"'
        headers = {"ETag": tag}
        if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
            return _CatalogAnswer(304, headers=headers)
        # The config never says "server": it would overrule clients that are configured to plan themselves.
        config = json.dumps({MODE: "client"} if mode == "client" else {})
        location = json.dumps(table.metadata_location)
        text = b'{"metadata-location":%b,"metadata":%b,"config":%b}'
        return _CatalogAnswer(body=text % (location.encode(), read_metadata(table), config.encode()), headers=headers)

    def _namespaces(self, request: Request) -> _CatalogAnswer:
        parent = request.query_params.get("parent")
        found = self._catalog.list_namespaces(_levels(parent) if parent else ())
        return _json({"namespaces": [list(one) for one in found]})

    def _namespace(self, levels: Identifier) -> _CatalogAnswer:
        properties = self._catalog.load_namespace_properties(levels)
        return _json({"namespace": list(levels), "properties": dict(properties)})

    def _tables(self, levels: Identifier) -> _CatalogAnswer:
        found = self._catalog.list_tables(levels)
        return _json({"identifiers": [{"namespace": list(one[:-1]), "name": one[-1]} for one in found]})


def _stream(pieces: Any) -> Iterator[bytes]:
    yield from pieces


def _json(document: Any) -> _CatalogAnswer:
    return _CatalogAnswer(body=json.dumps(document).encode())


def _path_parts(request: Request) -> list[str]:
    """Return the decoded parts of the path below ``/v1/``. Raises :class:`RefusedRequestError` for broken ones."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    below = raw.partition(b"?")[0].partition(b"/v1/")[2]
    try:
        if Caller(client_version=request.headers.get("x-client-version", "")).is_java:
            below = below.replace(b"+", b" ")  # Java's client up to 1.11; a plus is %2B for it
        return [unquote_to_bytes(part).decode() for part in below.split(b"/")]
    except UnicodeDecodeError as error:
        raise RefusedRequestError("the path is not UTF-8") from error


def _levels(namespace: str) -> Identifier:
    levels = tuple(namespace.split(_SEPARATOR))
    if not all(levels):
        raise RefusedRequestError("a level of the namespace is empty")
    return levels


def _is_write(parts: list[str]) -> bool:
    """Whether the protocol has routes for writing at such a path."""
    return parts[0] in ("namespaces", "tables", "views", "transactions")


def read_metadata(table: Table) -> bytes:
    """Return the JSON text of a table's metadata as it is written: clients may know more of it than pyiceberg's model.

    Raises :class:`DamagedFileError` or :class:`sidecar.errors.StorageError` if it cannot be read.
    """
    location = table.metadata_location
    data = read_file(location, table.io)
    if not location.endswith((".gz.metadata.json", ".metadata.json.gz")):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFileError("the metadata of the table cannot be decompressed", file=location) from error
