"""The footer of an encrypted file: how the file is encrypted, which keys open what, and the footer in clear.

Before anything else of the file is used, the AAD prefix is held against the expected one, and then the footer is
decrypted or its signature checked. So what the footer says, the metadata of encrypted columns included, is what
the writer wrote; what it says of places is authenticated by the modules themselves.
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
from sidecar.source import Source

log = logging.getLogger(__name__)

_ALGORITHM, _SIGNING_KEY = 8, 9  # fields of FileMetaData
_METADATA, _CRYPTO, _ENCRYPTED_METADATA = 3, 8, 9  # fields of ColumnChunk


def read_declaration(source: Source) -> Declaration | None:
    """What an encrypted file says in clear of its encryption; ``None`` of a plain file."""
    return _declared(read_tail(source))[0]


def _declared(tail: Tail) -> tuple[Declaration | None, Struct, int]:
    """The declaration, ``None`` of a plain file, the structure that it stands in, and the bytes of that."""
    head, used = decode_struct(tail.data, base=tail.offset)  # FileCryptoMetaData if the footer is encrypted
    if not tail.is_encrypted and _ALGORITHM not in head.fields:
        return None, head, used
    return decode_declaration(head.struct(1 if tail.is_encrypted else _ALGORITHM)), head, used


def unlock_footer(name: str, tail: Tail, keys: EncryptionKeys) -> tuple[FileEncryption, Struct] | None:
    """The encryption of the file of that name, and its footer in clear; ``None`` of a plain file.

    In the footer, ColumnMetaData stands in field 3 as it does in plain files; of columns whose key is not to be had,
    fields 8 and 9 are left, and what the file had in field 3. Raises :class:`DamagedFileError` for what does not
    authenticate, for another AAD prefix than expected, and for a plain file where keys of a file were given;
    :class:`UsageError` where footer key or prefix are missing.
    """
    keys = keys.beside(name)
    declaration, head, used = _declared(tail)
    expected = keys.prefix_for(name)
    if declaration is None:
        _check_plain(head, tail)
        if expected is not None:
            raise DamagedFileError(
                "the file is not encrypted, and so is not the one that the expected AAD prefix names"
            )
        _check_twin(name, keys)
        return None
    prefix = _checked_prefix(declaration, expected)
    key = keys.for_footer(head.binary(2 if tail.is_encrypted else _SIGNING_KEY))
    if key is None:
        what = "its footer is encrypted" if tail.is_encrypted else "its footer is signed"
        raise UsageError(f"no key for the footer of an encrypted file: {what}")
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
    """Refuse a plain file for which the keys of a footer or of columns are given, as Arrow does; else warn of it.

    Anybody could have put it in the place of the encrypted one. Keys that are found by key metadata alone may be for
    other files, and those in ``bundle_keys`` are for sidecars.
    """
    if keys.allow_plaintext_files:
        return
    if keys.footer_key is not None or keys.column_keys:
        raise DamagedFileError(
            "the file is not encrypted, although the keys of its footer or columns were given: anybody could have "
            "written it in the place of the encrypted one",
            hint="To read plain files too, allow them in the keys (allow_plaintext_files), or give no keys.",
        )
    if keys.retriever is not None and not keys.bundle_keys:
        log.warning("%s is not encrypted, although keys were given", name)


def _check_plain(metadata: Struct, tail: Tail) -> None:
    """Raise where a footer that declares no encryption has encrypted columns: somebody took the declaration out."""
    chunks = (chunk for group in metadata.structs(4) or () for chunk in group.structs(1) or ())
    if _SIGNING_KEY in metadata.fields or any(
        {_CRYPTO, _ENCRYPTED_METADATA} & c.fields.keys() for c in chunks
    ):
        raise DamagedFileError("the footer does not say how its columns are encrypted", offset=tail.offset)


def _checked_prefix(declaration: Declaration, expected: bytes | None) -> bytes:
    """The AAD prefix to use. It is no secret, but what is not stored is not shown."""
    stored = declaration.aad_prefix
    if stored is None and declaration.supply_aad_prefix:
        if expected is None:
            raise UsageError(
                "the file does not store its AAD prefix",
                hint="It is given with the keys, as aad_prefix.",
            )
        return expected
    if expected is not None and expected != (stored or b""):
        found = "another AAD prefix than expected" if stored else "no AAD prefix, where one is expected"
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
        raise DamagedFileError(
            "the plaintext footer of an encrypted file has no signature", offset=tail.offset
        )
    try:
        encryption.check_signature(key, tail.data[:end], tail.data[end:])
    except DamagedFileError as error:
        error.offset = tail.offset + end
        raise


def _unlock_columns(encryption: FileEncryption, metadata: Struct, keys: EncryptionKeys) -> FileEncryption:
    """The encryption with all columns; their metadata is put where plain files have it."""
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
                "the ordinal of a row group is not its place: readers differ in which one authenticates",
                expected=number,
                found=ordinal,
            )
        for leaf, chunk in zip(
            leaves, group.structs(1) or (), strict=False
        ):  # the footer's decoder counts them
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
            raise DamagedFileError("encrypted metadata of a column that is not encrypted", column=leaf.path)
        return None
    own_metadata = _ENCRYPTED_METADATA in chunk.fields
    if list(crypto.fields) == [1]:
        return ColumnEncryption(True, footer_key, None, own_metadata)
    own = crypto.struct(2)
    if own is None or len(crypto.fields) != 1:
        raise UnsupportedFeatureError("a column is encrypted in an unknown way", column=leaf.path)
    if tuple(own.texts(1) or ()) != leaf.parts:
        raise DamagedFileError("the encryption of a column names another column", column=leaf.path)
    metadata = own.binary(2)
    if (leaf.path, metadata) not in known:
        known[leaf.path, metadata] = keys.for_column(leaf.path, metadata)
    return ColumnEncryption(False, known[leaf.path, metadata], metadata, own_metadata)


def _unlock_metadata(encryption: FileEncryption, chunk: Struct, key: bytes, group: int, leaf: Leaf) -> None:
    """Put the metadata of a chunk in field 3 and forget that it was encrypted."""
    sealed = chunk.binary(_ENCRYPTED_METADATA)
    if sealed is not None:
        try:
            plain = encryption.open_module(key, sealed, Module.COLUMN_METADATA, group, leaf.index)
            chunk.fields[_METADATA] = (STRUCT, decode_struct(plain)[0])
        except SidecarError as error:
            error.column, error.offset = leaf.path, None
            raise
    chunk.fields.pop(_CRYPTO)
    chunk.fields.pop(_ENCRYPTED_METADATA, None)
    chunk.fields = dict(sorted(chunk.fields.items()))
