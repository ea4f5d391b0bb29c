"""AES in the two modes of Parquet modular encryption: GCM, which detects every change, and CTR, which detects none.

    GCM     nonce (12 bytes) | ciphertext (as long as the plaintext) | tag (16 bytes)
    CTR     nonce (12 bytes) | ciphertext; the counter block is the nonce and 00 00 00 01

Every encryption uses a fresh random nonce from the operating system (NIST SP 800-38D, 8.2.2). Specification:
Encryption.md, 4.1 and 5.1.

The package ``cryptography`` is imported by the first module that is encrypted or decrypted: most tables need none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sidecar.errors import DamagedFileError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
TAG_BYTES = 16
GCM_OVERHEAD = NONCE_BYTES + TAG_BYTES
KEY_LENGTHS = (16, 24, 32)
"""Lengths in bytes of AES-128, AES-192 and AES-256 keys."""

_COUNTER = bytes((0, 0, 0, 1))


def check_key(key: bytes) -> bytes:
    """Return the key. Raises :class:`UsageError`, without the key, unless its length is in :data:`KEY_LENGTHS`."""
    if len(key) not in KEY_LENGTHS:
        raise UsageError("the AES key has an impossible length", expected="16, 24 or 32 bytes", found=len(key))
    return key


def _gcm(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _ctr(key: bytes, nonce: bytes) -> Cipher[Any]:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    return Cipher(AES(key), CTR(nonce + _COUNTER))


def encrypt_gcm(key: bytes, data: bytes, aad: bytes) -> bytes:
    """Return nonce, ciphertext and tag: 28 bytes more than ``data``."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _gcm(key).encrypt(nonce, data, aad)


def decrypt_gcm(key: bytes, encrypted: bytes | memoryview, aad: bytes) -> bytes:
    """Return the plaintext. Raises :class:`DamagedFileError` if key, bytes or AAD differ from those of encryption."""
    if len(encrypted) < GCM_OVERHEAD:
        raise DamagedFileError(
            "too few bytes for an encrypted module",
            expected=f"at least {GCM_OVERHEAD} bytes",
            found=len(encrypted),
        )
    from cryptography.exceptions import InvalidTag

    view = memoryview(encrypted)
    try:
        return _gcm(key).decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], aad)
    except InvalidTag as error:
        raise DamagedFileError(
            "authentication failed: the bytes were changed or moved, or the key or the AAD prefix is wrong"
        ) from error


def gcm_tag(key: bytes, nonce: bytes, data: bytes, aad: bytes) -> bytes:
    """Return only the 16-byte tag, which is the signature of a plaintext footer."""
    return _gcm(key).encrypt(nonce, data, aad)[-TAG_BYTES:]


def encrypt_ctr(key: bytes, data: bytes) -> bytes:
    """Return nonce and ciphertext: 12 bytes more than ``data``."""
    nonce = os.urandom(NONCE_BYTES)
    encryptor = _ctr(key, nonce).encryptor()
    return nonce + encryptor.update(data) + encryptor.finalize()


def decrypt_ctr(key: bytes, encrypted: bytes | memoryview) -> bytes:
    """Return the plaintext. CTR does not notice damage; only too few bytes raise :class:`DamagedFileError`."""
    if len(encrypted) < NONCE_BYTES:
        raise DamagedFileError(
            "too few bytes for an encrypted page",
            expected=f"at least {NONCE_BYTES} bytes",
            found=len(encrypted),
        )
    view = memoryview(encrypted)
    decryptor = _ctr(key, bytes(view[:NONCE_BYTES])).decryptor()
    return decryptor.update(view[NONCE_BYTES:]) + decryptor.finalize()
