"""AES in the two ways of Parquet modular encryption: GCM, which notices every change, and CTR, which notices none.

    GCM     nonce (12 bytes) | ciphertext (as long as the plaintext) | tag (16 bytes)
    CTR     nonce (12 bytes) | ciphertext; the counter block is the nonce and 00 00 00 01

Every encryption draws its nonce anew from the system's random numbers (NIST SP 800-38D, 8.2.2). Specification:
Encryption.md, 4.1 and 5.1.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from sidecar.errors import DamagedFileError, UsageError

NONCE_BYTES = 12
TAG_BYTES = 16
GCM_OVERHEAD = NONCE_BYTES + TAG_BYTES
KEY_LENGTHS = (16, 24, 32)
"""Bytes of AES-128, AES-192 and AES-256 keys."""

_COUNTER = bytes((0, 0, 0, 1))


def check_key(key: bytes) -> bytes:
    """The key; :class:`UsageError` (which does not show it) unless it has one of :data:`KEY_LENGTHS`."""
    if len(key) not in KEY_LENGTHS:
        raise UsageError("an AES key of an impossible length", expected="16, 24 or 32 bytes", found=len(key))
    return key


def encrypt_gcm(key: bytes, data: bytes, aad: bytes) -> bytes:
    """Nonce, ciphertext and tag: 28 bytes more than ``data``."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, aad)


def decrypt_gcm(key: bytes, sealed: bytes | memoryview, aad: bytes) -> bytes:
    """The plaintext; :class:`DamagedFileError` where key, bytes or AAD are not those of the encryption."""
    if len(sealed) < GCM_OVERHEAD:
        raise DamagedFileError(
            "too short for an encrypted module", expected=f"at least {GCM_OVERHEAD} bytes", found=len(sealed)
        )
    view = memoryview(sealed)
    try:
        return AESGCM(key).decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], aad)
    except InvalidTag as error:
        raise DamagedFileError(
            "authentication failed: the bytes were changed or belong elsewhere, or the key or AAD prefix is another"
        ) from error


def gcm_tag(key: bytes, nonce: bytes, data: bytes, aad: bytes) -> bytes:
    """The 16-byte tag alone, as footer signatures keep it."""
    return AESGCM(key).encrypt(nonce, data, aad)[-TAG_BYTES:]


def encrypt_ctr(key: bytes, data: bytes) -> bytes:
    """Nonce and ciphertext: 12 bytes more than ``data``."""
    nonce = os.urandom(NONCE_BYTES)
    encryptor = Cipher(AES(key), CTR(nonce + _COUNTER)).encryptor()
    return nonce + encryptor.update(data) + encryptor.finalize()


def decrypt_ctr(key: bytes, sealed: bytes | memoryview) -> bytes:
    """The plaintext, whatever the bytes are: CTR cannot tell."""
    if len(sealed) < NONCE_BYTES:
        raise DamagedFileError(
            "too short for an encrypted page", expected=f"at least {NONCE_BYTES} bytes", found=len(sealed)
        )
    view = memoryview(sealed)
    decryptor = Cipher(AES(key), CTR(bytes(view[:NONCE_BYTES]) + _COUNTER)).decryptor()
    return decryptor.update(view[NONCE_BYTES:]) + decryptor.finalize()
