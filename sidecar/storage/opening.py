"""Opens a path or URL as a byte source: the only place where sidecar opens files for reading."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sidecar.errors import UsageError
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import ChecksLocations, check_file_url, local_path, refuse_control_characters
from sidecar.storage.remote import FileIOSource
from sidecar.storage.source import AnyPath, Source
from sidecar.storage.stores import store_io

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


def open_source(path: AnyPath, io: FileIO | None = None, size: int | None = None) -> Source:
    """Open a local path, a ``file:`` URL or, through ``io`` (default: pyiceberg's choice), any other location.

    Raises :class:`StorageError` if a local file cannot be opened or ``io`` does not allow the location, and
    :class:`UsageError` for an ``https:`` URL and for anything but one path.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(
            "a file is named by one path",
            found=type(path).__name__,
            hint="inspect, probe, verify, embed, strip, extract and convert take several.",
        )
    path = os.fspath(path)
    refuse_control_characters(path)
    opener: object = io  # type checkers do not take a FileIO for one that checks
    if isinstance(opener, ChecksLocations):
        opener.check_location(path)
    local = local_path(path)
    if local is not None:
        return LocalSource(local)
    check_file_url(path, io)
    return FileIOSource(io or store_io(path), path, size)
