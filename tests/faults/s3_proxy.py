"""A TCP proxy before an S3 server that breaks one request, as a network or a server does.

It understands enough of HTTP to know where a request and its answer end. A client tries again by itself; so the broken
request stays broken: the same method and path break each time, until :meth:`S3Proxy.armed` ends.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tests.faults.faults import Flip, Mode, flip_in

BREAKS = {
    Mode.ERROR: ("GET", "HEAD", "PUT", "POST", "DELETE"),
    Mode.LATE: ("GET", "HEAD", "PUT", "POST", "DELETE"),
    Mode.RESET: ("GET", "HEAD", "PUT", "POST", "DELETE"),
    Mode.SHORT: ("GET",),
    Mode.FLIPPED: ("GET",),
    Mode.STALE: ("GET", "HEAD"),
    Mode.FULL: ("PUT", "POST"),
    Mode.DENIED: ("GET", "HEAD", "PUT", "POST", "DELETE"),
}
"""The methods that a mode breaks."""
ANSWERS = {
    Mode.ERROR: (503, "SlowDown"),
    Mode.FULL: (507, "InsufficientStorage"),
    Mode.DENIED: (403, "AccessDenied"),
    Mode.STALE: (404, "NoSuchKey"),
}


class Head(NamedTuple):
    """The head of a request or an answer."""

    text: bytes
    first: list[str]
    """The words of the first line."""
    headers: dict[str, str]

    def with_length(self, length: int) -> bytes:
        return re.sub(rb"(?i)content-length: *\d+", b"Content-Length: %d" % length, self.text)


class Broken(NamedTuple):
    """A broken request."""

    method: str
    path: str
    kind: str = "request"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class S3Proxy:
    """The proxy of a server on this machine, and which request it breaks.

    ``hold`` is how many seconds an answer takes in :attr:`Mode.LATE`: longer than a client waits.
    """

    def __init__(self, server_port: int, hold: float) -> None:
        self._server, self._hold = server_port, hold
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.seen: list[Broken] = []
        self.broken: Broken | None = None
        self.flip: Flip | None = None
        self.attempts = 0
        """How often the broken request came."""
        self._mode: Mode | None = None
        self._turn = -1
        self._made: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._ended.set()
        self._listener.close()

    @contextmanager
    def armed(self, mode: Mode, turn: int) -> Iterator[None]:
        """Break request ``turn`` of those that ``mode`` breaks."""
        with self._lock:
            self.seen, self.broken, self.flip, self.attempts = [], None, None, 0
            self._mode, self._turn, self._made = mode, turn, set()
        try:
            yield
        finally:
            with self._lock:
                self._mode = None

    def _serve(self) -> None:
        while not self._ended.is_set():
            with suppress(OSError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client, socket.create_connection(("127.0.0.1", self._server)) as server:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client.makefile("rb") as asked, server.makefile("rb") as answered:
                while True:
                    request = _head(asked)
                    if request.headers.get("expect", "").lower() == "100-continue":
                        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                    body = _body(asked, request)
                    if not self._answer(client, server, answered, request, body):
                        return

    def _mode_of(self, request: Head) -> Mode | None:
        method, path = request.first[0], request.first[1]
        with self._lock:
            mode, is_new = self._mode, path not in self._made
            if method in ("PUT", "POST"):
                self._made.add(path)
            if (
                mode is None
                or method not in BREAKS[mode]
                or (mode is Mode.STALE and is_new and "list-type" not in path)
            ):
                return None
            this = Broken(method, path)
            self.seen.append(this)
            if len(self.seen) == self._turn + 1:
                self.broken = this
            if this != self.broken:
                return None
            self.attempts += 1
            return mode

    def _answer(
        self, client: socket.socket, server: socket.socket, answered: object, request: Head, body: bytes
    ) -> bool:
        """Answer a request; ``False`` if the connection ends with it."""
        mode = self._mode_of(request)
        is_listing = "list-type" in request.first[1]
        if mode is Mode.RESET:
            _reset(client)
            return False
        if mode in ANSWERS and not (mode is Mode.STALE and is_listing):
            client.sendall(_refusal(mode, request.first[0]))  # type: ignore[arg-type]
            return True
        text = re.sub(rb"(?im)^expect: *100-continue\r\n", b"", request.text)
        server.sendall(text + body)
        answer = _head(answered)
        data = b"" if request.first[0] == "HEAD" else _body(answered, answer)
        if mode is Mode.LATE:
            time.sleep(self._hold)
            return False
        if mode is Mode.SHORT:
            client.sendall(answer.text + data[: len(data) // 2])
            return False
        if mode is Mode.STALE:
            data = self._as_before(data)
            client.sendall(answer.with_length(len(data)) + data)
            return True
        if mode is Mode.FLIPPED and data and not is_listing and answer.first[1] in ("200", "206"):
            start = int(re.findall(r"\d+", answer.headers.get("content-range", "0"))[0])
            if self.flip is None:
                self.flip = flip_in(request.first[1], start, len(data), self._turn)
            if start <= self.flip.offset < start + len(data):
                data = self.flip.applied(data, start)
        client.sendall(answer.text + data)
        return answer.headers.get("connection", "").lower() != "close"

    def _as_before(self, listing: bytes) -> bytes:
        """A listing without the objects that came since."""
        for path in self._made:
            key = path.partition("?")[0].split("/", 2)[-1].encode()
            listing = re.sub(
                rb"<Contents>(?:(?!</Contents>).)*<Key>" + re.escape(key) + rb"</Key>.*?</Contents>", b"", listing
            )
        return listing


def _head(stream: object) -> Head:
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        line = stream.readline(1 << 16)  # type: ignore[attr-defined]
        if not line:
            raise EOFError
        text += line
        if text.startswith(b"HTTP/1.1 100") and text.endswith(b"\r\n\r\n"):
            text = b""
    lines = text.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    return Head(text, lines[0].split(" "), headers)


def _body(stream: object, head: Head) -> bytes:
    """The body as it is sent, chunks and all."""
    read, line = stream.read, stream.readline  # type: ignore[attr-defined]
    if head.headers.get("transfer-encoding", "").lower() != "chunked":
        length = int(head.headers.get("content-length", 0))
        data: bytes = read(length)
        return data
    body = b""
    while True:
        size = line(1 << 10)
        length = int(size.partition(b";")[0], 16)
        body += size + read(length + 2) if length else size
        if not length:
            while (trailer := line(1 << 16)) not in (b"\r\n", b""):
                body += trailer
            return body + b"\r\n"


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _refusal(mode: Mode, method: str) -> bytes:
    status, code = ANSWERS[mode]
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return head + (b"" if method == "HEAD" else body)
