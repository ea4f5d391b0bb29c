"""Requests go through a proxy unchanged, whatever the upstream does with them."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request

from sidecar.serving.operations.counters import Counters
from sidecar.serving.planning.limits import Turns
from sidecar.serving.proxy import routes
from sidecar.serving.proxy.routes import Proxy
from sidecar.serving.proxy.upstream import Upstream, UpstreamFailedError
from sidecar.serving.settings import LARGE_BODY, ServeSettings
from tests.serving.proxy.conftest import Proxied
from tests.serving.proxy.fake_upstream import BROKEN_OFF
from tests.serving.stand_in import StandInPlanner


def test_path_query_headers_and_body_go_through_as_they_are(proxied: Proxied) -> None:
    target = "/v1/odd/a%2Fb%1fc%20D%c3%a9;x?q=%41&q=a+b&&=%2f"
    headers = {"X-Iceberg-Thing": "as it is", "Authorization": "Bearer alice", "Content-Type": "text/odd"}
    status, _, body = proxied.ask("POST", target, headers, b"{ as it  is }")
    assert (status, body) == (200, b"odd")
    method, path, query, sent, got = proxied.upstream.requests[0]
    assert (method, path, query) == ("POST", *target.encode().split(b"?"))
    assert got == b"{ as it  is }"
    assert {name: sent.get(name.lower()) for name in headers} == headers
    assert len(proxied.upstream.requests) == 1


def test_chunked_bodies_are_streamed(proxied: Proxied) -> None:
    pieces = iter([b"a" * 70_000, b"b" * 10])
    assert proxied.ask("POST", "/v1/odd/x", body=pieces)[0] == 200
    assert proxied.upstream.requests[0][4] == b"a" * 70_000 + b"b" * 10


def raw(method: str, target: str, headers: str, body: str) -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n\r\n{body}".encode()


def test_a_length_that_contradicts_the_chunks_is_not_passed_on(proxied: Proxied) -> None:
    lengths = "Content-Length: 2\r\nTransfer-Encoding: chunked"
    answer = proxied.raw(raw("POST", "/v1/odd/x", lengths, "5\r\nhello\r\n0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 200")
    (asked,) = proxied.upstream.requests
    assert (asked[4], asked[3].get("content-length")) == (b"hello", None)


@pytest.mark.parametrize("target", ["/v1/config", "/v1/wh/namespaces/db/tables/t"])
def test_a_body_that_is_not_passed_on_has_no_length(proxied: Proxied, target: str) -> None:
    assert proxied.raw(raw("GET", target, "Content-Length: 5", "hello")).startswith(b"HTTP/1.1 200")
    assert "content-length" not in proxied.upstream.requests[0][3]


def test_a_body_that_breaks_off_is_no_bug_of_the_server(proxied: Proxied, caplog: pytest.LogCaptureFixture) -> None:
    parts = urlsplit(proxied.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), 20) as connection:
        connection.sendall(raw("POST", "/v1/wh/namespaces/db/tables/t/plan", "Content-Length: 5", "he"))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65_536)
    assert proxied.ask("GET", "/v1/odd/x")[0] == 200
    assert "unexpectedly" not in caplog.text


def test_headers_of_one_connection_end_here(proxied: Proxied) -> None:
    headers = {"Connection": "close, X-Private", "X-Private": "1", "TE": "trailers", "X-Sidecar-Token": "ours"}
    headers |= {"X-Remote-User": "root", "REMOTE_USER": "root", "X-Forwarded-Email": "root", "Forwarded": "for=::1"}
    headers |= {"X-Remote_User": "root", "X-MS-Client-Principal-Name": "root", "X-SSL-Client-S-DN": "root"}
    headers |= {"Proxy-Authorization": "Basic x", "Upgrade": "h2c", "X-Kept": "1"}
    proxied.ask("GET", "/v1/odd/x", headers)
    sent = proxied.upstream.requests[0][3]
    assert sent["x-kept"] == "1"
    assert "root" not in sent.values()
    assert not {"forwarded", "x-private", "te", "x-sidecar-token", "proxy-authorization", "upgrade"}.intersection(sent)
    assert not {"user-agent", "accept", "accept-encoding", "cookie"}.intersection(sent) - {"accept-encoding"}
    assert sent["host"] != proxied.url.removeprefix("http://")


def test_the_upstreams_compression_and_headers_are_kept(proxied: Proxied) -> None:
    status, headers, body = proxied.ask("GET", "/v1/odd/gzip", {"Accept-Encoding": "gzip"})
    assert (status, headers["content-encoding"], headers["x-kept"]) == (200, "gzip", "1")
    assert gzip.decompress(body) == b"hello"
    assert "x-one" not in headers


def test_cookies_of_one_caller_are_not_sent_for_another(proxied: Proxied) -> None:
    assert proxied.ask("GET", "/v1/odd/cookie")[1]["set-cookie"] == "session=alice"
    assert proxied.ask("GET", "/v1/odd/cookie")[2] == b"none"


def test_redirects_are_not_followed_and_not_passed_on(proxied: Proxied) -> None:
    status, headers, body = proxied.ask("GET", "/v1/odd/redirect")
    assert status == 502
    assert "location" not in headers
    assert "redirect" in json.loads(body)["error"]["message"]


def test_an_answer_that_breaks_off_breaks_off_for_the_client(proxied: Proxied) -> None:
    """A client that counts must see that the answer is not whole."""
    found = proxied.raw(b"GET /v1/odd/broken HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert f"content-length: {BROKEN_OFF}".encode() in head.lower()
    assert len(body) < BROKEN_OFF


def test_chunks_that_break_off_have_no_last_chunk(proxied: Proxied) -> None:
    found = proxied.raw(b"GET /v1/odd/broken-chunks HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"transfer-encoding: chunked" in found.lower()
    assert found.count(b"x") >= BROKEN_OFF // 2
    assert not found.endswith(b"0\r\n\r\n")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The upstream must answer soon."""
    send = Upstream.send

    async def soon(self: Upstream, *args: Any) -> Any:
        before, self._timeout = self._timeout, {**self._timeout, "read": 0.05}
        try:
            return await send(self, *args)
        finally:
            self._timeout = before

    with monkeypatch.context() as patch:
        patch.setattr(Upstream, "send", soon)
        yield


@pytest.mark.usefixtures("impatient")
def test_a_slow_upstream_is_not_asked_again(proxied: Proxied) -> None:
    """504 tells the client that its commit may have happened."""
    status, _, body = proxied.ask("POST", "/v1/odd/slow", body=b"{}")
    assert (status, json.loads(body)["error"]["type"]) == (504, "GatewayTimeoutException")
    assert len(proxied.upstream.requests) == 1


@pytest.mark.parametrize(("method", "attempts"), [("GET", 2), ("POST", 1)])
def test_a_read_on_a_connection_that_was_closed_is_sent_again(method: str, attempts: int) -> None:
    """The upstream closes idle connections. A commit may have happened, a load may be asked for twice."""
    sent = list[httpx.Request]()

    class Closed(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            if len(sent) == 1:
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
            return httpx.Response(200)

    async def asked() -> httpx.Response:
        upstream = Upstream("http://localhost:1", Counters())
        upstream._transport = Closed()  # type: ignore[assignment]
        return await upstream.send(method, b"/v1/config", [])

    if method == "GET":
        assert asyncio.run(asked()).status_code == 200
    else:
        with pytest.raises(UpstreamFailedError):
            asyncio.run(asked())
    assert len(sent) == attempts


def test_clients_that_send_slowly_leave_the_upstream_to_others(proxied: Proxied) -> None:
    """Each holds a connection to the upstream, as long as its body may take."""
    parts = urlsplit(proxied.url)
    with ExitStack() as opened:
        for _ in range(101):
            connection = opened.enter_context(socket.create_connection((parts.hostname or "", parts.port or 0), 20))
            connection.sendall(raw("POST", "/v1/odd/x", "Content-Length: 5", "h"))
        assert proxied.ask("GET", "/v1/odd/x")[0] == 200


def test_a_client_that_does_not_read_holds_no_connection_to_the_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "SEND_SECONDS", 0.05)
    whole = _Whole(b"x")
    answer = httpx.Response(200, stream=whole)

    async def sent(*given: Any) -> httpx.Response:
        return answer

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def passed_on() -> None:
        proxy = Proxy(ServeSettings(upstream="http://localhost:1").checked(), StandInPlanner(), Counters())
        monkeypatch.setattr(proxy._upstream, "send", sent)
        scope = {"type": "http", "method": "GET", "headers": [], "raw_path": b"/v1/x", "query_string": b""}
        await proxy.pass_on(Request(scope), send)

    asyncio.run(passed_on())
    assert answer.is_closed


def test_rights_are_asked_before_a_body_is_read(proxied: Proxied) -> None:
    proxied.upstream.readers = {"alice": {"t"}}
    answer = proxied.raw(raw("POST", "/v1/wh/namespaces/db/tables/t/plan", "Content-Length: 8000000", ""))
    assert answer.startswith(b"HTTP/1.1 401")


def test_large_bodies_are_parsed_one_at_a_time() -> None:
    at_once = list[int]()

    async def parse(turns: Turns, body: bytes, running: list[int]) -> None:
        async with turns.of(body):
            running[0] += 1
            at_once.append(running[0])
            await asyncio.sleep(0)
            running[0] -= 1

    async def several(body: bytes) -> None:
        turns, running = Turns(), [0]
        await asyncio.gather(*(parse(turns, body, running) for _ in range(3)))

    asyncio.run(several(bytes(LARGE_BODY)))
    assert max(at_once) == 1
    asyncio.run(several(b"x"))
    assert max(at_once) == 3


def test_errors_of_the_upstream_are_its_own(proxied: Proxied) -> None:
    status, _, body = proxied.ask("GET", "/v1/wh/namespaces/db/tables/none")
    assert (status, json.loads(body)["error"]["message"]) == (404, "no")


@pytest.mark.parametrize(
    "text",
    [
        b"GET /v1/odd/x HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/odd/x HTTP/1.1\r\nHost: localhost\r\n X-Folded: 1\r\nBad Name: 1\r\n\r\n",
        b"GET /v1/odd/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /v1/odd/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"GET http://elsewhere.example/v1/config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET //elsewhere.example/v1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/odd/../../x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/odd/a%0d%0aX:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v2/odd/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_smuggled_requests_do_not_reach_the_upstream(proxied: Proxied, text: bytes) -> None:
    status = int(proxied.raw(text).split()[1])
    assert status in (400, 404, 501)
    assert proxied.upstream.requests == []


@pytest.mark.parametrize(("coding", "is_read"), [("gzip", True), ("gzip, gzip", False), ("br", False)])
def test_only_the_compression_that_was_asked_for_is_read(coding: str, is_read: bool) -> None:
    async def read() -> bytes:
        upstream = Upstream("http://localhost:1", Counters())
        body = gzip.compress(b"hello") if is_read else gzip.compress(gzip.compress(b"hello"))
        try:
            return await upstream.read(httpx.Response(200, headers={"content-encoding": coding}, stream=_Whole(body)))
        finally:
            await upstream.close()

    if is_read:
        assert asyncio.run(read()) == b"hello"
        return
    with pytest.raises(UpstreamFailedError, match="compressed"):
        asyncio.run(read())


class _Whole(httpx.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
