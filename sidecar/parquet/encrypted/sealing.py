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

from sidecar.errors import UnsupportedFeatureError, located
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, FileEncryption, Module
from sidecar.parquet.encrypted.plain_view import DecryptedSource
from sidecar.parquet.footer import MAGIC, Footer, read_tail
from sidecar.parquet.thrift import Struct, decode_struct, encode_struct
from sidecar.storage.source import Source

MAGIC_ENCRYPTED = b"PARE"
NO_KEY = "the key of the column is missing"

Change = Callable[[Struct], Struct]


@dataclass(frozen=True, repr=False)
class Sealing:
    """Turns new parts of a file into the bytes that are written: of a plain file, or of an encrypted one.

    An encrypted file has the ``encryption``, and its footer key must be available.
    """

    source: Source
    """The file as stored, without decryption."""
    metadata: Struct
    """The file's ``FileMetaData``. Encrypted ColumnMetaData in it are still modules."""
    encryption: FileEncryption | None = None
    footer_key: bytes = b""

    def filter(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the bytes to write for a filter, header and bitset."""
        if self._key(row_group, column) is None:
            return data
        _, end = decode_struct(data)
        header = self._seal(Module.BLOOM_FILTER_HEADER, row_group, column, data[:end])
        return header + self._seal(Module.BLOOM_FILTER_BITSET, row_group, column, data[end:])

    def column_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the bytes to write for a ColumnIndex."""
        return self._seal(Module.COLUMN_INDEX, row_group, column, data)

    def offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the bytes to write for an OffsetIndex."""
        return self._seal(Module.OFFSET_INDEX, row_group, column, data)

    def open_offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """Return the plain OffsetIndex that the file stores as ``data``."""
        return self._open(Module.OFFSET_INDEX, row_group, column, data)

    def column_metadata(self, row_group: int, column: int, data: bytes, change: Change) -> bytes:
        """Return a ColumnMetaData module with ``change`` applied to it. In a plain file it means nothing, and stays."""
        if self._key(row_group, column) is None:
            return data
        tree, _ = decode_struct(self._open(Module.COLUMN_METADATA, row_group, column, data))
        return self._seal(Module.COLUMN_METADATA, row_group, column, encode_struct(change(tree)))

    def is_leak(self, row_group: int, column: int, offset: int, length: int) -> bool:
        """Return whether the bytes at the place of a filter are plain although its column is encrypted.

        A plain filter does not begin with a length that a module of its size has.
        """
        if self.encryption is None or (row_group, column) not in self.encryption.columns:
            return False
        prefix = self.source.read(offset, min(LENGTH_BYTES, length))
        return not LENGTH_BYTES < LENGTH_BYTES + int.from_bytes(prefix, "little") <= length

    def footer(self, metadata: Struct) -> bytes:
        """Return the bytes from the footer to the end of the file."""
        data, encryption, magic = encode_struct(metadata), self.encryption, MAGIC
        parts: tuple[bytes, ...] = (data,)
        if encryption is not None and encryption.encrypted_footer:
            module = encryption.encrypt_module(self.footer_key, data, Module.FOOTER)
            parts, magic = (encryption.crypto_metadata, module), MAGIC_ENCRYPTED
        elif encryption is not None:
            parts = (data, encryption.sign(self.footer_key, data))
        return b"".join((*parts, sum(map(len, parts)).to_bytes(LENGTH_BYTES, "little"), magic))

    def _seal(self, module: Module, row_group: int, column: int, data: bytes) -> bytes:
        found = self._key(row_group, column)
        return data if found is None else found[0].encrypt_module(found[1], data, module, row_group, column)

    def _open(self, module: Module, row_group: int, column: int, data: bytes) -> bytes:
        found = self._key(row_group, column)
        return data if found is None else found[0].open_module(found[1], data, module, row_group, column)

    def _key(self, row_group: int, column: int) -> tuple[FileEncryption, bytes] | None:
        """Return the encryption of a column and its key; ``None`` for a plain one.

        Raises :class:`UnsupportedFeatureError` if the key of an encrypted column is missing, so that its new parts are
        never written unencrypted.
        """
        how = None if self.encryption is None else self.encryption.columns.get((row_group, column))
        if self.encryption is None or how is None:
            return None
        if how.key is None:
            raise UnsupportedFeatureError(NO_KEY, file=self.source.name)
        return self.encryption, how.key


def sealing_of(source: Source, footer: Footer) -> Sealing:
    """Return how new parts of a file are written.

    ``source`` is what :func:`sidecar.parquet.encrypted.plain_view.unlock` returns. Raises
    :class:`UnsupportedFeatureError` for an encrypted file that was not unlocked with its footer key.
    """
    encryption = footer.encryption
    if encryption is None:
        return Sealing(source, footer.metadata)
    if not isinstance(source, DecryptedSource) or encryption.footer_key is None:
        raise UnsupportedFeatureError(
            "the footer key is missing, so the footer can be neither encrypted nor signed again",
            file=source.name,
        )
    stored, key = source.inner, encryption.footer_key
    with located(source.name):
        return Sealing(stored, _stored_metadata(stored, encryption, key), encryption, key)


def _stored_metadata(stored: Source, encryption: FileEncryption, key: bytes) -> Struct:
    """Return the ``FileMetaData`` as the file stores it. The plaintext view has verified the signature already."""
    data = read_tail(stored).data
    if encryption.encrypted_footer:
        encrypted = data[len(encryption.crypto_metadata) :]
        data = encryption.open_module(key, encrypted, Module.FOOTER)
    return decode_struct(data)[0]
