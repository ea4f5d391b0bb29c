"""Encrypted files, their keys, and what is in them."""

from __future__ import annotations

import json
from pathlib import Path

from sidecar.crypto.keys import EncryptionKeys
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import Footer, read_footer
from sidecar.storage.local import LocalSource
from sidecar.storage.source import Source
from tests.embedding.cases import chunks
from tests.embedding.encryption_matrix import (
    Kind,
    MaterialKeys,
    rows,
    write_by_arrow,
)

PLAIN_FOOTER = Kind("arrow", "plaintext", "AES_GCM_CTR_V1", 16, "none", "mixed")
ENCRYPTED_FOOTER = Kind("arrow", "encrypted", "AES_GCM_V1", 32, "none", "mixed")
PREFIXED = Kind("arrow", "encrypted", "AES_GCM_V1", 16, "stored", "uniform")
TABLE = rows()
BUNDLES = b"bundles"


class Keys:
    """Key material of files, and a master key of bundles."""

    def key(self, key_metadata: bytes) -> bytes | None:
        return bytes(range(16)) if key_metadata == BUNDLES else MaterialKeys().key(key_metadata)


class WithoutKey:
    """Key material, but one master key is not to be had."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def key(self, key_metadata: bytes) -> bytes | None:
        missing = key_metadata != BUNDLES and json.loads(key_metadata)["masterKeyID"] == self.missing
        return None if missing else Keys().key(key_metadata)


def written(kind: Kind, folder: Path) -> Path:
    path = folder / f"{kind}.parquet"
    write_by_arrow(kind, path, TABLE)
    return path


def opened(path: Path, keys: EncryptionKeys) -> tuple[Source, Footer]:
    view = unlock(LocalSource(str(path)), keys)
    return view, read_footer(view)


def filters_of(path: Path, keys: EncryptionKeys) -> dict[tuple[int, str], bytes]:
    view, footer = opened(path, keys)
    found = {(c.row_group, c.leaf.path): read_bloom_filter(view, c) for c in chunks(footer)}
    return {place: one.filter.to_bytes() for place, one in found.items() if one is not None}
