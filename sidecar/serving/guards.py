"""Refuses requests before any route sees them: wrong names, tokens, paths and sizes.

The guard is around the whole application, so a route cannot be forgotten. It reads no body itself: it counts what the
routes read, and limits the time that they wait for it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from contextlib import suppress
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sidecar.serving.protocol.errors import ErrorDocument, ErrorType, RefusedRequestError, error_document
from sidecar.serving.settings import MOST_BODY, MOST_PLAN, REQUEST_SECONDS, ServeSettings, digest_of, names_of
from sidecar.serving.table_paths import leads_elsewhere

HEALTH = "/healthz"
"""The one path without a check of name and token: load balancers and kubelets ask it by an address."""
OWN_TOKEN = b"x-sidecar-token"
"""The header of the server's own token before an upstream, whose tokens are in ``Authorization``."""
_PORT = re.compile(r":\d{1,5}$")
_CONTROL = re.compile(rb"[\x00-\x1e\x7f]")
"""Control characters but 0x1f, which joins the levels of a namespace."""


class Guard:
    """An application that passes on the requests that are allowed."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        *,
        most_body: int = MOST_BODY,
        most_plan: int = MOST_PLAN,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._app = app
        self._names = names_of(settings)
        self._token_digest = settings.token_digest
        self._before_upstream = settings.upstream is not None
        self._most_body = most_body
        self._most_plan = most_plan
        self._request_seconds = request_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await send_document(send, refusal)
            return
        with suppress(Exception):  # the error was answered and logged; the web server would log its text, too
            await self._app(scope, _LimitedBody(receive, self._most(scope), self._request_seconds), send)

    def _most(self, scope: Scope) -> int:
        """Return how many bytes the body of a request may have."""
        is_passed_on = self._before_upstream and not scope["path"].endswith(("/plan", "/tasks"))
        return self._most_body if is_passed_on else self._most_plan

    def _refusal(self, scope: Scope) -> ErrorDocument | None:
        """Return the answer to a request that is refused."""
        if _is_odd(scope["raw_path"]):
            return error_document(ErrorType.BAD_REQUEST, "the path has a part that is . or .., or control characters")
        length = headers_of(scope, b"content-length")
        if length and length[0].isdigit() and int(length[0]) > self._most(scope):
            return error_document(ErrorType.TOO_LARGE, _too_large(self._most(scope)))
        # An upstream may read a method in small letters as the one in capitals, which this server answers itself.
        if not scope["method"].isupper():
            return error_document(ErrorType.METHOD_NOT_ALLOWED, "methods are written in capitals")
        if scope["path"] == HEALTH:
            return None
        hosts = headers_of(scope, b"host")
        if len(hosts) != 1 or _PORT.sub("", hosts[0].decode("latin-1")).lower() not in self._names:
            return error_document(
                ErrorType.MISDIRECTED,
                "the server does not have the name in the header Host; --public-url gives it another name",
            )
        if self._is_of_a_page(scope):
            return error_document(ErrorType.FORBIDDEN, "pages of other servers may not ask this one")
        if self._token_digest is not None and not self._is_known(scope, self._token_digest):
            return error_document(ErrorType.NOT_AUTHORIZED, f"the server's token is missing or wrong: {self._hint()}")
        return None

    def _is_of_a_page(self, scope: Scope) -> bool:
        """Whether a browser asks for a page of another server, which may send a POST of plain text without asking."""
        own = headers_of(scope, b"host")[0].lower()
        is_foreign = any(one.lower().partition(b"://")[2] != own for one in headers_of(scope, b"origin"))
        return is_foreign or b"cross-site" in headers_of(scope, b"sec-fetch-site")

    def _hint(self) -> str:
        if self._before_upstream:
            return "it belongs in the header X-Sidecar-Token (property header.X-Sidecar-Token of the catalog)"
        return "it belongs in the header Authorization, after Bearer (property token of the catalog)"

    def _is_known(self, scope: Scope, digest: bytes) -> bool:
        given = headers_of(scope, OWN_TOKEN if self._before_upstream else b"authorization")
        if len(given) != 1:
            return False
        token = given[0].strip()
        if not self._before_upstream:
            kind, _, token = token.partition(b" ")
            if kind.lower() != b"bearer":
                return False
        return hmac.compare_digest(digest_of(token.strip()), digest)


class _LimitedBody:
    """Receives the body of a request, up to a number of bytes and within a number of seconds."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._left = self._most = most
        self._seconds = seconds
        self._until: float | None = None
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:  # the next message is the end of the connection, for which routes may wait
            return await self._receive()
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._seconds
        try:
            message = await asyncio.wait_for(self._receive(), max(self._until - now, 0.001))
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise RefusedRequestError(
                f"the body did not arrive within {self._seconds:g} seconds", ErrorType.REQUEST_TIMEOUT
            ) from error
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._left < 0:
                raise RefusedRequestError(_too_large(self._most), ErrorType.TOO_LARGE)
        return message


def headers_of(scope: Scope, name: bytes) -> list[bytes]:
    """Return the values of a header, whose ``name`` is in small letters."""
    return [value for key, value in scope["headers"] if key == name]


async def send_document(send: Send, document: ErrorDocument) -> None:
    """Send an error as the answer."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(document.body)).encode())]
    if document.status == ErrorType.NOT_AUTHORIZED.status:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": document.status, "headers": headers})
    await send({"type": "http.response.body", "body": document.body})


def _is_odd(raw_path: bytes) -> bool:
    """Whether a path can mean another place for a server that resolves it, or has control characters.

    Namespaces and tables with the names ``.`` and ``..`` cannot be reached.
    """
    if not raw_path.startswith(b"/") or raw_path.startswith(b"//"):
        return True
    return leads_elsewhere(raw_path) or b"\\" in raw_path or _CONTROL.search(unquote_to_bytes(raw_path)) is not None


def _too_large(most: int) -> str:
    return f"the body of a request has at most {most:,} bytes"
