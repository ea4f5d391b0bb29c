"""Prepares a build: what is asked for, and what the table and its last sidecar say, before any data file is opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.access import Access
from sidecar.bundle.segment import Segment
from sidecar.bundle.sketches.count_marks import CountMarks, count_of, marked
from sidecar.conversion.protection import Protection
from sidecar.errors import UsageError
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.iceberg.listing import Listing, SnapshotFile, list_snapshot, snapshot_of
from sidecar.iceberg.resolve import resolve_columns
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, find_reusable
from sidecar.iceberg.statistics_files.merge import (
    SketchToCopy,
    StoredCount,
    is_our_theta,
    sketched_fields,
    stored_counts,
)
from sidecar.iceberg.statistics_files.registered_counts import misread_warning, reads_right
from sidecar.iceberg.statistics_files.registering import check_writable
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.indexing.columns import Options
from sidecar.indexing.declaration import BuiltIndexes, ColumnDeclaration, built_indexes
from sidecar.indexing.options import options_of
from sidecar.indexing.previous.carrying import use_keys
from sidecar.indexing.previous.earlier import ReusableSidecar, look_back, sketches_to_carry
from sidecar.indexing.previous.earlier_sketches import REMOVED_SHARE, marks_by_files
from sidecar.indexing.request import BuildRequest
from sidecar.indexing.stage_one.tasks import BuildPlan
from sidecar.run import report_progress


@dataclass
class PreparedBuild:
    """A build that has read the table's metadata and its earlier sidecar, and no data file yet. It is a context manager
    that closes the sidecar."""

    table: Table
    request: BuildRequest
    listing: Listing
    requested: Sequence[ColumnDeclaration]
    """The indexes that the table is to have."""
    declared: Sequence[ColumnDeclaration]
    """The columns of :attr:`requested` that can be built with the given keys."""
    plan: BuildPlan
    built: dict[int, BuiltIndexes]
    """The indexes of each column in the earlier sidecar, by field id."""
    earlier: ReusableSidecar
    protection: Protection
    notes: Sequence[str]
    """What the caller should know."""

    @cached_property
    def indexable(self) -> list[SnapshotFile]:
        """The files that no earlier segment serves and that could be indexed."""
        return [file for file in self._unserved if file.not_indexable is None]

    @cached_property
    def to_index(self) -> list[SnapshotFile]:
        """The files of :attr:`indexable` that are indexed now, copies of a file together; none if no column is.

        Those that an earlier run could not read come last: they must not keep a limited run from all others.
        """
        unread = self.earlier.unread
        ordered = sorted(self.indexable, key=lambda file: file.ordinal in unread)
        chosen = {file.known_as for file in ordered[: self.request.most_files if self.declared else 0]}
        return [file for file in self.indexable if file.known_as in chosen]

    @property
    def left(self) -> list[SnapshotFile]:
        """The files of :attr:`indexable` that are left to later builds."""
        now = {file.known_as for file in self.to_index}
        return [file for file in self.indexable if file.known_as not in now]

    @property
    def files(self) -> list[SnapshotFile]:
        """The files that the new segment lists: those that are indexed now, and those in formats without indexes."""
        return self.to_index + [file for file in self._unserved if file.not_indexable is not None]

    def marks(self, field_id: int, new: Collection[int] = ()) -> CountMarks:
        """Return why the count of a field is a bound in its new sketch. ``new``: ordinals of files counted now."""
        counts, (counted, _) = self.earlier.counts, self.earlier.registered_count(field_id)
        counted = counted & counts.counted.get(field_id, set())
        return marks_by_files(self.listing, counted.union(new), field_id in counts.inexact)

    def marked_today(self, field_id: int, properties: Mapping[str, str] | None) -> dict[str, str]:
        """Return the properties of a sketch that is carried over: why its count was a bound, and why it is one now."""
        return marked(properties, marks_by_files(self.listing, *self.earlier.registered_count(field_id)))

    @cached_property
    def counts_now(self) -> set[int]:
        """The fields of which the earlier sidecar has a registered count."""
        found = self.earlier.found
        return set() if found is None else sketched_fields(found.statistics.blob_metadata)

    @cached_property
    def counts_to_register(self) -> set[int]:
        """The fields whose count the table's metadata is to name: those that were chosen, and those that it names."""
        chosen = {one.column.field_id: one.is_count_registered for one in self.declared}
        dropped = {i for i, is_registered in chosen.items() if is_registered is False}
        return (self.counts_now - dropped) | {i for i, is_registered in chosen.items() if is_registered}

    @property
    def is_registered(self) -> bool:
        """Whether the earlier sidecar belongs to this very snapshot, all of it stays, and so do its counts."""
        return self.earlier.is_registered(self.table, self.listing.snapshot_id) and self.has_right_counts

    @cached_property
    def has_right_counts(self) -> bool:
        """Whether the earlier sidecar has the counts that this build would make of its groups of files, and the table's
        metadata names those that it is to name."""
        if (found := self.earlier.found) is None:
            return True
        stored = sketched_fields(found.sidecar.puffin.metadata.blobs)
        if self.earlier.broken_counts or stored & self.counts_now != stored & self.counts_to_register:
            return False
        counts = stored_counts(found.statistics, found.sidecar.puffin.metadata)
        return bool(self.left) or not any(self._is_stale(counts.get(i), i) for i in self.earlier.counts.sketches)

    def _is_stale(self, known: StoredCount | None, field_id: int) -> bool:
        """Return whether a count is missing, lacks files or is too high, and a new one would not.

        A run that left files has registered no new count, and those files may be gone since. One of other columns has
        carried over the count of this one, or left it out. A file that fails is in part in a count, each time.
        """
        if known is None or (CountMarks.of(known.properties).lower and not self.marks(field_id).lower):
            return True
        most = self.earlier.counts.sketches[field_id].ndv / (1 - REMOVED_SHARE)
        return not self.indexable and is_our_theta(known) and (count_of(known.properties) or 0) > most

    def notes_on_counts(self) -> list[str]:
        """Return what the caller should know of the counts that this build registers, and of those that it does not."""
        names = {one.column.field_id: f"{one.column.path} ({one.column.type})" for one in self.declared}
        fresh = self.counts_to_register - self.counts_now
        misread = [
            names[one.column.field_id]
            for one in self.declared
            if one.column.field_id in fresh and not reads_right(one.column.type)
        ]
        ended = [names[i] for i in sorted(self.counts_now - self.counts_to_register)]
        notes = [misread_warning(misread)] if misread else []
        if ended:
            notes.append(f"not registered any more, as no kind was named: distinct counts of {', '.join(ended)}")
        return notes

    def carried_sketches(self) -> list[SketchToCopy]:
        """Return the sketches of the earlier sidecar that hold for what is carried over, with today's marks."""
        return [
            replace(old, blob=replace(old.blob, properties=self.marked_today(old.blob.fields[0], old.blob.properties)))
            for old in sketches_to_carry(self.earlier)
        ]

    @property
    def _unserved(self) -> list[SnapshotFile]:
        return [file for file in self.listing.files if file.ordinal not in self.earlier.served]

    def __enter__(self) -> PreparedBuild:
        return self

    def __exit__(self, *_: object) -> None:
        self.earlier.close()


def prepare(table: Table, snapshot_id: int | None, request: BuildRequest) -> PreparedBuild:
    """Resolve the columns, list the snapshot's files, and look which of them an earlier sidecar serves.

    ``snapshot_id`` is by default the current one, which must exist. Raises the errors of
    :func:`sidecar.indexing.driver.build` that come before the first data file.
    """
    request.check_options()
    snapshot = snapshot_of(table, snapshot_id)
    if request.columns is not None:  # wrong names are refused before any file is opened
        resolve_columns(request.schema_for_names(table), request.columns)
    if request.means.chosen_engine() == "spark" and request.means.spark is None:
        from sidecar.spark.session import check_available

        check_available()
    check_writable(table)
    report_progress("listing files")
    found = find_reusable(table, snapshot.snapshot_id)
    try:
        return _prepared(table, snapshot, request, found)
    except BaseException:
        if found is not None:
            found.sidecar.close()
        raise


def _prepared(table: Table, snapshot: Snapshot, request: BuildRequest, found: FoundSidecar | None) -> PreparedBuild:
    built = {} if found is None else built_indexes(found.sidecar)
    requested, notes = request.declared(table, snapshot, built)
    declared = requested
    access = request.means.access(table)
    protection = Protection(access.keys, request.means.allow_plaintext)
    if found is not None:
        declared = _openable(declared, found, protection, notes, are_named=request.columns is not None)
    wanted = tuple(one.column for one in declared)
    protection.check([column.path for column in wanted])
    listing = list_snapshot(table, snapshot.snapshot_id, _recording(table, access, found, request.full))
    encrypted = frozenset(column.field_id for column in wanted if protection.seals(column.path))
    common = Options(
        kinds=frozenset(),
        fpp=DEFAULT_FPP,
        max_bits=None,
        reuse=request.reuse,
        filter_format=request.filter_format,
        encrypted=encrypted,
        plaintext=frozenset(c.field_id for c in wanted) - encrypted if request.means.allow_plaintext else frozenset(),
    )
    options = options_of(listing, {one.column.field_id: (one.kinds, one.fpp) for one in declared}, common)
    plan = BuildPlan(wanted, request.schema_for_names(table), name_mapping_of(table), options, access)
    earlier = look_back(table, listing, plan, found, request.full, request.most_files, checked=request.thorough)
    return PreparedBuild(table, request, listing, requested, declared, plan, built, earlier, protection, notes)


def _recording(table: Table, access: Access, found: FoundSidecar | None, is_full: bool) -> Sequence[Segment]:
    """Give the earlier sidecar its keys, and return the segments whose records stand for the manifests they list.

    With keys, a build vouches for the entries that it records, so it takes them from no segment that anybody could have
    written. A full build trusts nothing of the earlier sidecar.
    """
    if found is None:
        return ()
    use_keys(table, access, found.sidecar)
    if is_full:
        return ()
    return found.sidecar.segments if access.keys is None else found.sidecar.authentic_segments()


def _openable(
    declared: Sequence[ColumnDeclaration],
    found: FoundSidecar,
    protection: Protection,
    notes: list[str],
    are_named: bool,
) -> list[ColumnDeclaration]:
    """Return what is declared, without columns that the sidecar has encrypted and whose bundle key is not given.

    A build without the key would write their indexes in plaintext. Raises :class:`UsageError` if none is left, and for
    any such column if the caller has named the columns (``are_named``).
    """
    locked = {blob.toc.field_id for blob in found.sidecar.field_blobs if blob.toc.lock is not None}
    refused = [
        one.column.path
        for one in declared
        if one.column.field_id in locked and not protection.seals(one.column.path) and not protection.allow_plaintext
    ]
    if refused and (are_named or len(refused) == len(declared)):
        raise UsageError(
            f"the indexes of {', '.join(refused)} are encrypted, and their bundle keys are not given",
            file=found.statistics.statistics_path,
            hint="Give the keys with --encryption-keys (encryption_keys=), or write these indexes in plaintext with "
            "--allow-plaintext (allow_plaintext=True).",
        )
    if refused:
        notes.append(
            f"the indexes of {', '.join(refused)} are encrypted and their bundle keys are not given: "
            "they are kept, and new files are not indexed for them"
        )
    return [one for one in declared if one.column.path not in refused]
