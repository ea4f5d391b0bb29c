"""Reads files of an upstream's tables with the rights of whoever asks.

A file is read with credentials that the upstream has given to the caller. Without such credentials it is read with the
server's own, but only below locations that the operator has named: whoever may commit to a table chooses the paths in
its metadata, and must not read other files through the server. Properties of the table itself are never used: its owner
could name another endpoint, or a class to load.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io

from sidecar.errors import StorageError, UsageError
from sidecar.serving.protocol.errors import ErrorType
from sidecar.serving.table_paths import leads_elsewhere
from sidecar.storage.locations import CONTROL, local_path, scheme_of

_FAMILIES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "abfs": "adls",
    "abfss": "adls",
    "wasb": "adls",
    "wasbs": "adls",
}
_SETTINGS = ("s3.", "client.", "gcs.", "adls.")
"""The prefixes of properties of file systems. Nothing else is passed on: ``py-io-impl`` names a class to load."""
_NOT_PASSED_ON = ("-impl", "role-arn", "role-session-name", "profile-name", "proxy-uri", ".signer", "signer.uri")
_CREDENTIALS = ("access-key-id", "secret-access-key", "token", "account-key", "connection-string", "client-secret")
_ENOUGH = {
    "s3": (("s3.access-key-id", "s3.secret-access-key"), ("client.access-key-id", "client.secret-access-key")),
    "gcs": (("gcs.oauth2.token",),),
    "adls": (("adls.token",), ("adls.account-key",), ("adls.connection-string",)),
}
"""The properties that are credentials of a kind of storage, as alternatives."""
SURROGATE = re.compile("[\ud800-\udfff]")
MOST_FILE_SYSTEMS = 64
Credentials = Sequence[tuple[str, Mapping[str, str]]]
"""Prefixes of locations, each with the properties for what is below it."""


class CallersStorage(FileIO):
    """Opens files for one caller, for reading.

    ``config``: the ``config`` of the load-table answer that this caller got.
    ``credentials``: its ``storage-credentials``.
    ``own``: locations that the server may read with its own credentials.
    """

    def __init__(self, config: Mapping[str, str], credentials: Credentials, own: Sequence[str]) -> None:
        super().__init__({})
        self._config = config
        self._credentials = sorted(credentials, key=lambda one: len(one[0]), reverse=True)
        self._own = [one.rstrip("/") + "/" for location in own if (one := plain_location(location)) is not None]

    def may_read(self, location: str) -> bool:
        """Whether the caller may read a location through the server."""
        return self._opened(location) is not None

    def check_location(self, location: str) -> None:
        """Raise :class:`StorageError` if the caller may not read a location through the server."""
        if not self.may_read(location):
            raise _refused(location)

    def new_input(self, location: str) -> InputFile:
        """Return a file for reading. Raises :class:`StorageError` if the caller may not read it."""
        opened = self._opened(location)
        if opened is None:
            raise _refused(location)
        plain, properties = opened
        return _file_system(tuple(sorted(properties.items())), _scheme(plain)).new_input(plain)

    def new_output(self, location: str) -> OutputFile:
        """Raise :class:`UsageError`: the server writes nothing."""
        raise UsageError("the server writes no files", found=location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raise :class:`UsageError`: the server deletes nothing."""
        raise UsageError("the server deletes no files")

    def _opened(self, location: str) -> tuple[str, dict[str, str]] | None:
        """Return what is opened for a location, and the properties of its file system; ``None`` if it may not be read.

        This location, not the text, is compared with the locations that the caller and the server may read.
        """
        plain = plain_location(location)
        return None if plain is None or (properties := self._properties_for(plain)) is None else (plain, properties)

    def _properties_for(self, location: str) -> dict[str, str] | None:
        family = _FAMILIES.get(_scheme(location))
        if family is not None:
            for prefix, given in self._credentials:
                if location.startswith(prefix) and _has_credentials(family, given):
                    return _passed_on({**self._config, **given})
            if _has_credentials(family, self._config):
                return _passed_on(self._config)
        if any(f"{location}/".startswith(own) for own in self._own):
            return {name: value for name, value in _passed_on(self._config).items() if not name.endswith(_CREDENTIALS)}
        return None


def _scheme(location: str) -> str:
    return "file" if local_path(location) is not None else scheme_of(location)


class RefusedLocationError(StorageError):
    """The caller may not read a location through the server. ``answer`` is that of a refused request."""

    answer = ErrorType.FORBIDDEN


def _refused(location: str) -> StorageError:
    return RefusedLocationError(
        "the server may not read the file for this caller",
        file=location,
        hint="Let the upstream give credentials for it, or start the server with --storage.",
    )


def plain_location(location: str) -> str | None:
    """Return what is opened for a location: a local path without links, or a URL that all parsers read alike.

    ``None`` if parsers can differ: some drop control characters, decode, or take a part as a query.
    """
    if not location or CONTROL.search(location) or SURROGATE.search(location):
        return None
    local = local_path(location)
    if local is not None:
        return os.path.realpath(local)
    scheme, _, rest = location.partition("://")
    is_plain = scheme.lower() != "file" and rest.partition("/")[0] and not leads_elsewhere(location.encode())
    return location if is_plain else None


def _has_credentials(family: str, given: Mapping[str, str]) -> bool:
    if any(all(given.get(name) for name in names) for names in _ENOUGH[family]):
        return True
    return family == "adls" and any(name.startswith("adls.sas-token") and value for name, value in given.items())


def _passed_on(given: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value)
        for name, value in given.items()
        if name.startswith(_SETTINGS) and not any(part in name for part in _NOT_PASSED_ON)
    }


@lru_cache(maxsize=MOST_FILE_SYSTEMS)
def _file_system(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    return load_file_io(dict(properties), f"{scheme}:/" if scheme == "file" else f"{scheme}://")
