"""Encrypted sidecars taken apart by somebody who has the keys: pieces encrypted anew, tables of contents locked anew.

Nonces come from the generator of the case, so that a case is always the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
import uuid
from collections.abc import Iterator
from typing import NamedTuple
from unittest.mock import patch

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sidecar.bundle.envelopes.encryption import NONCE_BYTES, TAG_BYTES, Cipher
from sidecar.bundle.verify import verify_sidecar
from sidecar.crypto.keys import EncryptionKeys
from sidecar.storage.source import BytesSource
from tests.bundle.spec_reader import Blob, data_key
from tests.iceberg.forging import Forgery, StoredBlob, encoded


class EncryptedPiece(NamedTuple):
    """A piece: its place and length in the blob's body, its data, and what encrypts it."""

    at: int
    length: int
    data: bytes
    context: bytes
    cipher: Cipher


def encrypted_pieces_of(data: bytes, keys: EncryptionKeys) -> list[list[EncryptedPiece]]:
    """The encrypted pieces of each blob, in the order of :class:`Forgery`."""
    found: dict[bytes, tuple[bytes, bytes, Cipher]] = {}
    decrypt = Cipher.decrypt

    def note(cipher: Cipher, context: bytes, piece: bytes | memoryview) -> bytes | None:
        opened = decrypt(cipher, context, piece)
        if opened is not None:
            found[bytes(piece)] = bytes(opened), bytes(context), cipher
        return opened

    with patch.object(Cipher, "decrypt", note):
        assert verify_sidecar(BytesSource(data), encryption_keys=keys) == []
    return [list(_within(blob, found)) for blob in Forgery.of(data).blobs]


def _within(blob: StoredBlob, found: dict[bytes, tuple[bytes, bytes, Cipher]]) -> Iterator[EncryptedPiece]:
    for piece, described in found.items():
        at = blob.body.find(piece)
        if at >= 0:
            yield EncryptedPiece(at, len(piece), *described)


def put_encrypted(rng: random.Random, blob: StoredBlob, piece: EncryptedPiece, content: bytes) -> None:
    """Put other content in the place of a piece, cut or filled with blanks to its length, and encrypt it."""
    size = piece.length - NONCE_BYTES - TAG_BYTES
    nonce, content = rng.randbytes(NONCE_BYTES), content[:size].ljust(size, b" ")
    aad = piece.cipher._table + piece.context
    stored = nonce + piece.cipher._gcm(piece.context).encrypt(nonce, content, aad)
    blob.body = blob.body[: piece.at] + stored + blob.body[piece.at + piece.length :]


def data_keys_of(data: bytes, masters: dict[str, str]) -> list[bytes | None]:
    """The data key of each blob by the reader that was written from SPEC.md, ``None`` for plain ones."""
    forged = Forgery.of(data)
    units = Blob.of(forged.units().stored(), b"SCUN")
    return [data_key(encoded(blob.toc), masters, units) if blob.version == 3 else None for blob in forged.blobs]


def lock(rng: random.Random, forged: Forgery, blob: StoredBlob, key: bytes, masters: dict[str, str]) -> None:
    """Wrap the data key of a blob for its table of contents and the units as they are now."""
    said = blob.toc["encryption"]
    rest = {name: value for name, value in blob.toc.items() if name != "encryption"}
    tocs = (encoded(forged.units().toc), encoded(rest))
    place = uuid.UUID(rest["table"]).bytes + bytes.fromhex(rest["segment"]) + struct.pack("<i", rest["field"])
    aad = b"sidecar bundle key" + place + b"".join(hashlib.sha256(one).digest() for one in tocs)
    master = bytes.fromhex(masters[base64.b64decode(said["key_metadata"]).decode()])
    nonce = rng.randbytes(NONCE_BYTES)
    wrapped = nonce + AESGCM(master).encrypt(nonce, key, aad + rest["kind"].encode())
    blob.toc["encryption"] = json.loads(json.dumps(said | {"wrapped_key": base64.b64encode(wrapped).decode()}))
