"""Repairs registered statistics entries that break other readers, for all snapshots of a table.

Readers plan with registered entries and do not open the files. Some entries break them. pyiceberg refuses a table
with blob types that it does not know. Spark's cost-based optimiser fails when it plans joins, if a sketch has no
column or a dropped one, or an ``ndv`` that is not a whole number. Such blobs are no longer registered. The files do
not change, so all blobs of others stay as they are. Entries whose file is gone are dropped.

No catalog lets a commit depend on statistics entries. An SQL catalog at least fails if the table has a newer version
than the one that was read. After each commit the table is reloaded. If our commit replaced an entry that somebody set
meanwhile, that entry is restored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from sidecar.errors import CommitConflictError, SidecarError
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.catalog import reload_table, show_commit
from sidecar.iceberg.entry_commits import ATTEMPTS, is_gone, try_to_change
from sidecar.iceberg.merge import NDV
from sidecar.iceberg.metadata_log import Statistics, displaced_between, statistics_of
from sidecar.iceberg.partial_loading import left_out
from sidecar.iceberg.refs import one_version
from sidecar.iceberg.registering import check_format_version
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA
from sidecar.results import Result
from sidecar.source import open_source

RepairAction: TypeAlias = Literal["drop", "register anew"]
"""What a repair does to a statistics entry."""

LARGEST_LG_K = 20
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
    """What is done to the statistics entry of one snapshot."""

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
    """What was done to which entry."""
    problems: list[str]
    """What could not be checked and was left alone."""


def repair(table: Table, *, dry_run: bool = False) -> RepairReport:
    """Register the statistics entries of ``table`` that break other readers again, corrected; drop entries without
    file.

    All changes are one commit, after which ``table`` is refreshed; ``dry_run`` writes nothing.

    Raises :class:`sidecar.errors.UsageError` for a table that was opened from a metadata file (unless ``dry_run``),
    :class:`sidecar.errors.UnsupportedFeatureError` if pyiceberg cannot write the table's metadata,
    :class:`sidecar.errors.StorageError` if the catalog fails, and :class:`CommitConflictError` if other commits
    interfere each time.
    """
    read = one_version(table)
    done: dict[int, Repair] = {}
    problems: list[str] = []
    displaced: Statistics = {}
    for _ in range(ATTEMPTS):
        now = read if dry_run else reload_table(read)
        problems.clear()
        repairs = find_repairs(now, problems, displaced)
        if dry_run:
            done = {found.entry.snapshot_id: found for found in repairs}
        if dry_run or not repairs:
            if done and not dry_run:
                show_commit(table)
            return RepairReport(
                table=".".join(table.name()),
                dry_run=dry_run,
                entries=len(now.metadata.statistics),
                repairs=[found.info for found in done.values()],
                problems=list(problems),
            )
        check_format_version(now)
        changed = {found.entry.snapshot_id: found.mended for found in repairs}
        if try_to_change(now, changed):
            done |= {found.entry.snapshot_id: found for found in repairs}
            displaced = displaced_between(now, reload_table(now), changed)
    raise CommitConflictError(f"other commits interfered with all {ATTEMPTS} attempts", hint="Try again.")


def find_repairs(table: Table, problems: list[str], displaced: Statistics | None = None) -> list[Repair]:
    """Return the repairs that the table's statistics entries need; append what cannot be checked to ``problems``.

    ``displaced`` are entries that our own commit replaced; they are restored.
    """
    live = set(table.schema().field_ids)
    left = left_out(table)
    entries: Mapping[int, StatisticsFile] = statistics_of(table)
    found = []
    for snapshot_id, entry in {**entries, **(displaced or {})}.items():
        if _is_gone(table, entry, problems):
            if snapshot_id in entries:
                found.append(Repair(entries[snapshot_id], None, ("the file is gone",)))
            continue
        blobs, reasons = _mended(table, entry, live, problems)
        reasons = [f"{what} is registered" for what in left.get(snapshot_id, ())] + reasons
        if entry != entries.get(snapshot_id):
            reasons.append("the entry of another writer was replaced")
        if reasons:
            mended = entry.model_copy(update={"blob_metadata": blobs})
            found.append(Repair(entry, mended, tuple(reasons)))
    return found


def _is_gone(table: Table, entry: StatisticsFile, problems: list[str]) -> bool:
    """Return whether the file of an entry certainly does not exist."""
    try:
        return is_gone(table, entry.statistics_path)
    except SidecarError as error:
        problems.append(str(error))
        return False


def _mended(
    table: Table, entry: StatisticsFile, live: set[int], problems: list[str]
) -> tuple[list[BlobMetadata], list[str]]:
    """Return the blobs of an entry that stay registered, and the faults that were found."""
    blobs, reasons = [], []
    for blob in entry.blob_metadata:
        if (wrong := _why_not(blob, live)) is not None:
            reasons.append(wrong)
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
    path = entry.statistics_path
    try:
        source = open_source(path, table.io, entry.file_size_in_bytes)
        try:
            puffin = PuffinReader(source, footer_length=entry.file_footer_size_in_bytes)
            for stored in puffin.metadata.blobs:
                if stored.type == THETA and list(stored.fields) == blob.fields:
                    return ThetaSketch.from_bytes(puffin.read_blob(stored), LARGEST_LG_K, path).ndv
        finally:
            source.close()
    except SidecarError as error:
        problems.append(str(error))
    return None
