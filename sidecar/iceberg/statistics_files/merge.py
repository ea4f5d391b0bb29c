"""Decides what a new statistics file of a snapshot takes over from the file that it replaces.

A snapshot has one statistics file, of some writers several, and a new registration replaces all of them. So the new
file copies, byte for byte, every blob of the old files that is not sidecar's, and the new registration keeps every
entry for such a blob. Four rules:

- Blobs of our own types are not copied; the new file has new ones.
- A theta sketch made by sidecar (it has the property :data:`MARK`) is kept for a field without a new sketch, with the
  marks that its entry has.
- A theta sketch of another writer is kept, and ours for that field is left out: engines differ on which of two
  sketches they use.
- Blobs of columns that the table has dropped stay in the file, but are no longer registered: Spark's planner fails on
  them.

A sketch by sidecar is in the file whether it is registered or not; one that is kept stays as it was
(:mod:`sidecar.iceberg.statistics_files.registered_counts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata as RegisteredBlob
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.sketches.count_marks import CountMarks, marked
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.iceberg.catalog import command_for
from sidecar.iceberg.metadata_log import open_statistics
from sidecar.puffin.metadata import BlobMetadata, FileMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA, is_ours
from sidecar.puffin.writer import COPY_LENGTH, CREATED_BY

MARK = "sidecar"
"""Property of theta blobs made by sidecar, in the Puffin footer and in the table's metadata."""
StoredCount: TypeAlias = BlobMetadata | RegisteredBlob
"""What a Puffin footer or the table's metadata says of a sketch."""


@dataclass(frozen=True)
class KeptSketch:
    """A theta sketch of the table: compact bytes in the format of DataSketches, and the estimated distinct count."""

    field_id: int
    sketch: bytes
    ndv: int
    properties: Mapping[str, str] = field(default_factory=dict)
    """Additional properties of the blob."""
    is_registered: bool = True
    """Whether the table's metadata names it."""


@dataclass(frozen=True)
class SketchToCopy:
    """A theta sketch and the open file that has it. The copy keeps the snapshot that the sketch was made for."""

    blob: BlobMetadata
    puffin: PuffinReader
    is_registered: bool
    """Whether the table's metadata names it."""


@dataclass(frozen=True)
class ExistingBlob:
    """A statistics file to merge; ``reader`` is ``None`` if it cannot be read and ``force`` allows to lose it."""

    entry: StatisticsFile
    reader: PuffinReader | None


@dataclass(frozen=True)
class Merge:
    """Additions to the new file and to the table's metadata, besides our own blobs."""

    copies: tuple[tuple[BlobMetadata, PuffinReader], ...]
    registered: tuple[RegisteredBlob, ...]
    thetas: tuple[KeptSketch, ...]
    properties: Mapping[str, str]
    notes: tuple[str, ...]
    sources: tuple[PuffinReader, ...]

    def close(self) -> None:
        """Close the merged files."""
        for reader in self.sources:
            reader.source.close()


def open_existing(table: Table, entry: StatisticsFile, *, force: bool) -> ExistingBlob:
    """Open the statistics file of ``entry``, one of ``table``.

    Raises a :class:`SidecarError` if it cannot be read, unless ``force`` is set.
    """
    try:
        if entry.key_metadata is not None:
            raise UnsupportedFeatureError("the statistics file is encrypted", file=entry.statistics_path)
        source = open_statistics(table, entry)
        return ExistingBlob(entry, PuffinReader(source, footer_length=entry.file_footer_size_in_bytes))
    except SidecarError as error:
        if force:
            return ExistingBlob(entry, None)
        raise refusal(table, entry, error) from error


def refusal(table: Table, entry: StatisticsFile, error: SidecarError) -> SidecarError:
    """Return an error of the same class that says that nothing was registered and what would have been lost."""
    fields = sorted({field for blob in entry.blob_metadata for field in blob.fields})
    again = command_for(table, "build", "--force")
    lost = f"theta sketches of fields {', '.join(map(str, fields))}" if fields else "unknown blobs"
    refused = copy(error)
    refused.what = f"a statistics file of the snapshot cannot be read, and a registration would lose it: {error.what}"
    refused.file = entry.statistics_path
    refused.hint = f"It has {lost}. {again} goes on; what is not built again keeps only its entry."
    return refused


def plan_merge(
    existing: Sequence[ExistingBlob],
    thetas: Iterable[KeptSketch],
    live_fields: set[int],
    unsketched: Collection[int] = (),
    carried: Sequence[SketchToCopy] = (),
) -> Merge:
    """Merge statistics files, newest first. If two files have the same blob or property, the newer file wins.

    Of several files that a snapshot has at once the first one comes first: Spark and Impala take its counts.
    ``live_fields`` are the field ids of the table's current schema. Our sketches of the fields in ``unsketched`` are
    not kept. ``carried`` are sketches of ours of an earlier snapshot, for fields without a newer one.
    """
    copies = _foreign_blobs(existing)
    entries = _foreign_entries(existing)
    theirs = [entry for entry in entries if not is_our_theta(entry)]
    taken = {fields[0] for fields in _theta_fields(copies, theirs) if len(fields) == 1}
    notes = [
        f"field {field}: the theta sketch of another writer is kept, ours is left out"
        for field in sorted({theta.field_id for theta in thetas} & taken)
    ]
    new = {t.field_id: t for t in thetas if t.field_id not in taken and t.field_id in live_fields}
    notes += _notes_on_dropped(thetas, entries, live_fields)
    notes += [f"{e.entry.statistics_path} cannot be read: its blobs are lost" for e in existing if e.reader is None]
    kept = {*new, *taken, *unsketched}
    ours: list[RegisteredBlob] = []
    for old in (*_our_thetas(existing), *carried):
        if old.blob.fields[0] not in kept and old.blob.fields[0] in live_fields:
            kept.add(old.blob.fields[0])
            copies.append((old.blob, old.puffin))
            ours += [registered_blob(old.blob)] if old.is_registered else []
    left = [entry for entry in entries if not is_our_theta(entry) or entry.fields[0] not in kept]
    return Merge(
        copies=tuple(copies),
        registered=tuple(entry for entry in (*left, *ours) if live_fields.issuperset(entry.fields)),
        thetas=tuple(new.values()),
        properties=_foreign_properties(existing),
        notes=tuple(notes),
        sources=tuple(_readable(existing)),
    )


def registered_blob(blob: BlobMetadata) -> RegisteredBlob:
    """Return the entry in the table's metadata for a theta blob of the Puffin footer."""
    document = {
        "type": blob.type,
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "fields": list(blob.fields),
        "properties": dict(blob.properties),
    }
    return RegisteredBlob.model_validate(document)


def has_blobs_of_others(entry: StatisticsFile, footer: FileMetadata) -> bool:
    """Return whether a statistics file, or its entry in the table's metadata, has a blob that is not sidecar's."""
    stored = any(not is_our_blob(blob) for blob in footer.blobs)
    return stored or not all(map(is_our_theta, entry.blob_metadata))


def is_our_blob(blob: BlobMetadata) -> bool:
    """Return whether a blob of a Puffin file is sidecar's: of one of our types, or a sketch that sidecar made."""
    return is_ours(blob.type) or is_our_theta(blob)


def is_our_theta(blob: StoredCount) -> bool:
    """Return whether a blob of a Puffin file or of the table's metadata is a theta sketch of one field by sidecar."""
    return blob.type == THETA and len(blob.fields) == 1 and MARK in (blob.properties or {})


def sketched_fields(blobs: Iterable[StoredCount]) -> set[int]:
    """Return the fields of the theta sketches by sidecar among blobs of a Puffin file or of the table's metadata."""
    return {blob.fields[0] for blob in blobs if is_our_theta(blob)}


def stored_counts(entry: StatisticsFile, footer: FileMetadata) -> dict[int, StoredCount]:
    """Return the theta sketches of one field each in a statistics file, of any writer, as its entry has them if it
    does."""
    blobs: list[StoredCount] = [*footer.blobs, *entry.blob_metadata]
    return {blob.fields[0]: blob for blob in blobs if blob.type == THETA and len(blob.fields) == 1}


def marked_blobs(entry: StatisticsFile, footer: FileMetadata) -> list[BlobMetadata]:
    """Return the blobs of a statistics file, the sketches by sidecar with the marks of the footer and of the entry.

    The footer does not know of rows that were deleted later. A registration for a later snapshot does.
    """
    marks = {blob.fields[0]: CountMarks.of(blob.properties) for blob in entry.blob_metadata if is_our_theta(blob)}
    return [
        replace(blob, properties=marked(blob.properties, marks[blob.fields[0]]))
        if is_our_theta(blob) and blob.fields[0] in marks
        else blob
        for blob in footer.blobs
    ]


def _readable(existing: Sequence[ExistingBlob]) -> list[PuffinReader]:
    return [e.reader for e in existing if e.reader is not None]


def _foreign_blobs(existing: Sequence[ExistingBlob]) -> list[tuple[BlobMetadata, PuffinReader]]:
    """Return the blobs of other writers: of theta sketches for the same fields the newest."""
    chosen: list[tuple[BlobMetadata, PuffinReader]] = []
    for source in existing:
        if (reader := source.reader) is None:
            continue
        newer = list(chosen)
        named = {tuple(blob.fields) for blob in source.entry.blob_metadata if blob.type == THETA}
        chosen += [
            (blob, reader)
            for blob in reader.metadata.blobs
            if not is_our_blob(blob)
            and not any(_supersedes(*other, blob, reader) for other in newer)
            # A repair has named a damaged sketch and registers it no more: it ends here.
            and (blob.type != THETA or blob.fields in named or damage_of_sketch(reader, blob) is None)
        ]
    return chosen


def damage_of_sketch(puffin: PuffinReader, blob: BlobMetadata) -> str | None:
    """Return why a theta sketch cannot be read by anybody; ``None`` if it can, or if the storage fails now.

    A form that sidecar does not know is damage in a sketch by sidecar alone.
    """
    try:
        ThetaSketch.from_bytes(puffin.read_blob(blob), LARGEST_LG_K, puffin.source.name)
    except StorageError:
        return None
    except SidecarError as error:
        return error.what if isinstance(error, DamagedFileError) or is_our_theta(blob) else None
    return None


def _supersedes(new: BlobMetadata, new_file: PuffinReader, old: BlobMetadata, old_file: PuffinReader) -> bool:
    """Return whether a blob of a newer file replaces an older blob: a theta of the same fields, or equal bytes."""
    if new.type == old.type == THETA:
        return new.fields == old.fields
    if replace(new, offset=0) != replace(old, offset=0):
        return False
    for start in range(0, old.length, COPY_LENGTH):
        length = min(COPY_LENGTH, old.length - start)
        if new_file.read_at(new.offset + start, length) != old_file.read_at(old.offset + start, length):
            return False
    return True


def _foreign_entries(existing: Sequence[ExistingBlob]) -> list[RegisteredBlob]:
    """Return the entries of other writers, and all entries of an unreadable file, because its blobs are lost."""
    chosen: dict[object, RegisteredBlob] = {}
    for source in existing:
        for blob in source.entry.blob_metadata:
            if source.reader is None or not is_our_theta(blob):
                chosen.setdefault((blob.type, tuple(blob.fields), is_our_theta(blob)), blob)
    return list(chosen.values())


def _theta_fields(
    copies: Iterable[tuple[BlobMetadata, PuffinReader]], entries: Iterable[RegisteredBlob]
) -> Iterable[tuple[int, ...]]:
    yield from (blob.fields for blob, _ in copies if blob.type == THETA)
    yield from (tuple(entry.fields) for entry in entries if entry.type == THETA)


def _our_thetas(existing: Sequence[ExistingBlob]) -> list[SketchToCopy]:
    """Return our sketches that were made for the snapshot, or that the entry names.

    An entry that was registered again for a later snapshot has no marks of the others.
    """
    return [
        SketchToCopy(blob, found.reader, blob.fields[0] in named)
        for found in existing
        if found.reader is not None
        for named in [sketched_fields(found.entry.blob_metadata)]
        for blob in marked_blobs(found.entry, found.reader.metadata)
        if is_our_theta(blob) and (blob.fields[0] in named or blob.snapshot_id == found.entry.snapshot_id)
    ]


def _notes_on_dropped(
    thetas: Iterable[KeptSketch], entries: Iterable[RegisteredBlob], live_fields: set[int]
) -> list[str]:
    gone = {t.field_id for t in thetas} - live_fields
    gone |= {field for entry in entries for field in entry.fields} - live_fields
    return [f"field {field}: the table has dropped it, so no sketch of it is registered" for field in sorted(gone)]


def _foreign_properties(existing: Sequence[ExistingBlob]) -> dict[str, str]:
    """Return the properties of the files without ``created-by`` and sidecar's own; newer files win."""
    merged: dict[str, str] = {}
    for reader in reversed(_readable(existing)):
        merged.update(reader.metadata.properties)
    return {k: v for k, v in merged.items() if k != CREATED_BY and not k.startswith(MARK)}
