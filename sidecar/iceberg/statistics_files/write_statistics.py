"""Writes a new statistics file and reads its footer back. After an error the file is deleted."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from sidecar.access import Access
from sidecar.bundle.sketches.count_marks import NDV
from sidecar.errors import DamagedFileError
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import storage_error
from sidecar.iceberg.statistics_files.find_sidecar import PAGES
from sidecar.iceberg.statistics_files.merge import MARK, Merge, registered_blob
from sidecar.iceberg.table_properties import location_provider_of
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import PAGE_INDEX, THETA
from sidecar.puffin.writer import PuffinWriter, WrittenFile
from sidecar.storage.locations import refuse_control_characters
from sidecar.storage.target import create_target

WriteOurs = Callable[[PuffinWriter, Sequence[PuffinReader]], None]
"""A function that writes sidecar's own blobs; it gets the statistics files that the new file replaces, newest first."""


def statistics_folder(table: Table) -> str:
    """Return the folder in which statistics files of a table are written."""
    return location_provider_of(table).new_metadata_location("file").rpartition("/")[0]


def write_file(
    table: Table, snapshot: Snapshot, merge: Merge, write: WriteOurs, has_pages: bool = False
) -> tuple[str, WrittenFile]:
    """Write a new statistics file, read its footer back, and return its path. After any error the file is deleted.

    ``has_pages`` says that ``write`` adds page indexes; those of replaced files are detected here. Raises
    :class:`StorageError` and :class:`DamagedFileError`.
    """
    has_pages |= any(blob.type == PAGE_INDEX for reader in merge.sources for blob in reader.metadata.blobs)
    name = f"{snapshot.snapshot_id}-{uuid.uuid4()}{PAGES if has_pages else '.stats'}"
    provider = location_provider_of(table)
    with _located(table, name, "cannot create the statistics file"):
        path = provider.new_metadata_location(name)
    secrets = {**table.catalog.properties, **table.io.properties}
    with create_target(path, table.io, secrets) as target:
        writer = PuffinWriter(target, properties=merge.properties)
        _write_blobs(writer, snapshot, merge, write)
        written = writer.finish()
        hit("register: written")
    try:
        _read_back(table, path, written)
    except BaseException:
        delete_file(table, path)
        raise
    return path, written


def _write_blobs(writer: PuffinWriter, snapshot: Snapshot, merge: Merge, write: WriteOurs) -> None:
    for blob, reader in merge.copies:
        writer.copy_blob(blob, reader)
    for theta in merge.thetas:
        writer.add_blob(
            THETA,
            [theta.field_id],
            snapshot.snapshot_id,
            snapshot.sequence_number or 0,
            theta.sketch,
            "zstd",
            {**theta.properties, NDV: str(theta.ndv), MARK: "theta"},
        )
    write(writer, merge.sources)


@contextlib.contextmanager
def _located(table: Table, path: str, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise storage_error(what, error, table, path) from error


def _read_back(table: Table, path: str, written: WrittenFile) -> None:
    """Raise :class:`DamagedFileError` unless storage has the file as it was written."""
    source = Access(table.io).open(path)
    try:
        if source.size != written.file_size:
            raise DamagedFileError(
                "the statistics file was not stored completely",
                file=path,
                expected=written.file_size,
                found=source.size,
            )
        if PuffinReader(source, footer_length=written.footer_size).metadata != written.metadata:
            raise DamagedFileError("the statistics file was stored with a different footer", file=path)
    finally:
        source.close()


def statistics_entry(path: str, snapshot: Snapshot, written: WrittenFile, merge: Merge) -> StatisticsFile:
    """Return the entry of the new file for the table's metadata. Of our blobs it names only theta sketches."""
    ours = {theta.field_id for theta in merge.thetas if theta.is_registered}
    new = [
        registered_blob(blob)
        for blob in written.metadata.blobs
        if blob.type == THETA and MARK in blob.properties and blob.fields[0] in ours
    ]
    document = {
        "snapshot-id": snapshot.snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": written.file_size,
        "file-footer-size-in-bytes": written.footer_size,
        "blob-metadata": [*merge.registered, *new],
    }
    return StatisticsFile.model_validate(document)


def delete_file(table: Table, path: str) -> None:
    """Delete a file that no version of the table names; errors are ignored."""
    with contextlib.suppress(Exception):  # orphan files do no harm, and a later cleanup deletes them
        refuse_control_characters(path)
        table.io.delete(path)
