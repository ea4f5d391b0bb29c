"""Repairs registered statistics entries that break other readers, for all snapshots of a table.

Readers plan with registered entries and do not open the files. Some entries break them. pyiceberg refuses a table
with blob types that it does not know. Spark's cost-based optimiser fails when it plans joins, if a sketch has no
column or a dropped one, or an ``ndv`` that is not a whole number. Such blobs are no longer registered. The files do
not change, so all blobs of others stay as they are. Entries whose file is gone are dropped. Sketches of other writers
that nobody can read are no longer registered either, and then the next registration does not copy them.

No catalog lets a commit depend on statistics entries. An SQL catalog at least fails if the table has a newer version
than the one that was read. After each commit the table is reloaded. If our commit replaced an entry that somebody set
meanwhile, that entry is restored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from sidecar.bundle.sketches.count_marks import NDV
from sidecar.errors import CommitConflictError, SidecarError
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.iceberg.catalog import reload_table, show_commit
from sidecar.iceberg.metadata_log import StatisticsEntries, displaced_between, opened_statistics, statistics_of
from sidecar.iceberg.partial_loading import left_out
from sidecar.iceberg.refs import one_version
from sidecar.iceberg.statistics_files.entry_commits import (
    ATTEMPTS,
    Displaced,
    is_gone,
    look_for,
    to_set_again,
    try_to_change,
)
from sidecar.iceberg.statistics_files.merge import damage_of_sketch, is_our_theta
from sidecar.iceberg.statistics_files.registering import check_registrable
from sidecar.iceberg.table_names import name_of
from sidecar.puffin.types import THETA
from sidecar.results.base import Result

RepairAction: TypeAlias = Literal["drop", "register anew"]
"""What a repair does to a statistics entry."""

_LONG = re.compile(r"-?\d{1,18}", re.ASCII)
"""Texts that Java's ``Long.parseLong`` certainly accepts."""


@dataclass(frozen=True)
class Repair:
    """The change to the statistics entry of one snapshot; ``mended`` is ``None`` if the entry is dropped."""

    entry: StatisticsFile
    mended: StatisticsFile | None
    reasons: tuple[str, ...]

    @property
    def info(self) -> RepairInfo:
        """The change as the report has it."""
        action: RepairAction = "drop" if self.mended is None else "register anew"
        return RepairInfo(self.entry.snapshot_id, self.entry.statistics_path, action, list(self.reasons))


@dataclass(frozen=True, repr=False, slots=True)
class RepairInfo(Result):
    """The repair of the statistics entry of one snapshot."""

    snapshot_id: int
    """The snapshot."""
    statistics_path: str
    """The statistics file. The file itself is not changed."""
    action: RepairAction
    """Whether the entry is dropped or registered anew."""
    reasons: list[str]
    """Why."""


@dataclass(frozen=True, repr=False, slots=True)
class RepairReport(Result):
    """What :func:`repair` did, or would do."""

    table: str
    """The name of the table."""
    dry_run: bool
    """Whether nothing was written."""
    entries: int
    """The number of statistics entries."""
    repairs: list[RepairInfo]
    """The repaired entries, and their repairs."""
    problems: list[str]
    """What could not be checked and was left alone."""


def repair(table: Table, *, dry_run: bool = False) -> RepairReport:
    """Correct the statistics entries of ``table`` that break other readers, and drop entries whose file is missing.

    Example: ``sidecar.repair(table)``

    All changes are one commit, after which ``table`` is refreshed; ``dry_run`` writes nothing.

    Raises :class:`sidecar.errors.UsageError` for a table that was opened from a metadata file (unless ``dry_run``),
    :class:`sidecar.errors.UnsupportedFeatureError` if pyiceberg cannot write the table's metadata,
    :class:`sidecar.errors.StorageError` if the catalog fails, and :class:`CommitConflictError` if other commits
    interfere each time.
    """
    read = one_version(table)
    done: dict[int, list[Repair]] = {}
    displaced: Displaced = {}
    for _ in range(ATTEMPTS):
        if dry_run:
            return planned_repair(read, with_sketches=True)
        now = reload_table(read)
        found = find_repairs(now, displaced)
        if not found.changes:
            if done:
                show_commit(table, now)
            return _report(now, done, found.problems, dry_run=False)
        check_registrable(now)
        if try_to_change(now, found.changes):
            done |= found.repairs
            taken = displaced_between(now, look_for(now, found.changes), found.changes)
            displaced = {snapshot_id: to_set_again(snapshot_id, entries) for snapshot_id, entries in taken.items()}
    raise CommitConflictError(f"other commits interfered with all {ATTEMPTS} attempts", hint="Try again.")


def planned_repair(table: Table, *, with_sketches: bool) -> RepairReport:
    """Return what :func:`repair` would do. ``with_sketches`` reads the sketches of other writers in all files."""
    found = find_repairs(table, with_sketches=with_sketches)
    return _report(table, found.repairs, found.problems, dry_run=True)


def _report(table: Table, done: dict[int, list[Repair]], problems: list[str], *, dry_run: bool) -> RepairReport:
    return RepairReport(
        table=name_of(table),
        dry_run=dry_run,
        entries=len(table.metadata.statistics),
        repairs=[one.info for repairs in done.values() for one in repairs],
        problems=problems,
    )


@dataclass
class FoundRepairs:
    """The repairs that a table needs, by snapshot id, the one commit that makes them, and what could not be checked or
    repaired."""

    repairs: dict[int, list[Repair]] = field(default_factory=dict)
    changes: dict[int, StatisticsFile | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def find_repairs(table: Table, displaced: Displaced | None = None, *, with_sketches: bool = True) -> FoundRepairs:
    """Return the repairs that the table's statistics entries need.

    ``displaced`` are entries that our own commit replaced; they are restored. A commit can set one entry of a snapshot.
    So a snapshot is left alone if several of its entries would have to stay.
    """
    found = FoundRepairs()
    standing, restored = statistics_of(table), displaced or {}
    for snapshot_id in {**standing, **restored}:
        entries = standing.get(snapshot_id, ())
        chosen = (restored[snapshot_id],) if snapshot_id in restored else entries
        repairs = [_repair_of(table, entry, entry in entries, found.problems, with_sketches) for entry in chosen]
        needed = [one for one in repairs if one.reasons]
        left = [one.mended for one in repairs if one.mended is not None]
        if len(left) > 1 and needed:
            found.problems.append(_too_many(snapshot_id, entries, needed[0]))
        elif needed and (entries or left):
            found.repairs[snapshot_id] = needed
            found.changes[snapshot_id] = left[0] if left else None
    return found


def _repair_of(
    table: Table, entry: StatisticsFile, is_standing: bool, problems: list[str], with_sketches: bool
) -> Repair:
    """Return the repair of an entry, without reasons if it needs none. ``is_standing``: whether the table has the entry
    now."""
    if _is_gone(table, entry, problems):
        return Repair(entry, None, ("the file is gone",))
    damaged = _damaged_sketches(table, entry) if with_sketches else {}
    blobs, reasons = _mended(table, entry, set(table.schema().field_ids), problems, damaged)
    reasons = [f"{what} is registered" for what in left_out(table).get(entry.statistics_path, ())] + reasons
    if not is_standing:
        reasons.append("the entry of another writer was replaced")
    return Repair(entry, entry.model_copy(update={"blob_metadata": blobs}) if reasons else entry, tuple(reasons))


def _too_many(snapshot_id: int, entries: StatisticsEntries, repair: Repair) -> str:
    paths = ", ".join(entry.statistics_path for entry in entries)
    return (
        f"snapshot {snapshot_id} has {len(entries)} statistics files ({paths}), of which a repair could keep one: "
        f"{repair.reasons[0]}. A build of this snapshot makes one file of them; where pyiceberg cannot load the table, "
        "another engine has to set one of them."
    )


def _is_gone(table: Table, entry: StatisticsFile, problems: list[str]) -> bool:
    """Return whether the file of an entry certainly does not exist."""
    try:
        return is_gone(table, entry.statistics_path)
    except SidecarError as error:
        problems.append(str(error))
        return False


def _mended(
    table: Table,
    entry: StatisticsFile,
    live: set[int],
    problems: list[str],
    damaged: Mapping[tuple[int, ...], str],
) -> tuple[list[BlobMetadata], list[str]]:
    """Return the blobs of an entry that stay registered, and the faults that were found."""
    blobs, reasons = [], []
    for blob in entry.blob_metadata:
        if (wrong := _why_not(blob, live)) is not None:
            reasons.append(wrong)
            continue
        if not is_our_theta(blob) and tuple(blob.fields) in damaged:
            reasons.append(f"field {blob.fields[0]}: the sketch of another writer: {damaged[tuple(blob.fields)]}")
            continue
        ndv = (blob.properties or {}).get(NDV)
        if ndv is None or _LONG.fullmatch(ndv):
            blobs.append(blob)
            continue
        fault = f"field {blob.fields[0]}: its ndv '{ndv[:40]}' is not a whole number"
        right = _ndv_of_sketch(table, entry, blob, problems)
        if right is not None:
            blobs.append(blob.model_copy(update={"properties": {**(blob.properties or {}), NDV: str(right)}}))
        reasons.append(fault + (", the sketch cannot be read" if right is None else f", the sketch says {right}"))
    return blobs, reasons


def _damaged_sketches(table: Table, entry: StatisticsFile) -> dict[tuple[int, ...], str]:
    """Return the damage of sketches of other writers by their fields, none of a file that cannot be read."""
    if all(map(is_our_theta, entry.blob_metadata)) or entry.key_metadata is not None:
        return {}
    with suppress(SidecarError), opened_statistics(table, entry) as puffin:
        sketches = [blob for blob in puffin.metadata.blobs if blob.type == THETA and not is_our_theta(blob)]
        found = {blob.fields: damage_of_sketch(puffin, blob) for blob in sketches}
        return {fields: damage for fields, damage in found.items() if damage is not None}
    return {}


def _why_not(blob: BlobMetadata, live: set[int]) -> str | None:
    """Return why a blob must not be registered; ``None`` if it may be. The file is not read."""
    if blob.type != THETA:
        return f"a {blob.type} blob of fields {blob.fields} is registered"
    if not blob.fields:
        return "a theta sketch without a field is registered"
    dropped = sorted(set(blob.fields) - live)
    if dropped:
        return f"a theta sketch of field {dropped[0]}, which the table has dropped, is registered"
    return None


def _ndv_of_sketch(table: Table, entry: StatisticsFile, blob: BlobMetadata, problems: list[str]) -> int | None:
    """Return the distinct count of the sketch in the file; ``None`` if the file or the sketch cannot be read."""
    try:
        with opened_statistics(table, entry) as puffin:
            for stored in puffin.metadata.blobs:
                if stored.type == THETA and list(stored.fields) == blob.fields:
                    return ThetaSketch.from_bytes(puffin.read_blob(stored), LARGEST_LG_K, entry.statistics_path).ndv
    except SidecarError as error:
        problems.append(str(error))
    return None
