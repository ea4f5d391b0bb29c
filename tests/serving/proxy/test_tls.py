"""Upstreams behind TLS: certificates are checked, and those that want one of the client are refused with the reason."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sidecar.serving.application import application_with
from sidecar.serving.server import running
from sidecar.serving.settings import ServeSettings
from tests.serving.certificates import certificate
from tests.serving.stand_in import StandInPlanner


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def upstream(folder: Path, *, wants_certificate: bool) -> Iterator[str]:
    cert, key = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if wants_certificate:
        context.load_verify_locations(cert)
        context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(address: str) -> tuple[int, str]:
    """The status and the text of a proxy's answer."""
    settings = ServeSettings(upstream=address, port=0).checked()
    with running(settings, application_with(settings, StandInPlanner())) as url:
        try:
            with urllib.request.urlopen(f"{url}/v1/any", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, str(json.loads(error.read())["error"]["message"])


def test_an_upstream_with_a_known_certificate_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    with upstream(tmp_path, wants_certificate=False) as address:
        assert asked(address) == (200, "{}")


def test_an_upstream_with_an_unknown_certificate_is_not_asked(tmp_path: Path) -> None:
    with upstream(tmp_path, wants_certificate=False) as address:
        status, message = asked(address)
    assert (status, "does not trust" in message) == (502, True)


def test_an_upstream_that_wants_a_certificate_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    with upstream(tmp_path, wants_certificate=True) as address:
        status, message = asked(address)
    assert (status, "mTLS" in message) == (502, True)
