"""Looks up live data files of a snapshot by path, for scan tasks without manifest entries.

A catalog that plans on the server returns data files only. Which snapshot added a file is in its manifest entry, so
the snapshot's manifests are read, once, at the first lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus, ManifestFile

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.iceberg.listing import readers_of
from sidecar.iceberg.manifests import identity_of, read_manifest
from sidecar.run import in_turn


class LiveFiles:
    """The live data files in ``lines``, the manifest list of one snapshot."""

    def __init__(self, io: FileIO, lines: Sequence[ManifestFile]) -> None:
        self._io = io
        self._lines = [line for line in lines if line.content == ManifestContent.DATA]

    def find(self, file: DataFile) -> DataFileIdentity | None:
        """Return the identity of the live file with the path, size and record count of ``file``.

        ``None`` if there is none, or if two live files have the path. Raises :class:`sidecar.errors.DamagedFileError`
        or :class:`sidecar.errors.StorageError` with the path of a manifest that cannot be read.
        """
        found = self._by_path.get(file.file_path, [])
        if len(found) != 1 or found[0][:3] != (file.file_path, file.file_size_in_bytes, file.record_count):
            return None
        return found[0]

    @cached_property
    def _by_path(self) -> dict[str, list[DataFileIdentity]]:
        by_path: dict[str, list[DataFileIdentity]] = {}
        for contents in in_turn(partial(read_manifest, self._io), self._lines, readers_of(self._lines)):
            for raw in contents.entries:
                if raw.entry.status != ManifestEntryStatus.DELETED:
                    by_path.setdefault(raw.entry.data_file.file_path, []).append(identity_of(raw.entry))
        return by_path
