"""A REST catalog of a few tables on the loopback: it loads, commits statistics, and plans scans on the server.

Metadata is kept as JSON and never parsed, so that whatever an engine registers is served, as real servers do.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.iceberg.cases import local

PREFIX = "/v1/"
PLACE = "{prefix}/namespaces/{namespace}/tables/{table}"
ENDPOINTS = [f"GET /v1/{PLACE}", f"POST /v1/{PLACE}", f"POST /v1/{PLACE}/plan"]


class Server:
    """``locations``: the present metadata file of each table, by name without the namespace ``db``."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.planned: list[dict[str, Any]] = []
        """Requests to plan a scan."""
        self.before_commit: Any = None
        """Called with the name of a table before the next commit to it."""
        self.on_statistics = 200
        """The status of the answer to a commit of statistics; 0: answered with 200, and ignored."""
        self.commits = 0
        self.client_side: dict[str, Table] = {}
        """Tables as pyiceberg loads them, to plan with."""

    def document(self, name: str) -> dict[str, Any]:
        """The table's metadata."""
        found: dict[str, Any] = json.loads(local(self.locations[name]).read_text())
        return found

    def write(self, name: str, document: dict[str, Any]) -> None:
        """A new version of the metadata."""
        old = self.locations[name]
        entry = {"metadata-file": old, "timestamp-ms": document["last-updated-ms"]}
        document["metadata-log"] = [*document.get("metadata-log", []), entry]
        self.locations[name] = f"{old.rpartition('/')[0]}/{uuid.uuid4()}.metadata.json"
        local(self.locations[name]).write_text(json.dumps(document))

    def answer(self, name: str, only_refs: bool = False) -> dict[str, Any]:
        """What loading and committing answer; ``only_refs`` leaves out the snapshots that no branch and no tag names.

        Their statistics are left out, too, as Iceberg's ``TableMetadata.Builder`` does.
        """
        document = self.document(name)
        if only_refs:
            named = {ref["snapshot-id"] for ref in document["refs"].values()}
            for key in ("snapshots", "statistics"):
                document[key] = [one for one in document.get(key, []) if one["snapshot-id"] in named]
        return {"metadata-location": self.locations[name], "metadata": document, "config": {}}

    def commit(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """Apply updates of statistics."""
        self.commits += 1
        if self.on_statistics == 0:
            return self.answer(name)
        hook, self.before_commit = self.before_commit, None
        if hook is not None:
            hook(name)
        document = self.document(name)
        for update in request["updates"]:
            assert update["action"] in ("set-statistics", "remove-statistics"), update
            entry = update.get("statistics")
            snapshot = entry["snapshot-id"] if entry else update["snapshot-id"]
            others = [e for e in document.get("statistics", []) if e["snapshot-id"] != snapshot]
            document["statistics"] = [*others, entry] if entry else others
        self.write(name, document)
        return self.answer(name)

    def plan(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """All files of the snapshot as scan tasks: this server evaluates no filter."""
        self.planned.append(request)
        scan = self.client_side[name].scan(snapshot_id=request.get("snapshot-id"))
        tasks = [
            {
                "data-file": {
                    "spec-id": 0,
                    "content": "data",
                    "file-path": task.file.file_path,
                    "file-format": "parquet",
                    "file-size-in-bytes": task.file.file_size_in_bytes,
                    "record-count": task.file.record_count,
                }
            }
            for task in scan.plan_files()
        ]
        return {"status": "completed", "file-scan-tasks": tasks}


@contextmanager
def serving() -> Iterator[tuple[Server, str]]:
    """A server, and its address."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].removeprefix(PREFIX)
            if path == "config":
                self.reply({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS})
            elif (name := path.removeprefix("namespaces/db/tables/")) in server.locations:
                self.reply(server.answer(name, only_refs="snapshots=refs" in self.path))
            else:
                self.reply({"error": {"message": "gone", "type": "NoSuchTableException", "code": 404}}, 404)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, _, action = self.path.removeprefix(PREFIX).removeprefix("namespaces/db/tables/").partition("/")
            if action != "plan" and server.on_statistics > 200:
                server.commits += 1
                self.reply({"error": {"message": "what?", "type": "Odd", "code": 1}}, server.on_statistics)
                return
            self.reply((server.plan if action == "plan" else server.commit)(name, request))

        def reply(self, document: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def client(address: str, **properties: str) -> RestCatalog:
    """pyiceberg's client of a server."""
    return RestCatalog("rest", uri=address, **properties)
