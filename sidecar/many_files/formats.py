"""Tells the formats of files apart, for options that only some formats have."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from sidecar.errors import DamagedFileError, UsageError
from sidecar.files import PUFFIN, format_of
from sidecar.source import open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


def known_format(file: str, io: FileIO | None) -> str | None:
    """Return the format of a file as :func:`format_of` does; ``None`` for a damaged file. Reads only its magic."""
    with closing(open_source(file, io)) as source:
        try:
            return format_of(source)
        except DamagedFileError:
            return None


def check_some_puffin(formats: Iterable[str | None]) -> None:
    """Raise :class:`UsageError` if no file is a Puffin file, though these alone have what was asked for."""
    if PUFFIN not in formats:
        raise UsageError("--fill is for Puffin files", found="no Puffin file among the files")
