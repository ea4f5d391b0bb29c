"""Finding the sidecar of a snapshot.

A sidecar is the Puffin file that the table's metadata names as the statistics file of a snapshot. Readers take the one
of their snapshot or of its nearest ancestor. :mod:`sidecar.iceberg.registering` makes one known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.partial_loading import state_of_registrations
from sidecar.iceberg.paths import moved_hint
from sidecar.iceberg.refs import lineage, snapshot_id_of
from sidecar.iceberg.resolve import fields_of_keys
from sidecar.iceberg.write_statistics import PAGES
from sidecar.source import open_source


@dataclass(frozen=True)
class FoundSidecar:
    """An open sidecar, and the snapshot (the one asked for, or an ancestor) that it is registered for."""

    statistics: StatisticsFile
    snapshot_id: int
    sidecar: SidecarFile

    def use_keys(self, table: Table, keys: EncryptionKeys | None) -> None:
        """Open encrypted blobs with these keys; the columns that ``bundle_keys`` name are those of the table."""
        named = {} if keys is None else fields_of_keys(table.schemas().values(), keys.bundle_keys)
        self.sidecar.use_keys(keys, named)


class StatisticsDoubt(NamedTuple):
    """The reason why the statistics file ``file`` is not used, or, without ``file``, a fault of a registration."""

    file: str | None
    text: str


def find_sidecar(
    table: Table, snapshot_id: int | None = None, *, warnings: list[str] | None = None
) -> FoundSidecar | None:
    """The sidecar of a snapshot (the current one by default) or of its nearest ancestor that has one.

    Statistics files that are no sidecar are passed over; those that cannot be read are too, with a line in
    ``warnings``. Never raises for what it finds.
    """
    doubts: list[StatisticsDoubt] = []
    found = look_for_sidecar(table, snapshot_id, doubts)
    if warnings is not None:
        warnings += [doubt.text for doubt in doubts]
    return found


def look_for_sidecar(
    table: Table, snapshot_id: int | None, doubts: list[StatisticsDoubt]
) -> FoundSidecar | None:
    """As :func:`find_sidecar`; what is wrong goes into ``doubts``, each with its file."""
    entries = statistics_of(table)
    for ancestor in lineage(table, snapshot_id):
        entry = entries.get(ancestor)
        if entry is None:
            continue
        reasons: list[str] = []
        sidecar = _open_sidecar(table, entry, reasons)
        if sidecar is not None and sidecar.segments:
            doubts += [StatisticsDoubt(None, text) for text in state_of_registrations(table)]
            return FoundSidecar(entry, ancestor, sidecar)
        if sidecar is not None:
            reasons += sidecar.warnings
            sidecar.close()
        unused = f"the statistics file of snapshot {ancestor} is not used"
        doubts += [StatisticsDoubt(entry.statistics_path, f"{unused}: {reason}") for reason in reasons]
    return None


def may_have_pages(table: Table, snapshot_id: int) -> bool:
    """Whether a sidecar that :func:`find_sidecar` may find can have page indexes, by its name alone."""
    entries = statistics_of(table)
    found = (entries[ancestor] for ancestor in lineage(table, snapshot_id) if ancestor in entries)
    return any(entry.statistics_path.endswith(PAGES) for entry in found)


def open_sidecar(
    table: Table,
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> SidecarFile:
    """The sidecar of a snapshot (of ``ref``, or the current one) or of its nearest ancestor, to be closed.

    ``encryption_keys`` open encrypted blobs; of columns that ``bundle_keys`` name nothing in plaintext is believed.

    Raises :class:`UsageError` if there is none.
    """
    doubts: list[str] = []
    found = find_sidecar(table, snapshot_id_of(table, snapshot_id, ref), warnings=doubts)
    if found is None:
        name = ".".join(table.name())
        raise UsageError(f"the table {name} has no sidecar", found=doubts[0] if doubts else None)
    found.use_keys(table, encryption_keys)
    return found.sidecar


def _open_sidecar(table: Table, entry: StatisticsFile, doubts: list[str]) -> SidecarFile | None:
    try:
        source = open_source(entry.statistics_path, table.io, entry.file_size_in_bytes)
    except SidecarError as error:
        hint = moved_hint(entry.statistics_path, table.location())
        doubts.append(f"{error}; {hint}" if hint else str(error))
        return None
    try:
        return SidecarFile.open(
            source,
            file_size=entry.file_size_in_bytes,
            footer_length=entry.file_footer_size_in_bytes,
            table_uuid=str(table.metadata.table_uuid),
            columns=table.schema().find_column_name,
        )
    except SidecarError as error:
        doubts.append(str(error))
        source.close()
        return None
