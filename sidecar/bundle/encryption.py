"""Encrypted blobs: pieces that are AES-GCM modules under a data key of their own, which a master key wraps.

Each segment and field has a fresh random *data key*, as long as the *master key* of the column. A piece is

    nonce (12 bytes, random) | ciphertext (as long as the data) | tag (16 bytes)

with, as AAD, the table's UUID (16 bytes) and the 40-byte context of :mod:`sidecar.bundle.checksum`: a piece cannot
stand in for another one of any table, segment, field, kind, group, row or position. No snapshot is in it, since
segments are carried from one to the next as bytes.

The table of contents of each blob has, under ``encryption``, the data key wrapped by the master key (a module with the
AAD of :func:`_wrap_aad`) and the master key's key metadata, from which the reader's keys find it; both in base64. They
stand nowhere else. What the table of contents itself says (units, encodings, sizes of groups) is not encrypted.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.bundle.checksum import Place
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALGORITHM = "AES_GCM"
ENCRYPTED_VERSION = 2
"""Version of encrypted blobs: readers that know version 1 alone keep their units."""

NONCE_BYTES, TAG_BYTES = 12, 16
MAX_KEY_METADATA = 1 << 16
_MAX_WRAPPED = 32 + NONCE_BYTES + TAG_BYTES
_WRAP = struct.Struct("<16s16si")


class Cipher:
    """AES-GCM for the pieces of one segment and field of a table, under its data key. Shows nothing of the key."""

    def __init__(self, key: bytes, table_uuid: str) -> None:
        self._key = key
        self._table = _uuid_bytes(table_uuid)
        self._aes: AESGCM | None = None

    def encrypt(self, context: bytes, data: bytes | memoryview) -> bytes:
        """The module of a piece, with a fresh nonce."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._gcm().encrypt(nonce, data, self._table + context)

    def encrypt_all(self, contexts: Sequence[bytes], pieces: Sequence[memoryview]) -> bytes:
        """The modules of pieces in order, one after the other, each with a fresh nonce."""
        encrypt, table, made = self._gcm().encrypt, self._table, list[bytes]()
        nonces = os.urandom(NONCE_BYTES * len(pieces))
        for number, (context, data) in enumerate(zip(contexts, pieces, strict=True)):
            nonce = nonces[NONCE_BYTES * number : NONCE_BYTES * (number + 1)]
            made += nonce, encrypt(nonce, data, table + context)
        return b"".join(made)

    def decrypt(self, context: bytes, piece: bytes | memoryview) -> bytes | None:
        """The data of a piece, ``None`` if it is not what was put in this place."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(piece)
        if len(view) < NONCE_BYTES + TAG_BYTES:
            return None
        try:
            return self._gcm().decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], self._table + context)
        except InvalidTag:
            return None

    def _gcm(self) -> AESGCM:
        """Made once: setting a key up costs more than a small piece."""
        if self._aes is None:
            from cryptography.hazmat.primitives.ciphers.aead import (
                AESGCM,  # plans of plain sidecars need none
            )

            self._aes = AESGCM(self._key)
        return self._aes

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": self._key, "_table": self._table, "_aes": None}


@dataclass(frozen=True, repr=False)
class Lock:
    """What a table of contents says of its blob's key."""

    key_metadata: bytes
    wrapped_key: bytes

    def encode(self) -> dict[str, str]:
        """The JSON object under ``encryption``."""
        return {
            "algorithm": ALGORITHM,
            "key_metadata": base64.b64encode(self.key_metadata).decode("ascii"),
            "wrapped_key": base64.b64encode(self.wrapped_key).decode("ascii"),
        }

    @classmethod
    def decode(cls, content: Mapping[str, Any]) -> Lock:
        """Inverse of :meth:`encode`; the message of an error does not show what was found."""
        if content.get("algorithm") != ALGORITHM:
            raise UnsupportedFeatureError("a blob is encrypted in an unknown way", expected=ALGORITHM)
        lock = cls(_decoded(content, "key_metadata"), _decoded(content, "wrapped_key"))
        if len(lock.key_metadata) > MAX_KEY_METADATA or len(lock.wrapped_key) > _MAX_WRAPPED:
            raise DamagedFileError("the key of an encrypted blob is too long")
        return lock


@dataclass(frozen=True)
class Owner:
    """The blob that a wrapped key is for; ``purpose`` is its ``kind``."""

    table_uuid: str
    segment_id: bytes
    field_id: int
    purpose: str


class FieldKey:
    """The data key of one segment and field while they are written: encrypts pieces, and locks blobs."""

    def __init__(
        self, master_key: bytes, key_metadata: bytes, table_uuid: str, segment_id: bytes, field_id: int
    ) -> None:
        if len(key_metadata) > MAX_KEY_METADATA:
            raise UsageError("too long for key metadata", expected=MAX_KEY_METADATA, found=len(key_metadata))
        self._data_key = os.urandom(len(master_key))
        self._master_key = master_key
        self._key_metadata = key_metadata
        self._owner = table_uuid, segment_id, field_id
        self.place = Place(segment_id, field_id, Cipher(self._data_key, table_uuid))
        """Where pieces go; fit to be sent to other processes, which then have the data key alone."""

    def lock(self, purpose: str) -> Lock:
        """The data key, wrapped for the blob of this ``kind``."""
        from sidecar.crypto.aes import encrypt_gcm

        aad = _wrap_aad(Owner(*self._owner, purpose))
        return Lock(self._key_metadata, encrypt_gcm(self._master_key, self._data_key, aad))


class KeyRing:
    """Unlocks the blobs of one file with the keys that are at hand, and asks for each key once."""

    def __init__(self, keys: EncryptionKeys | None = None) -> None:
        self._keys = keys
        self._master: dict[bytes, bytes | SidecarError | None] = {}
        self._places: dict[Owner, Place] = {}
        self.refused = False
        """Whether a blob could not be unlocked."""

    def use(self, keys: EncryptionKeys | None) -> None:
        """Take these keys from now on."""
        self._keys = keys
        self._master.clear()
        self._places.clear()

    def place(self, lock: Lock, owner: Owner) -> Place:
        """Where the blob's pieces are, with what decrypts them.

        Raises :class:`UsageError` without the key or for another one, and what the key retriever does.
        """
        known = self._places.get(owner)
        if known is None:
            self.refused, refused = True, self.refused
            known = self._places[owner] = self._unlocked(lock, owner)
            self.refused = refused
        return known

    def _unlocked(self, lock: Lock, owner: Owner) -> Place:
        what = f"the index of field {owner.field_id} is encrypted"
        hint = "Give the key of its key metadata as encryption keys."
        if self._keys is None:
            raise UsageError(f"{what} and no keys were given", hint=hint)
        master = self._master_key(lock.key_metadata)
        if master is None:
            raise UsageError(f"{what} and its key is not among those given", hint=hint)
        from sidecar.crypto.aes import check_key, decrypt_gcm

        try:
            data_key = check_key(decrypt_gcm(master, lock.wrapped_key, _wrap_aad(owner)))
        except DamagedFileError as error:
            raise UsageError(
                f"{what} and the key given is not the one it was encrypted with, or its table of contents was changed"
            ) from error
        return Place(owner.segment_id, owner.field_id, Cipher(data_key, owner.table_uuid))

    def _master_key(self, key_metadata: bytes) -> bytes | None:
        if key_metadata not in self._master:
            assert self._keys is not None
            try:
                self._master[key_metadata] = self._keys.for_bundle(key_metadata)
            except SidecarError as error:
                self._master[key_metadata] = error
        found = self._master[key_metadata]
        if isinstance(found, SidecarError):
            raise found
        return found


def _wrap_aad(owner: Owner) -> bytes:
    """``sidecar bundle key`` | table UUID (16) | segment (16) | i32 field id | the blob's kind in ASCII."""
    place = _WRAP.pack(_uuid_bytes(owner.table_uuid), owner.segment_id, owner.field_id)
    return b"sidecar bundle key" + place + owner.purpose.encode("ascii")


def _uuid_bytes(text: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except ValueError as error:
        raise DamagedFileError("the UUID of a table is none", found=repr(text)[:60]) from error


def _decoded(content: Mapping[str, Any], key: str) -> bytes:
    text = content.get(key)
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise DamagedFileError(f"the {key} of an encrypted blob is not base64")
