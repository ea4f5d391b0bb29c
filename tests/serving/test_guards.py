"""What is refused before any route sees it: names, tokens, paths, sizes, slow bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.serving.application import report_error
from sidecar.serving.guards import Guard
from sidecar.serving.settings import ServeSettings
from tests.serving.asgi import OUR_NAME, Answer, ask

TOKEN = "correct-horse-battery"


async def echo(request: Request) -> JSONResponse:
    return JSONResponse({"path": request.scope["raw_path"].decode(), "bytes": len(await request.body())})


def guarded(settings: ServeSettings, **limits: Any) -> Guard:
    app = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])
    app.add_exception_handler(SidecarError, report_error)
    return Guard(app, settings, **limits)


def with_token(tmp_path: Path, **given: Any) -> ServeSettings:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return ServeSettings(token_file=tmp_path / "token", **given).checked()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8181", "127.0.0.1:9", "[::1]:8181"])
def test_a_server_on_the_loopback_is_called_by_its_names(host: str) -> None:
    assert ask(guarded(ServeSettings().checked()), headers=[(b"host", host.encode())]).status == 200


@pytest.mark.parametrize(
    "hosts", [["evil.example"], ["localhost.evil.example"], ["127.0.0.1@evil"], [""], [], ["localhost", "localhost"]]
)
def test_other_names_are_refused(hosts: list[str]) -> None:
    """A page that rebinds its name to 127.0.0.1 reaches the server, but calls it by that name."""
    answer = ask(guarded(ServeSettings().checked()), headers=[(b"host", host.encode()) for host in hosts])
    assert (answer.status, answer.error["type"]) == (421, "MisdirectedRequestException")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ((b"origin", b"http://localhost:8181"), 200),
        ((b"origin", b"HTTP://LOCALHOST:8181"), 200),
        ((b"origin", b"https://evil.example"), 403),
        ((b"origin", b"http://localhost.evil.example"), 403),
        ((b"origin", b"http://localhost:3000"), 403),
        ((b"origin", b"null"), 403),
        ((b"origin", b"http://["), 403),
        ((b"origin", b""), 403),
        ((b"sec-fetch-site", b"cross-site"), 403),
        ((b"sec-fetch-site", b"none"), 200),
    ],
)
def test_pages_of_other_servers_may_not_ask(header: tuple[bytes, bytes], status: int) -> None:
    """A browser sends a POST of plain text to the loopback without asking whether it may."""
    assert ask(guarded(ServeSettings().checked()), "POST", headers=[OUR_NAME, header]).status == status


@pytest.mark.parametrize("method", ["get", "Post", "dELETE"])
def test_methods_are_written_in_capitals(method: str) -> None:
    """An upstream may take a method in small letters for the one that is answered here."""
    assert refused(ask(guarded(ServeSettings().checked()), method)) == (405, "MethodNotAllowedException")


def test_the_public_address_is_a_name_too() -> None:
    app = guarded(ServeSettings(public_url="https://lake.example:443/").checked())
    assert ask(app, headers=[(b"host", b"lake.example")]).status == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer ", 401),
        ("Bearer \xff", 401),
        (None, 401),
    ],
)
def test_each_request_needs_the_token(tmp_path: Path, header: str | None, status: int) -> None:
    given = [] if header is None else [(b"authorization", header.encode("latin-1"))]
    answer = ask(guarded(with_token(tmp_path)), headers=[OUR_NAME, *given])
    assert answer.status == status
    if status == 401:
        assert TOKEN not in str(answer.error)
        assert answer.headers[b"www-authenticate"] == b"Bearer"
    assert ask(guarded(with_token(tmp_path)), target=b"/healthz", headers=[]).status == 200


def test_before_an_upstream_the_token_has_its_own_header(tmp_path: Path) -> None:
    app = guarded(with_token(tmp_path, upstream="http://localhost:1"))
    assert ask(app, headers=[OUR_NAME, (b"authorization", f"Bearer {TOKEN}".encode())]).status == 401
    assert ask(app, headers=[OUR_NAME, (b"x-sidecar-token", TOKEN.encode())]).status == 200
    twice = [(b"x-sidecar-token", TOKEN.encode()), (b"x-sidecar-token", b"another")]
    assert ask(app, headers=[OUR_NAME, *twice]).status == 401


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/../admin",
        b"/v1/%2e%2e/admin",
        b"/v1/.%2E/admin",
        b"/v1/%252e%252e/admin",
        b"/v1/..;x=1/admin",
        b"/v1/./config",
        b"/v1/..%2fadmin",
        b"/v1/..%5cadmin",
        b"/v1\\..\\admin",
        b"//evil.example/v1",
        b"http://evil.example/v1/config",
        b"/v1/a\x00b",
        b"/v1/a%0d%0aX-Injected:%201",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(path: bytes) -> None:
    assert ask(guarded(ServeSettings().checked()), target=path).error["type"] == "BadRequestException"


@pytest.mark.parametrize("path", [b"/v1/a..b/c", b"/v1/%2Fx", b"/v1/a%1Fb/tables/%25", b"/v1/...", b"/v1/a%20b;c"])
def test_odd_names_are_passed_on_as_they_came(path: bytes) -> None:
    answer = ask(guarded(ServeSettings().checked()), target=path)
    assert answer.status == 200
    assert path in answer.body


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.error["type"]


def test_long_bodies_are_refused_by_what_they_say_and_by_what_they_are() -> None:
    app = guarded(ServeSettings().checked(), most_plan=100)
    told = [OUR_NAME, (b"content-length", b"101")]
    assert refused(ask(app, "POST", headers=told, pieces=[b"x" * 101])) == (413, "RequestTooLargeException")
    assert refused(ask(app, "POST", pieces=[b"x" * 60, b"x" * 41])) == (413, "RequestTooLargeException")
    assert ask(app, "POST", pieces=[b"x" * 60, b"x" * 40]).status == 200


def test_what_is_passed_on_may_be_longer_than_what_is_read_whole() -> None:
    app = guarded(ServeSettings(upstream="http://localhost:1").checked(), most_body=200, most_plan=100)
    told = [OUR_NAME, (b"content-length", b"150")]
    assert ask(app, "POST", b"/v1/commit", told, [b"x" * 150]).status == 200
    assert refused(ask(app, "POST", b"/v1/commit", pieces=[b"x" * 201])) == (413, "RequestTooLargeException")
    assert refused(ask(app, "POST", b"/v1/t/plan", told, [b"x" * 150])) == (413, "RequestTooLargeException")
    assert refused(ask(app, "POST", b"/v1/t/t%61sks", pieces=[b"x" * 150])) == (413, "RequestTooLargeException")


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    app = guarded(ServeSettings().checked(), request_seconds=0.05)
    pieces: list[bytes | float] = [b"x", 0.03, b"x", 0.03, b"x", 5.0, b"x"]
    assert refused(ask(app, "POST", pieces=pieces)) == (408, "RequestTimeoutException")


def test_addresses_that_others_reach_need_token_and_certificate(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "pem").write_text("")
    secure: Any = dict.fromkeys(("tls_cert", "tls_key"), tmp_path / "pem")
    everything: Any = {"token_file": tmp_path / "token", **secure}
    for lacking in ({}, {"token_file": tmp_path / "token"}, secure):
        with pytest.raises(UsageError, match="other machines"):
            ServeSettings(host="192.0.2.1", **lacking).checked()
    assert ServeSettings(host="192.0.2.1", **everything).checked().scheme == "https"
    with pytest.raises(UsageError, match="public_url"):
        ServeSettings(host="0.0.0.0", **everything).checked()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"catalog": "a", "upstream": "http://localhost"}, "not both"),
        ({"upstream": "ftp://localhost"}, "not a URL"),
        ({"upstream": "localhost:8181"}, "not a URL"),
        ({"upstream": "http://user:pass@localhost"}, "user name or password"),
        ({"upstream": "http://localhost/?a=b"}, "no query"),
        ({"upstream": "https://glue.eu-west-1.amazonaws.com/iceberg"}, "SigV4"),
        ({"upstream": "https://s3tables.us-east-1.amazonaws.com/iceberg"}, "SigV4"),
        ({"tls_cert": "a"}, "belong together"),
        ({"tls_cert": "/no/such", "tls_key": "/no/such"}, "does not exist"),
        ({"storage": ["s3://x"]}, "for a proxy"),
        ({"storage": ["s3://lake/../x/"], "upstream": "http://localhost"}, "storage location"),
        ({"storage": ["s3://"], "upstream": "http://localhost"}, "storage location"),
        ({"storage": [""], "upstream": "http://localhost"}, "storage location"),
        ({"storage": ["s3://la\tke/x/"], "upstream": "http://localhost"}, "storage location"),
        ({"upstream": "http://local\thost"}, "not a URL"),
        ({"tables": "db.t"}, "list of texts"),
        ({"workers": 0}, "from 1 to"),
        ({"port": 70_000}, "from 0 to"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        ServeSettings(**given).checked()


def test_files_of_secrets_that_everybody_may_write_are_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o666)
    with pytest.raises(UsageError, match="chmod 600"):
        ServeSettings(token_file=tmp_path / "token").checked()


def test_tokens_that_are_guessed_easily_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        ServeSettings(token_file=tmp_path / "none").checked()
    for text in ("", "short", "two words are too many"):
        (tmp_path / "token").write_text(text)
        with pytest.raises(UsageError, match="16 ASCII"):
            ServeSettings(token_file=tmp_path / "token").checked()
    assert TOKEN not in repr(with_token(tmp_path))
