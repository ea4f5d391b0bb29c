"""Nothing that was secret is shown: planted keys, key metadata and values, in what every command prints and logs."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import sidecar
from tests.cli.running import run

KEY, OTHER = b"planted-key-0123", b"planted-key-4567"
MASTERS = ("planted-footer-master", "planted-column-master")
VALUES = [f"planted-value-{n:05}" for n in range(3000)]


class Kms(pe.KmsClient):
    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, name: str) -> bytes:
        assert name in MASTERS
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
        return base64.b64decode(wrapped)


def spellings(key: bytes) -> list[str]:
    return [key.decode(), key.hex(), base64.b64encode(key).decode(), repr(key)]


SECRETS = [*spellings(KEY), *spellings(OTHER), *MASTERS, VALUES[0], VALUES[-1], "planted"]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files under one key, and under keys of a key server with a footer in clear; all have statistics and indexes."""
    folder = tmp_path_factory.mktemp("secrets")
    table = pa.table({"s": VALUES, "k": range(3000)})
    options: dict[str, Any] = {"row_group_size": 1000, "write_page_index": True, "use_dictionary": False}
    paths = {"uniform": folder / "uniform.parquet", "signed": folder / "signed.parquet"}
    uniform = pe.create_encryption_properties(KEY)
    pq.write_table(table, paths["uniform"], encryption_properties=uniform, **options)
    config = pe.EncryptionConfiguration(footer_key=MASTERS[0], column_keys={MASTERS[1]: ["s"]}, plaintext_footer=True)
    signed = pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)
    pq.write_table(table, paths["signed"], encryption_properties=signed, **options)
    return paths


@pytest.mark.parametrize("name", ["uniform", "signed"])
@pytest.mark.parametrize("keys", ["right", "wrong", "none"])
def test_no_command_shows_a_secret(
    sealed: dict[str, Path],
    name: str,
    keys: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = sealed[name]
    chosen = KEY if keys == "right" else OTHER
    text = json.dumps({"footer_key": f"hex:{chosen.hex()}", "column_keys": {"s": f"hex:{chosen.hex()}"}})
    monkeypatch.setenv("KEYS", text)
    given = [] if keys == "none" else ["--encryption-keys", "env:KEYS"]
    embedded = tmp_path / "embedded.parquet"
    commands = [
        ["inspect", path],
        ["inspect", path, "--json"],
        ["verify", path],
        ["verify", path, "--data", "--json"],
        ["probe", path, "s", "absent"],
        ["probe", path, "s", "absent", "--json"],
        ["scan", path, "s = 'absent'"],
        ["scan", path, "k < 0", "--json"],
        ["embed", path, "--into", embedded, "--bloom", "s", "--page-index"],
        ["inspect", embedded, "--json"],
        ["strip", path, "--into", tmp_path / "stripped.parquet"],
        ["extract", path, tmp_path / "it.puffin"],
        ["extract", path, tmp_path / "allowed.puffin", "--allow-plaintext", "--json"],
    ]
    done = 0
    with caplog.at_level(logging.DEBUG):
        for command in commands:
            result = run(*command, *given)
            shown = result.output.replace(str(tmp_path), "").replace(str(path.parent), "")
            for secret in SECRETS:
                assert secret not in shown, (command, result.output)
            assert result.exception is None or isinstance(result.exception, SystemExit), (command, result)
            done += result.exit_code == 0
    assert (done >= 10) == ((name, keys) == ("uniform", "right"))  # the keys of "signed" are in nobody's JSON
    for secret in SECRETS:
        assert secret not in caplog.text
    if (tmp_path / "it.puffin").exists():
        found = (tmp_path / "it.puffin").read_bytes()
        assert not any(secret.encode() in found for secret in SECRETS)


def test_no_call_shows_key_metadata(sealed: dict[str, Path], tmp_path: Path) -> None:
    """With the key server: what comes back of inspect, verify and embed, and the errors of a server that refuses."""

    class Refusing(Kms):
        def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
            raise RuntimeError(f"planted: no {name} for {wrapped!r}")

    path, target = str(sealed["signed"]), str(tmp_path / "embedded.parquet")
    keys = sidecar.EncryptionKeys(sidecar.KmsKeys(Kms, None))
    shown = [
        repr(keys),
        sidecar.inspect(path, encryption_keys=keys).only,
        sidecar.verify(path, data=True, encryption_keys=keys),
        sidecar.embed(path, into=target, bloom=["s"], page_index=True, encryption_keys=keys).only.to_dict(),
        sidecar.inspect(target, encryption_keys=keys).only,
        sidecar.inspect(target).only,
    ]
    assert sidecar.scan(target, f"s = '{VALUES[7]}'", ["k"], encryption_keys=keys)["k"].to_pylist() == [7]
    refusing = sidecar.EncryptionKeys(sidecar.KmsKeys(Refusing, None))
    with pytest.raises(sidecar.errors.StorageError) as error:
        sidecar.inspect(path, encryption_keys=refusing)
    shown.append(str(error.value))
    for text in map(repr, shown):
        clean = text.replace(str(tmp_path), "").replace(str(sealed["signed"].parent), "")
        assert not any(secret in clean for secret in SECRETS), text


def test_json_names_a_url_without_its_password_and_signature() -> None:
    url = "s3://user:planted-password@bucket/a.parquet?X-Signature=planted-signature"
    for form in ("json", "table"):
        result = run("inspect", url, "--format", form)
        assert result.exit_code != 0
        assert "planted" not in result.output + result.stderr
    assert json.loads(run("probe", url, "a", "1", "--json").stdout)["path"] == "s3://bucket/a.parquet"
