"""AES against the published vectors of GCM, and CTR against its definition by single blocks."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from sidecar.crypto.aes import (
    GCM_OVERHEAD,
    decrypt_ctr,
    decrypt_gcm,
    encrypt_ctr,
    encrypt_gcm,
    gcm_tag,
)
from sidecar.errors import DamagedFileError

# McGrew and Viega, "The Galois/Counter Mode of Operation", test case 4.
KEY = bytes.fromhex("feffe9928665731c6d6a8f9467308308")
NONCE = bytes.fromhex("cafebabefacedbaddecaf888")
AAD = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
PLAIN = bytes.fromhex(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
)
SEALED = NONCE + bytes.fromhex(
    "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
    "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47"
)


def test_gcm_is_that_of_the_published_vector() -> None:
    assert decrypt_gcm(KEY, SEALED, AAD) == PLAIN
    assert gcm_tag(KEY, NONCE, PLAIN, AAD) == SEALED[-16:]


@pytest.mark.parametrize("length", [16, 24, 32])
def test_what_was_encrypted_comes_back_under_a_new_nonce_each_time(length: int) -> None:
    key = bytes(range(length))
    for data in (b"", b"a", bytes(1000)):
        sealed = [encrypt_gcm(key, data, AAD) for _ in range(20)]
        assert all(len(one) == len(data) + GCM_OVERHEAD and decrypt_gcm(key, one, AAD) == data for one in sealed)
        assert len({one[:12] for one in sealed}) == 20
        by_ctr = [encrypt_ctr(key, data) for _ in range(20)]
        assert all(len(one) == len(data) + 12 and decrypt_ctr(key, one) == data for one in by_ctr)
        assert len({one[:12] for one in by_ctr}) == 20


def test_ctr_counts_from_one() -> None:
    block = Cipher(AES(KEY), ECB()).encryptor()
    stream = b"".join(block.update(NONCE + (1 + i).to_bytes(4, "big")) for i in range(4))
    assert decrypt_ctr(KEY, NONCE + PLAIN) == bytes(a ^ b for a, b in zip(PLAIN, stream, strict=False))


def test_whatever_is_changed_does_not_authenticate() -> None:
    for at in range(len(SEALED)):
        with pytest.raises(DamagedFileError, match="authentication failed"):
            decrypt_gcm(KEY, SEALED[:at] + bytes((SEALED[at] ^ 1,)) + SEALED[at + 1 :], AAD)
    for key, sealed, aad in ((bytes(16), SEALED, AAD), (KEY, SEALED[:-1], AAD), (KEY, SEALED, AAD[1:])):
        with pytest.raises(DamagedFileError):
            decrypt_gcm(key, sealed, aad)
    for short in range(GCM_OVERHEAD):
        with pytest.raises(DamagedFileError):
            decrypt_gcm(KEY, SEALED[:short], AAD)
    with pytest.raises(DamagedFileError):
        decrypt_ctr(KEY, NONCE[:-1])
