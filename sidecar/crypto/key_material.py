"""Gets keys from the standard key material of Parquet's key tools (parquet-java, Arrow), which a key server unwraps.

The key metadata in such files is a JSON object of type ``PKMT1``. Either it is the key material itself
(``internalStorage``), or its ``keyReference`` names an entry in a second file beside the data file,
``_KEY_MATERIAL_FOR_<name of the data file>.json``: a JSON object whose values are key material, as text.

    masterKeyID, wrappedDEK                      the data key, wrapped by the server with a master key
    doubleWrapping, keyEncryptionKeyID,          true: the server wrapped wrappedKEK; the data key is wrapped with
    wrappedKEK, wrappedDEK                       that key by AES-GCM, with the key's id as AAD (both base64)

pyarrow's ``KmsClient`` talks to the server: ``unwrap_key(wrapped key, master key id)``, both texts. The caller
configures the server. Instance and URL in the material are ignored, because an attacker could have written them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sidecar.crypto.aes import check_key, decrypt_gcm
from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.storage.opening import open_source
from sidecar.storage.source import Source

KEY_MATERIAL_TYPE = "PKMT1"
MATERIAL_FILE = "_KEY_MATERIAL_FOR_{}.json"

MAX_MATERIAL = 64 << 20
"""The largest file of key material that is read, in bytes."""

_MAX_TEXT = 1 << 16


@dataclass(frozen=True, repr=False)
class KmsKeys:
    """Gets keys from a key server, for files whose key metadata is standard key material.

    ``kms_client_factory`` and ``connection_config`` are as for pyarrow's ``CryptoFactory``: the factory is called with
    the config and returns a client with ``unwrap_key``. Each key is requested once. ``open_file`` opens the key
    material beside a data file.
    """

    kms_client_factory: Callable[[Any], Any]
    connection_config: Any
    open_file: Callable[[str], Source] = open_source
    _file: str | None = None
    _clients: list[Any] = field(default_factory=list)
    _known: dict[tuple[str, str], bytes] = field(default_factory=dict)
    _materials: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def beside(self, file: str) -> KmsKeys:
        """Return these keys for one data file, whose key material may be beside it."""
        return replace(self, _file=file, _materials={})

    def key(self, key_metadata: bytes) -> bytes | None:
        """Return the key, see :meth:`sidecar.crypto.keys.KeyRetriever.key`.

        Returns ``None`` for other key metadata, and if the client raises ``PermissionError`` or ``KeyError``. Raises
        :class:`DamagedFileError` for key material that contradicts itself, :class:`StorageError` if the server or
        the file beside the data file fails. Messages never show the material or the server's answer.
        """
        material: Mapping[str, Any] | None = _object(key_metadata)
        if material is None or material.get("keyMaterialType") != KEY_MATERIAL_TYPE:
            return None
        if material.get("internalStorage") is False:
            material = self._external(_text(material, "keyReference"))
        try:
            return self._unwrapped(material)
        except (PermissionError, KeyError):
            return None

    def _unwrapped(self, material: Mapping[str, Any]) -> bytes:
        master, data_key = _text(material, "masterKeyID"), _text(material, "wrappedDEK")
        if material.get("doubleWrapping") is not True:
            return self._ask(data_key, master)
        encryption_key = self._ask(_text(material, "wrappedKEK"), master)
        key_id = _base64(_text(material, "keyEncryptionKeyID"))
        return check_key(decrypt_gcm(encryption_key, _base64(data_key), key_id))

    def _ask(self, wrapped: str, master_key: str) -> bytes:
        key = self._known.get((wrapped, master_key))
        if key is not None:
            return key
        try:
            if not self._clients:
                self._clients.append(self.kms_client_factory(self.connection_config))
            key = bytes(self._clients[0].unwrap_key(wrapped, master_key))
        except (PermissionError, KeyError):
            raise
        except Exception as error:  # a client may raise anything, and its text may show secrets
            raise StorageError(f"the key server did not unwrap a key: {type(error).__name__}") from None
        self._known[wrapped, master_key] = check_key(key)
        return key

    def _external(self, reference: str) -> Mapping[str, Any]:
        if self._file is None:
            raise UsageError("the key material is beside a data file, but no data file is being read")
        if self._file not in self._materials:
            self._materials[self._file] = self._read_material(material_path(self._file))
        entry = self._materials[self._file].get(reference)
        material = _object(entry) if isinstance(entry, str) else entry
        if not isinstance(material, dict):
            raise DamagedFileError("the key material has no entry for a key", file=material_path(self._file))
        return material

    def _read_material(self, path: str) -> Mapping[str, Any]:
        source = self.open_file(path)
        try:
            if source.size > MAX_MATERIAL:
                raise DamagedFileError(
                    "the file of key material is too long",
                    file=path,
                    expected=f"at most {MAX_MATERIAL} bytes",
                    found=source.size,
                )
            content = _object(source.read(0, source.size), MAX_MATERIAL)
        finally:
            source.close()
        if content is None:
            raise DamagedFileError("the key material is not a JSON object", file=path)
        return content


def material_path(file: str) -> str:
    """Return the path of a data file's key material, if it is not in the data file."""
    folder, slash, name = file.rpartition("/")
    return f"{folder}{slash}{MATERIAL_FILE.format(name)}"


def _object(data: bytes | str, most: int = _MAX_TEXT) -> dict[str, Any] | None:
    """Parse a JSON object. Returns ``None`` for anything else and for more than ``most`` bytes or characters."""
    if len(data) > most:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(material: Mapping[str, Any], name: str) -> str:
    value = material.get(name)
    if not isinstance(value, str):
        raise DamagedFileError(f"the key material does not have {name}")
    return value


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise DamagedFileError("the key material is not valid base64") from None
