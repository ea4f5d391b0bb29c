"""Modular encryption of a Parquet file: which modules it has, how each is sealed, and with which key.

A *module* is a Thrift structure, a page body or a bitset, encrypted by itself:

    GCM     length (4 bytes, little-endian, of what follows) | nonce (12) | ciphertext | tag (16)
    CTR     length (4) | nonce (12) | ciphertext       page bodies under AES_GCM_CTR_V1, nothing else

What a tag authenticates beside the module is its place, the AAD: prefix of the file | unique id of the file |
module type (1) | row group (2) | column (2) | data page (2), little-endian. The footer has no ordinals, only data pages
and their headers have the last one, and dictionary pages are not counted. So a module that was changed, moved within
its file or taken from another one is told from a sound one; a page body under CTR is not.

The file says in a union ``EncryptionAlgorithm`` how it is encrypted, in ``FileCryptoMetaData`` in front of an encrypted
footer (magic ``PARE``), or in the footer itself (field 8) where that is in clear and signed: behind it lie the nonce
and the tag of its encryption. Specification: Encryption.md, 4 and 5.

Some writers pad Thrift structures with zeros before they encrypt them; whatever follows a structure is ignored.
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
"""Names by field of the union."""

LENGTH_BYTES = 4
MAX_ORDINALS = 32_767
"""Row groups, columns or data pages of a chunk that ordinals of two bytes are used for."""

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
    """How one column chunk is encrypted; ``key`` is ``None`` where it is not to be had."""

    uses_footer_key: bool
    key: bytes | None
    key_metadata: bytes | None
    own_metadata: bool
    """Whether the real ColumnMetaData is a module in field 9 of the ColumnChunk."""


@dataclass(frozen=True)
class Declaration:
    """An ``EncryptionAlgorithm`` as the file states it, in clear."""

    algorithm: str
    aad_prefix: bytes | None = field(repr=False)
    aad_file_unique: bytes = field(repr=False)
    supply_aad_prefix: bool


@dataclass(frozen=True, repr=False)
class FileEncryption:
    """How a file is encrypted, and the keys that were to be had. No ``repr`` and no message shows any."""

    name: str
    declaration: Declaration
    aad_prefix: bytes
    """The prefix that is in use, stored or supplied; empty if the file was written without one, or it is not known."""
    encrypted_footer: bool
    """``PARE``; otherwise the footer is in clear and signed."""
    crypto_metadata: bytes
    """``FileCryptoMetaData`` as it stands in front of an encrypted footer; empty for one in clear."""
    footer_key: bytes | None
    footer_offset: int
    """Where the body ends and crypto metadata, or a footer in clear, begin."""
    columns: Mapping[tuple[int, int], ColumnEncryption]
    """By row group and column ordinal; chunks in clear are not in it."""

    @property
    def algorithm(self) -> str:
        """A name of :data:`ALGORITHMS`."""
        return self.declaration.algorithm

    def aad(self, module: Module, row_group: int = 0, column: int = 0, page: int = 0) -> bytes:
        """What authenticates a module's place; ordinals that the module type does not have are left out."""
        parts = [self.aad_prefix, self.declaration.aad_file_unique, bytes((module,))]
        if module is not Module.FOOTER:
            parts += [_ordinal(row_group), _ordinal(column)]
        if module in _COUNTED:
            parts.append(_ordinal(page))
        return b"".join(parts)

    def overhead(self, module: Module) -> int:
        """Bytes that a module is longer than what is in it, its length included."""
        return LENGTH_BYTES + (NONCE_BYTES if self._is_ctr(module) else GCM_OVERHEAD)

    def module_length(self, module: Module, prefix: bytes | memoryview, room: int) -> int:
        """Bytes of the module that begins with ``prefix``; :class:`DamagedFileError` beyond ``room``."""
        if len(prefix) < LENGTH_BYTES:
            raise DamagedFileError("no room for an encrypted module", found=f"{len(prefix)} bytes")
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
        """What is in a module, ``data`` being all of it, its length included; Thrift structures may be padded.

        Raises :class:`DamagedFileError` that names the module where length, key, bytes or place are wrong.
        """
        try:
            if self.module_length(module, data, len(data)) != len(data):
                raise DamagedFileError("another length than its place has", expected=len(data) - LENGTH_BYTES)
            sealed = memoryview(data)[LENGTH_BYTES:]
            if self._is_ctr(module):
                return decrypt_ctr(key, sealed)
            return decrypt_gcm(key, sealed, self.aad(module, row_group, column, page))
        except DamagedFileError as error:
            error.what = f"{describe(module, row_group, page)}: {error.what}"
            raise

    def seal_module(
        self, key: bytes, data: bytes, module: Module, row_group: int = 0, column: int = 0, page: int = 0
    ) -> bytes:
        """``data`` as a module with its length, under a nonce that was never used."""
        if self._is_ctr(module):
            sealed = encrypt_ctr(key, data)
        else:
            sealed = encrypt_gcm(key, data, self.aad(module, row_group, column, page))
        return len(sealed).to_bytes(LENGTH_BYTES, "little") + sealed

    def check_signature(self, key: bytes, footer: bytes, signature: bytes) -> None:
        """Raise :class:`DamagedFileError` unless ``signature`` (nonce, tag) is that of the footer's bytes."""
        nonce, tag = signature[:NONCE_BYTES], signature[NONCE_BYTES:]
        if len(signature) != SIGNATURE_BYTES or not compare_digest(
            gcm_tag(key, nonce, footer, self.aad(Module.FOOTER)), tag
        ):
            raise DamagedFileError(
                "the signature of the plaintext footer is wrong: it was changed, or the key or AAD prefix is another"
            )

    def sign(self, key: bytes, footer: bytes) -> bytes:
        """Nonce and tag of the footer's bytes, which follow a footer in clear."""
        sealed = encrypt_gcm(key, footer, self.aad(Module.FOOTER))
        return sealed[:NONCE_BYTES] + sealed[-TAG_BYTES:]

    def _is_ctr(self, module: Module) -> bool:
        return self.algorithm == AES_GCM_CTR_V1 and module in _BODIES


def describe(module: Module, row_group: int = 0, page: int = 0) -> str:
    """A module as errors name it."""
    name = module.name.lower().replace("_", " ").replace("bloom filter", "Bloom filter")
    if module is Module.FOOTER:
        return "encrypted footer"
    number = f" {page}" if module in _COUNTED else ""
    return f"encrypted {name}{number} of row group {row_group}"


def decode_declaration(union: Struct | None) -> Declaration:
    """The ``EncryptionAlgorithm``; :class:`UnsupportedFeatureError` for one that is not known."""
    if union is None:
        raise DamagedFileError("the encryption algorithm is missing")
    if len(union.fields) != 1 or not ALGORITHMS.keys() >= union.fields.keys():
        members = ", ".join(map(str, union.fields)) or "none"
        raise UnsupportedFeatureError("an unknown encryption algorithm", found=f"member {members}")
    (number,) = union.fields
    details = union.struct(number) or Struct()
    return Declaration(
        ALGORITHMS[number], details.binary(1), details.binary(2) or b"", details.boolean(3) is True
    )


def _ordinal(value: int) -> bytes:
    if not 0 <= value <= MAX_ORDINALS:
        raise UnsupportedFeatureError(
            "too many row groups, columns or pages for an encrypted file", expected=f"at most {MAX_ORDINALS}"
        )
    return value.to_bytes(2, "little")
