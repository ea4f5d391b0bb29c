"""Asks an ASGI application without a socket, with paths and headers that no client would send."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

OUR_NAME = (b"host", b"localhost:8181")


@dataclass
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def document(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error in the form of the protocol."""
        found: dict[str, Any] = self.document["error"]
        assert set(found) == {"message", "type", "code"}
        assert found["code"] == self.status
        return found


def ask(
    app: Any,
    method: str = "GET",
    target: bytes = b"/",
    headers: list[tuple[bytes, bytes]] | None = None,
    pieces: list[bytes | float] | None = None,
) -> Answer:
    """Send one request. A number among the pieces of the body is a pause in seconds."""
    return asyncio.run(_ask(app, method, target, [OUR_NAME] if headers is None else headers, pieces or [b""]))


async def _ask(
    app: Any, method: str, target: bytes, headers: list[tuple[bytes, bytes]], pieces: list[bytes | float]
) -> Answer:
    path, _, query = target.partition(b"?")
    left = list(pieces)
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method,
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "headers": headers,
        "scheme": "http",
        "http_version": "1.1",
        "server": ("localhost", 8181),
    }

    async def receive() -> dict[str, Any]:
        while left and isinstance(left[0], float):
            await asyncio.sleep(left.pop(0))
        if not left:
            await asyncio.Event().wait()  # the client waits for its answer
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    return Answer(start["status"], dict(start["headers"]), b"".join(one.get("body", b"") for one in rest))
