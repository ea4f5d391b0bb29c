"""Asks the application of ``sidecar serve`` in this process, without a connection: guards, routes, log line and all."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

JAVA = [(b"user-agent", b"Apache-HttpClient/5.5 (Java/17)"), (b"x-client-version", b"Apache Iceberg 1.12.0")]
_PAGES = re.compile(rb'"plan-tasks":(\[[^\]]*\])')
PYICEBERG = [(b"user-agent", b"PyIceberg/0.12.0")]


class Asked:
    """An application that has started."""

    def __init__(self, application: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._application, self._loop = application, loop

    def plan(self, table: str, condition: Any, agent: list[tuple[bytes, bytes]]) -> tuple[float, int]:
        """Return the seconds of CPU that a plan and its pages take, and the bytes of the answers."""
        asked: list[tuple[str, dict[str, Any]]] = [("plan", {"filter": condition, "case-sensitive": True})]
        seconds, length = 0.0, 0
        while asked:
            route, document = asked.pop()
            path, body = f"/v1/namespaces/db/tables/{table}/{route}", json.dumps(document).encode()
            started = time.process_time()
            status, answer = self._loop.run_until_complete(self._post(path, body, agent))
            seconds += time.process_time() - started
            if status != 200:
                raise RuntimeError(f"the server answered {status}")
            length += len(answer)
            pages = _PAGES.search(answer[:1_000_000])
            asked += [("tasks", {"plan-task": token}) for token in (json.loads(pages[1]) if pages else ())]
        return seconds, length

    async def _post(self, path: str, body: bytes, agent: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), *agent]
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
            "scheme": "http",
            "http_version": "1.1",
            "server": ("localhost", 8181),
        }
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


@contextmanager
def started(application: Any) -> Iterator[Asked]:
    loop = asyncio.new_event_loop()
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    life = loop.create_task(application({"type": "lifespan", "asgi": {"version": "3.0"}}, told.get, said.put))
    told.put_nowait({"type": "lifespan.startup"})
    loop.run_until_complete(said.get())
    try:
        yield Asked(application, loop)
    finally:
        told.put_nowait({"type": "lifespan.shutdown"})
        loop.run_until_complete(life)
        loop.close()
