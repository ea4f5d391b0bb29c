"""Says which files in a metadata folder are named by versions of the metadata other than the current one.

Most versions in the folder are ancestors of the current one: its log names them, or the log of an older ancestor does.
What only an old ancestor names, nobody needs. The other versions may be those of a second name of the table that went
its own way, and what they name is in use, however old they are. They may also be left by commits that lost a race, or
by a version that was registered again; nothing in the folder tells these from the first kind.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence

from pyiceberg.table import Table

from sidecar.errors import DamagedFileError, SidecarError, StorageError
from sidecar.iceberg.paths import normal_folder
from sidecar.iceberg.statistics_files.entry_commits import is_gone
from sidecar.many_files.stored_files import StoredFile
from sidecar.run import in_turn
from sidecar.storage.remote import read_file

METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")
"""The second one is that of old writers; today's write ``.gz.metadata.json``."""
READERS = 8
"""Metadata files that are read at the same time."""


class OtherVersions:
    """The versions of a table's metadata in a folder whose names count beside the current ones.

    They are those written since ``young``, and all that are no ancestors of the current version.
    """

    def __init__(self, table: Table, folder: str, young: float) -> None:
        self.keeping: list[str] = []
        """Paths of versions that are neither young nor ancestors, and that name a file."""
        self._table = table
        self._folder = folder
        self._young = young
        self._read: set[str] = set()
        self._ancestors: set[str] | None = None

    def without_named(self, files: Sequence[StoredFile], listed: Iterable[StoredFile]) -> list[StoredFile]:
        """Return the files that no version in ``listed`` names. Versions that were read before are not read again.

        A name counts wherever it is in the text of a metadata file. Raises :class:`StorageError` for a metadata file
        that is there and cannot be read.
        """
        left = list(files)
        if not left:
            return left
        versions = {file.name: file for file in listed if file.name.endswith(METADATA_ENDINGS)}
        if self._ancestors is None:
            self._ancestors = self._find_ancestors(set(versions))
        old = {name for name in self._ancestors & versions.keys() if versions[name].modified < self._young}
        names = sorted(versions.keys() - old - self._read)
        self._read.update(names)
        for name, text in zip(names, in_turn(self._text, names, READERS), strict=True):
            unnamed = [file for file in left if file.name.encode() not in text]
            if len(unnamed) < len(left) and versions[name].modified < self._young:
                self.keeping.append(f"{self._folder}/{name}")
            left = unnamed
        return left

    def _find_ancestors(self, versions: set[str]) -> set[str]:
        """Return the names of the current version and of those that it comes from, as far as they matter.

        If the current one is in another folder, none is known: the table's folder was copied and registered again, and
        the folder has the files of both tables. A log forgets old versions, so it is followed through the oldest one.
        """
        current = self._name_of(self._table.metadata_location)
        if current is None:
            return set()
        log = [entry.metadata_file for entry in self._table.metadata.metadata_log]
        found = {current}
        while True:
            new = {name for path in log if (name := self._name_of(path)) is not None} - found
            found |= new
            if not new or versions <= found:
                return found
            log = self._log_of(log[0])

    def _name_of(self, path: str) -> str | None:
        """Return the name of a file in the folder; ``None`` if it is in another one."""
        place, _, name = path.rpartition("/")
        return name if normal_folder(place) == normal_folder(self._folder) else None

    def _log_of(self, path: str) -> list[str]:
        """Return the versions that a version comes from, the oldest first; none if it cannot be read."""
        try:
            log = json.loads(_plain_text(self._table, path)).get("metadata-log", [])
            return [str(entry["metadata-file"]) for entry in log]
        except (SidecarError, OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError):
            return []

    def _text(self, name: str) -> bytes:
        """Return the plain text of a metadata file; nothing if the file is gone meanwhile."""
        path = f"{self._folder}/{name}"
        try:
            return _plain_text(self._table, path)
        except (SidecarError, OSError, EOFError, zlib.error) as error:
            if is_gone(self._table, path):
                return b""
            raise StorageError(
                "a metadata file cannot be read, so it is not known which files it names",
                file=path,
                hint="If no catalog names this version of the table, delete it.",
            ) from error


def _plain_text(table: Table, path: str) -> bytes:
    text = read_file(path, table.io)
    text = gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text
    if text and not text.lstrip().startswith(b"{"):
        raise DamagedFileError("a metadata file is not JSON", file=path)
    return text
