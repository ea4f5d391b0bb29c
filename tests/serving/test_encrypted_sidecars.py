"""A server with keys plans by encrypted bundles; one without keeps the files. No key is in its lines."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

import sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import UsageError
from sidecar.serving.application import make_application
from sidecar.serving.server import running
from sidecar.serving.settings import ServeSettings
from tests.cli.running import run
from tests.iceberg.encrypted_tables import MASTER, METADATA, SECRET, bundle_keys, encrypted_table
from tests.serving.serving_logs import plan_lines

KEYS = EncryptionKeys(ExplicitKeys({METADATA: MASTER}), bundle_keys={"ssn": METADATA})


OTHERS = EncryptionKeys(ExplicitKeys({METADATA: b"another-key-of-1"}))


@pytest.mark.parametrize(
    ("keys", "kept", "fallback"),
    [(KEYS, 1, ""), (None, 4, "sidecar-locked"), (OTHERS, 4, "sidecar-locked")],
    ids=["with keys", "without", "with another key"],
)
def test_plans_of_encrypted_columns(
    configured_catalog: SqlCatalog, keys: EncryptionKeys | None, kept: int, fallback: str
) -> None:
    sidecar.build(encrypted_table(configured_catalog, "db.t"), ["ssn"], kinds=["bloom"], encryption_keys=bundle_keys())
    settings = ServeSettings(catalog="served", port=0, encryption_keys=keys).checked()
    with running(settings, make_application(settings)) as url, plan_lines() as lines:
        table = RestCatalog("any", uri=url).load_table("db.t")
        for _ in range(2):  # the second plan finds the sidecar open
            tasks = list(table.scan(f"ssn = '{SECRET.format(250)}'").plan_files())
            assert len(tasks) == kept
    assert [(line["files_kept"], line["fallback"]) for line in lines] == [(kept, fallback)] * 2
    assert MASTER.decode() not in json.dumps(lines) + repr(settings)


def test_workers_get_the_keys() -> None:
    settings = ServeSettings(catalog="served", port=0, encryption_keys=KEYS).checked()
    assert pickle.loads(pickle.dumps(settings)).encryption_keys == KEYS


def test_keys_that_cannot_reach_workers_are_refused() -> None:
    keys = EncryptionKeys(KEYS.retriever, aad_prefix=lambda path: path.encode())
    with pytest.raises(UsageError, match="cannot be sent to workers") as refused:
        ServeSettings(catalog="served", workers=2, encryption_keys=keys).checked()
    assert MASTER.decode() not in f"{refused.value}{refused.value.__cause__}"
    assert ServeSettings(catalog="served", workers=1, encryption_keys=keys).checked().encryption_keys is keys


def test_the_command_reads_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"keys": {"master": "hex:31323334353637383930313233343531"}, "bundle_keys": {"ssn": "master"}}
    (tmp_path / "keys.json").write_text(json.dumps(content))
    given = []
    monkeypatch.setattr("sidecar.serving.server.serve", lambda **options: given.append(options["encryption_keys"]))
    found = run("serve", "--catalog", "c", "--encryption-keys", str(tmp_path / "keys.json"))
    assert (found.exit_code, [keys.bundle_keys for keys in given]) == (0, [{"ssn": b"master"}])
