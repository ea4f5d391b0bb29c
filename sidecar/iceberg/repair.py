"""Mending what a table's metadata registers of statistics files, for all its snapshots.

Readers plan from the registered entries without opening the files, and some entries break them: types that pyiceberg
does not know (it refuses the table), and for Spark's cost-based optimiser, which fails while it plans joins, sketches
of no column or of a dropped one and an ``ndv`` that is no whole number. Such blobs are not registered any more; the
files, and so all blobs of others, stay byte for byte as they are. Entries whose file is gone are dropped.

No catalog lets a commit depend on statistics entries. An SQL catalog swaps the very version that was looked at; after
any other commit the table is looked at again, and an entry that somebody set meanwhile and we replaced is put back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveStatisticsUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)

from sidecar.errors import CommitConflictError, SidecarError
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.catalog import reload_table
from sidecar.iceberg.merge import NDV
from sidecar.iceberg.metadata_log import Statistics, displaced_between, statistics_of
from sidecar.iceberg.partial_loading import commit, left_out
from sidecar.iceberg.registering import REFUSED, check_format_version
from sidecar.iceberg.write_statistics import storage_error
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA
from sidecar.source import open_source

ATTEMPTS = 6
LARGEST_LG_K = 20
_LONG = re.compile(r"-?\d{1,18}", re.ASCII)
"""What Java's ``Long.parseLong`` takes for certain."""


@dataclass(frozen=True)
class Repair:
    """What becomes of the statistics entry of one snapshot; ``mended`` is ``None`` where it is dropped."""

    entry: StatisticsFile
    mended: StatisticsFile | None
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "snapshot_id": self.entry.snapshot_id,
            "statistics_path": self.entry.statistics_path,
            "action": "drop" if self.mended is None else "register anew",
            "reasons": list(self.reasons),
        }


def repair(table: Table, *, dry_run: bool = False) -> dict[str, Any]:
    """Register anew, in one commit, the statistics entries of ``table`` that break other readers; drop dead ones.

    Answers ``table``, ``dry_run``, ``entries`` (how many statistics entries there are), ``repairs``
    (``snapshot_id``, ``statistics_path``, ``action``: ``register anew`` or ``drop``, and ``reasons``) and
    ``problems``, what could not be judged and was left. With ``dry_run`` nothing is written.

    Raises :class:`sidecar.errors.UsageError` for a table that was opened from a metadata file (unless ``dry_run``),
    :class:`sidecar.errors.UnsupportedFeatureError` where pyiceberg cannot write the table's metadata,
    :class:`sidecar.errors.StorageError` where the catalog fails, and :class:`CommitConflictError` when other
    commits keep coming between.
    """
    done: dict[int, Repair] = {}
    problems: list[str] = []
    displaced: Statistics = {}
    for _ in range(ATTEMPTS):
        now = table if dry_run else reload_table(table)
        problems.clear()
        repairs = find_repairs(now, problems, displaced)
        if dry_run:
            done = {found.entry.snapshot_id: found for found in repairs}
        if dry_run or not repairs:
            return {
                "table": ".".join(table.name()),
                "dry_run": dry_run,
                "entries": len(now.metadata.statistics),
                "repairs": [found.to_dict() for found in done.values()],
                "problems": list(problems),
            }
        check_format_version(now)
        if _commit(now, repairs):
            done |= {found.entry.snapshot_id: found for found in repairs}
            changed = {found.entry.snapshot_id: found.mended for found in repairs}
            displaced = displaced_between(now, reload_table(now), changed)
    raise CommitConflictError(f"{ATTEMPTS} times another commit came between", hint="Try again.")


def find_repairs(table: Table, problems: list[str], displaced: Statistics | None = None) -> list[Repair]:
    """What is wrong with the table's statistics entries; ``problems`` grows by what cannot be judged.

    ``displaced`` are entries to be put back in the place of those that the table has.
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
    """Whether the file of an entry is certainly not there."""
    try:
        return not table.io.new_input(entry.statistics_path).exists()
    except Exception as error:
        problems.append(str(storage_error("cannot look for the file", error, table, entry.statistics_path)))
        return False


def _mended(
    table: Table, entry: StatisticsFile, live: set[int], problems: list[str]
) -> tuple[list[BlobMetadata], list[str]]:
    """The blobs of an entry that may stay registered, and what was wrong."""
    blobs, reasons = [], []
    for blob in entry.blob_metadata:
        if (wrong := _why_not(blob, live)) is not None:
            reasons.append(wrong)
            continue
        ndv = (blob.properties or {}).get(NDV)
        if ndv is None or _LONG.fullmatch(ndv):
            blobs.append(blob)
            continue
        told = f"field {blob.fields[0]}: its ndv '{ndv[:40]}' is no whole number"
        right = _ndv_of_sketch(table, entry, blob, problems)
        if right is not None:
            blobs.append(blob.model_copy(update={"properties": {**(blob.properties or {}), NDV: str(right)}}))
        reasons.append(
            told + (", the sketch cannot be read" if right is None else f", the sketch says {right}")
        )
    return blobs, reasons


def _why_not(blob: BlobMetadata, live: set[int]) -> str | None:
    """Why a blob must not be registered, whatever the file says of it."""
    if blob.type != THETA:
        return f"a {blob.type} blob of fields {blob.fields} is registered"
    if not blob.fields:
        return "a theta sketch of no field is registered"
    dropped = sorted(set(blob.fields) - live)
    if dropped:
        return f"a theta sketch of field {dropped[0]}, which the table has dropped, is registered"
    return None


def _ndv_of_sketch(
    table: Table, entry: StatisticsFile, blob: BlobMetadata, problems: list[str]
) -> int | None:
    """The estimate of the sketch that an entry speaks of, if the file has it and it can be read."""
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


def _commit(table: Table, repairs: list[Repair]) -> bool:
    """Commit to the table as it was looked at; ``False`` where another commit came between."""
    updates = tuple(_update(found) for found in repairs)
    try:
        commit(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)
    except CommitFailedException:
        return False
    except REFUSED as error:
        raise storage_error("the catalog refused the commit", error, table, None) from error
    except ValueError:
        # pyiceberg cannot read the answer, since more was registered meanwhile: what is there is looked at again
        return True
    except Exception as error:
        raise storage_error("the commit failed", error, table, None) from error
    return True


def _update(found: Repair) -> TableUpdate:
    if found.mended is None:
        return RemoveStatisticsUpdate.model_validate({"snapshot-id": found.entry.snapshot_id})
    return SetStatisticsUpdate.model_validate({"statistics": found.mended})
