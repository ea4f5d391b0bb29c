"""Servers start, count and stop: in a thread, alone, and as several workers."""

from __future__ import annotations

import builtins
import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

import sidecar
from sidecar.errors import UsageError
from sidecar.serving.application import make_application
from sidecar.serving.server import listening, running, signals_end_the_server
from sidecar.serving.settings import ServeSettings
from tests.iceberg.cases import local, replaced
from tests.serving.certificates import certificate
from tests.serving.serving_logs import plan_lines
from tests.tables import create_with_rows

SERVE = [sys.executable, "-m", "sidecar.cli", "serve", "--json", "--port", "0"]


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        found: bytes = answer.read()
    return found


@pytest.fixture
def catalog_of_settings(configured_catalog: SqlCatalog) -> SqlCatalog:
    """The catalog ``served`` with the table ``db.t`` of two files."""
    parts = [pa.table({"k": list(range(part, 60, 2))}) for part in range(2)]
    create_with_rows(configured_catalog, "db.t", parts, columns=["k"])
    return configured_catalog


@pytest.mark.usefixtures("catalog_of_settings")
def test_a_catalog_is_served_with_its_pages() -> None:
    settings = ServeSettings(catalog="served", port=0).checked()
    with running(settings, make_application(settings)) as url:
        table = RestCatalog("any", uri=url).load_table("db.t")
        with plan_lines() as lines:
            assert table.scan("k = 7").to_arrow()["k"].to_pylist() == [7]
        ((line,),) = [lines]
        assert (line["table"], line["files_total"], line["files_kept"], line["result"]) == ("db.t", 2, 1, "ok")
        assert json.loads(get(f"{url}/sidecar/v1/namespaces/db/tables/t"))["covered"]["k"]["bloom"]["files"] == 2
        assert b"Sidecars of" in get(f"{url}/sidecar/v1/namespaces/db/tables/t/report")
        with pytest.raises(urllib.error.HTTPError) as missing:
            get(f"{url}/sidecar/v1/namespaces/db/tables/none")
        assert missing.value.code == 404
        assert "sidecar_plan_files_total 2" in get(f"{url}/metrics").decode()


def test_pages_of_a_table_whose_statistics_pyiceberg_refuses(catalog_of_settings: SqlCatalog) -> None:
    place = local(catalog_of_settings.load_table("db.t").metadata_location)
    document = json.loads(place.read_text())
    blob = {"type": "unknown-v9", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    document["statistics"][0]["blob-metadata"] = [blob]
    settings = ServeSettings(catalog="served", port=0).checked()
    with replaced(place, json.dumps(document).encode()), running(settings, make_application(settings)) as url:
        assert json.loads(get(f"{url}/sidecar/v1/namespaces/db/tables/t"))["files"]["live"] == 2
        assert b"Sidecars of" in get(f"{url}/sidecar/v1/namespaces/db/tables/t/report")


def test_workers_count_together_and_stop_in_peace() -> None:
    """Each worker gets its share of requests; whichever is asked, it knows the counts of all."""
    command = [*SERVE, "--upstream", "http://127.0.0.1:9", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        try:
            for _ in range(4):
                with pytest.raises(urllib.error.HTTPError) as unavailable:
                    get(f"{url}/v1/config")
                assert unavailable.value.code == 503
            for _ in range(2):
                assert 'sidecar_upstream_requests_total{answer="none"} 4' in get(f"{url}/metrics").decode()
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_send_small_answers_at_once(host: str) -> None:
    """asyncio sets TCP_NODELAY on connections whose socket names its protocol: else answers take 40 ms longer."""
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with listening(ServeSettings(host=host, port=0).checked()) as (listener, address):
        assert listener.proto == socket.IPPROTO_TCP
        assert address.startswith("http://[::1]:" if host == "::1" else "http://127.0.0.1:")


def test_an_address_in_use_is_an_error_of_the_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="cannot listen"):
        sidecar.serve(upstream="http://127.0.0.1:9", port=taken.getsockname()[1])


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def fails(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(UsageError, match=r"uvicorn.*run: pip install '.\[serve\]'"):
        sidecar.serve(upstream="http://127.0.0.1:9", port=0)


def test_a_catalog_that_is_not_configured_is_an_error_of_the_call() -> None:
    with pytest.raises(UsageError, match="not configured"):
        sidecar.serve(catalog="no-such-catalog", port=0, workers=2)


def test_signals_stop_the_server_and_not_the_program() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_end_the_server():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    settings = ServeSettings(upstream="http://127.0.0.1:9", port=0, tls_cert=cert, tls_key=key).checked()
    with running(settings, make_application(settings)) as url:
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        address = url.replace("127.0.0.1", "localhost") + "/healthz"
        with urllib.request.urlopen(address, timeout=20, context=trusted) as answer:
            assert json.loads(answer.read()) == {"status": "ok"}
