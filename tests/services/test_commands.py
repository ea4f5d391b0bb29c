"""Every command that changes or reads a table, on each catalog and on S3 with both of pyiceberg's clients."""

from __future__ import annotations

import json
import logging
import time
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io import load_file_io

import sidecar
from scripts.servers.services import Service
from tests.cli.running import run
from tests.tables import create_with_rows

pytestmark = pytest.mark.services

CATALOGS = ("rest", "postgres", "s3", "s3-fsspec")
IO = {"s3": "PyArrowFileIO", "s3-fsspec": "FsspecFileIO"}


def rows(start: int) -> pa.Table:
    n = range(start, start + 200)
    return pa.table({"k": [k * 7919 % 1000 for k in n], "s": [f"name-{k * 31 % 1000}" for k in n]})


def secrets_of(services: dict[str, Service]) -> list[str]:
    """Passwords and keys of all servers."""
    s3 = services["s3"].catalogs["s3"]
    password = s3["uri"].partition("://")[2].partition("@")[0].partition(":")[2]
    return [password, s3["s3.access-key-id"], s3["s3.secret-access-key"]]


class Commands:
    """Runs commands on a table, and keeps all that they print."""

    def __init__(self, table: str, catalog: str) -> None:
        self.table, self.catalog = table, catalog
        self.printed = ""

    def run(self, command: str, *arguments: str, status: int = 0) -> Any:
        """Run a command with ``--json``; return what it prints, as data."""
        words = [command, self.table, *arguments, "--catalog", self.catalog, "--json", "-vv"]
        done = run(*words, code=status)
        self.printed += done.output
        return json.loads(done.stdout)


@pytest.fixture(params=CATALOGS)
def commands(request: Any, namespace: str) -> Commands:
    catalog = load_catalog(request.param)
    catalog.create_namespace(namespace)
    table = create_with_rows(catalog, f"{namespace}.t", [rows(0), rows(200), rows(400)])
    assert type(table.io).__name__ == IO.get(request.param, "PyArrowFileIO")
    return Commands(f"{namespace}.t", request.param)


def test_the_life_of_a_table(
    commands: Commands, services: dict[str, Service], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="sidecar")
    catalog = load_catalog(commands.catalog)
    table = catalog.load_table(commands.table)
    expected = table.scan("k = 919").to_arrow().to_pylist()
    assert len(expected) == 1

    built = commands.run("build", "--columns", "k,s", "--save", "--engine", "local")
    assert (built["files"]["indexed"], built["files"]["total"]) == (3, 3)
    assert commands.run("plan", "k = 919")["files"]["kept"] == 1
    assert [commands.run("scan", "k = 919")] == expected
    table.append(rows(600))
    assert commands.run("refresh", "--engine", "local")["tables"][0]["action"] == "written"
    assert commands.run("plan", "s = 'name-absent'")["files"]["kept"] == 0
    assert commands.run("status")["files"] == {"live": 4, "listed": 4}
    time.sleep(1.1)  # S3 has times in seconds: a file of the same second as the newest one is not older
    embedded = commands.run("embed", "--bloom", "k")
    assert embedded["files"]["replaced"] == 4
    assert [commands.run("scan", "k = 919")] == expected
    sidecar.expire(table.refresh(), older_than=timedelta(0))
    deleted = sidecar.gc(table.refresh(), older_than=timedelta(0), force=True).to_dict()["files"]
    assert deleted
    named = {entry.statistics_path for entry in table.refresh().metadata.statistics}
    assert named.isdisjoint(file["path"] for file in deleted)
    assert all(table.io.new_input(path).exists() for path in named)
    assert [commands.run("scan", "k = 919")] == expected
    assert commands.run("plan", "absent = 1", status=2)["error"]["kind"] == "usage"
    shown = commands.printed + caplog.text
    assert [secret for secret in secrets_of(services) if secret in shown] == []


@pytest.mark.parametrize("way", ["variables", "s3", "s3-fsspec"])
def test_urls_are_opened_by_variables_and_by_a_catalog(
    services: dict[str, Service], namespace: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    settings = services["s3"].catalogs["s3"]
    folder = f"{settings['warehouse']}/{namespace}"
    with load_file_io(settings, folder).new_output(f"{folder}/a.parquet").create() as stream:
        pq.write_table(rows(0), stream)
    options = [] if way == "variables" else ["--catalog", way]
    if way == "variables":
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", settings["s3.endpoint"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", settings["s3.access-key-id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", settings["s3.secret-access-key"])
    printed = ""
    for words in (
        ["embed", folder, "--into", f"{folder}/with", "--bloom", "k"],
        ["inspect", f"{folder}/with/*.parquet"],
        ["probe", f"{folder}/with/a.parquet", "k", "919"],
        ["scan", f"{folder}/with/a.parquet", "k = 919"],
        ["extract", f"{folder}/with/a.parquet", f"{folder}/a.puffin"],
        ["verify", f"{folder}/with", "--data"],
        ["strip", f"{folder}/with/a.parquet", "--into", f"{folder}/bare.parquet"],
    ):
        printed += run(*words, *options, "-vv", code=0).output
    assert [secret for secret in secrets_of(services) if secret in printed] == []
    keys = ["--storage-option", "s3.access-key-id=wrong", "--storage-option", "s3.secret-access-key=wrong-secret"]
    wrong = run("inspect", folder, *options, *keys, code=1)
    assert "Check the keys: AWS_ACCESS_KEY_ID" in wrong.stderr
    assert "wrong-secret" not in wrong.output
