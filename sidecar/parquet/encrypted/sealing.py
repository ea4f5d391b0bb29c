"""What is new in a file that is written again, in the form that the file has: in clear, or sealed as modules.

New filters, page indexes and the footer of an encrypted file are sealed with the keys that the file has already, under
its own prefix and unique id, each module with a fresh nonce:

| new | of a column in clear | of an encrypted column |
| --- | --- | --- |
| filter | header, bitset | two modules, 8 and 9 |
| ColumnIndex, OffsetIndex | as they are | modules 6 and 7 |
| ColumnMetaData in field 9 of the ColumnChunk | there is none | module 1 |

An encrypted footer is a module behind the ``FileCryptoMetaData`` that the file had, byte for byte; one in clear is
signed anew. What is carried over is copied as ciphertext: its place in the AAD is row group and column, which stay.

A column whose key is not at hand is left exactly as it is: its part of the footer, its pages, filter and page indexes.
As nobody can tell where these are, nothing in such a file moves. Keys are never changed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sidecar.errors import UnsupportedFeatureError, located
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, FileEncryption, Module
from sidecar.parquet.encrypted.plain_view import DecryptedSource
from sidecar.parquet.footer import Footer, read_tail
from sidecar.parquet.thrift import Struct, decode_struct, encode_struct
from sidecar.source import Source

MAGIC = b"PAR1"
MAGIC_ENCRYPTED = b"PARE"
NO_KEY = "the column's key is not at hand"

Change = Callable[[Struct], Struct]


class Sealing(Protocol):
    """How a file's own parts are written."""

    @property
    def source(self) -> Source:
        """The file as it is stored."""

    @property
    def metadata(self) -> Struct:
        """Its ``FileMetaData``, where encrypted with the modules in it."""

    def filter(self, row_group: int, column: int, data: bytes) -> bytes:
        """A filter, header and bitset, as it goes into the file."""

    def column_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """A ColumnIndex as it goes into the file."""

    def offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """An OffsetIndex as it goes into the file."""

    def open_offset_index(self, row_group: int, column: int, data: bytes) -> bytes:
        """The OffsetIndex that stands in the file as ``data``."""

    def column_metadata(self, row_group: int, column: int, data: bytes, change: Change) -> bytes:
        """A ColumnMetaData that is a module of its own, changed."""

    def is_leak(self, row_group: int, column: int, offset: int, length: int) -> bool:
        """Whether these bytes, which the footer calls the filter of a column, are in clear though the column is not."""

    def footer(self, metadata: Struct) -> bytes:
        """Everything from the footer to the end of the file."""


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
        """See :meth:`Sealing.column_metadata`; a field that this file has no use for."""
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
    """An encrypted file whose footer key is at hand."""

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
        seal = self.encryption.seal_module
        return seal(key, data[:end], Module.BLOOM_FILTER_HEADER, row_group, column) + seal(
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
        return self.encryption.seal_module(key, encode_struct(change(tree)), *place)

    def is_leak(self, row_group: int, column: int, offset: int, length: int) -> bool:
        """See :meth:`Sealing.is_leak`. What a filter in clear begins with is no length of a module of that size."""
        if (row_group, column) not in self.encryption.columns:
            return False
        prefix = self.source.read(offset, min(LENGTH_BYTES, length))
        return not LENGTH_BYTES < LENGTH_BYTES + int.from_bytes(prefix, "little") <= length

    def footer(self, metadata: Struct) -> bytes:
        """See :meth:`Sealing.footer`."""
        data = encode_struct(metadata)
        if self.encryption.encrypted_footer:
            module = self.encryption.seal_module(self.footer_key, data, Module.FOOTER)
            parts, magic = (self.encryption.crypto_metadata, module), MAGIC_ENCRYPTED
        else:
            parts, magic = (data, self.encryption.sign(self.footer_key, data)), MAGIC
        return b"".join((*parts, sum(map(len, parts)).to_bytes(LENGTH_BYTES, "little"), magic))

    def _structure(self, module: Module, row_group: int, column: int, data: bytes) -> bytes:
        key = self._key(row_group, column)
        return data if key is None else self.encryption.seal_module(key, data, module, row_group, column)

    def _key(self, row_group: int, column: int) -> bytes | None:
        """The key of a column, ``None`` for one in clear; no plaintext of any other is let through."""
        how = self.encryption.columns.get((row_group, column))
        if how is None:
            return None
        if how.key is None:
            raise UnsupportedFeatureError(NO_KEY, file=self.source.name)
        return how.key


def sealing_of(source: Source, footer: Footer) -> Sealing:
    """How new parts of a file are written; ``source`` is what :func:`sidecar.parquet.encrypted.plain_view.unlock`
    gives.

    Raises :class:`UnsupportedFeatureError` for an encrypted file that was not unlocked with its footer key.
    """
    encryption = footer.encryption
    if encryption is None:
        return InClear(source, footer.metadata)
    if not isinstance(source, DecryptedSource) or encryption.footer_key is None:
        raise UnsupportedFeatureError(
            "the footer key is not at hand, so the footer can be neither encrypted nor signed again",
            file=source.name,
        )
    stored, key = source.inner, encryption.footer_key
    with located(source.name):
        return Sealed(stored, _stored_metadata(stored, encryption, key), encryption, key)


def _stored_metadata(stored: Source, encryption: FileEncryption, key: bytes) -> Struct:
    """The ``FileMetaData`` as the file has it, not as the plaintext view shows it; that has checked the signature."""
    data = read_tail(stored).data
    if encryption.encrypted_footer:
        sealed = data[len(encryption.crypto_metadata) :]
        data = encryption.open_module(key, sealed, Module.FOOTER)
    return decode_struct(data)[0]
