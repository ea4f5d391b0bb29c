"""A read-only REST catalog on the loopback before the tests' catalog, in a thread."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn
from pyiceberg.catalog.rest import RestCatalog
from starlette.applications import Starlette

from sidecar.serving.answers import Identifier, PlanFacts
from sidecar.serving.catalog_routes import catalog_routes
from sidecar.serving.planning.scan_planner import ScanPlanner


class Served:
    """``url`` is the address of the server, ``facts`` what its plans did, ``requests`` the bodies of plan requests."""

    def __init__(self, url: str, planner: ScanPlanner) -> None:
        self.url = url
        self.planner = planner
        self.facts: list[PlanFacts] = []

    def see(self, identifier: Identifier, facts: PlanFacts) -> None:
        self.facts.append(facts)

    def catalog(self, **properties: str) -> RestCatalog:
        """A client of the server."""
        return RestCatalog("served", uri=self.url, **properties)


@contextmanager
def served(catalog: Any, **options: Any) -> Iterator[Served]:
    """The server, for a while. ``options`` are those of the planner."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    found = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", ScanPlanner(shares_manifests=True, **options))
    app = Starlette(routes=catalog_routes(catalog, found.planner, see_plan=found.see))
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
