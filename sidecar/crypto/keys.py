"""Keys, and their sources: the caller, a JSON file, an environment variable, or a retriever for key metadata.

A file stores, for each key that it needs, *key metadata*: any bytes, often a name. A
:class:`KeyRetriever` returns the key for it. Files without key metadata need their keys by column.

No message and no ``repr`` here shows a key or key metadata.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sidecar.crypto.aes import check_key
from sidecar.errors import StorageError, UsageError

ENVIRONMENT = "env:"
"""Prefix of a name in place of a path: ``env:NAME`` reads the environment variable ``NAME``."""

MAX_TEXT = 1 << 20
_PERMISSIONS = ("allow_plaintext_files", "allow_plaintext_indexes")

PrefixRule = Callable[[str], bytes | None]
"""Returns the AAD prefix that the file with this path must have."""


class KeyRetriever(Protocol):
    """Finds keys by key metadata."""

    def key(self, key_metadata: bytes) -> bytes | None:
        """Return the key (16, 24 or 32 bytes), ``None`` if this retriever does not have it.

        Raises :class:`sidecar.errors.StorageError` if a key server does not answer.
        """


@dataclass(frozen=True, repr=False)
class ExplicitKeys:
    """Keys in memory, by key metadata."""

    by_metadata: Mapping[bytes, bytes]
    """Each key by the key metadata that names it in files."""

    def key(self, key_metadata: bytes) -> bytes | None:
        """See :meth:`KeyRetriever.key`."""
        return self.by_metadata.get(key_metadata)


@dataclass(frozen=True, repr=False)
class EncryptionKeys:
    """The keys and rules for reading and writing encrypted files and bundles.

    ``column_keys`` (by dotted paths of leaves) and ``footer_key`` go before ``retriever``, which finds keys by key
    metadata.
    ``aad_prefix``: the AAD prefix of files, or a rule that returns it for a path. A stored prefix must equal it.
    ``None`` checks nothing; files without their prefix cannot be read then.
    ``bundle_keys``: for each column that a sidecar must encrypt, the key metadata of a master key of ``retriever``.
    Blobs of such a column that are plaintext, or under another key, are not believed.

    Plaintext can be an attacker's. With ``footer_key`` or ``column_keys`` a plaintext Parquet file is refused; with
    ``retriever`` alone it is read with a logged warning; with ``allow_plaintext_files`` it is always read. Plaintext
    blobs are not believed (:attr:`doubts_plaintext_indexes`). With ``allow_plaintext_indexes`` they are, except those
    of columns in ``bundle_keys``.
    """

    retriever: KeyRetriever | None = None
    footer_key: bytes | None = None
    column_keys: Mapping[str, bytes] = field(default_factory=dict)
    aad_prefix: bytes | PrefixRule | None = None
    bundle_keys: Mapping[str, bytes] = field(default_factory=dict)
    allow_plaintext_files: bool = False
    allow_plaintext_indexes: bool = False

    def __post_init__(self) -> None:
        for key in (self.footer_key, *self.column_keys.values()):
            if key is not None:
                check_key(key)

    @property
    def doubts_plaintext_indexes(self) -> bool:
        """Whether a plaintext index may stand in the place of one that nobody could write without a key.

        It may if the keys are those of encrypted data files. If there are only a ``retriever`` and ``bundle_keys``, the
        latter name the columns that must be encrypted, and others need not be.
        """
        if self.allow_plaintext_indexes:
            return False
        are_of_files = self.footer_key is not None or bool(self.column_keys)
        may_be = self.retriever is not None and self.retriever != ExplicitKeys({})
        return are_of_files or (may_be and not self.bundle_keys)

    def for_copying(self) -> EncryptionKeys:
        """Return the keys for work that copies the blobs of a sidecar into the next one, plaintext as plaintext."""
        return replace(self, allow_plaintext_indexes=True)

    def beside(self, file: str) -> EncryptionKeys:
        """Return the keys for one file. A retriever that reads key material beside files gets the file's path."""
        beside = getattr(self.retriever, "beside", None)
        return self if beside is None else replace(self, retriever=beside(file))

    def for_footer(self, key_metadata: bytes | None) -> bytes | None:
        """Return the footer key, ``None`` if it is not available."""
        return self.footer_key or self._retrieved(key_metadata)

    def for_column(self, path: str, key_metadata: bytes | None) -> bytes | None:
        """Return the key of a column that has its own, ``None`` if it is not available."""
        return self.column_keys.get(path) or self._retrieved(key_metadata)

    def prefix_for(self, file: str) -> bytes | None:
        """Return the AAD prefix that a file must have, ``None`` if no prefix is required."""
        return self.aad_prefix(file) if callable(self.aad_prefix) else self.aad_prefix

    def for_bundle(self, key_metadata: bytes) -> bytes | None:
        """Return the master key of a sidecar's encrypted bundles, ``None`` if it is not available."""
        return self._retrieved(key_metadata)

    def _retrieved(self, key_metadata: bytes | None) -> bytes | None:
        if self.retriever is None or key_metadata is None:
            return None
        key = self.retriever.key(key_metadata)
        return None if key is None else check_key(key)


def encryption_keys_from(place: str) -> EncryptionKeys:
    """Read keys from ``place``: a JSON file, or an environment variable with the JSON (``env:NAME``).

    Example: ``sidecar.encryption_keys_from("env:KEYS")``
    ``{"footer_key": KEY, "column_keys": {PATH: KEY}, "keys": {KEY METADATA: KEY}, "aad_prefix": TEXT, "bundle_keys":
    {PATH: KEY METADATA}, "allow_plaintext_files": true, "allow_plaintext_indexes": true}``, all optional. A KEY is
    ``hex:...``, ``base64:...`` or ``env:NAME`` (a variable with one of these). ``bundle_keys`` refer to entries of
    ``keys``. Raises :class:`UsageError` for anything else, :class:`StorageError` for a file that cannot be read.
    """
    try:
        value = json.loads(_text(place))
        json.dumps(value, ensure_ascii=False).encode()  # JSON can escape half a character, which no name can have
    except (ValueError, RecursionError):
        raise UsageError("the keys are not JSON", file=place) from None  # the JSON error would show the text
    known = {"footer_key", "column_keys", "keys", "aad_prefix", "bundle_keys", *_PERMISSIONS}
    if not isinstance(value, dict) or not value.keys() <= known:
        raise UsageError("the keys are not a JSON object of known parts", file=place, expected=", ".join(sorted(known)))
    footer, prefix = value.get("footer_key"), value.get("aad_prefix")
    if prefix is not None and not isinstance(prefix, str):
        raise UsageError("aad_prefix is not a text", file=place)
    for name in _PERMISSIONS:
        if not isinstance(value.get(name, False), bool):
            raise UsageError(f"{name} is neither true nor false", file=place)
    keys = {name.encode(): key for name, key in _keys(value.get("keys", {}), place).items()}
    return EncryptionKeys(
        ExplicitKeys(keys),
        None if footer is None else _key(footer, place, "footer_key"),
        _keys(value.get("column_keys", {}), place),
        None if prefix is None else prefix.encode(),
        _bundle_keys(value.get("bundle_keys", {}), keys, place),
        **{name: value.get(name, False) for name in _PERMISSIONS},
    )


def _text(place: str) -> str:
    if place.startswith(ENVIRONMENT):
        return _variable(place)
    try:
        with Path(place).open("rb") as file:
            data = file.read(MAX_TEXT + 1)
    except OSError as error:
        raise StorageError(f"cannot read the keys: {error.strerror}", file=place) from error
    if len(data) > MAX_TEXT:
        raise UsageError("the file of keys is too long", file=place, expected=f"at most {MAX_TEXT} bytes")
    return data.decode("utf-8", "replace")


def _variable(place: str) -> str:
    name = place.removeprefix(ENVIRONMENT)
    value = os.environ.get(name)
    if value is None:
        raise UsageError(f"the environment variable {name} is not set")
    return value


def _keys(value: Any, place: str) -> dict[str, bytes]:
    if not isinstance(value, dict):
        raise UsageError("the keys by name are not a JSON object", file=place)
    return {name: _key(text, place, f"key {number}") for number, (name, text) in enumerate(value.items())}


def _bundle_keys(value: Any, keys: Mapping[bytes, bytes], place: str) -> dict[str, bytes]:
    """Return key metadata by column. No message shows them."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value.values()):
        raise UsageError("bundle_keys is not a JSON object from columns to names of keys", file=place)
    named = {path: name.encode() for path, name in value.items()}
    for path, name in named.items():
        if name not in keys:
            raise UsageError(
                "bundle_keys names a key that is not in keys",
                file=place,
                column=path,
                hint="Add it to keys with the same name.",
            )
    return named


def _key(text: Any, place: str, what: str) -> bytes:
    """Parse the text of a key. No message shows the text."""
    if isinstance(text, str) and text.startswith(ENVIRONMENT):
        text = _variable(text)
    kind, _, digits = text.partition(":") if isinstance(text, str) else ("", "", "")
    try:
        if kind == "hex":
            return check_key(bytes.fromhex(digits))
        if kind == "base64":
            return check_key(base64.b64decode(digits, validate=True))
    except (ValueError, binascii.Error):
        pass
    except UsageError as error:
        error.file, error.what = place, f"{what}: {error.what}"
        raise
    raise UsageError(f"{what} is not in the form of a key", file=place, expected="hex:..., base64:... or env:NAME")
