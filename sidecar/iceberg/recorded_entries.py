"""Takes the entries of manifests from the records of a sidecar: a manifest that a segment lists unchanged is not read.

A record has the bytes of its entry as the manifest has them. Whoever can seal pieces of a sidecar can forge a record,
as with any index; :meth:`sidecar.bundle.sidecar_file.SidecarFile.authentic_segments` are those that a key vouches for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.exceptions import ResolveError
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile

from sidecar.bundle.model import FileEntry, ListedManifest
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.iceberg.manifests import ManifestContents, RawEntry, entry_decoder, identity_of

if TYPE_CHECKING:
    from sidecar.bundle.segment import Segment


def is_listed(manifest: ManifestFile, entry: ListedManifest) -> bool:
    """Return whether a line of today's manifest list is the manifest that the segment lists, unchanged.

    A manifest is written once, by one snapshot. So path, length and that snapshot identify it, also in format version
    1, which has no sequence numbers. If the snapshot is unknown (0 or less), the answer is no. Counts in the manifest
    list are optional; those that are there must agree.
    """
    live_files = (manifest.added_files_count, manifest.existing_files_count)
    live_rows = (manifest.added_rows_count, manifest.existing_rows_count)
    return (
        manifest.content == ManifestContent.DATA
        and manifest.manifest_path == entry.path
        and manifest.manifest_length == entry.length
        and manifest.partition_spec_id == entry.spec_id
        and manifest.sequence_number == entry.sequence_number
        and manifest.min_sequence_number == entry.min_sequence_number
        and manifest.added_snapshot_id == entry.added_snapshot_id > 0
        and (None in live_files or sum(live_files) == entry.live_files)  # type: ignore[arg-type]
        and (None in live_rows or sum(live_rows) == entry.live_rows)  # type: ignore[arg-type]
    )


def recorded_entry(file: FileEntry | None, schema: str | None, line: ManifestFile) -> ManifestEntry:
    """Return the entry of a record as pyiceberg reads it. ``schema`` is the Avro schema of the record.

    Raises :class:`DamagedFileError` unless it is a live entry of the data file that the units table names. A record of
    another file would put that file's rows into the plan in place of this one's.
    """
    if file is None:
        raise DamagedFileError("the record of a file cannot be read")
    if schema is None:
        raise DamagedFileError("the schema of its records is missing")
    entry: ManifestEntry = entry_decoder(schema).decode(file.entry, line)
    data = entry.data_file
    recorded = (*file.identity, file.spec_id)
    decoded = (*identity_of(entry), line.partition_spec_id)
    if decoded != recorded:
        raise DamagedFileError("a record belongs to another file", expected=recorded, found=decoded)
    if entry.status == ManifestEntryStatus.DELETED or data.content != DataFileContent.DATA:
        raise DamagedFileError("a record is not that of a live data file", found=data.file_path)
    return entry


def recorded_contents(segments: Iterable[Segment], lines: Sequence[ManifestFile]) -> dict[int, ManifestContents]:
    """Return the live entries of the manifests that segments list unchanged, by the position of the line.

    Damage is no error and no doubt about the indexes: the manifest is left out, and can be read.
    """
    found: dict[int, ManifestContents] = {}
    for segment in segments:
        missing = {at: line for at, line in enumerate(lines) if at not in found}
        if missing:
            found.update(_contents_in(segment, missing))
    return found


def _contents_in(segment: Segment, lines: dict[int, ManifestFile]) -> dict[int, ManifestContents]:
    units = segment.units
    try:
        by_path = {manifest.path: manifest for manifest in units.manifests()}
        listed = {
            at: manifest
            for at, line in lines.items()
            if (manifest := by_path.get(line.manifest_path)) is not None and is_listed(line, manifest)
        }
        wanted = np.unique([ordinal for manifest in listed.values() for ordinal in _files_of(manifest)])
        schemas = units.schemas() if listed else []
        records = dict(zip(wanted.tolist(), units.files(wanted.tolist()), strict=True))
    except SidecarError:
        return {}
    found = {}
    for at, manifest in listed.items():
        files = [records[ordinal] for ordinal in _files_of(manifest)]
        schema = schemas[manifest.schema] if 0 <= manifest.schema < len(schemas) else ""
        try:
            entries = [RawEntry(recorded_entry(f, schema, lines[at]), f.entry) for f in files]
            found[at] = ManifestContents(schema, entry_decoder(schema).partition_fields, tuple(entries))
        except (SidecarError, ResolveError):  # pyiceberg does not know the schema
            continue
    return found


def _files_of(manifest: ListedManifest) -> range:
    return range(manifest.first_file, manifest.first_file + manifest.live_files)
