"""A fake upstream with one table and a proxy before it, for a module of tests; a proxy before the reference server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from sidecar.serving.application import application_with, make_application
from sidecar.serving.server import running
from sidecar.serving.settings import ServeSettings
from tests.conftest import add_rest_catalog
from tests.serving.proxy.fake_upstream import BASE, FakeUpstream
from tests.serving.reference_server import reference_server
from tests.serving.stand_in import StandInPlanner
from tests.tables import create_with_rows, new_catalog


@dataclass
class Lake:
    """``folder``: where the table ``db.t`` is; it has two files."""

    folder: str
    location: str


@dataclass
class Proxied:
    upstream: FakeUpstream
    planner: StandInPlanner
    url: str
    lake: Lake

    def ask(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: Any = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request as it is, and return status, headers in small letters, and body."""
        parts = urlsplit(self.url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        try:
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def raw(self, text: bytes) -> bytes:
        """Send bytes, and return all that comes until the connection is closed."""
        parts = urlsplit(self.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), 20) as connection:
            connection.sendall(text)
            found = b""
            while piece := connection.recv(65_536):
                found += piece
        return found


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("upstream")
    catalog = new_catalog(folder, "made")
    parts = [pa.table({"k": list(range(part, 100, 2))}) for part in range(2)]
    table = create_with_rows(catalog, "db.t", parts, columns=["k"])
    return Lake(f"file:{folder}/wh", table.metadata_location)


@pytest.fixture(scope="module")
def running_proxy(lake: Lake) -> Iterator[Proxied]:
    upstream, planner = FakeUpstream(), StandInPlanner()
    behind = ServeSettings(port=0).checked()
    with running(behind, upstream.application()) as address:
        settings = ServeSettings(upstream=address + BASE, port=0, storage=[lake.folder]).checked()
        with running(settings, application_with(settings, planner)) as url:
            yield Proxied(upstream, planner, url, lake)


@pytest.fixture
def proxied(running_proxy: Proxied) -> Proxied:
    """The proxy of the module, and its upstream as new."""
    vars(running_proxy.upstream).update(vars(FakeUpstream()))
    vars(running_proxy.planner).update(vars(StandInPlanner()))
    running_proxy.upstream.locations["t"] = running_proxy.lake.location
    return running_proxy


@pytest.fixture(scope="package")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of Iceberg's reference server and of a proxy before it."""
    warehouse: Path = tmp_path_factory.mktemp("reference")
    with reference_server(warehouse) as upstream:
        settings = ServeSettings(upstream=upstream, port=0, storage=[str(warehouse)]).checked()
        with running(settings, make_application(settings)) as proxy:
            yield upstream, proxy


@pytest.fixture(scope="package")
def catalogs(spark: Any, addresses: tuple[str, str]) -> None:
    """Spark's catalogs ``upstream`` and ``proxied``: the same tables without and with the proxy."""
    for name, address in zip(("upstream", "proxied"), addresses, strict=True):
        add_rest_catalog(spark, name, address)
    spark.sql("CREATE NAMESPACE proxied.db")
