"""URLs on the command line: variables, a catalog and options open their stores, and a store out of reach says so soon.

The store is a server of HTTP in this process, which Arrow's client asks as it asks S3.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyiceberg.io import SCHEMA_TO_FILE_IO

import sidecar
from sidecar.access import Access
from sidecar.errors import StorageError
from sidecar.storage import stores
from tests.cli import running
from tests.object_store import FolderIO
from tests.tables import configure, new_catalog

KEY, SECRET = "AKIDOFTESTS", "secret-of-tests-0123456789"
FILE = Path(__file__).resolve().parents[1] / "data" / "parquet" / "j118_v1_none.parquet"
URL = "s3://lake/data/a.parquet"


class Requests(BaseHTTPRequestHandler):
    """Answers for one object to whoever signs with the key. It does not look at the signature."""

    paths: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.paths.append(self.path)
        data = FILE.read_bytes()
        if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            self._send(403, b"")
        elif self.path != "/lake/data/a.parquet":
            self._send(404, b"")
        elif part := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            self._send(206, data[int(part[1]) : int(part[2]) + 1])
        else:
            self._send(200, data)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Requests) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No variable of the machine's own says anything about stores."""
    import os

    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def run(*words: str, code: int | None = None) -> Any:
    done = running.run(*words, code=code)
    assert SECRET not in done.output
    return done


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "profile"])
def test_variables_open_urls(environment: pytest.MonkeyPatch, server: str, tmp_path: Path, variable: str) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", KEY)
    environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if variable == "profile":
        (tmp_path / "config").write_text(f"[profile here]\nregion = eu-west-1\nendpoint_url = {server}\n")
        environment.setenv("AWS_PROFILE", "here")
    else:
        environment.setenv(variable, server)
    done = run("inspect", URL, "--json", code=0)
    assert json.loads(done.stdout)["files"][0]["rows"] == sidecar.inspect(FILE).only.rows


def test_a_catalog_lends_its_settings(environment: pytest.MonkeyPatch, server: str, tmp_path: Path) -> None:
    settings = {"s3.endpoint": server, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
    configure(environment, new_catalog(tmp_path, "lender", **settings))
    assert run("inspect", URL, "--catalog", "lender").exit_code == 0
    assert run("scan", URL, "i32_opt < 0", "--limit", "1", "--catalog", "lender").exit_code == 0
    assert run("find", URL, "i32_opt=-1999999999", "--catalog", "lender").exit_code == 0
    options = [word for key, value in settings.items() for word in ("--storage-option", f"{key}={value}")]
    assert run("inspect", URL, *options).exit_code == 0
    environment.setenv("AWS_ENDPOINT_URL", closed_port())  # what is given goes before a variable
    assert run("inspect", URL, "--catalog", "lender").exit_code == 0


def test_a_server_that_does_not_let_in_says_which_keys_to_give(environment: pytest.MonkeyPatch, server: str) -> None:
    environment.setenv("AWS_ENDPOINT_URL", server)
    done = run("inspect", URL, code=1)
    assert "Check the keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" in done.stderr


@pytest.mark.parametrize("path", ["s3://lake/data", "s3://lake/data/*.parquet", "gs://lake/a.parquet"])
def test_a_store_out_of_reach_is_one_sentence_in_three_seconds(environment: pytest.MonkeyPatch, path: str) -> None:
    environment.setenv("AWS_ENDPOINT_URL", closed_port())
    environment.setenv("STORAGE_EMULATOR_HOST", closed_port().removeprefix("http://"))
    begun = time.monotonic()
    done = run("inspect", path)
    assert time.monotonic() - begun < 3
    assert done.exit_code == 1
    assert done.stderr.startswith("error: no connection to the object store at 127.0.0.1:")
    assert "Name the store's server: " in done.stderr
    assert "--catalog NAME" in done.stderr


def test_a_name_that_is_never_found_ends_the_wait(environment: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    environment.setattr(stores, "CONNECT_SECONDS", 0.05)
    environment.setattr(socket, "create_connection", lambda *_: ended.wait(10) and socket.socket())
    with pytest.raises(StorageError, match=r"amazonaws.com:443: no answer; file s3://lake/a"):
        sidecar.inspect("s3://lake/a")
    ended.set()


@pytest.mark.parametrize(
    ("words", "option", "message"),
    [
        (["inspect", URL], "s3.endpont=x", "no storage option 's3.endpont'. Did you mean s3.endpoint?"),
        (["inspect", URL], SECRET, "--storage-option is KEY=VALUE"),
        (["inspect", str(FILE)], "s3.endpoint=x", "is for tables and URLs, but a local path was given"),
        (["find", str(FILE), "x=1"], "s3.endpoint=x", "for tables and URLs, but a local path was given"),
        (["find", "db.*", "x=1"], "s3.endpont=x", "there is no storage option 's3.endpont'"),
    ],
)
def test_wrong_options_are_refused(words: list[str], option: str, message: str) -> None:
    done = run(*words, "--storage-option", option, code=2)
    assert message in done.stderr


CONNECTION = (
    "DefaultEndpointsProtocol=http;AccountName=dev;AccountKey=a2V5PT0=;BlobEndpoint=http://127.0.0.1:10000/dev;"
)


@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        (URL, {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-2"}, {"s3.region": "eu-west-1"}),
        (URL, {"AWS_DEFAULT_REGION": "us-east-2"}, {"s3.region": "us-east-2"}),
        (URL, {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"},
         {"s3.endpoint": "http://b", "s3.region": "us-east-1"}),
        ("gs://b/a", {"STORAGE_EMULATOR_HOST": "localhost:9023"}, {"gcs.service.host": "http://localhost:9023"}),
        ("abfss://c@acc.dfs.core.windows.net/a", {"AZURE_STORAGE_KEY": "k"},
         {"adls.account-name": "acc", "adls.account-key": "k"}),
        ("abfss://c/a", {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_SAS_TOKEN": "s"},
         {"adls.account-name": "acc", "adls.sas-token": "s"}),
        ("abfss://c/a", {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, {
            "adls.connection-string": CONNECTION, "adls.account-name": "dev", "adls.account-key": "a2V5PT0=",
            "adls.blob-storage-authority": "127.0.0.1:10000", "adls.blob-storage-scheme": "http",
        }),
        ("abfss://c@acc.dfs.core.windows.net/a", {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION},
         {"adls.account-name": "acc", "adls.account-key": None, "adls.blob-storage-authority": None}),
        ("hdfs://c/a", {"AWS_REGION": "eu-west-1"}, {}),
    ],
)  # fmt: skip
def test_variables_become_settings(
    environment: pytest.MonkeyPatch, url: str, variables: dict[str, str], expected: dict[str, str | None]
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    found = stores.store_settings(url, {})
    assert {name: found.get(name) for name in expected} == expected
    assert stores.store_settings(url, dict.fromkeys(found, "given")) == dict.fromkeys(found, "given")


def test_two_accounts_are_two_stores(environment: pytest.MonkeyPatch) -> None:
    """The file of the first account would be read in place of that of the second, which has the same path."""
    environment.setattr(stores, "_check_server", lambda *_: None)
    access = Access()
    ios = [access.io_of(f"abfss://c@{name}.dfs.core.windows.net/a") for name in ("one", "two")]
    assert [io.properties["adls.account-name"] for io in ios if io is not None] == ["one", "two"]


def test_files_are_written_and_read_with_one_client_of_their_store(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []
    environment.setitem(SCHEMA_TO_FILE_IO, "folder", [])
    environment.setattr("sidecar.access.store_io", lambda url: made.append(url) or FolderIO({"folder": str(tmp_path)}))
    environment.setattr("sidecar.storage.target.store_io", lambda url: pytest.fail(f"another client for {url}"))
    access = Access()
    for name in ("a", "b"):
        with access.create(f"folder://{name}") as target:
            target.write(b"bytes")
        with closing(access.open(f"folder://{name}")) as source:
            assert source.read(0, 5) == b"bytes"
    for call in (access.create, access.open):
        with pytest.raises(StorageError, match="must not have control characters"):
            call("folder://other\n")
    assert made == ["folder://a", "folder://b"], "one for each store"


def test_options_for_two_accounts_are_refused() -> None:
    urls = [f"abfss://c@{name}.dfs.core.windows.net/a.parquet" for name in ("one", "two")]
    found = running.run("verify", *urls, "--storage-option", "adls.sas-token=hunter2")
    assert (found.exit_code, "in several accounts; found one, two" in found.stderr) == (2, True)


@pytest.mark.parametrize("server", ["http://[::1", "http://u:hunter2@a:b", "http://a:99999"])
def test_a_server_that_is_no_url_is_named_without_its_password(server: str) -> None:
    with pytest.raises(StorageError, match="the URL of the object store's server is none") as raised:
        stores.store_io(URL, {"s3.endpoint": server})
    assert "hunter2" not in str(raised.value)


def test_an_account_without_a_name_is_asked_for() -> None:
    with pytest.raises(StorageError, match=r"no setting says on which object store the file is.*AZURE_STORAGE_ACCOUNT"):
        sidecar.inspect("abfss://c/a.parquet")
