"""A refresh with encryption keys: indexes in plaintext or under an older key are built anew, without any commit."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import UsageError
from tests.iceberg.encrypted_tables import METADATA, SECRET, Retriever, add_encrypted, bundle_keys, encrypted_table

NEW_KEY = EncryptionKeys(Retriever(newer=b"another-master-1"), bundle_keys={"ssn": b"newer"})


def locks(table: Table) -> set[bytes | None]:
    """The key metadata of the blobs of ``ssn``; ``None`` is plaintext. A sketch is plaintext too."""
    with_ssn: set[bytes | None] = set()
    opened = sidecar.open_sidecar(table.refresh())
    for segment in opened.segments:
        with_ssn |= {b.toc.lock and b.toc.lock.key_metadata for b in segment.blobs if b.toc.field_id == 2}
        with_ssn |= {None for field_id in segment.sketch_blobs if field_id == 2}
    with_ssn |= {None for blob in opened.puffin.metadata.blobs if blob.fields == (2,) and "theta-v1" in blob.type}
    opened.close()
    return with_ssn


def kept(table: Table, number: int, keys: EncryptionKeys) -> int:
    return len(sidecar.plan(table, f"ssn = '{SECRET.format(number)}'", encryption_keys=keys).tasks)


def test_indexes_in_plaintext_are_encrypted(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.plain", 2, encrypted=False)
    sidecar.build(table, ["ssn", "v"], engine="local")
    assert locks(table) == {None}
    assert sidecar.refresh(table, engine="local", encryption_keys=bundle_keys()).action == "written"
    assert locks(table) == {METADATA}
    assert sidecar.refresh(table, engine="local", encryption_keys=bundle_keys()).action == "current"
    assert kept(table, 5, bundle_keys()) == 1


def test_a_new_key_is_used(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.rotated", 2)
    sidecar.build(table, ["ssn", "v"], engine="local", encryption_keys=bundle_keys())
    assert sidecar.refresh(table, engine="local", encryption_keys=NEW_KEY).action == "written"
    assert locks(table) == {b"newer"}
    assert sidecar.refresh(table, engine="local", encryption_keys=NEW_KEY).action == "current"
    assert kept(table, 5, NEW_KEY) == 1


def test_columns_are_indexed_once_their_keys_are_there(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.late", 1, encrypted=False)
    sidecar.build(table, ["ssn", "v"], engine="local", encryption_keys=bundle_keys())
    add_encrypted(table.refresh(), [1])
    sidecar.build(table.refresh(), ["ssn", "v"], engine="local", encryption_keys=_without_file_keys())
    assert kept(table.refresh(), 5, bundle_keys()) == 2, "the second file has no index of the column"
    assert sidecar.refresh(table, engine="local", encryption_keys=bundle_keys()).action == "written"
    assert kept(table, 5, bundle_keys()) == 1
    assert kept(table, 105, bundle_keys()) == 1


def _without_file_keys() -> EncryptionKeys:
    """Keys that seal bundles and open no data file."""

    class Bundles:
        def key(self, key_metadata: bytes) -> bytes | None:
            return Retriever().bundles.get(key_metadata)

    return EncryptionKeys(Bundles(), bundle_keys={"ssn": METADATA})


def test_a_named_column_is_not_written_in_plaintext_beside_its_encrypted_indexes(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.named", 2, encrypted=False)
    sidecar.build(table, ["ssn", "v"], engine="local", encryption_keys=bundle_keys())
    assert locks(table) == {METADATA}
    with pytest.raises(UsageError, match="indexes of ssn are encrypted, and their bundle keys are not given"):
        sidecar.build(table, ["ssn", "v"], engine="local", full=True)
    assert locks(table) == {METADATA}
    sidecar.build(table, ["ssn"], engine="local", full=True, allow_plaintext=True)
    assert None in locks(table)
