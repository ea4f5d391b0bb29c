"""Says which indexes a table has: coverage by column and kind, segments, sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.access import Access
from sidecar.bundle.kinds.declared import KINDS, THETA
from sidecar.bundle.model import Coverage, UnitState
from sidecar.bundle.sidecar_file import Segment
from sidecar.bundle.sketches.count_marks import CountMarks
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, StatisticsDoubt, look_for_sidecar
from sidecar.iceberg.statistics_files.merge import NDV
from sidecar.reports.status.distinct_counts import marks_today, unregistered_counts
from sidecar.results.base import Result


@dataclass(frozen=True, repr=False, slots=True)
class TableSidecarInfo(Result):
    """The sidecar file that answers for a snapshot. Sizes are in bytes."""

    path: str
    """The path of the file."""
    snapshot_id: int
    """The snapshot that the sidecar was built for."""
    snapshots_behind: int
    """How many commits this snapshot is older than the one that was asked about."""
    file_size: int
    """The size of the file."""
    footer_size: int
    """The size of its footer."""


@dataclass(frozen=True, repr=False, slots=True)
class TableFileCounts(Result):
    """The number of a snapshot's data files."""

    live: int
    """The data files of the snapshot."""
    listed: int
    """Those that the sidecar lists."""


@dataclass(frozen=True, repr=False, slots=True)
class KindCoverage(Result):
    """How much of a column has one kind of index."""

    omitted_if_none = ("files", "units", "not_indexed", "bytes", "ndv", "upper_bound", "lower_bound", "registered")

    files: int | None = None
    """The files in which some row group has the index; ``None`` if only the sketch of the whole table is known."""
    units: int | None = None
    """The row groups that have the index."""
    not_indexed: dict[str, int] | None = None
    """The number of row groups without it by reason."""
    bytes: int | None = None
    """The size of filters in bytes; ``None`` for other kinds."""
    ndv: int | None = None
    """The number of distinct values in the table; ``None`` if there is no sketch."""
    upper_bound: list[str] | None = None
    """Why this number is only an upper bound: ``removed-files``, ``row-deletes``; ``None`` if it is not known to be
    one."""
    lower_bound: list[str] | None = None
    """Why this number is only a lower bound: ``files-not-counted``; ``None`` if it is not known to be one. With
    both, it is neither."""
    registered: bool | None = None
    """Whether the table's metadata names this number, so that engines use it. ``None`` if there is no sketch."""


@dataclass(frozen=True, repr=False, slots=True)
class TableSegmentInfo(Result):
    """What one build added to the sidecar."""

    id: str
    """The id of the segment as hexadecimal digits."""
    snapshot_id: int
    """The snapshot that was indexed."""
    created: str
    """When the segment was built, ISO 8601 in UTC."""
    files: int
    """The number of data files that it lists."""
    live_files: int
    """Those that the snapshot still has."""
    units: int
    """The number of row groups of all its files."""
    bytes: int
    """The size of its blobs in bytes."""


def describe_indexes(
    table: Table,
    listing: Listing,
    found: FoundSidecar | None,
    live: list[dict[int, int]],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Describe the sidecar that was found for a listed snapshot. ``live`` is what :func:`live_files` returns."""
    segments = found.sidecar.segments if found else []
    return {
        "sidecar": None if found is None else _describe(table, listing, found),
        "files": TableFileCounts(len(listing.files), len(set().union(*(set(ordinals) for ordinals in live)))),
        "coverage": {} if found is None else _coverage(table, listing, found, live),
        "segments": [_describe_segment(segment, len(files)) for segment, files in zip(segments, live, strict=True)],
        "warnings": list(dict.fromkeys([*warnings, *(found.sidecar.warnings if found else ())])),
    }


def _describe_segment(segment: Segment, live: int) -> TableSegmentInfo:
    return TableSegmentInfo(
        id=segment.id,
        snapshot_id=segment.snapshot_id,
        created=segment.header.created_at,
        files=segment.num_files,
        live_files=live,
        units=segment.num_units,
        bytes=sum(entry.length for entry in segment.entries),
    )


@contextmanager
def opened_sidecar(
    table: Table, listing: Listing, warnings: list[str], passed: list[StatisticsFile] | None = None
) -> Iterator[FoundSidecar | None]:
    """Open the sidecar that answers for a listed snapshot, and close it afterwards. Errors in it go to ``warnings``.

    ``passed`` gets the nearer entries that were passed over.
    """
    doubts: list[StatisticsDoubt] = []
    found = look_for_sidecar(table, Access(table.io), listing.snapshot_id, doubts, passed=passed)
    warnings += [doubt.text for doubt in doubts]
    try:
        yield found
    finally:
        if found is not None:
            found.sidecar.close()


def _describe(table: Table, listing: Listing, found: FoundSidecar) -> TableSidecarInfo:
    entry = found.statistics
    return TableSidecarInfo(
        path=entry.statistics_path,
        snapshot_id=found.snapshot_id,
        snapshots_behind=generations(table, listing.snapshot_id, found.snapshot_id),
        file_size=entry.file_size_in_bytes,
        footer_size=entry.file_footer_size_in_bytes,
    )


def live_files(found: FoundSidecar | None, listing: Listing) -> list[dict[int, int]]:
    """Return for each segment the live files that it lists: their ordinals in the listing, and in the segment."""
    if found is None:
        return []
    live: list[dict[int, int]] = [{} for _ in found.files.segments]
    for file in listing.files:
        for number, ordinal in found.files.find(file.known_as).items():
            live[number][file.ordinal] = ordinal
    return live


def _coverage(
    table: Table, listing: Listing, found: FoundSidecar, live: list[dict[int, int]]
) -> dict[str, dict[str, KindCoverage]]:
    """Add up the coverage of live files in all segments; a file in two segments counts in the newer one only."""
    schema = table.schema()
    coverage: dict[str, dict[str, KindCoverage]] = {}
    counted: dict[tuple[int, str], set[int]] = {}
    for segment, files in reversed(list(zip(found.sidecar.segments, live, strict=True))):
        for states in segment.coverages:
            column = schema.find_column_name(states.field_id) or f"field {states.field_id}"
            kinds = coverage.setdefault(column, {})
            before = counted.setdefault((states.field_id, states.kind), set())
            new = [ordinal for number, ordinal in files.items() if number not in before]
            before.update(files)
            kind = _with_states(kinds.get(states.kind, KindCoverage(0, 0, {})), states, segment, new)
            if (declared := KINDS.get(states.kind)) is not None and declared.status_has_bytes:
                blobs = (segment.opened[blob_type].get(states.field_id) for blob_type in declared.blob_types)
                stored = sum(blob.stored_bytes for blob in blobs if blob is not None)
                kind = replace(kind, bytes=(kind.bytes or 0) + stored)
            kinds[states.kind] = kind
    for (field_id, is_registered), (ndv, marks) in _counts(table, listing, found, live).items():
        if (name := schema.find_column_name(field_id)) is not None:
            kinds = coverage.setdefault(name, {})
            kinds[THETA] = replace(
                kinds.get(THETA, KindCoverage()),
                ndv=ndv,
                upper_bound=marks.upper_bound,
                lower_bound=marks.lower_bound,
                registered=is_registered,
            )
    return coverage


def _counts(
    table: Table, listing: Listing, found: FoundSidecar, live: list[dict[int, int]]
) -> dict[tuple[int, bool], tuple[int, CountMarks]]:
    """Return the distinct counts by field id and whether they are registered, the registered ones last."""
    counts = {(i, False): count for i, count in unregistered_counts(listing, found, live).items()}
    registered = statistics_of(table).get(found.snapshot_id, (found.statistics,))
    for blob in (blob for entry in reversed(registered) for blob in entry.blob_metadata):  # the first entry counts
        ndv = (blob.properties or {}).get(NDV, "")
        if len(blob.fields) == 1 and ndv.isascii() and ndv.isdigit():
            counts[blob.fields[0], True] = int(ndv), marks_today(table, listing, blob, found.snapshot_id)
    return counts


def _with_states(kind: KindCoverage, states: Coverage, segment: Segment, files: Sequence[int]) -> KindCoverage:
    """Return ``kind`` with the units of these files of a segment added."""
    ranges, indexed = segment.unit_ranges, []
    not_indexed = Counter(kind.not_indexed)
    for ordinal in files:
        units = slice(ranges[ordinal], ranges[ordinal + 1])
        indexed.append(int(states.indexed[units].sum()))
        not_indexed.update(states.states[code].state for code in states.codes[units].tolist())
    del not_indexed[UnitState.INDEXED]
    return replace(
        kind,
        files=(kind.files or 0) + sum(count > 0 for count in indexed),
        units=(kind.units or 0) + sum(indexed),
        not_indexed=dict(not_indexed),
    )
