"""The headers that a proxy passes on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sidecar.serving.guards import OWN_TOKEN

RawHeaders = list[tuple[bytes, bytes]]

_OF_ONE_CONNECTION = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
_OF_A_BODY = {b"content-length", b"content-type", b"content-encoding", b"expect"}
_CONDITIONS = {b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range"}
_OF_A_FRONT = re.compile(
    rb"(x-)?(remote|webauth|authenticated|forwarded|auth-request|ssl-client|client-cert|real-ip|original-user"
    rb"|goog-(iap|authenticated)|amzn-oidc|ms-client-principal|ms-token)(-.*)?"
)
"""Headers by which a trusted proxy names the sender of a request. This proxy does not know the sender."""
DELEGATION = b"x-iceberg-access-delegation"


def to_upstream(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of a request as they are sent upstream.

    Headers about one connection, about one host, and about the sender of a request before another proxy are left out.
    """
    kept = _without(headers, {b"host", b"expect", OWN_TOKEN})
    return [(name, value) for name, value in kept if not _OF_A_FRONT.fullmatch(name.lower().replace(b"_", b"-"))]


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of the upstream's answer as they are sent to the client."""
    return _without(headers, set())


def for_rewritten(headers: Iterable[tuple[bytes, bytes]], length: int) -> RawHeaders:
    """Return the headers of the upstream's answer for a body that the proxy has changed."""
    body = {b"content-length", b"content-encoding", b"etag", b"content-md5", b"digest", b"accept-ranges"}
    return [*_without(headers, body), (b"content-length", str(length).encode())]


def for_own_load(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers with which the proxy loads a table for the sender of a plan request.

    It asks for credentials of the storage, which the sender may have, unless the sender asks for something else.
    """
    kept = _without(
        to_upstream(headers), _OF_A_BODY | _CONDITIONS | {b"accept-encoding", b"accept", b"idempotency-key"}
    )
    if not any(name.lower() == DELEGATION for name, _ in kept):
        kept.append((DELEGATION, b"vended-credentials"))
    return [*kept, (b"accept", b"application/json"), (b"accept-encoding", b"gzip")]


def readable_by_us(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of a request whose answer the proxy reads, without compressions that it does not know."""
    return [*_without(headers, {b"accept-encoding", b"range", b"if-range"}), (b"accept-encoding", b"gzip")]


def without_length(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return headers without those about the length of the body."""
    return _without(headers, {b"content-length"})


def _without(headers: Iterable[tuple[bytes, bytes]], names: set[bytes]) -> RawHeaders:
    """Return headers without ``names``, without those about one connection, and without those that ``Connection``
    names."""
    given = list(headers)
    dropped = set(names) | _OF_ONE_CONNECTION
    for name, value in given:
        if name.lower() == b"connection":
            dropped |= {part.strip().lower() for part in value.split(b",")}
    return [(name, value) for name, value in given if name.lower() not in dropped]
