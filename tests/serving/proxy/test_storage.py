"""Which files a proxy reads for a caller, and with whose credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import StorageError, UsageError
from sidecar.serving.proxy import storage as storage_module
from sidecar.serving.proxy.storage import CallersStorage, plain_location
from sidecar.storage.opening import open_source
from tests.iceberg.cases import local
from tests.serving.proxy.conftest import Proxied

KEYS = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "secret", "s3.session-token": "session"}
SETTINGS = {"s3.endpoint": "http://localhost:1", "s3.region": "here"}


class Recorder:
    """Takes the place of pyiceberg's file systems."""

    def __init__(self, properties: Mapping[str, str], location: str) -> None:
        self.properties = dict(properties)

    def new_input(self, location: str) -> Any:
        return self.properties


@pytest.fixture(autouse=True)
def no_file_systems(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "proxied" not in request.fixturenames:
        monkeypatch.setattr(storage_module, "load_file_io", Recorder)
        storage_module._file_system.cache_clear()


def used(io: CallersStorage, location: str) -> Any:
    """The properties that a file is read with."""
    return io.new_input(location)


def test_the_credentials_with_the_longest_prefix_are_used() -> None:
    vended = [("s3://lake", {**KEYS, "s3.access-key-id": "all"}), ("s3://lake/t/", {**KEYS, "s3.access-key-id": "t"})]
    io = CallersStorage(SETTINGS, vended, [])
    assert used(io, "s3://lake/t/a.avro") == {**SETTINGS, **KEYS, "s3.access-key-id": "t"}
    assert used(io, "s3://lake/u/a.avro")["s3.access-key-id"] == "all"
    assert not io.may_read("s3://other/a.avro")


def test_credentials_in_the_config_are_for_all_of_their_kind() -> None:
    io = CallersStorage({**SETTINGS, **KEYS}, [], [])
    assert used(io, "s3a://any/a.avro") == {**SETTINGS, **KEYS}
    for location in (
        "gs://any/a",
        "abfss://c@a.dfs/a",
        "hdfs://n/a",
        "https://host/a",
        "file:///etc/passwd",
        "/etc/passwd",
    ):
        assert not io.may_read(location)


@pytest.mark.parametrize("lacking", ["s3.access-key-id", "s3.secret-access-key"])
def test_half_of_the_credentials_are_none(lacking: str) -> None:
    """Else the file system would look for the server's own."""
    half = {name: value for name, value in KEYS.items() if name != lacking}
    assert not CallersStorage({**SETTINGS, **half}, [("s3://lake", half)], []).may_read("s3://lake/a")


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("gs://b/a", {"gcs.oauth2.token": "t"}),
        ("abfss://c@a.dfs.core.windows.net/a", {"adls.sas-token.a.dfs.core.windows.net": "t"}),
    ],
)
def test_other_storage_has_its_own_credentials(location: str, given: dict[str, str]) -> None:
    assert used(CallersStorage({}, [(location[:6], given)], []), location) == given
    assert not CallersStorage(KEYS, [], []).may_read(location)


def test_own_credentials_are_for_named_locations_only() -> None:
    io = CallersStorage({**SETTINGS, "s3.session-token": "left over"}, [], ["s3://lake/db"])
    assert used(io, "s3://lake/db/a.avro") == SETTINGS
    for location in ("s3://lake/dbx/a", "s3://lake/db/../a", "s3://lake/db/%2e%2e/a", "s3://lake/a", "s3://LAKE/db/a"):
        assert not io.may_read(location), location


@pytest.mark.parametrize("own", ["s3://lake/db", "/lake", "file:///lake"])
@pytest.mark.parametrize(
    "left", [".\t.", "..\r", "\n..", "%2e%2e", "%252e%2e", "..?x=", "..#", "..;x", "..\\..", "\ud800"]
)
def test_no_parser_leaves_a_named_location(own: str, left: str) -> None:
    """pyiceberg's drops tabs and line breaks, and takes ``?``, ``#`` and ``;`` for the end of a path."""
    location = f"{own}/{left}/etc/passwd"
    opened = plain_location(location) if CallersStorage(SETTINGS, [], [own]).may_read(location) else None
    assert opened is None or (own != "s3://lake/db" and opened.startswith("/lake/"))


def test_what_is_opened_is_what_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links lead elsewhere, and so does ``..`` after a link; ``file:lake`` is below the root here, elsewhere not."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "lake" / "folder").symlink_to("/usr/lib")
    monkeypatch.setattr(Recorder, "new_input", lambda self, location: location)
    io = CallersStorage({}, [], [f"file:{tmp_path}/lake"])
    for name in ("link", "folder/a", "folder/../passwd", ".\t./secret"):
        assert not io.may_read(f"{tmp_path}/lake/{name}"), name
        with pytest.raises(StorageError):
            io.new_input(f"file:{tmp_path}/lake/{name}")
    assert used(io, f"file:{str(tmp_path)[1:]}/lake/a?b") == f"{tmp_path}/lake/a?b"


def test_a_storage_that_means_nothing_allows_nothing() -> None:
    assert not CallersStorage({}, [], ["s3://lake/../x/"]).may_read("/etc/passwd")


def test_credentials_are_for_urls_that_all_parsers_read_alike() -> None:
    assert not CallersStorage({}, [("s3://lake/", KEYS)], []).may_read("s3://lake/t/.\t./other/a")


def test_local_files_are_read_below_named_folders_only() -> None:
    io = CallersStorage(KEYS, [("file:", KEYS), ("/", KEYS)], ["file:///lake/"])
    for location in ("file:/lake/a", "file:///lake/a", "/lake/a"):
        assert io.may_read(location)
    for location in ("file:/lake/../etc/passwd", "/lakes/a", "lake/a", "file://host/lake/a", "/etc/passwd"):
        assert not io.may_read(location), location


@pytest.mark.parametrize(
    "name",
    ["py-io-impl", "s3.retry-strategy-impl", "s3.role-arn", "client.role-arn", "s3.signer", "s3.proxy-uri", "uri"],
)
def test_properties_that_load_code_or_take_other_roles_are_left_out(name: str) -> None:
    io = CallersStorage({**KEYS, name: "evil"}, [], [])
    assert name not in used(io, "s3://lake/a")


def test_nothing_is_written() -> None:
    io = CallersStorage(KEYS, [], ["/lake"])
    with pytest.raises(UsageError):
        io.new_output("/lake/a")
    with pytest.raises(UsageError):
        io.delete("/lake/a")


def test_files_that_are_opened_without_the_io_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    io = CallersStorage({}, [], ["/lake"])
    with pytest.raises(StorageError, match="may not read"):
        open_source(str(tmp_path / "a"), io)
    with pytest.raises(StorageError, match="may not read"):
        io.new_input(str(tmp_path / "a"))


def test_a_tables_own_properties_choose_no_storage(proxied: Proxied, tmp_path: Path) -> None:
    """Whoever may commit to a table sets its properties and the paths in its metadata."""
    document = json.loads(local(proxied.lake.location).read_text())
    document["properties"] |= {"py-io-impl": "os.system", "s3.endpoint": "http://elsewhere.example"}
    moved = local(proxied.lake.location).with_name("changed.metadata.json")
    moved.write_text(json.dumps(document))
    proxied.upstream.locations["t"] = f"file:{moved}"
    assert proxied.ask("POST", "/v1/wh/namespaces/db/tables/t/plan", body=b'{"filter": true}')[0] == 200
    (table,) = proxied.planner.tables
    assert isinstance(table.io, CallersStorage)
    assert table.io.properties == {}
    secret = tmp_path / "secret.avro"
    secret.write_bytes(b"secret")
    document["snapshots"][-1]["manifest-list"] = f"file:{secret}"
    moved.with_name("evil.metadata.json").write_text(json.dumps(document))
    proxied.upstream.locations["t"] = f"file:{moved.with_name('evil.metadata.json')}"
    status, _, body = proxied.ask("POST", "/v1/wh/namespaces/db/tables/t/plan", body=b'{"filter": true}')
    assert (status, "may not read" in json.loads(body)["error"]["message"]) == (403, True)
