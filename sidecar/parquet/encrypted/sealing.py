"""Writes new filters, page indexes and footers in the form that the file has: plain, or as encrypted modules.

An encrypted file's own keys, AAD prefix and unique id encrypt them, each module with a fresh nonce:

| new | of a plain column | of an encrypted column |
| --- | --- | --- |
| filter | header, bitset | two modules, 8 and 9 |
| ColumnIndex, OffsetIndex | as they are | modules 6 and 7 |
| ColumnMetaData in field 9 of the ColumnChunk | absent | module 1 |

An encrypted footer is a module after the file's ``FileCryptoMetaData``, which does not change. A plaintext footer is
signed again. Old parts are copied as ciphertext: their AAD has only row group and column, which stay the same.

A column whose key is missing stays exactly as it is: its part of the footer, its pages, filter and page indexes. Their
offsets may be encrypted, so nothing in such a file can move. Keys never change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sidecar.errors import UnsupportedFeatureError, located
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, FileEncryption, Module
from sidecar.parquet.encrypted.plain_view import DecryptedSource
from sidecar.parquet.footer import MAGIC, Footer, read_tail
from sidecar.parquet.thrift import Struct, decode_struct, encode_struct
from sidecar.storage.source import Source

MAGIC_ENCRYPTED = b"PARE"
NO_KEY = "the key of the column is missing"

Change = Callable[[Struct], Struct]


class Sealing(Protocol):
    """Turns new parts of a file into the bytes that are written."""

    @property
    def source(self) -> Source:
        """The file as stored, without decryption."""

    @property
    def metadata(self) -> Struct:
        """The file's ``FileMetaData``. Encrypted ColumnMetaData in it are still modules."""

    def filter(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the bytes to write for a filter, header and bitset."""

    def column_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the bytes to write for a ColumnIndex."""

    def offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the bytes to write for an OffsetIndex."""

    def open_offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the plain OffsetIndex that the file stores as ``data``."""

    def column_metadata(self, row_group: int, column: int, data: bytes, change: Change) -> bytes:
        """Return a ColumnMetaData module with ``change`` applied to it."""

    def is_leak(self, row_group: int, column: int, offset: int, length: int) -> bool:
        """Return whether the bytes at the place of a filter are plain although its column is encrypted."""

    def footer(self, metadata: Struct) -> bytes:
        """Return the bytes from the footer to the end of the file."""


@dataclass(frozen=True)
class InClear:
    """A file without encryption."""

    source: Source
    metadata: Struct

    def filter(self, row_group: int, column: int, data: bytes) -> bytes:
        """See :meth:`Sealing.filter`."""
        return data

    column_index = offset_index = open_offset_index = filter

    def column_metadata(self, row_group: int, column: int, data: bytes, change: Change) -> bytes:
        """See :meth:`Sealing.column_metadata`. In a plain file such a module means nothing, so it does not change."""
        return data

    def is_leak(self, row_group: int, column: int, offset: int, length: int) -> bool:
        """See :meth:`Sealing.is_leak`."""
        return False

    def footer(self, metadata: Struct) -> bytes:
        """See :meth:`Sealing.footer`."""
        data = encode_struct(metadata)
        return b"".join((data, len(data).to_bytes(LENGTH_BYTES, "little"), MAGIC))


@dataclass(frozen=True, repr=False)
class Sealed:
    """An encrypted file whose footer key is available."""

    source: Source
    metadata: Struct
    encryption: FileEncryption
    footer_key: bytes

    def filter(self, row_group: int, column: int, data: bytes) -> bytes:
        """See :meth:`Sealing.filter`."""
        key = self._key(row_group, column)
        if key is None:
            return data
        _, end = decode_struct(data)
        encrypt = self.encryption.encrypt_module
        return encrypt(key, data[:end], Module.BLOOM_FILTER_HEADER, row_group, column) + encrypt(
            key, data[end:], Module.BLOOM_FILTER_BITSET, row_group, column
        )

    def column_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """See :meth:`Sealing.column_index`."""
        return self._structure(Module.COLUMN_INDEX, row_group, column, data)

    def offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """See :meth:`Sealing.offset_index`."""
        return self._structure(Module.OFFSET_INDEX, row_group, column, data)

    def open_offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """See :meth:`Sealing.open_offset_index`."""
        key = self._key(row_group, column)
        if key is None:
            return data
        return self.encryption.open_module(key, data, Module.OFFSET_INDEX, row_group, column)

    def column_metadata(self, row_group: int, column: int, data: bytes, change: Change) -> bytes:
        """See :meth:`Sealing.column_metadata`."""
        key = self._key(row_group, column)
        if key is None:
            return data
        place = (Module.COLUMN_METADATA, row_group, column)
        tree, _ = decode_struct(self.encryption.open_module(key, data, *place))
        return self.encryption.encrypt_module(key, encode_struct(change(tree)), *place)

    def is_leak(self, row_group: int, column: int, offset: int, length: int) -> bool:
        """See :meth:`Sealing.is_leak`. A plain filter does not begin with a length that a module of its size has."""
        if (row_group, column) not in self.encryption.columns:
            return False
        prefix = self.source.read(offset, min(LENGTH_BYTES, length))
        return not LENGTH_BYTES < LENGTH_BYTES + int.from_bytes(prefix, "little") <= length

    def footer(self, metadata: Struct) -> bytes:
        """See :meth:`Sealing.footer`."""
        data = encode_struct(metadata)
        if self.encryption.encrypted_footer:
            module = self.encryption.encrypt_module(self.footer_key, data, Module.FOOTER)
            parts, magic = (self.encryption.crypto_metadata, module), MAGIC_ENCRYPTED
        else:
            parts, magic = (data, self.encryption.sign(self.footer_key, data)), MAGIC
        return b"".join((*parts, sum(map(len, parts)).to_bytes(LENGTH_BYTES, "little"), magic))

    def _structure(self, module: Module, row_group: int, column: int, data: bytes) -> bytes:
        key = self._key(row_group, column)
        return data if key is None else self.encryption.encrypt_module(key, data, module, row_group, column)

    def _key(self, row_group: int, column: int) -> bytes | None:
        """Return the key of a column; ``None`` for a plain one.

        Raises :class:`UnsupportedFeatureError` if the key of an encrypted column is missing, so that its new parts are
        never written unencrypted.
        """
        how = self.encryption.columns.get((row_group, column))
        if how is None:
            return None
        if how.key is None:
            raise UnsupportedFeatureError(NO_KEY, file=self.source.name)
        return how.key


def sealing_of(source: Source, footer: Footer) -> Sealing:
    """Return how new parts of a file are written.

    ``source`` is what :func:`sidecar.parquet.encrypted.plain_view.unlock` returns. Raises
    :class:`UnsupportedFeatureError` for an encrypted file that was not unlocked with its footer key.
    """
    encryption = footer.encryption
    if encryption is None:
        return InClear(source, footer.metadata)
    if not isinstance(source, DecryptedSource) or encryption.footer_key is None:
        raise UnsupportedFeatureError(
            "the footer key is missing, so the footer can be neither encrypted nor signed again",
            file=source.name,
        )
    stored, key = source.inner, encryption.footer_key
    with located(source.name):
        return Sealed(stored, _stored_metadata(stored, encryption, key), encryption, key)


def _stored_metadata(stored: Source, encryption: FileEncryption, key: bytes) -> Struct:
    """Return the ``FileMetaData`` as the file stores it. The plaintext view has verified the signature already."""
    data = read_tail(stored).data
    if encryption.encrypted_footer:
        encrypted = data[len(encryption.crypto_metadata) :]
        data = encryption.open_module(key, encrypted, Module.FOOTER)
    return decode_struct(data)[0]
