"""The ``FileIO`` with which pyiceberg reads whole files: lengths are known, encrypted files and views look plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import DataFile, FileFormat

from sidecar.access import Access
from sidecar.errors import SidecarError
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.scan.usual_types import with_usual_types
from sidecar.storage.locations import file_at
from sidecar.storage.remote import has_cheap_ranges
from sidecar.storage.source import Source, SourceFile


class KnownFiles(FileIO):
    """Opens the files of a table, and asks the storage for no length that is known."""

    def __init__(self, access: Access) -> None:
        io = access.io
        assert io is not None  # a table has one
        super().__init__(io.properties)
        self.inner = io
        self._access, self._without_keys = access, Access(io)
        self.sizes: dict[str, int] = {}
        """Lengths of files in bytes, by path."""
        self.parquet: set[str] = set()
        """Paths of Parquet files, which may be encrypted."""
        self.with_views: set[str] = set()
        """Paths of Parquet files whose view types (string_view, binary_view) are shown as the usual types."""

    def remember(self, file: DataFile) -> None:
        """Remember the size and format of a file that will be read."""
        self.sizes[file.file_path] = file.file_size_in_bytes
        if file.file_format == FileFormat.PARQUET:
            self.parquet.add(file.file_path)

    def new_input(self, location: str) -> Any:
        """Return the file, as pyiceberg shall read it."""
        size = self.sizes.get(location)
        access = self._access if location in self.parquet else self._without_keys
        if size is not None and location in self.with_views:
            return _KnownFile(location, access, size, with_usual_types)
        if size is None or (access.keys is None and not has_cheap_ranges(location, self.inner, size)):
            return file_at(self.inner, location)
        return _KnownFile(location, access, size)

    def new_output(self, location: str) -> Any:
        """See :class:`FileIO`."""
        return self.inner.new_output(location)

    def delete(self, location: Any) -> None:
        """See :class:`FileIO`."""
        self.inner.delete(location)


class _KnownFile(InputFile):
    def __init__(
        self,
        location: str,
        access: Access,
        size: int,
        shown: Callable[[Source], Source] | None = None,
    ) -> None:
        super().__init__(location)
        self._access, self._size, self._shown = access, size, shown

    def __len__(self) -> int:
        return self._size

    def _stored(self) -> InputFile:
        assert self._access.io is not None
        return file_at(self._access.io, self.location)

    def exists(self) -> bool:
        return self._stored().exists()

    def open(self, seekable: bool = True) -> Any:
        source = self._access.open(self.location, self._size)
        if self._access.keys is None and self._shown is None and not _has_end_magic(source):
            return self._stored().open(seekable)  # the size in the manifest is wrong
        plain = unlock(source, self._access.keys)
        file: Any = SourceFile(plain if self._shown is None else self._shown(plain))
        return pa.PythonFile(file, "r")


def _has_end_magic(source: Source) -> bool:
    """Return whether the file ends with a Parquet or ORC magic. Readers read the end first, so this costs little."""
    try:
        end = source.read(source.size - 4, 4)
    except SidecarError:
        return False
    return end in (b"PAR1", b"PFA1") or end[:3] == b"ORC"
