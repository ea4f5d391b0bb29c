"""Where keys come from; and that no message and no repr shows one."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import sidecar
from sidecar.crypto.aes import decrypt_gcm, encrypt_gcm
from sidecar.crypto.key_material import KmsKeys, material_path
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys, encryption_keys_from
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.reading.scanning import scan

SECRET = b"0123456789abcdef"
MASTERS = {"footer": b"f" * 16, "one": b"1" * 16, "two": b"2" * 16}
ROWS = pa.table({"a": range(500), "b": [f"text {i % 40}" for i in range(500)], "c": [i / 7 for i in range(500)]})


class Kms(pe.KmsClient):
    """A key server in memory that really wraps, and counts how often it is asked."""

    asked = 0

    def __init__(self, config: Any) -> None:
        super().__init__()
        assert config.kms_instance_id == "here"

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(encrypt_gcm(MASTERS[master_key_identifier], key_bytes, b""))

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        Kms.asked += 1
        return decrypt_gcm(MASTERS[master_key_identifier], base64.b64decode(wrapped_key), b"")


CONFIG = pe.KmsConnectionConfig(kms_instance_id="here")


def written(path: Path, **options: Any) -> str:
    if int(pa.__version__.partition(".")[0]) < 23:
        pytest.skip("pyarrow 23 is the first that keeps key material in files of its own")
    parts: dict[str, Any] = {"footer_key": "footer", "column_keys": {"one": ["b"], "two": ["c"]}} | options
    properties = pe.CryptoFactory(Kms).file_encryption_properties(
        CONFIG, pe.EncryptionConfiguration(**parts), parquet_file_path=path
    )
    pq.write_table(ROWS, path, row_group_size=100, encryption_properties=properties)
    return str(path)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("plaintext", [True, False])
def test_keys_of_pyarrows_factory(tmp_path: Path, double: bool, internal: bool, plaintext: bool) -> None:
    options = {"plaintext_footer": plaintext, "double_wrapping": double, "internal_key_material": internal}
    path = written(tmp_path / "file.parquet", **options, data_key_length_bits=256 if double else 128)
    assert Path(material_path(path)).exists() != internal
    Kms.asked = 0
    keys = EncryptionKeys(KmsKeys(Kms, CONFIG))
    assert scan(path, "a >= 0", encryption_keys=keys).equals(ROWS)
    assert scan(path, "b = 'text 3'", encryption_keys=keys).num_rows == 13
    assert Kms.asked == 3  # one for each key (or each key that wraps keys), however often it is needed
    uniform = written(tmp_path / "uniform", **options, column_keys=None, uniform_encryption=True)
    assert scan(uniform, "a < 3", encryption_keys=keys).num_rows == 3


def test_a_master_key_that_may_not_be_used_locks_its_column(tmp_path: Path) -> None:
    class Denying(Kms):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            if master_key_identifier == "two":
                raise PermissionError(f"{master_key_identifier} is not for you: {SECRET!r}")
            return super().unwrap_key(wrapped_key, master_key_identifier)

    path = written(tmp_path / "file.parquet")
    keys = EncryptionKeys(KmsKeys(Denying, CONFIG))
    assert sidecar.inspect(path, encryption_keys=keys).only.encryption.locked == ["c"]
    assert scan(path, "b = 'text 3'", ["a"], encryption_keys=keys).num_rows == 13
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        scan(path, "c > 0", encryption_keys=keys)


def test_a_failing_server_fails_without_its_words(tmp_path: Path) -> None:
    def broken(_config: Any) -> Any:
        raise ConnectionError(f"token {SECRET!r} is wrong")

    path = written(tmp_path / "file.parquet")
    with pytest.raises(StorageError, match="key server") as raised:
        scan(path, "a > 0", encryption_keys=EncryptionKeys(KmsKeys(broken, CONFIG)))
    assert "0123" not in str(raised.value)
    assert raised.value.__cause__ is None


def material(**changed: Any) -> bytes:
    found = {"keyMaterialType": "PKMT1", "internalStorage": True, "masterKeyID": "one", "wrappedDEK": "x"}
    return json.dumps({name: value for name, value in (found | changed).items() if value is not None}).encode()


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (b"", None),
        (b"kc1", None),
        (b"[]", None),
        (b"[" * 60_000, None),
        (b" " * (1 << 17), None),
        (material(keyMaterialType="PKMT2"), None),
        (material(masterKeyID=None), DamagedFileError),
        (material(wrappedDEK=7), DamagedFileError),
        (material(), StorageError),
        (material(doubleWrapping=True), DamagedFileError),
        (material(internalStorage=False), DamagedFileError),
        (material(internalStorage=False, keyReference="footer"), StorageError),
    ],
)
def test_key_material_is_believed_only_if_it_makes_sense(
    tmp_path: Path, metadata: bytes, kind: type[SidecarError] | None
) -> None:
    keys = KmsKeys(Kms, CONFIG).beside(str(tmp_path / "file"))
    if kind is None:
        assert keys.key(metadata) is None
    else:
        with pytest.raises(kind):
            keys.key(metadata)


def test_key_material_beside_a_file(tmp_path: Path) -> None:
    keys = KmsKeys(Kms, CONFIG)
    outside = material(internalStorage=False, keyReference="k1")
    with pytest.raises(UsageError, match="beside"):
        keys.key(outside)
    beside = Path(material_path(str(tmp_path / "file")))
    assert beside.name == "_KEY_MATERIAL_FOR_file.json"
    wrapped = base64.b64encode(encrypt_gcm(MASTERS["one"], SECRET, b"")).decode()
    good = material(wrappedDEK=wrapped, internalStorage=False).decode()
    for text, expected in (
        (json.dumps({"k1": good}), SECRET),
        (json.dumps({"k2": good}), DamagedFileError),
        (json.dumps({"k1": 7}), DamagedFileError),
        (json.dumps({"k1": "half a character: \ud800"}), DamagedFileError),
        ("no JSON", DamagedFileError),
    ):
        beside.write_text(text)
        found = keys.beside(str(tmp_path / "file"))
        if isinstance(expected, bytes):
            assert found.key(outside) == expected
        else:
            with pytest.raises(expected):
                found.key(outside)


def test_keys_from_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "hex:" + SECRET.hex())
    text = {
        "footer_key": "base64:" + base64.b64encode(SECRET).decode(),
        "column_keys": {"a.b": "env:ONE"},
        "keys": {"kc1": "hex:" + bytes(32).hex()},
        "aad_prefix": "table é",
    }
    place = tmp_path / "keys.json"
    place.write_text(json.dumps(text))
    monkeypatch.setenv("KEYS", json.dumps(text))
    for found in (encryption_keys_from(str(place)), encryption_keys_from("env:KEYS")):
        assert found.for_footer(None) == found.for_column("a.b", None) == SECRET
        assert found.for_column("c", b"kc1") == bytes(32)
        assert found.for_column("c", b"kc2") is found.for_column("c", None) is None
        assert found.prefix_for("any") == "table é".encode()
        assert SECRET.decode() not in repr(found)
        assert SECRET.hex() not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"other": 1}',
        '{"footer_key": 1}',
        '{"footer_key": "0123456789abcdef"}',
        '{"footer_key": "hex:30313233"}',
        '{"footer_key": "hex:zz"}',
        '{"footer_key": "base64:*"}',
        '{"footer_key": "base64:MDEyMzQ1*Njc4OWFiY2RlZg=="}',  # sixteen bytes, were the star not there
        '{"footer_key": "env:NO_SUCH_VARIABLE"}',
        '{"keys": {"kc1": "0123456789abcdef"}}',
        '{"keys": []}',
        '{"aad_prefix": 1}',
        '{"aad_prefix": "\\ud800"}',  # half a character
        '{"footer_key": "env:\\ud800"}',
    ],
)
def test_what_are_no_keys_is_refused_without_showing_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "keys.json"
    place.write_text(text)
    monkeypatch.setenv("KEYS", text)
    for where in (str(place), "env:KEYS"):
        with pytest.raises(UsageError) as raised:
            encryption_keys_from(where)
        for secret in ("0123456789abcdef", "30313233", "kc1"):
            assert secret not in str(raised.value)
    with pytest.raises(StorageError):
        encryption_keys_from(str(tmp_path / "none"))


def test_an_explicit_key_stands_before_the_one_that_key_metadata_names() -> None:
    mine, named = b"m" * 16, b"n" * 16
    keys = EncryptionKeys(ExplicitKeys({b"k": named}), footer_key=mine, column_keys={"a.b": mine})
    assert keys.for_footer(b"k") == keys.for_column("a.b", b"k") == mine
    assert keys.for_column("a", b"k") == keys.for_bundle(b"k") == named
    assert keys.for_column("a", b"other") is keys.for_column("a", None) is None


def test_impossible_keys_are_refused() -> None:
    for keys in (
        {"footer_key": b"short"},
        {"column_keys": {"a": b"x" * 17}},
        {"column_keys": {"a": bytes(16), "b": b"x" * 17}},
        {"footer_key": bytes(16), "column_keys": {"a": bytes(16), "b": bytes(24), "c": b""}},
    ):
        with pytest.raises(UsageError, match="impossible length"):
            EncryptionKeys(**keys)
    with pytest.raises(UsageError, match="impossible length"):
        EncryptionKeys(ExplicitKeys({b"k": b"short"})).for_footer(b"k")


def test_keys_of_files_doubt_plaintext_indexes() -> None:
    """Whoever has keys of encrypted files asks no plaintext index in their place, unless it is allowed."""
    key = bytes(16)
    for keys in (EncryptionKeys(footer_key=key), EncryptionKeys(column_keys={"ssn": key})):
        assert keys.doubts_plaintext_indexes
        assert not replace(keys, allow_plaintext_indexes=True).doubts_plaintext_indexes
    assert not EncryptionKeys().doubts_plaintext_indexes
