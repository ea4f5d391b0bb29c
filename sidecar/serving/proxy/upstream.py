"""Sends requests to the upstream: one host, no redirects, no second attempt to write, no cookies between callers."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterable
from urllib.parse import urlsplit

import httpx

from sidecar.errors import causes_of, foreign_reason
from sidecar.serving.operations.counters import Counters
from sidecar.serving.operations.metrics import sample
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.proxy.headers import RawHeaders
from sidecar.serving.settings import MOST_CONNECTIONS, UPSTREAM_SECONDS

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
MOST_DECODED = 256 << 20
"""Bytes of an answer, not compressed, that the proxy reads whole."""
CONNECTION_ERRORS = (httpx.TransportError, OSError)
"""Errors that end a connection. Alerts of TLS 1.3 come through httpx as errors of the module ``ssl``."""
_CLOSED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_ABOUT_TLS = (
    "an upstream whose certificate this machine does not trust, or that asks for a client's certificate (mTLS), cannot "
    "be behind a proxy; describe the catalog in ~/.pyiceberg.yaml and serve it with --catalog"
)


class UpstreamFailedError(RefusedRequestError):
    """The upstream did not answer. ``answer`` says whether the request can have been carried out."""


class Upstream:
    """The upstream of a worker.

    It uses httpx's transport and not its client, because a client keeps cookies, follows ``.netrc`` and adds headers.
    """

    def __init__(self, url: str, counters: Counters, *, seconds: float = UPSTREAM_SECONDS) -> None:
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._base = parts.path.rstrip("/").encode()
        self._counters = counters
        self._timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS).as_dict()
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(),
            trust_env=False,
            # As many connections as clients may have: slow clients could hold all of fewer ones.
            limits=httpx.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=5.0),
        )

    async def send(
        self,
        method: str,
        target: bytes,
        headers: RawHeaders,
        body: bytes | AsyncIterable[bytes] | None = None,
        *,
        may_repeat: bool = True,
    ) -> httpx.Response:
        """Send one request and return the answer, of which the body is not read yet. Close it in the end.

        ``target``: the raw path and query below the upstream's address; it is sent as it is.

        Raises :class:`UpstreamFailedError` if there is no answer or if it is a redirect.
        """
        request = httpx.Request(
            method,
            self._origin,
            headers=headers,
            content=body,
            extensions={"target": self._base + target, "timeout": self._timeout},
        )
        try:
            response = await self._transport.handle_async_request(request)
        except CONNECTION_ERRORS as error:
            # The upstream may have closed an idle connection. A request that only reads is sent again, so that the
            # client does not see it.
            if may_repeat and body is None and method in ("GET", "HEAD") and isinstance(error, _CLOSED):
                return await self.send(method, target, headers, may_repeat=False)
            raise self._failure(error) from error
        kind = f"{response.status_code // 100}xx"
        self._counters.add(sample("sidecar_upstream_requests_total", answer=kind))
        if response.status_code in (301, 302, 303, 307, 308):
            await response.aclose()
            raise UpstreamFailedError(
                "the upstream answers with a redirect, which is not followed: start the server with the address that "
                "the upstream redirects to",
                ErrorType.BAD_GATEWAY,
            )
        response.request = request
        return response

    async def read(self, response: httpx.Response) -> bytes:
        """Return the body of an answer, not compressed, and close it.

        Raises :class:`UpstreamFailedError` if the upstream ends in the middle of it, or sends too much.
        """
        pieces, length = [], 0
        try:
            if response.headers.get("content-encoding", "").lower() not in ("", "identity", "gzip", "deflate"):
                # A body that is compressed twice could grow by a factor of a million before it is counted.
                raise UpstreamFailedError("the upstream's answer is not compressed as asked", ErrorType.BAD_GATEWAY)
            async for piece in response.aiter_bytes():
                length += len(piece)
                if length > MOST_DECODED:
                    raise UpstreamFailedError(
                        f"the upstream's answer has more than {MOST_DECODED:,} bytes", ErrorType.BAD_GATEWAY
                    )
                pieces.append(piece)
        except (*CONNECTION_ERRORS, httpx.DecodingError) as error:
            raise self._failure(error) from error
        finally:
            await response.aclose()
        return b"".join(pieces)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    def _failure(self, error: Exception) -> UpstreamFailedError:
        """Return the error for a request without an answer.

        Clients send a request again after 503, so this status is only for requests that were not sent. After 502 and
        504 they know that a commit may have happened.
        """
        self._counters.add(sample("sidecar_upstream_requests_total", answer="none"))
        log.warning("the upstream failed: %s", foreign_reason(error))
        if _is_about_tls(error):
            return UpstreamFailedError(f"there is no TLS connection: {_ABOUT_TLS}", ErrorType.BAD_GATEWAY)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return UpstreamFailedError("the upstream cannot be reached", ErrorType.UNAVAILABLE)
        if isinstance(error, httpx.TimeoutException):
            return UpstreamFailedError("the upstream did not answer in time", ErrorType.GATEWAY_TIMEOUT)
        hint = f"; {_ABOUT_TLS}" if self._origin.startswith("https:") else ""
        return UpstreamFailedError(
            f"the upstream ended the connection ({type(error).__name__}){hint}", ErrorType.BAD_GATEWAY
        )


def _is_about_tls(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLError) for cause in causes_of(error))
