"""Encrypted blobs: pieces that are AES-GCM modules under a data key of their own, which a master key wraps.

Each segment and field has a fresh random *data key*, as long as the *master key* of the column. A piece is

    nonce (12 bytes, random) | ciphertext (as long as the data) | tag (16 bytes)

with, as AAD, the table's UUID (16 bytes) and the 40-byte context of :mod:`sidecar.bundle.checksum`: a piece cannot
stand in for another one of any table, segment, field, kind, group, row or position. No snapshot is in it, since
segments are carried from one to the next as bytes.

The data key itself encrypts nothing. The key of a piece is made from it with HMAC, by the kind of the piece, the
number of its group and its place in the group, so that no key is used for more than :data:`MODULES_PER_KEY` pieces
(:func:`key_name`). Random nonces are safe for 2**32 modules of a key.

The table of contents of each blob has, under ``encryption``, the data key wrapped by the master key and the master
key's key metadata, from which the reader's keys find it; both in base64. They are nowhere else. What the table of
contents itself says (units, encodings, sizes of groups) is not encrypted, but it is *bound*: the wrapped key is a
module whose AAD has the SHA-256 of the rest of the table of contents and the SHA-256 of the table of contents of the
units blob, which has the SHA-256 of every piece of that blob (:func:`_wrap_aad`). Whoever changes what a position
means, without the master key, makes the data key unreadable, and the units are kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.bundle.checksum import CONTEXT, BlobContext
from sidecar.bundle.envelope import encode_toc
from sidecar.bundle.layout import BLOCK_BITS
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALGORITHM = "AES_GCM"
ENCRYPTED_VERSION = 3
"""Version of encrypted blobs: readers that know other versions alone keep their units. Version 2 did not bind its
tables of contents, so it must not be believed."""
MODULES_PER_KEY = 1 << 31
"""Pieces that one key encrypts at most; with random nonces the limit of AES-GCM is 2**32."""

NONCE_BYTES, TAG_BYTES = 12, 16
_BY_NAME = "name:"
MAX_KEY_METADATA = 1 << 16
_MAX_WRAPPED = 32 + NONCE_BYTES + TAG_BYTES
_WRAP = struct.Struct("<16s16si32s32s")
_KEY_NAME = struct.Struct("<17sIII")
_LOCK_BEGINS, _LOCK_ENDS = b'{"encryption":', b","


class Cipher:
    """AES-GCM for the pieces of one segment and field of a table, under its data key. Shows nothing of the key."""

    def __init__(self, key: bytes, table_uuid: str, modules_per_key: int = MODULES_PER_KEY) -> None:
        self._key = key
        self._table = _uuid_bytes(table_uuid)
        self._modules_per_key = modules_per_key
        self._aes: dict[bytes, AESGCM] = {}

    def encrypt(self, context: bytes, data: bytes | memoryview) -> bytes:
        """The module of a piece, with a fresh nonce."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._gcm(context).encrypt(nonce, data, self._table + context)

    def encrypt_all(self, contexts: Sequence[bytes], pieces: Sequence[memoryview]) -> bytes:
        """The modules of pieces in order, one after the other, each with a fresh nonce."""
        gcm, table, made = self._gcm, self._table, list[bytes]()
        nonces = os.urandom(NONCE_BYTES * len(pieces))
        for number, (context, data) in enumerate(zip(contexts, pieces, strict=True)):
            nonce = nonces[NONCE_BYTES * number : NONCE_BYTES * (number + 1)]
            made += nonce, gcm(context).encrypt(nonce, data, table + context)
        return b"".join(made)

    def decrypt(self, context: bytes, piece: bytes | memoryview) -> bytes | None:
        """The data of a piece, ``None`` if it is not what was put in this place."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(piece)
        if len(view) < NONCE_BYTES + TAG_BYTES:
            return None
        try:
            return self._gcm(context).decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], self._table + context)
        except InvalidTag:
            return None

    def _gcm(self, context: bytes) -> AESGCM:
        """The cipher with the key of a piece. It is made once for each key: that costs more than a small piece."""
        name = key_name(context, self._modules_per_key)
        found = self._aes.get(name)
        if found is None:
            from cryptography.hazmat.primitives.ciphers.aead import (
                AESGCM,  # plans of plain sidecars need none
            )

            found = self._aes[name] = AESGCM(hmac.digest(self._key, name, "sha256")[: len(self._key)])
        return found

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_aes": {}}


def key_name(context: bytes, modules_per_key: int = MODULES_PER_KEY) -> bytes:
    """The source of a piece's key: ``sidecar piece key`` | u32 kind | u32 group | u32 number of the key.

    The number counts up with the places in the group: (256 position + row) // ``modules_per_key``. So a key has at
    most that many pieces, whoever encrypts them and in whatever order.
    """
    kind, _, _, group, row, position = CONTEXT.unpack(context)
    return _KEY_NAME.pack(b"sidecar piece key", kind, group, (position * BLOCK_BITS + row) // modules_per_key)


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
    """The blob that a wrapped key is for; ``purpose`` is its ``kind``.

    ``units_digest`` is the SHA-256 of the table of contents of the segment's units, ``toc_digest`` that of the blob's
    own without its lock (:func:`bound_part`).
    """

    table_uuid: str
    segment_id: bytes
    field_id: int
    purpose: str
    units_digest: bytes
    toc_digest: bytes


def toc_with_lock(content: dict[str, Any], key: FieldKey | None, units_toc: bytes) -> bytes:
    """The bytes of a table of contents; with a key it gets a lock as its first member, ``encryption``."""
    bare = encode_toc(content)
    if key is None:
        return bare
    lock = key.lock(content["kind"], units_toc, bare)
    return b"".join((_LOCK_BEGINS, encode_toc(lock.encode()), _LOCK_ENDS, bare[1:]))


def bound_part(toc: bytes, lock: Lock) -> bytes:
    """A table of contents as it is without its lock, which must be the first member and written as we write it.

    Raises :class:`DamagedFileError` if it is not.
    """
    begin = b"".join((_LOCK_BEGINS, encode_toc(lock.encode()), _LOCK_ENDS))
    if not toc.startswith(begin):
        raise DamagedFileError("the encryption part of a table of contents is not its first member")
    return b"{" + toc[len(begin) :]


def digest_of(toc: bytes) -> bytes:
    """SHA-256, 32 bytes."""
    return hashlib.sha256(toc).digest()


class FieldKey:
    """The data key of one segment and field while they are written: encrypts pieces, and locks blobs.

    It is for one writing of them: who writes the blobs again makes another one, so that no key has more pieces than
    :data:`MODULES_PER_KEY`.
    """

    def __init__(
        self,
        master_key: bytes,
        key_metadata: bytes,
        table_uuid: str,
        segment_id: bytes,
        field_id: int,
        modules_per_key: int = MODULES_PER_KEY,
    ) -> None:
        if len(key_metadata) > MAX_KEY_METADATA:
            raise UsageError("too long for key metadata", expected=MAX_KEY_METADATA, found=len(key_metadata))
        self._data_key = os.urandom(len(master_key))
        self._master_key = master_key
        self._key_metadata = key_metadata
        self._owner = table_uuid, segment_id, field_id
        self.place = BlobContext(segment_id, field_id, Cipher(self._data_key, table_uuid, modules_per_key))
        """Where pieces go; fit to be sent to other processes, which then have the data key alone."""

    def lock(self, purpose: str, units_toc: bytes, toc: bytes) -> Lock:
        """The data key, wrapped for the blob of this ``kind`` with this table of contents (without a lock)."""
        from sidecar.crypto.aes import encrypt_gcm

        aad = _wrap_aad(Owner(*self._owner, purpose, digest_of(units_toc), digest_of(toc)))
        return Lock(self._key_metadata, encrypt_gcm(self._master_key, self._data_key, aad))


class KeyRing:
    """Unlocks the blobs of one file with the keys that are at hand, and asks for each key once.

    A field is *protected* if its key is at hand: ``bundle_keys`` name its column, or the keys have the one that some
    blob of the field in this file is encrypted with. The ring refuses plaintext blobs of a protected field, and blobs
    under another key than the named one, because anybody could have written them.
    """

    def __init__(self, keys: EncryptionKeys | None = None) -> None:
        self._keys = keys
        self._named: Mapping[int, bytes] = {}
        self._locks: dict[int, set[bytes]] = {}
        self._paths: dict[int, set[str]] = {}
        self._master: dict[bytes, bytes | SidecarError | None] = {}
        self._places: dict[tuple[Lock | None, Owner], BlobContext] = {}
        self.refused = False
        """Whether a blob could not be unlocked."""

    def use_keys(self, keys: EncryptionKeys | None, named: Mapping[int, bytes] | None = None) -> None:
        """Take these keys from now on; ``named``: key metadata of the fields whose blobs must be encrypted, by id.

        Without it they stay those that were named before.
        """
        self._keys = keys
        self._named = self._named if named is None else dict(named)
        self._master.clear()
        self._places.clear()

    def require_encrypted(self, fields: Mapping[int, bytes]) -> None:
        """Take note of more fields whose blobs must be encrypted."""
        self._named = {**self._named, **fields}
        self._places.clear()

    def note_blob(self, field_id: int, lock: Lock | None, resolutions: Iterable[str]) -> None:
        """Take note of a blob of the file; ``resolutions`` may name its column, by which ``bundle_keys`` finds it."""
        if lock is not None:
            self._locks.setdefault(field_id, set()).add(lock.key_metadata)
        for resolution in resolutions:
            if resolution.startswith(_BY_NAME):
                names = resolution.removeprefix(_BY_NAME).split("|")
                self._paths.setdefault(field_id, set()).update(names)

    def protects(self, field_id: int) -> bool:
        """Whether blobs of the field must be encrypted to be believed."""
        if self._keys is None:
            return False
        locks = self._locks.get(field_id, ())
        return bool(self._expected(field_id)) or any(map(self._is_at_hand, locks))

    def _expected(self, field_id: int) -> set[bytes]:
        """Key metadata of the keys that the caller names for a field."""
        assert self._keys is not None
        named = self._keys.bundle_keys
        expected = {named[path] for path in self._paths.get(field_id, ()) if path in named}
        return expected | ({self._named[field_id]} if field_id in self._named else set())

    def place(self, lock: Lock | None, owner: Owner) -> BlobContext:
        """Where the blob's pieces are, with what decrypts them.

        Raises :class:`UsageError` without the key, for another one, and for plaintext of a protected field, and what
        the key retriever does.
        """
        known = self._places.get((lock, owner))
        if known is None:
            known = self._places[lock, owner] = self._opened(lock, owner)
        return known

    def _opened(self, lock: Lock | None, owner: Owner) -> BlobContext:
        if lock is None:
            return self._in_clear(owner)
        self.refused, refused = True, self.refused
        place = self._unlocked(lock, owner)
        self.refused = refused
        return place

    def _in_clear(self, owner: Owner) -> BlobContext:
        if self.protects(owner.field_id):
            raise UsageError(
                f"an index of field {owner.field_id} is in plaintext although its key was given: it could be anybody's",
                hint="Build the index of the column anew with its key in bundle_keys, or give no key for it.",
            )
        return BlobContext(owner.segment_id, owner.field_id)

    def _unlocked(self, lock: Lock, owner: Owner) -> BlobContext:
        what = f"the index of field {owner.field_id} is encrypted"
        hint = "Give the key of its key metadata as encryption keys."
        if self._keys is None:
            raise UsageError(f"{what} and no keys were given", hint=hint)
        expected = self._expected(owner.field_id)
        if expected and lock.key_metadata not in expected:
            raise UsageError(
                f"{what} with another key than bundle_keys name for it",
                hint="Build the index of the column anew.",
            )
        master = self._master_key(lock.key_metadata)
        if master is None:
            raise UsageError(f"{what} and its key is not among those given", hint=hint)
        from sidecar.crypto.aes import check_key, decrypt_gcm

        try:
            data_key = check_key(decrypt_gcm(master, lock.wrapped_key, _wrap_aad(owner)))
        except DamagedFileError as error:
            raise UsageError(
                f"{what} and the key given is not the one it was encrypted with, or a table of contents was changed"
            ) from error
        return BlobContext(owner.segment_id, owner.field_id, Cipher(data_key, owner.table_uuid))

    def _is_at_hand(self, key_metadata: bytes) -> bool:
        try:
            return self._master_key(key_metadata) is not None
        except SidecarError:
            return True  # it was given, but cannot be had just now

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
    """``sidecar bundle key`` | table UUID (16) | segment (16) | i32 field id | SHA-256 of the units' table of contents
    (32) | SHA-256 of the blob's own without its lock (32) | the blob's kind in ASCII."""
    place = _WRAP.pack(
        _uuid_bytes(owner.table_uuid), owner.segment_id, owner.field_id, owner.units_digest, owner.toc_digest
    )
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
