"""``bundle_keys`` of a key file: each command in a process with a shell's environment, the repetitions in this one."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tests.cli import running
from tests.iceberg.encrypted_tables import SECRET, encrypted_table, rows
from tests.tables import configure, new_catalog

ROOT = str(Path(__file__).resolve().parents[2])
FILE_KEY, MASTER, OTHER = b"key of all files", b"master key of the column bundles", b"another master!!"
FILES = 4
VALUE = SECRET.format(250)
ASKED = f"ssn = '{VALUE}'"


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


SERVER = """
import json, sys
from typer.testing import CliRunner
from sidecar.cli.app import app

for line in sys.stdin:
    done = CliRunner().invoke(app, json.loads(line), prog_name="sidecar")
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""


class Shell:
    """Runs commands with the catalog and the keys in the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: subprocess.Popen[str] | None = None
        self.env = dict(os.environ) | {
            "PYTHONPATH": ROOT,
            "PYICEBERG_CATALOG__CLI__URI": f"sqlite:///{folder}/cat.db",
            "FILE_KEY": f"hex:{FILE_KEY.hex()}",
            "MASTER": "base64:" + base64.b64encode(MASTER).decode(),
        }

    def __call__(self, *args: object) -> Done:
        """Run the command in this process."""
        done = running.run(*map(str, args), **self.env)
        return Done(done.exit_code, done.stdout, done.stderr)

    def process(self, *args: object) -> Done:
        """Run the command in a process that has the environment from its start, one process for all commands."""
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                text=True,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([*map(str, args)]) + "\n")
        self._server.stdin.flush()
        return Done(*json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()

    def keys(self, name: str, **parts: Any) -> Path:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"footer_key": "env:FILE_KEY", **parts}))
        return path


NAMED = {"keys": {"ssn key": "env:MASTER"}, "bundle_keys": {"ssn": "ssn key"}}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """With the table ``db.t``, whose files are encrypted with one key, and its encrypted sidecar built."""
    made = Shell(tmp_path_factory.mktemp("bundle_keys"))
    catalog = new_catalog(made.folder, "cli")
    encrypted_table(catalog, "db.t", FILES, key=FILE_KEY)
    keys = made.keys("right", **NAMED)
    options = ["--columns", "ssn", "--kinds", "bloom,page-index", "--engine", "local", "--json"]
    built = made.process("build", "db.t", "--catalog", "cli", *options, "--encryption-keys", keys).answer
    assert built["units"] == FILES
    assert not built.get("files_failed")
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, catalog)
        yield made
    made.close()
    catalog.close()


def statistics(shell: Shell) -> Path:
    (path,) = (shell.folder / "wh/db/t/metadata").glob("*.stats")
    return path


def test_what_is_built_is_encrypted(shell):
    data = statistics(shell).read_bytes()
    assert base64.b64encode(b"ssn key") in data
    for planted in (VALUE.encode(), b"planted-secret", MASTER, FILE_KEY):
        assert planted not in data
    said = shell("inspect", statistics(shell), "--json").answer
    (segment,) = said["files"][0]["segments"]
    assert {blob["encrypted"] for kind in ("bundles", "page_indexes") for blob in segment[kind]} == {True}
    table = shell.process("status", "db.t", "--catalog", "cli", "--json").answer
    assert table["coverage"]["ssn"]["bloom"]["units"] == FILES


@pytest.mark.parametrize("place", ["file", "variable"])
def test_plans_and_scans_answer_with_the_keys_alone(shell, place):
    keys: object = shell.keys("right", **NAMED)
    if place == "variable":
        shell.env["ALL_KEYS"], keys = Path(str(keys)).read_text(), "env:ALL_KEYS"
    with_keys = ["--catalog", "cli", "--json", "--encryption-keys", keys]
    run = shell.process if place == "file" else shell
    planned = run("plan", "db.t", ASKED, *with_keys).answer
    assert (planned["files"]["kept"], planned["warnings"]) == (1, [])
    if place == "variable":
        return
    scanned = shell.process("scan", "db.t", ASKED, "--columns", "id", *with_keys)
    assert [json.loads(line) for line in scanned.out.splitlines()] == [{"id": 250}]
    assert shell.process("verify", "db.t", "--data", *with_keys).answer["problems"] == []
    without = ["--catalog", "cli", "--json"]
    planned = shell("plan", "db.t", ASKED, *without).answer
    assert planned["files"]["kept"] == FILES
    assert len(planned["warnings"]) == 1
    checked = shell("verify", "db.t", *without)
    assert checked.code == 1
    assert any("not checked" in problem["problem"] for problem in json.loads(checked.out)["problems"])


def test_a_wrong_key_keeps_everything(shell):
    wrong = shell.keys("wrong", keys={"ssn key": f"hex:{OTHER.hex()}"}, bundle_keys={"ssn": "ssn key"})
    planned = shell("plan", "db.t", ASKED, "--catalog", "cli", "--json", "--encryption-keys", wrong).answer
    assert planned["files"]["kept"] == FILES
    assert ["not the one" in warning for warning in planned["warnings"]] == [True]


def test_extract_and_embed_from_a_sidecar_with_the_keys(shell):
    """Filters of an encrypted file, out into an encrypted sidecar and into the file again, as they were."""
    folder, keys = shell.folder, ["--encryption-keys", shell.keys("right", **NAMED), "--json"]
    plain, sealed, bare, again = (folder / f"{name}.parquet" for name in ("source", "sealed", "bare", "again"))
    pq.write_table(rows(0), plain, encryption_properties=pe.create_encryption_properties(FILE_KEY))
    assert shell("embed", plain, "--into", sealed, "--bloom", "ssn", "--page-index", *keys).code == 0
    out = folder / "out.puffin"
    extracted = shell.process("extract", sealed, out, "--columns", "ssn", *keys)
    assert extracted.code == 0, extracted
    data = out.read_bytes()
    assert base64.b64encode(b"ssn key") in data
    assert b"planted-secret" not in data
    assert shell("verify", out, *keys).answer["problems"] == []
    assert shell("verify", out, "--json").code == 1
    assert shell.process("strip", sealed, "--into", bare, *keys).code == 0
    done = shell("embed", "--from", out, bare, "--into", again, *keys)
    assert done.code == 0, done
    assert shell("verify", again, "--data", *keys).answer["problems"] == []
    for value, kept in ((SECRET.format(7), True), ("absent", False)):
        (unit,) = shell("probe", again, "ssn", value, *keys).answer["files"][0]["units"]
        assert unit["might_contain"] is kept
    data_file = sorted((folder / "wh/db/t/data").glob("*.parquet"))[2]
    embedded = folder / "embedded.parquet"
    done = shell.process("embed", "--from", "db.t", data_file, "--into", embedded, "--catalog", "cli", *keys)
    assert done.code == 0, done
    (unit,) = shell("probe", embedded, "ssn", VALUE, *keys).answer["files"][0]["units"]
    assert unit["might_contain"] is True


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"bundle_keys": {"ssn": "ssn key"}}, "not in keys"),
        ({"keys": {"ssn key": "env:MASTER"}, "bundle_keys": {"ssn": 7}}, "not a JSON object from columns"),
        ({"keys": {"ssn key": "env:MASTER"}, "bundle_keys": ["ssn"]}, "not a JSON object from columns"),
        ({**NAMED, "bundle_key": {}}, "known parts"),
    ],
)
def test_wrong_bundle_keys_are_refused_without_showing_names(shell, parts, why):
    refused = shell("plan", "db.t", ASKED, "--catalog", "cli", "--encryption-keys", shell.keys("odd", **parts))
    assert refused.code == 2
    assert why in " ".join(refused.err.split())
    assert "ssn key" not in refused.err
