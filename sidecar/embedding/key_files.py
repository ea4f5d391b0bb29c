"""Copies the key material of an encrypted file next to its new file, and finds AAD prefixes that do not fit a new path.

The new file keeps the keys and their metadata. If the metadata says that the key material is in a file next to the data
file (:mod:`sidecar.crypto.key_material`), that file is copied under the new file's name. The new file also keeps its
AAD prefix, which is wrong if the prefix names the path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

from sidecar.access import Access
from sidecar.crypto.key_material import KEY_MATERIAL_TYPE, material_path
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import StorageError
from sidecar.parquet.encrypted.sealing import sealing_of
from sidecar.parquet.footer import Footer
from sidecar.parquet.thrift import decode_struct
from sidecar.storage.locations import local_path
from sidecar.storage.source import Source

MOVED_PREFIX = "the file keeps its AAD prefix, but a different one is expected at its new path"


def has_moved_prefix(footer: Footer, target: str, keys: EncryptionKeys | None) -> bool:
    """Return whether the keys expect an AAD prefix at the target that differs from the one the file keeps."""
    if footer.encryption is None or keys is None:
        return False
    return keys.prefix_for(local_path(target) or target) not in (None, footer.encryption.aad_prefix)


def material_of(source: Source, footer: Footer) -> str | None:
    """Return the path of the file's key material if some of its keys are in a separate file, else ``None``."""
    return material_path(source.name) if any(map(_is_outside, _key_metadata(source, footer))) else None


def copy_material(access: Access, source: Source, footer: Footer, target: str) -> None:
    """Copy the key material file of ``source``, if it has one, to the one of ``target``.

    The copy is published before the file that it is for, so a killed run may have left it alone: the same bytes that
    are there already are fine. Raises :class:`StorageError`, and :class:`sidecar.errors.UsageError` for other bytes.
    """
    material = material_of(source, footer)
    if material is not None:
        with closing(access.open(material)) as opened, access.repeated().create(material_path(target)) as sink:
            sink.copy(opened, 0, opened.size)


def notes_on(access: Access, source: Source, footer: Footer, target: str) -> list[str]:
    """Copy the key material to the target, and return notes on what is not right there."""
    notes = [MOVED_PREFIX] if has_moved_prefix(footer, target, access.keys) else []
    try:
        copy_material(access, source, footer, target)
    except StorageError as error:
        notes.append(f"the key material next to the source was not copied next to the target: {error}")
    return notes


def _key_metadata(source: Source, footer: Footer) -> Iterator[bytes | None]:
    encryption = footer.encryption
    if encryption is None:
        return
    if encryption.encrypted_footer:
        yield decode_struct(encryption.crypto_metadata)[0].binary(2)
    else:
        yield sealing_of(source, footer).metadata.binary(9)
    yield from {column.key_metadata for column in encryption.columns.values()}


def _is_outside(key_metadata: bytes | None) -> bool:
    try:
        value = json.loads(key_metadata or b"null")
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or value.get("keyMaterialType") != KEY_MATERIAL_TYPE:
        return False
    return value.get("internalStorage") is False
