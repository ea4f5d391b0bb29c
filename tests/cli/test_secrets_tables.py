"""No command prints or logs a secret of a table with encrypted columns."""

from __future__ import annotations

import base64
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.serving.application import make_application
from sidecar.serving.settings import ServeSettings
from tests.cli.running import run
from tests.iceberg.encrypted_tables import MASTER, METADATA, SECRET, encrypted_table
from tests.serving.asgi import ask
from tests.tables import configure, new_catalog

FILE_KEY, OTHER = b"planted-file-key", b"planted-other-ke"
FILES = 3


def spellings(key: bytes) -> list[str]:
    return [key.decode(), key.hex(), base64.b64encode(key).decode(), repr(key)]


SECRETS = [*(text for key in (FILE_KEY, OTHER, MASTER, METADATA) for text in spellings(key)), "planted"]
"""Every planted value has this word too."""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose sidecar has an encrypted column, and one without a sidecar."""
    folder = tmp_path / "lake"
    folder.mkdir()
    catalog = new_catalog(folder, "cli")
    for name in ("built", "bare"):
        encrypted_table(catalog, f"db.{name}", FILES, key=FILE_KEY)
    keys = EncryptionKeys(ExplicitKeys({METADATA: MASTER}), FILE_KEY, bundle_keys={"ssn": METADATA})
    kinds = ["bloom", "page-index"]
    sidecar.build(catalog.load_table("db.built"), ["ssn"], kinds=kinds, encryption_keys=keys)
    configure(monkeypatch, catalog)
    return folder


def key_text(keys: str) -> str:
    chosen, master = (FILE_KEY, MASTER) if keys != "wrong" else (OTHER, OTHER)
    named = {"bundle_keys": {"ssn": METADATA.decode()}} if keys != "files alone" else {}
    return json.dumps(
        {
            "footer_key": f"hex:{chosen.hex()}",
            "keys": {METADATA.decode(): f"hex:{master.hex()}"},
            **named,
        }
    )


def commands(lake: Path, out: Path) -> list[list[Any]]:
    """Every command that takes a table, its sidecar or its files, those that change the table last."""
    data_file = sorted((lake / "wh/db/built/data").glob("*.parquet"))[0]
    (stats,) = (lake / "wh/db/built/metadata").glob("*.stats")
    bundle = out / "copy.puffin"
    shutil.copy(stats, bundle)
    keys = out / "join.txt"
    keys.write_text("absent\n")
    on_table = ["--catalog", "cli"]
    asked = ["scan", "db.built", "ssn = 'absent'", *on_table]
    return [
        ["status", "db.built", *on_table],
        ["status", "db.built", "--json", *on_table],
        ["plan", "db.built", "ssn = 'absent'", *on_table],
        ["plan", "db.built", "ssn > 'q' and id < 5", "--json", *on_table],
        ["plan", "db.built", "id > -1", "--keys", f"ssn={keys}", "--json", *on_table],
        asked,
        [*asked, "--explain"],
        [*asked, "--json"],
        ["scan", "db.built", "id = 5", "--columns", "id", *on_table],
        ["probe", stats, "2", "absent"],
        ["probe", stats, "2", "absent", "--json"],
        ["verify", "db.built", *on_table],
        ["verify", "db.built", "--data", "--json", *on_table],
        ["care", "db.built", "--dry-run", "--only", "repair", *on_table],
        ["inspect", stats],
        ["inspect", stats, "--json"],
        ["verify", stats, "--json"],
        ["embed", "--from", bundle, data_file, "--into", out / "of_file.parquet"],
        ["embed", "--from", "db.built", data_file, "--into", out / "of_table.parquet", *on_table],
        ["embed", "--from", "db.built", "--into", out / "all", "--json", *on_table],
        ["embed", data_file, "--into", out / "embedded.parquet", "--bloom", "ssn", "--page-index"],
        ["extract", out / "embedded.parquet", out / "taken.puffin", "--columns", "ssn"],
        ["convert", bundle, out / "other.puffin"],
        ["strip", data_file, "--into", out / "stripped.parquet"],
        ["find", "db.built", "ssn=absent", *on_table],
        ["find", "db.built", "ssn=absent", "--json", *on_table],
        ["find", "db.built", "ssn", "--values", keys, "--json", *on_table],
        ["advise", "db.built", *on_table],
        ["advise", "db.bare", "--json", *on_table],
        ["report", "db.built", "db.bare", "--output", out / "page.html", *on_table],
        ["refresh", "db.built", "--json", "--engine", "local", *on_table],
        ["build", "db.bare", "-c", "ssn", "--engine", "local", *on_table],
        [
            "build",
            "db.bare",
            "-c",
            "ssn,id",
            "--kinds",
            "bloom,page-index",
            "--json",
            "--engine",
            "local",
            *on_table,
        ],
        ["build", "db.built", "-c", "ssn", "--full", "--json", "--engine", "local", *on_table],
        ["embed", "db.bare", "--bloom", "ssn", "--page-index", "--dry-run", *on_table],
        ["embed", "db.bare", "--bloom", "ssn", "--page-index", "--json", *on_table],
        ["refresh", "db.bare", "--engine", "local", *on_table],
        ["care", "db.built", "--json", "--engine", "local", *on_table],
    ]


def answers_of_a_server(keys: EncryptionKeys | None) -> Iterator[tuple[str, str]]:
    """What `serve` answers about the table: (route, text)."""
    server = make_application(ServeSettings(catalog="cli", port=0, encryption_keys=keys).checked())
    table = "/v1/namespaces/db/tables/built"
    asked = {"type": "eq", "term": "ssn", "value": "absent"}
    for body in ({"filter": asked}, {"filter": {**asked, "value": 5}}, {"select": ["ssn"], "filter": asked}):
        answer = ask(server, "POST", f"{table}/plan".encode(), pieces=[json.dumps(body).encode()])
        assert answer.status in (200, 400)
        yield "plan", answer.body.decode()
    for route in ("/v1/config", table, "/healthz", "/metrics", f"/sidecar{table}"):
        answer = ask(server, "GET", route.encode())
        assert answer.status == 200, route
        yield route, answer.body.decode()
    yield "nothing", ask(server, "GET", b"/nothing").body.decode()


KEYLESS = ("status", "convert", "advise", "report")


@pytest.mark.parametrize("keys", ["right", "wrong", "files alone", "none"])
def test_no_command_shows_a_secret_of_a_table(
    lake: Path, keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("KEYS", key_text(keys))
    given = [] if keys == "none" else ["--encryption-keys", "env:KEYS"]
    asked, done, shown = commands(lake, out), [], 0
    with caplog.at_level(logging.DEBUG):
        for command in asked:
            takes = command[0] not in KEYLESS
            arguments = [*command, *(given if takes else [])]
            result = run(*arguments)
            assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result)
            for secret in SECRETS:
                assert secret not in result.output, (arguments, result.output)
            done += [arguments[0]] if result.exit_code == 0 else []
            shown += bool(result.output)
        chosen = None if keys == "none" else sidecar.encryption_keys_from("env:KEYS")
        for route, text in answers_of_a_server(chosen):
            assert not [secret for secret in SECRETS if secret in text], (route, text)
    assert shown >= len(asked) - 1  # no row as JSON is no line
    if keys == "right":
        assert len(done) >= len(asked) - 2, done
        assert set(done) >= {
            "build",
            "plan",
            "scan",
            "probe",
            "verify",
            "inspect",
            "status",
            "embed",
            "extract",
            "find",
            "advise",
            "report",
            "refresh",
        }
    assert not [secret for secret in SECRETS if secret in (out / "page.html").read_text()]
    for secret in SECRETS:
        assert secret not in caplog.text
    written = [*(lake / "wh").rglob("*.stats"), *out.glob("*.puffin")]
    assert written
    for path in written:
        found = path.read_bytes().replace(base64.b64encode(METADATA), b"")  # tables of contents have it
        assert not [text for text in SECRETS if text.encode() in found], path
    assert SECRET.startswith("planted")
