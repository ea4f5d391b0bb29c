"""Replaces data files by files with the same rows: finds the files that may be replaced, and commits.

A new file has the same rows in the same order as the file that it replaces. Files with deletes are not replaced:
position deletes name the old path, so the deleted rows would reappear. The commit asserts that ``main`` is still the
snapshot whose manifests were read, so every other commit to it is noticed. Then the table is reloaded. If all
replaced files are still in it, unchanged and without deletes, the commit is tried again on the new snapshot. If not,
it is given up.

Only tables of format version 2 are supported. Version 1 has no sequence numbers to keep. Version 3 gives rows ids
that pyiceberg cannot carry over.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import FileFormat, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.file_identity import is_same_file
from sidecar.errors import CommitConflictError, SidecarError, StorageError, UnsupportedFeatureError, foreign_reason
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import reload_table, storage_error
from sidecar.iceberg.deletes.delete_index import read_deletes
from sidecar.iceberg.engine_catalog import refuse_read_only
from sidecar.iceberg.listing import Listing, SnapshotFile, list_snapshot, snapshot_of
from sidecar.iceberg.manifests import read_manifest, read_manifests
from sidecar.iceberg.partial_loading import refuse_partly_loaded
from sidecar.iceberg.paths import spellings
from sidecar.iceberg.snapshot_producer import NewFile, ReplaceProducer, is_live
from sidecar.iceberg.statistics_files.entry_commits import ATTEMPTS, is_refused, pause
from sidecar.iceberg.table_properties import check_commit_properties, location_provider_of

MARK = "-sidecar-"
_OUR_NAME = re.compile(rf"{MARK}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$")
_LONGEST_NAME = 200
"""Bytes of a new file's name. File systems allow 255, and a temporary name has 45 more, a file of keys 25."""
_LONGEST_EXTENSION = 20


class CommitUnknownError(StorageError):
    """The commit failed but may still take effect, so the files that it names must not be deleted."""


@dataclass(frozen=True)
class Replaceable:
    """The live data files of a snapshot: those that may be replaced, and the others with reasons."""

    listing: Listing = field(repr=False)
    files: tuple[SnapshotFile, ...]
    left_alone: tuple[tuple[SnapshotFile, str], ...]


@dataclass(frozen=True)
class Replaced:
    """A finished commit: the new snapshot and its parent."""

    snapshot_id: int
    parent_snapshot_id: int
    attempts: int


def find_replaceable(table: Table) -> Replaceable:
    """Find the files of the current snapshot that may be replaced.

    Raises :class:`UnsupportedFeatureError` for tables of format versions other than 2,
    :class:`sidecar.errors.UsageError` for a table without a snapshot, and the errors of
    :func:`sidecar.iceberg.listing.list_snapshot`.
    """
    check_version(table)
    snapshot = snapshot_of(table, None)
    listing = list_snapshot(table, snapshot.snapshot_id)
    reasons = _reasons(table, snapshot, listing)
    return Replaceable(
        listing,
        tuple(file for file in listing.files if file.ordinal not in reasons),
        tuple((file, reasons[file.ordinal]) for file in listing.files if file.ordinal in reasons),
    )


def check_version(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` unless files of this table can be replaced."""
    refuse_read_only(table)
    refuse_partly_loaded(table)
    check_commit_properties(table)
    version = table.metadata.format_version
    if version == 1:
        raise UnsupportedFeatureError(
            "the table has format version 1: its manifests have no sequence numbers, so the age of a replaced "
            "file would be lost",
            hint="Upgrade it: ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '2').",
        )
    if version != 2:
        raise UnsupportedFeatureError(
            f"the table has format version {version}: pyiceberg cannot write its manifests, and the row ids "
            "of replaced files would be lost"
        )


@dataclass(frozen=True)
class NewPaths:
    """Makes the paths of new data files of a table. It can be pickled for other processes."""

    location: str
    """The location of the table."""
    provider: LocationProvider
    """Makes paths in the table's own data location."""

    @classmethod
    def of(cls, table: Table) -> NewPaths:
        """Return what makes the paths of a table."""
        return cls(table.location(), location_provider_of(table))

    def path_for(self, path: str) -> str:
        """Return a path for the file that replaces ``path``: in the same folder, the name extended by a UUID.

        A file outside of the table's location was imported, and its folder may belong to another table. Its successor
        goes to the table's own data location.
        """
        folder, _, name = path.rpartition("/")
        stem, dot, extension = name.rpartition(".")
        is_extension = dot and len(extension.encode(errors="replace")) <= _LONGEST_EXTENSION
        stem, extension = (stem, extension) if is_extension else (name, "parquet")
        end = f"{MARK}{uuid.uuid4()}.{extension}"
        room = _LONGEST_NAME - len(end.encode(errors="replace"))  # bytes, of which a letter has up to four
        fresh = _OUR_NAME.sub("", stem).encode(errors="replace")[:room].decode(errors="ignore") + end
        location = f"{self.location.rstrip('/')}/"
        if any(spelling.startswith(location) for spelling in spellings(f"{folder}/")):
            return f"{folder}/{fresh}"
        try:
            return self.provider.new_data_location(fresh)
        except Exception as error:  # it may be the table's own
            raise StorageError(f"the table's location provider fails: {foreign_reason(error)}", file=path) from error


def commit_replace(table: Table, listing: Listing, new_files: Mapping[str, NewFile]) -> Replaced:
    """Replace the files of ``listing`` whose paths are keys of ``new_files``, in one commit.

    A failed attempt leaves no files except the new data files. Raises :class:`CommitConflictError` if another commit
    changed one of the replaced files or other commits interfere each time, :class:`CommitUnknownError` if it is not
    known whether the commit succeeded, and :class:`StorageError` for other failures.
    """
    replaced = {file.path: file for file in listing.files if file.path in new_files}
    for attempt in range(ATTEMPTS):
        pause(attempt)
        now = reload_table(table)
        parent, current = _rebase(now, listing, replaced, new_files)
        producer = ReplaceProducer(now, parent)
        try:
            if _attempt(now, producer, parent, current, new_files):
                return Replaced(producer.snapshot_id, parent.snapshot_id, attempt + 1)
        except CommitUnknownError:
            raise
        except BaseException as error:  # also a second interrupt, while the effects of the first one are looked up
            if producer.may_be_committed:
                raise _unknown(now, error) from error
            raise
    raise CommitConflictError(
        f"other commits interfered with all {ATTEMPTS} attempts; nothing was replaced", hint="Try again."
    )


def _reasons(table: Table, snapshot: Snapshot, listing: Listing) -> dict[int, str]:
    """Return by file ordinal why a file must not be replaced."""
    deletes = read_deletes(table, read_manifests(table.io, snapshot.manifest_list))
    seen: dict[str, int] = {}
    for file in listing.files:
        seen[file.path] = seen.get(file.path, 0) + 1
    reasons: dict[int, str] = {}
    for file in listing.files:
        reason = deletes.reason(file, listing.manifests[file.manifest])
        if seen[file.path] > 1:
            reason = "the snapshot lists it more than once"
        if file.data_file.key_metadata is not None:
            reason = "it is encrypted"
        if file.data_file.file_format != FileFormat.PARQUET:
            reason = f"it is in {file.data_file.file_format.value}, not Parquet"
        if reason is not None:
            reasons[file.ordinal] = reason
    return reasons


def _rebase(
    now: Table, listing: Listing, replaced: Mapping[str, SnapshotFile], new_files: Mapping[str, NewFile]
) -> tuple[Snapshot, Listing]:
    """Return the current snapshot and its listing.

    Raises :class:`CommitConflictError` unless all files to replace are in it, unchanged, and may be replaced.
    """
    check_version(now)
    parent = now.metadata.current_snapshot()
    if parent is None or str(now.metadata.table_uuid) != listing.table_uuid:
        raise CommitConflictError("the table was replaced or emptied meanwhile; nothing was replaced")
    if parent.snapshot_id == listing.snapshot_id:
        return parent, listing
    current = list_snapshot(now, parent.snapshot_id)
    reasons = _reasons(now, parent, current)
    live = {file.path: file for file in current.files}
    for path, file in replaced.items():
        found = live.get(path)
        if found is None and new_files[path].path in live:  # our commit succeeded, then its snapshot expired
            raise CommitUnknownError("the table has the new files already, from a commit that seemed to fail")
        if found is None:
            raise _conflict("removed the file", path)
        if found.ordinal in reasons:
            raise _conflict(f"changed the file ({reasons[found.ordinal]})", path)
        if not _is_unchanged(file, found):
            raise _conflict("added the file again", path)
    return parent, current


def _conflict(what: str, path: str) -> CommitConflictError:
    return CommitConflictError(f"another commit {what} meanwhile; nothing was replaced", file=path, hint="Try again.")


def _is_unchanged(file: SnapshotFile, found: SnapshotFile) -> bool:
    """Return whether a live entry is for the file that was read, with the same partition and data sequence number."""
    return (
        is_same_file(file.known_as, found.known_as)
        and (file.spec_id, file.partition) == (found.spec_id, found.partition)
        and file.sequence_number == found.sequence_number
    )


def _attempt(
    now: Table,
    producer: ReplaceProducer,
    parent: Snapshot,
    current: Listing,
    new_files: Mapping[str, NewFile],
) -> bool:
    """Try to commit once; return ``False`` if another commit came first and this one was cleaned up."""
    hit("replace: write")
    try:
        producer.write_list(_lines(now, producer, parent, current, new_files))
    except SidecarError:
        producer.delete_written()
        raise
    except BaseException as error:
        producer.delete_written()
        if isinstance(error, Exception):
            raise storage_error("cannot write the manifests", error, now, None) from error
        raise
    hit("replace: commit")
    producer.may_be_committed = True
    try:
        producer.commit()
    except BaseException as error:  # an interrupt too: the catalog may have the commit already
        return _settle(now, producer, error)
    return True


def _lines(
    now: Table,
    producer: ReplaceProducer,
    parent: Snapshot,
    current: Listing,
    new_files: Mapping[str, NewFile],
) -> list[ManifestFile]:
    """Return the new manifest list: two new manifests for each with a replaced file, the other manifests unchanged."""
    touched = {current.manifests[file.manifest].listed.path for file in current.files if file.path in new_files}
    lines: list[ManifestFile] = []
    for line in read_manifests(now.io, parent.manifest_list):
        if line.manifest_path in touched:
            lines += producer.replace(line, read_manifest(now.io, line), new_files)
        elif is_live(line):
            lines.append(line)
    return lines


def _settle(now: Table, producer: ReplaceProducer, error: BaseException) -> bool:
    """Find out from the table whether a commit that raised ``error`` succeeded.

    ``True``: the table has our snapshot. ``False``: the commit can never succeed, and its manifests are deleted.
    Otherwise raises :class:`CommitUnknownError`, or ``error`` if the catalog refused the commit.
    """
    try:
        later = reload_table(now).metadata
    except SidecarError as unreadable:
        if not is_refused(error):
            raise _unknown(now, error) from unreadable
        producer.may_be_committed = False
        producer.delete_written()
        raise
    if later.snapshot_by_id(producer.snapshot_id) is not None:
        return True
    # A new snapshot needs a greater sequence number than the table's last one. If another commit has used ours,
    # our commit can never be added.
    overtaken = later.next_sequence_number() > producer.sequence_number
    if not overtaken and not is_refused(error):
        raise _unknown(now, error) from error
    producer.may_be_committed = False
    producer.delete_written()
    if isinstance(error, CommitFailedException) or overtaken:
        return False
    if isinstance(error, Exception):
        raise storage_error("the catalog refused the commit", error, now, None) from error
    raise error


def _unknown(table: Table, error: BaseException) -> CommitUnknownError:
    what = "the commit failed but may still take effect, so the new files were kept"
    if isinstance(error, Exception):
        what = storage_error(what, error, table, None).what
    return CommitUnknownError(
        what,
        hint="If the table never gets them, remove them as orphan files.",
    )
