"""Encrypts and decrypts the modules of a Parquet file, and knows the key of each column.

A *module* is a Thrift structure, a page body or a bitset that is encrypted by itself:

    GCM     length (4 bytes, little-endian, of what follows) | nonce (12) | ciphertext | tag (16)
    CTR     length (4) | nonce (12) | ciphertext       page bodies under AES_GCM_CTR_V1, nothing else

The tag authenticates the module and its place, the AAD: prefix of the file | unique id of the file | module type (1) |
row group (2) | column (2) | data page (2), little-endian. The footer has no ordinals. Only data pages and their headers
have the page ordinal, which does not count dictionary pages. So decryption fails for a module that was changed, moved
within its file or taken from another file. A page body under CTR has no tag, so such changes go unnoticed there.

A union ``EncryptionAlgorithm`` states how the file is encrypted. It is in ``FileCryptoMetaData`` before an encrypted
footer (magic ``PARE``), or in field 8 of a plaintext footer, which is signed: the nonce and the tag of its encryption
follow it. Specification: Encryption.md, 4 and 5.

Some writers pad Thrift structures with zeros before encryption. Bytes after a structure are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hmac import compare_digest

from sidecar.crypto.aes import (
    GCM_OVERHEAD,
    NONCE_BYTES,
    TAG_BYTES,
    decrypt_ctr,
    decrypt_gcm,
    encrypt_ctr,
    encrypt_gcm,
    gcm_tag,
)
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.parquet.thrift import Struct

AES_GCM_V1 = "AES_GCM_V1"
AES_GCM_CTR_V1 = "AES_GCM_CTR_V1"
ALGORITHMS = {1: AES_GCM_V1, 2: AES_GCM_CTR_V1}
"""Names of algorithms by field id of the union ``EncryptionAlgorithm``."""

LENGTH_BYTES = 4
MAX_ORDINALS = 32_767
"""Row groups, columns, or data pages of a chunk, at most: an ordinal has two bytes, signed."""

SIGNATURE_BYTES = NONCE_BYTES + TAG_BYTES


class Module(IntEnum):
    """Module types, by their number in the AAD."""

    FOOTER = 0
    COLUMN_METADATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9


_BODIES = (Module.DATA_PAGE, Module.DICTIONARY_PAGE)
_COUNTED = (Module.DATA_PAGE, Module.DATA_PAGE_HEADER)


@dataclass(frozen=True, repr=False)
class ColumnEncryption:
    """How one column chunk is encrypted. ``key`` is ``None`` if it is not available."""

    uses_footer_key: bool
    key: bytes | None
    key_metadata: bytes | None


@dataclass(frozen=True)
class Declaration:
    """The ``EncryptionAlgorithm`` that the file states without encryption."""

    algorithm: str
    aad_prefix: bytes | None = field(repr=False)
    aad_file_unique: bytes = field(repr=False)
    supply_aad_prefix: bool


@dataclass(frozen=True, repr=False)
class FileEncryption:
    """How a file is encrypted, and the keys that are available. No ``repr`` and no message shows a key."""

    name: str
    declaration: Declaration
    aad_prefix: bytes
    """The AAD prefix, stored in the file or supplied by the caller; empty if the file has none."""
    encrypted_footer: bool
    """Whether the footer is encrypted (magic ``PARE``); otherwise it is plaintext and signed."""
    crypto_metadata: bytes
    """The bytes of ``FileCryptoMetaData`` before an encrypted footer; empty for a plaintext footer."""
    footer_key: bytes | None
    footer_offset: int
    """Offset where the body ends and the crypto metadata or the plaintext footer begins."""
    columns: Mapping[tuple[int, int], ColumnEncryption]
    """Encrypted chunks by (row group ordinal, column ordinal)."""

    @property
    def algorithm(self) -> str:
        """One of the names in :data:`ALGORITHMS`."""
        return self.declaration.algorithm

    def aad(self, module: Module, row_group: int = 0, column: int = 0, page: int = 0) -> bytes:
        """Return the AAD of a module's place, without the ordinals that its type does not have."""
        parts = [self.aad_prefix, self.declaration.aad_file_unique, bytes((module,))]
        if module is not Module.FOOTER:
            parts += [_ordinal(row_group), _ordinal(column)]
        if module in _COUNTED:
            parts.append(_ordinal(page))
        return b"".join(parts)

    def overhead(self, module: Module) -> int:
        """Return the bytes that encryption adds to a module: length, nonce and tag."""
        return LENGTH_BYTES + (NONCE_BYTES if self._is_ctr(module) else GCM_OVERHEAD)

    def module_length(self, module: Module, prefix: bytes | memoryview, room: int) -> int:
        """Return the bytes of the module that begins with ``prefix``, its length field included.

        Raises :class:`DamagedFileError` if that is more than ``room`` or too little for a module.
        """
        if len(prefix) < LENGTH_BYTES:
            raise DamagedFileError("there is no room for an encrypted module", found=f"{len(prefix)} bytes")
        length = LENGTH_BYTES + int.from_bytes(prefix[:LENGTH_BYTES], "little")
        if not self.overhead(module) <= length <= room:
            raise DamagedFileError(
                "the length of an encrypted module is out of range",
                expected=f"{self.overhead(module)} to {room}",
                found=length,
            )
        return length

    def open_module(
        self,
        key: bytes,
        data: bytes | memoryview,
        module: Module,
        row_group: int = 0,
        column: int = 0,
        page: int = 0,
    ) -> bytes:
        """Decrypt a module. ``data`` is all of it, its length field included. The plaintext may be padded.

        Raises :class:`DamagedFileError`, which names the module, if length, key, bytes or place are wrong.
        """
        try:
            if self.module_length(module, data, len(data)) != len(data):
                raise DamagedFileError("its length differs from that of its place", expected=len(data) - LENGTH_BYTES)
            encrypted = memoryview(data)[LENGTH_BYTES:]
            if self._is_ctr(module):
                return decrypt_ctr(key, encrypted)
            return decrypt_gcm(key, encrypted, self.aad(module, row_group, column, page))
        except DamagedFileError as error:
            error.what = f"{describe(module, row_group, page)}: {error.what}"
            raise

    def encrypt_module(
        self, key: bytes, data: bytes, module: Module, row_group: int = 0, column: int = 0, page: int = 0
    ) -> bytes:
        """Encrypt ``data`` as a module with its length field, under a fresh nonce."""
        if self._is_ctr(module):
            encrypted = encrypt_ctr(key, data)
        else:
            encrypted = encrypt_gcm(key, data, self.aad(module, row_group, column, page))
        return len(encrypted).to_bytes(LENGTH_BYTES, "little") + encrypted

    def check_signature(self, key: bytes, footer: bytes, signature: bytes) -> None:
        """Raise :class:`DamagedFileError` unless ``signature`` (nonce, tag) fits the footer's bytes."""
        nonce, tag = signature[:NONCE_BYTES], signature[NONCE_BYTES:]
        if len(signature) != SIGNATURE_BYTES or not compare_digest(
            gcm_tag(key, nonce, footer, self.aad(Module.FOOTER)), tag
        ):
            raise DamagedFileError(
                "the signature of the plaintext footer is wrong: it was changed, or the key or AAD prefix is wrong"
            )

    def sign(self, key: bytes, footer: bytes) -> bytes:
        """Return the signature (nonce, tag) that follows a plaintext footer with these bytes."""
        encrypted = encrypt_gcm(key, footer, self.aad(Module.FOOTER))
        return encrypted[:NONCE_BYTES] + encrypted[-TAG_BYTES:]

    def _is_ctr(self, module: Module) -> bool:
        return self.algorithm == AES_GCM_CTR_V1 and module in _BODIES


def describe(module: Module, row_group: int = 0, page: int = 0) -> str:
    """Return the name of a module for errors."""
    name = module.name.lower().replace("_", " ").replace("bloom filter", "Bloom filter")
    if module is Module.FOOTER:
        return "encrypted footer"
    number = f" {page}" if module in _COUNTED else ""
    return f"encrypted {name}{number} of row group {row_group}"


def decode_declaration(union: Struct | None) -> Declaration:
    """Decode an ``EncryptionAlgorithm``.

    Raises :class:`DamagedFileError` if it is missing, and :class:`UnsupportedFeatureError` if it is unknown.
    """
    if union is None:
        raise DamagedFileError("the encryption algorithm is missing")
    if len(union.fields) != 1 or not ALGORITHMS.keys() >= union.fields.keys():
        members = ", ".join(map(str, union.fields)) or "none"
        raise UnsupportedFeatureError("the encryption algorithm is unknown", found=f"member {members}")
    (number,) = union.fields
    details = union.struct(number) or Struct()
    return Declaration(ALGORITHMS[number], details.binary(1), details.binary(2) or b"", details.boolean(3) is True)


def _ordinal(value: int) -> bytes:
    if not 0 <= value <= MAX_ORDINALS:
        raise UnsupportedFeatureError(
            "too many row groups, columns or pages for an encrypted file", expected=f"at most {MAX_ORDINALS}"
        )
    return value.to_bytes(2, "little")
