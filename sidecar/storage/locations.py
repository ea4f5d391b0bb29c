"""Locations of files: local paths and URLs, and which of them are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sidecar.errors import StorageError, UsageError, without_credentials

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, InputFile

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""The control characters of ASCII, which no location may have."""


def file_at(io: FileIO, location: str) -> InputFile:
    """Return a file of ``io`` for reading. Raises :class:`StorageError` for a location with control characters."""
    refuse_control_characters(location)
    return io.new_input(location)


def refuse_control_characters(location: str) -> None:
    """Raise :class:`StorageError` for a location with control characters.

    pyiceberg's parser of URLs drops tabs and line breaks, so it would open, replace or delete another file.
    """
    if CONTROL.search(location):
        raise StorageError("the name of a file must not have control characters", file=location)


@runtime_checkable
class ChecksLocations(Protocol):
    """A ``FileIO`` that allows some locations only. Local files are opened without the ``FileIO``, so it is asked."""

    def check_location(self, location: str) -> None:
        """Raise :class:`StorageError` for a location that is not allowed."""


def scheme_of(location: str) -> str:
    """Return the scheme of a URL in lower case."""
    return location.partition("://")[0].lower()


_WEB = ("http", "https", "ftp")


def check_file_url(url: str, io: FileIO | None) -> None:
    """Raise as :func:`check_scheme`, and for ``?``, which is a wildcard in globs and a query in URLs of the web."""
    check_scheme(url, io)
    if "?" in url and scheme_of(url) not in _WEB and _cuts(io):
        raise _cut_at("?", url)


def check_scheme(url: str, io: FileIO | None) -> None:
    """Raise :class:`UsageError` for a URL that none of pyiceberg's own file systems opens, and for a cut.

    A ``FileIO`` of another library may open any URL.
    """
    if "#" in url and _cuts(io):
        raise _cut_at("#", url)
    scheme = scheme_of(url)
    if (io is None or type(io).__module__.startswith("pyiceberg.")) and not is_opened(scheme):
        raise UsageError(
            f"no file can be read or written over {scheme}://",
            file=without_credentials(url),
            hint="Use a local copy of it, or the URL of an object store, such as s3://bucket/key.",
        )


def is_opened(scheme: str) -> bool:
    """Return whether pyiceberg has a file system for the URLs of a scheme."""
    from pyiceberg.io import SCHEMA_TO_FILE_IO  # local files need none

    return scheme == "gcs" or scheme in SCHEMA_TO_FILE_IO


def _cuts(io: FileIO | None) -> bool:
    """Return whether a ``FileIO`` takes a part of a URL for a query: pyiceberg's of Arrow does, and those over it."""
    checks: object = io
    is_arrow = any(kind.__module__ == "pyiceberg.io.pyarrow" for kind in type(io).__mro__)
    return io is None or is_arrow or isinstance(checks, ChecksLocations)


def _cut_at(sign: str, url: str) -> UsageError:
    return UsageError(f"a URL with '{sign}' names another file: pyiceberg cuts it there", file=without_credentials(url))


def local_path(location: str) -> str | None:
    """Return the local path that a location names, ``None`` for an object store or another host."""
    if location[:5].lower() == "file:":  # the scheme of a URL may be in capitals
        rest = location[5:]
        return "/" + rest.lstrip("/") if not rest.startswith("//") or rest.startswith("///") else None
    return None if "://" in location else location
