"""A read-only REST catalog on the loopback before the tests' catalog, in a thread; for some tests, one that commits."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest, Table
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sidecar.serving.answers import Caller, Identifier, PlanAnswer, PlanFacts
from sidecar.serving.catalog_routes import ENDPOINTS, MODE, catalog_routes, read_metadata
from sidecar.serving.planning.scan_planner import ScanPlanner


class RecordingPlanner(ScanPlanner):
    """Keeps what its plans did."""

    facts: list[PlanFacts]

    def plan(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        answer = super().plan(table, identifier, request, caller)
        self.facts.append(answer.facts)
        return answer


class Served:
    """``url`` is the address of the server, ``facts`` what its plans did."""

    def __init__(self, url: str, planner: RecordingPlanner) -> None:
        self.url = url
        self.planner = planner
        self.facts = planner.facts = []

    def catalog(self, **properties: str) -> RestCatalog:
        """A client of the server."""
        return RestCatalog("served", uri=self.url, **properties)


def commit_routes(catalog: Any) -> list[Route]:
    """What lets Spark commit through the server: the route, and the config that names it. Only tests have them."""

    def config(request: Request) -> JSONResponse:
        endpoints = [*ENDPOINTS, "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
        return JSONResponse({"defaults": {MODE: "server"}, "overrides": {}, "endpoints": endpoints})

    async def commit(request: Request) -> Response:
        body = await request.body()
        name = request.path_params["namespace"], request.path_params["table"]
        return await run_in_threadpool(_commit, catalog, name, body)

    return [
        Route("/v1/config", config),
        Route("/v1/namespaces/{namespace}/tables/{table}", commit, methods=["POST"]),
    ]


def _commit(catalog: Any, name: tuple[str, str], body: bytes) -> Response:
    document = {"identifier": {"namespace": [name[0]], "name": name[1]}, **json.loads(body)}
    asked = CommitTableRequest.model_validate(document)
    try:
        done = catalog.commit_table(catalog.load_table(name), asked.requirements, asked.updates)
    except CommitFailedException as error:
        found = {"error": {"message": str(error), "type": "CommitFailedException", "code": 409}}
        return JSONResponse(found, 409)
    text = read_metadata(catalog.load_table(name))
    answer = b'{"metadata-location":%b,"metadata":%b}' % (json.dumps(done.metadata_location).encode(), text)
    return Response(answer, media_type="application/json")


@contextmanager
def served(catalog: Any, commits: bool = False, **options: Any) -> Iterator[Served]:
    """The server, for a while; ``commits`` adds the routes of tests. ``options`` are those of the planner."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    found = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", RecordingPlanner(shares_manifests=True, **options))
    routes = catalog_routes(catalog, found.planner)
    app = Starlette(routes=[*commit_routes(catalog), *routes] if commits else routes)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
