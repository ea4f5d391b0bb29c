"""Decrypts or verifies the footer of an encrypted file, and finds the key of each column.

The AAD prefix is compared with the expected one, and the footer is decrypted or its signature verified, before anything
else of the file is used. So the footer, with the metadata of encrypted columns, is what the writer wrote. Each module
authenticates its own place.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError
from sidecar.filters.leaf import Leaf
from sidecar.parquet.encrypted.modules import (
    MAX_ORDINALS,
    SIGNATURE_BYTES,
    ColumnEncryption,
    Declaration,
    FileEncryption,
    Module,
    decode_declaration,
)
from sidecar.parquet.footer import Tail, read_tail
from sidecar.parquet.schema import decode_leaves
from sidecar.parquet.thrift import STRUCT, Struct, decode_struct
from sidecar.storage.source import Source

log = logging.getLogger(__name__)

_ALGORITHM, _SIGNING_KEY = 8, 9  # fields of FileMetaData
_METADATA, _CRYPTO, _ENCRYPTED_METADATA = 3, 8, 9  # fields of ColumnChunk


def read_declaration(source: Source) -> Declaration | None:
    """Return how a file says that it is encrypted; ``None`` for a plain file. Nothing is authenticated."""
    return _declared(read_tail(source))[0]


def declaration_in(metadata: Struct) -> Declaration | None:
    """Return how a plaintext footer says that its file is encrypted; ``None`` for a plain file. Raises as
    :func:`decode_declaration`."""
    return decode_declaration(metadata.struct(_ALGORITHM)) if _ALGORITHM in metadata.fields else None


def _declared(tail: Tail) -> tuple[Declaration | None, Struct, int]:
    """Return the declaration (``None`` for a plain file), the structure that has it, and its length in bytes."""
    head, used = decode_struct(tail.data, base=tail.offset)  # FileCryptoMetaData if the footer is encrypted
    return decode_declaration(head.struct(1)) if tail.is_encrypted else declaration_in(head), head, used


def unlock_footer(name: str, tail: Tail, keys: EncryptionKeys) -> tuple[FileEncryption, Struct] | None:
    """Return the encryption of the file called ``name`` and its plain footer; ``None`` for a plain file.

    In the footer, ColumnMetaData is in field 3, as in plain files. Columns whose key is not available keep fields 3, 8
    and 9 of the file. Raises :class:`DamagedFileError` if the footer does not authenticate, if the AAD prefix is not
    the expected one, and for a plain file if keys of its footer or columns were given. Raises :class:`UsageError` if
    the footer key or the prefix is missing.
    """
    keys = keys.beside(name)
    declaration, head, used = _declared(tail)
    expected = keys.prefix_for(name)
    if declaration is None:
        _check_plain(head, tail)
        if expected is not None:
            raise DamagedFileError("the file is not encrypted, so it is not the file of the expected AAD prefix")
        _check_twin(name, keys)
        return None
    prefix = _checked_prefix(declaration, expected)
    key = keys.for_footer(head.binary(2 if tail.is_encrypted else _SIGNING_KEY))
    if key is None:
        what = "its footer is encrypted" if tail.is_encrypted else "its footer is signed"
        raise UsageError(f"the key for the footer of an encrypted file is missing: {what}")
    clear = tail.data[:used] if tail.is_encrypted else b""
    encryption = FileEncryption(name, declaration, prefix, tail.is_encrypted, clear, key, tail.offset, {})
    if tail.is_encrypted:
        metadata = _decrypt_footer(encryption, key, tail, used)
    else:
        _check_signed(encryption, key, tail, used)
        metadata = head
        metadata.fields.pop(_ALGORITHM)
        metadata.fields.pop(_SIGNING_KEY, None)
    return _unlock_columns(encryption, metadata, keys), metadata


def _check_twin(name: str, keys: EncryptionKeys) -> None:
    """Refuse a plain file if the keys of its footer or columns were given, as Arrow does.

    Anybody could have put it in the place of the encrypted file. With a retriever alone it only logs a warning, because
    the keys may be for other files. ``bundle_keys`` are for sidecars.
    """
    if keys.allow_plaintext_files:
        return
    if keys.footer_key is not None or keys.column_keys:
        raise DamagedFileError(
            "the file is not encrypted, although the keys of its footer or columns were given: anybody could have "
            "written it in place of the encrypted file",
            hint="To read plain files too, allow them in the keys (allow_plaintext_files), or give no keys.",
        )
    if keys.retriever is not None and not keys.bundle_keys:
        log.warning("%s is not encrypted, although keys were given", name)


def _check_plain(metadata: Struct, tail: Tail) -> None:
    """Raise :class:`DamagedFileError` if a footer without a declaration has encrypted columns: the declaration was
    removed."""
    chunks = (chunk for group in metadata.structs(4) or () for chunk in group.structs(1) or ())
    if _SIGNING_KEY in metadata.fields or any({_CRYPTO, _ENCRYPTED_METADATA} & c.fields.keys() for c in chunks):
        raise DamagedFileError("the footer does not say how its columns are encrypted", offset=tail.offset)


def _checked_prefix(declaration: Declaration, expected: bytes | None) -> bytes:
    """Return the AAD prefix to use. It is not a secret, but messages do not show it, because it may be supplied."""
    stored = declaration.aad_prefix
    if stored is None and declaration.supply_aad_prefix:
        if expected is None:
            raise UsageError(
                "the file does not store its AAD prefix",
                hint="Give it with the keys, as aad_prefix.",
            )
        return expected
    if expected is not None and expected != (stored or b""):
        found = "a different AAD prefix than expected" if stored else "no AAD prefix, but one is expected"
        raise DamagedFileError(f"the file has {found}: it is not the file that was asked for")
    return stored or b""


def _decrypt_footer(encryption: FileEncryption, key: bytes, tail: Tail, start: int) -> Struct:
    data = memoryview(tail.data)[start:]
    try:
        plain = encryption.open_module(key, data, Module.FOOTER)
        return decode_struct(plain)[0]
    except SidecarError as error:
        error.offset = tail.offset + start
        raise


def _check_signed(encryption: FileEncryption, key: bytes, tail: Tail, used: int) -> None:
    end = len(tail.data) - SIGNATURE_BYTES
    if used > end:
        raise DamagedFileError("the plaintext footer of an encrypted file has no signature", offset=tail.offset)
    try:
        encryption.check_signature(key, tail.data[:end], tail.data[end:])
    except DamagedFileError as error:
        error.offset = tail.offset + end
        raise


def _unlock_columns(encryption: FileEncryption, metadata: Struct, keys: EncryptionKeys) -> FileEncryption:
    """Return the encryption with all columns, and move their decrypted metadata to where plain files have it."""
    leaves = decode_leaves(metadata.structs(2) or ())
    groups = metadata.structs(4) or []
    if max(len(groups), len(leaves)) > MAX_ORDINALS:
        raise UnsupportedFeatureError(
            "too many row groups or columns for an encrypted file",
            expected=f"at most {MAX_ORDINALS}",
            found=max(len(groups), len(leaves)),
        )
    known: dict[tuple[str, bytes | None], bytes | None] = {}
    columns: dict[tuple[int, int], ColumnEncryption] = {}
    for number, group in enumerate(groups):
        ordinal = group.integer(7)
        if ordinal is not None and ordinal != number:
            raise DamagedFileError(
                "the ordinal of a row group differs from its place, and readers differ in which one they authenticate",
                expected=number,
                found=ordinal,
            )
        for leaf, chunk in zip(leaves, group.structs(1) or (), strict=False):  # the footer's decoder counts them
            found = _column(chunk, leaf, encryption.footer_key, keys, known)
            if found is not None:
                columns[number, leaf.index] = found
                if found.key is not None:
                    _unlock_metadata(encryption, chunk, found.key, number, leaf)
    return replace(encryption, columns=columns)


def _column(
    chunk: Struct,
    leaf: Leaf,
    footer_key: bytes | None,
    keys: EncryptionKeys,
    known: dict[tuple[str, bytes | None], bytes | None],
) -> ColumnEncryption | None:
    crypto = chunk.struct(_CRYPTO)
    if crypto is None:
        if _ENCRYPTED_METADATA in chunk.fields:
            raise DamagedFileError("a column that is not encrypted has encrypted metadata", column=leaf.path)
        return None
    if list(crypto.fields) == [1]:
        return ColumnEncryption(True, footer_key, None)
    own = crypto.struct(2)
    if own is None or len(crypto.fields) != 1:
        raise UnsupportedFeatureError("a column is encrypted in an unknown way", column=leaf.path)
    if tuple(own.texts(1) or ()) != leaf.parts:
        raise DamagedFileError("the encryption of a column names a different column", column=leaf.path)
    metadata = own.binary(2)
    if (leaf.path, metadata) not in known:
        known[leaf.path, metadata] = keys.for_column(leaf.path, metadata)
    return ColumnEncryption(False, known[leaf.path, metadata], metadata)


def _unlock_metadata(encryption: FileEncryption, chunk: Struct, key: bytes, group: int, leaf: Leaf) -> None:
    """Put the decrypted metadata of a chunk in field 3, and remove the fields that say that it was encrypted."""
    encrypted = chunk.binary(_ENCRYPTED_METADATA)
    if encrypted is not None:
        try:
            plain = encryption.open_module(key, encrypted, Module.COLUMN_METADATA, group, leaf.index)
            chunk.fields[_METADATA] = (STRUCT, decode_struct(plain)[0])
        except SidecarError as error:
            error.column, error.offset = leaf.path, None
            raise
    chunk.fields.pop(_CRYPTO)
    chunk.fields.pop(_ENCRYPTED_METADATA, None)
    chunk.fields = dict(sorted(chunk.fields.items()))
