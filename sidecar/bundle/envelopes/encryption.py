"""Encrypted blobs: each piece is an AES-GCM module under a data key, which a master key wraps.

Each segment and field has a fresh random *data key*, as long as the column's *master key*. A piece is

    nonce (12 bytes, random) | ciphertext (as long as the data) | tag (16 bytes)

The AAD of a piece is the table's UUID (16 bytes) and the 40-byte context of :mod:`sidecar.bundle.envelopes.checksum`. A
piece therefore cannot replace a piece of another table, segment, field, kind, group, row or position. The AAD has no
snapshot id, because segments are copied from one snapshot's sidecar to the next as bytes.

The data key itself encrypts nothing. HMAC derives the key of a piece from it (:func:`key_name`), by the kind of the
piece, its group and its place in the group, so that no key encrypts more than :data:`MODULES_PER_KEY` pieces.
Random nonces are safe for 2**32 modules of a key.

The table of contents of each blob stores, under ``encryption``, the data key wrapped by the master key, and the master
key's key metadata, by which the reader finds the key. Both are in base64 and are stored nowhere else. The rest of the
table of contents (units, encodings, sizes of groups) is not encrypted, but it is *bound*: the wrapped key is a module
whose AAD has two SHA-256 digests, of the rest of the table of contents and of the units blob's table of contents, which
has the SHA-256 of every piece of that blob (:func:`_wrap_aad`). If somebody changes the meaning of a position without
the master key, the data key cannot be unwrapped, and the units are kept.
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

from sidecar.bundle.envelopes.checksum import CONTEXT, BlobContext
from sidecar.bundle.envelopes.envelope import encode_toc
from sidecar.bundle.filters.layout import BLOCK_BITS
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALGORITHM = "AES_GCM"
ENCRYPTED_VERSION = 3
"""Version of encrypted blobs. Readers that do not know it keep the units. Version 2 did not bind its tables of
contents, so it is not read: its statements could be forged."""
MODULES_PER_KEY = 1 << 31
"""The most pieces that one key encrypts. The limit of AES-GCM with random nonces is 2**32."""

NONCE_BYTES, TAG_BYTES = 12, 16
_BY_NAME = "name:"
MAX_KEY_METADATA = 1 << 16
_MAX_WRAPPED = 32 + NONCE_BYTES + TAG_BYTES
_WRAP = struct.Struct("<16s16si32s32s")
_KEY_NAME = struct.Struct("<17sIII")
_LOCK_BEGINS, _LOCK_ENDS = b'{"encryption":', b","


class Cipher:
    """AES-GCM for the pieces of one segment and field of a table, under its data key. Its repr hides the key."""

    def __init__(self, key: bytes, table_uuid: str, modules_per_key: int = MODULES_PER_KEY) -> None:
        self._key = key
        self._table = _uuid_bytes(table_uuid)
        self._modules_per_key = modules_per_key
        self._aes: dict[bytes, AESGCM] = {}

    def encrypt(self, context: bytes, data: bytes | memoryview) -> bytes:
        """Return the module of a piece, with a fresh nonce."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._gcm(context).encrypt(nonce, data, self._table + context)

    def encrypt_all(self, contexts: Sequence[bytes], pieces: Sequence[memoryview]) -> bytes:
        """Return the modules of several pieces, concatenated in order, each with a fresh nonce."""
        gcm, table, made = self._gcm, self._table, list[bytes]()
        nonces = os.urandom(NONCE_BYTES * len(pieces))
        for number, (context, data) in enumerate(zip(contexts, pieces, strict=True)):
            nonce = nonces[NONCE_BYTES * number : NONCE_BYTES * (number + 1)]
            made += nonce, gcm(context).encrypt(nonce, data, table + context)
        return b"".join(made)

    def decrypt(self, context: bytes, piece: bytes | memoryview) -> bytes | None:
        """Return the data of a piece, ``None`` if the piece is damaged or belongs to another place."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(piece)
        if len(view) < NONCE_BYTES + TAG_BYTES:
            return None
        try:
            return self._gcm(context).decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], self._table + context)
        except InvalidTag:
            return None

    def _gcm(self, context: bytes) -> AESGCM:
        """Return the cipher for a piece. Ciphers are cached: making one costs more than a small piece."""
        name = key_name(context, self._modules_per_key)
        cipher = self._aes.get(name)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import (
                AESGCM,  # imported late: plain sidecars do not need it
            )

            cipher = self._aes[name] = AESGCM(hmac.digest(self._key, name, "sha256")[: len(self._key)])
        return cipher

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_aes": {}}


def key_name(context: bytes, modules_per_key: int = MODULES_PER_KEY) -> bytes:
    """Return the name from which a piece's key is derived.

    ``sidecar piece key`` | u32 kind | u32 group | u32 number of the key. The number of the key is
    (256 position + row) // ``modules_per_key``. So a key encrypts at most that many pieces, no matter which process
    encrypts them and in which order.
    """
    kind, _, _, group, row, position = CONTEXT.unpack(context)
    return _KEY_NAME.pack(b"sidecar piece key", kind, group, (position * BLOCK_BITS + row) // modules_per_key)


@dataclass(frozen=True, repr=False)
class Lock:
    """The key information in a blob's table of contents: the wrapped data key and the master key's metadata."""

    key_metadata: bytes
    wrapped_key: bytes

    def encode(self) -> dict[str, str]:
        """Return the JSON object that is stored under ``encryption``."""
        return {
            "algorithm": ALGORITHM,
            "key_metadata": base64.b64encode(self.key_metadata).decode("ascii"),
            "wrapped_key": base64.b64encode(self.wrapped_key).decode("ascii"),
        }

    @classmethod
    def decode(cls, content: Mapping[str, Any]) -> Lock:
        """Decode :meth:`encode`'s object. Error messages do not show the values found.

        Raises :class:`UnsupportedFeatureError` for another algorithm, :class:`DamagedFileError` for impossible values.
        """
        if content.get("algorithm") != ALGORITHM:
            raise UnsupportedFeatureError("a blob is encrypted in an unknown way", expected=ALGORITHM)
        lock = cls(_decoded(content, "key_metadata"), _decoded(content, "wrapped_key"))
        if len(lock.key_metadata) > MAX_KEY_METADATA or len(lock.wrapped_key) > _MAX_WRAPPED:
            raise DamagedFileError("the key of an encrypted blob is too long")
        return lock


@dataclass(frozen=True)
class Owner:
    """The blob that a wrapped key belongs to. ``purpose`` is the blob's ``kind``.

    ``units_digest`` is the SHA-256 of the units blob's table of contents. ``toc_digest`` is the SHA-256 of the blob's
    own table of contents without its lock (:func:`bound_part`).
    """

    table_uuid: str
    segment_id: bytes
    field_id: int
    purpose: str
    units_digest: bytes
    toc_digest: bytes


def toc_with_lock(content: dict[str, Any], key: FieldKey | None, units_toc: bytes) -> bytes:
    """Return the bytes of a table of contents. With a key, the lock is its first member, ``encryption``."""
    bare = encode_toc(content)
    if key is None:
        return bare
    lock = key.lock(content["kind"], units_toc, bare)
    return b"".join((_LOCK_BEGINS, encode_toc(lock.encode()), _LOCK_ENDS, bare[1:]))


def bound_part(toc: bytes, lock: Lock) -> bytes:
    """Return a table of contents without its lock.

    Raises :class:`DamagedFileError` unless the lock is the first member and encoded as sidecar writes it.
    """
    begin = b"".join((_LOCK_BEGINS, encode_toc(lock.encode()), _LOCK_ENDS))
    if not toc.startswith(begin):
        raise DamagedFileError("the table of contents does not begin with its member 'encryption' as sidecar writes it")
    return b"{" + toc[len(begin) :]


def digest_of(toc: bytes) -> bytes:
    """Return the SHA-256 (32 bytes) of a table of contents."""
    return hashlib.sha256(toc).digest()


class FieldKey:
    """The data key of one segment and field during one write: encrypts pieces and locks blobs.

    A second write of the same blobs needs a new FieldKey, so that no key encrypts more than :data:`MODULES_PER_KEY`
    pieces.
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
            raise UsageError("the key metadata is too long", expected=MAX_KEY_METADATA, found=len(key_metadata))
        self._data_key = os.urandom(len(master_key))
        self._master_key = master_key
        self.metadata = key_metadata
        self._owner = table_uuid, segment_id, field_id
        self.place = BlobContext(segment_id, field_id, Cipher(self._data_key, table_uuid, modules_per_key))
        """Seals the pieces. Can be pickled for other processes, which get the data key but not the master key."""

    def lock(self, purpose: str, units_toc: bytes, toc: bytes) -> Lock:
        """Return the data key wrapped for the blob of kind ``purpose`` with this table of contents (without a lock)."""
        from sidecar.crypto.aes import encrypt_gcm

        aad = _wrap_aad(Owner(*self._owner, purpose, digest_of(units_toc), digest_of(toc)))
        return Lock(self.metadata, encrypt_gcm(self._master_key, self._data_key, aad))


class KeyRing:
    """Unlocks the blobs of one file with the given keys, and requests each key once.

    A field is *protected* if ``bundle_keys`` name its column, if the keys open some blob of the field in this file, or
    if the keys are those of encrypted data files (:attr:`sidecar.crypto.keys.EncryptionKeys.doubts_plaintext_indexes`).
    The ring refuses plaintext blobs of a protected field, and blobs under another key than the named one: others could
    have written them.
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
        """Use these keys from now on. ``named`` maps the ids of fields that must be encrypted to their key metadata.

        If ``named`` is ``None``, the fields that were named before stay.
        """
        self._keys = keys
        self._named = self._named if named is None else dict(named)
        self._master.clear()
        self._places.clear()

    @property
    def has_keys(self) -> bool:
        """Whether keys were given."""
        return self._keys is not None

    def require_encrypted(self, fields: Mapping[int, bytes]) -> None:
        """Add fields whose blobs must be encrypted, with their key metadata."""
        self._named = {**self._named, **fields}
        self._places.clear()

    def note_blob(self, field_id: int, lock: Lock | None, resolutions: Iterable[str]) -> None:
        """Register a blob of the file. ``resolutions`` may name its column, by which ``bundle_keys`` finds its key."""
        if lock is not None:
            self._locks.setdefault(field_id, set()).add(lock.key_metadata)
        for resolution in resolutions:
            if resolution.startswith(_BY_NAME):
                names = resolution.removeprefix(_BY_NAME).split("|")
                self._paths.setdefault(field_id, set()).update(names)

    def protects(self, field_id: int) -> bool:
        """Return whether blobs of the field are believed only if they are encrypted."""
        return self._keys is not None and (self._keys.doubts_plaintext_indexes or self._has_key_of(field_id))

    def _has_key_of(self, field_id: int) -> bool:
        return bool(self._expected(field_id)) or any(map(self._is_at_hand, self._locks.get(field_id, ())))

    def _expected(self, field_id: int) -> set[bytes]:
        """Return the key metadata that the caller requires for a field."""
        assert self._keys is not None
        named = self._keys.bundle_keys
        expected = {named[path] for path in self._paths.get(field_id, ()) if path in named}
        return expected | ({self._named[field_id]} if field_id in self._named else set())

    def place(self, lock: Lock | None, owner: Owner) -> BlobContext:
        """Return the context that opens the blob's pieces.

        Raises :class:`UsageError` if the key is missing or a different one, and for plaintext of a protected field.
        Errors of the key retriever are raised too.
        """
        place = self._places.get((lock, owner))
        if place is None:
            place = self._places[lock, owner] = self._open(lock, owner)
        return place

    def _open(self, lock: Lock | None, owner: Owner) -> BlobContext:
        if lock is None:
            return self._plaintext(owner)
        self.refused, refused = True, self.refused  # stays True if unlocking raises
        place = self._unlocked(lock, owner)
        self.refused = refused
        return place

    def _plaintext(self, owner: Owner) -> BlobContext:
        if self.protects(owner.field_id):
            what = f"an index of field {owner.field_id} is in plaintext although"
            if self._has_key_of(owner.field_id):
                raise UsageError(
                    f"{what} its key was given, so it may be forged",
                    hint="Rebuild the index of the column with its key in bundle_keys, or give no key for it.",
                )
            raise UsageError(
                f"{what} keys of encrypted files were given, so it may be forged",
                hint="Name the column's key in bundle_keys and build the index again, or let the keys allow it: "
                "allow_plaintext_indexes.",
            )
        return BlobContext(owner.segment_id, owner.field_id)

    def _unlocked(self, lock: Lock, owner: Owner) -> BlobContext:
        what = f"the index of field {owner.field_id} is encrypted"
        hint = "Pass the key that its key metadata names in the encryption keys."
        if self._keys is None:
            raise UsageError(f"{what} and no keys were given", hint=hint)
        expected = self._expected(owner.field_id)
        if expected and lock.key_metadata not in expected:
            raise UsageError(
                f"{what} with another key than bundle_keys name for it",
                hint="Rebuild the index of the column.",
            )
        master = self._master_key(lock.key_metadata)
        if master is None:
            raise UsageError(f"{what} and its key is not among the given keys", hint=hint)
        from sidecar.crypto.aes import check_key, decrypt_gcm

        try:
            data_key = check_key(decrypt_gcm(master, lock.wrapped_key, _wrap_aad(owner)))
        except DamagedFileError as error:
            raise UsageError(
                f"{what} and cannot be unlocked: the given key is not the one it was encrypted with, or a table of "
                "contents was changed"
            ) from error
        return BlobContext(owner.segment_id, owner.field_id, Cipher(data_key, owner.table_uuid))

    def _is_at_hand(self, key_metadata: bytes) -> bool:
        try:
            return self._master_key(key_metadata) is not None
        except SidecarError:
            return True  # the key was named, but the retriever fails at the moment

    def _master_key(self, key_metadata: bytes) -> bytes | None:
        if key_metadata not in self._master:
            assert self._keys is not None
            try:
                self._master[key_metadata] = self._keys.for_bundle(key_metadata)
            except SidecarError as error:
                self._master[key_metadata] = error
        key = self._master[key_metadata]
        if isinstance(key, SidecarError):
            raise key
        return key


def _wrap_aad(owner: Owner) -> bytes:
    """Return the AAD of a wrapped key.

    ``sidecar bundle key`` | table UUID (16) | segment (16) | i32 field id
    | SHA-256 of the units' table of contents (32)
    | SHA-256 of the blob's own table of contents without its lock (32) | the blob's kind in ASCII.
    """
    place = _WRAP.pack(
        _uuid_bytes(owner.table_uuid), owner.segment_id, owner.field_id, owner.units_digest, owner.toc_digest
    )
    return b"sidecar bundle key" + place + owner.purpose.encode("ascii")


def _uuid_bytes(text: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except ValueError as error:
        raise DamagedFileError("the table id is not a UUID", found=repr(text)[:60]) from error


def _decoded(content: Mapping[str, Any], key: str) -> bytes:
    text = content.get(key)
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise DamagedFileError(f"the {key} of an encrypted blob is not valid base64")
