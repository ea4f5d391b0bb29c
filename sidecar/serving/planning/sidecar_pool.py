"""Keeps opened sidecars from plan to plan: their tables of contents and fingerprints, without an open file.

What is assumed: a sidecar is written once, under a new name. So path, length and the length of the footer identify its
bytes. If other bytes of the same length came to a path, checksums of bit rows and pieces would tell.

A plan takes a sidecar out and brings it back when it closes it, so no two threads ask one. Its bytes are read through
the table that the caller of the plan has just loaded, with that caller's rights. A sidecar with damage, one that could
not answer for the lack of a key, and one that was opened with keys is not brought back.
"""

from __future__ import annotations

from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import SidecarError
from sidecar.iceberg.metadata_log import open_statistics
from sidecar.iceberg.statistics_files.find_sidecar import SidecarOpener, open_registered
from sidecar.questions.bounds import Unknown
from sidecar.serving.planning.bounded_cache import BoundedCache

MOST_BYTES = 64 << 20
"""About how much memory opened sidecars take in one process."""
AT_ONCE = 4
"""Copies of one sidecar that are kept, for so many plans at the same time."""

_Key = tuple[object, ...]


class SidecarPool:
    """Opened sidecars of all tables of a server, up to about ``most`` bytes of memory."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._kept: BoundedCache[tuple[_Key, int], SidecarFile] = BoundedCache(most, lambda sidecar: sidecar.memory)

    def opener(self, scope: object) -> SidecarOpener:
        """Return what opens the sidecars of a plan. ``scope`` keeps what callers with different rights read apart."""
        return partial(self._open, scope)

    def _open(self, scope: object, table: Table, entry: StatisticsFile) -> SidecarFile | Unknown:
        metadata = table.metadata
        place = entry.statistics_path, entry.file_size_in_bytes, entry.file_footer_size_in_bytes
        # Warnings name columns as the schema does.
        key = scope, str(metadata.table_uuid), metadata.current_schema_id, *place
        sidecar = self._reopened(key, table, entry) or open_registered(table, entry)
        if isinstance(sidecar, SidecarFile):
            sidecar.on_close = partial(self._bring_back, key)
        return sidecar

    def _reopened(self, key: _Key, table: Table, entry: StatisticsFile) -> SidecarFile | None:
        """Return a kept sidecar, ``None`` if there is none or its file cannot be opened any more."""
        found = (self._kept.take((key, copy)) for copy in range(AT_ONCE))
        sidecar = next((one for one in found if one is not None), None)
        if sidecar is None:
            return None
        try:
            source = open_statistics(table, entry)
        except SidecarError:
            return None  # the sidecar is opened anew, which says what is wrong
        if source.size != entry.file_size_in_bytes:
            source.close()
            return None
        sidecar.reopen(source)
        return sidecar

    def _bring_back(self, key: _Key, sidecar: SidecarFile) -> None:
        if sidecar.warnings or sidecar.has_keys or sidecar.is_locked:
            return
        sidecar.forget_files()
        for copy in range(AT_ONCE):
            if self._kept.keep((key, copy), sidecar):
                return
