"""Says which indexes a table has: coverage by column and kind, segments, sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.kinds.declared import KINDS, THETA
from sidecar.bundle.model import Coverage, UnitState
from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.bundle.segment import Segment
from sidecar.bundle.sketches.count_marks import CountMarks, count_of
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, NearestSidecar, search_sidecar
from sidecar.iceberg.statistics_files.sidecar_files import Places
from sidecar.indexing.previous.carrying import listed_again
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
    """Files that the sidecar lists."""


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
    """Files of the segment that the snapshot still has."""
    units: int
    """The number of row groups of all its files."""
    bytes: int
    """The size of its blobs in bytes."""


def describe_indexes(
    table: Table,
    listing: Listing,
    found: FoundSidecar | None,
    live: LivePlaces,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Describe the sidecar that was found for a listed snapshot."""
    in_segment = {segment.id: len(at) for segment, at, _ in live.sidecar.of_files(live.places.numbers)}
    return {
        "sidecar": None if found is None else _describe(table, listing, found),
        "files": TableFileCounts(len(listing.files), len(np.unique(live.places.at))),
        "coverage": {} if found is None else _coverage(table, listing, found, live),
        "segments": [_describe_segment(one, in_segment.get(one.id, 0)) for one in live.sidecar.segments],
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
def opened_sidecar(table: Table, listing: Listing) -> Iterator[NearestSidecar]:
    """Open the sidecar that answers for a listed snapshot, and close it afterwards."""
    search = search_sidecar(table, Access(table.io), listing.snapshot_id)
    try:
        yield search
    finally:
        if search.found is not None:
            search.found.sidecar.close()


def _describe(table: Table, listing: Listing, found: FoundSidecar) -> TableSidecarInfo:
    entry = found.statistics
    return TableSidecarInfo(
        path=entry.statistics_path,
        snapshot_id=found.snapshot_id,
        snapshots_behind=generations(table, listing.snapshot_id, found.snapshot_id),
        file_size=entry.file_size_in_bytes,
        footer_size=entry.file_footer_size_in_bytes,
    )


class LivePlaces(NamedTuple):
    """Where a sidecar lists the files of a snapshot."""

    sidecar: NumberedFiles
    places: Places
    """Ordinals of files in the listing of the snapshot, and their numbers in the sidecar."""


def live_files(found: FoundSidecar | None, listing: Listing) -> LivePlaces:
    """Return where the sidecar lists the files of a snapshot; nowhere without one."""
    if found is None:
        return LivePlaces(NumberedFiles(()), Places.joined(()))
    pairs = [(file.ordinal, number) for file in listing.files for number in found.files.find(file.known_as)]
    for segment in found.files.segments:
        pairs += [(at, segment.first_file + own) for at, own in listed_again(segment, listing.files).items()]
    return LivePlaces(found.files, Places(*np.array(pairs, np.int64).reshape(-1, 2).T))


def _coverage(
    table: Table, listing: Listing, found: FoundSidecar, live: LivePlaces
) -> dict[str, dict[str, KindCoverage]]:
    """Add up the coverage of live files in all segments; a file in two segments counts in the newer one only."""
    schema, sidecar = table.schema(), live.sidecar
    coverage: dict[str, dict[str, KindCoverage]] = {}
    for field_id, kind in sidecar.recorded:
        column = schema.find_column_name(field_id) or f"field {field_id}"
        states, is_recorded = sidecar.coverage(field_id, kind)
        recorded = is_recorded[live.places.numbers]
        newest = dict(zip(live.places.at[recorded].tolist(), live.places.numbers[recorded].tolist(), strict=True))
        counted = _counted(sidecar, states, np.array([*newest.values()], np.int64))
        if (declared := KINDS.get(kind)) is not None and declared.status_has_bytes:
            counted = replace(counted, bytes=sidecar.stored_bytes(field_id, declared.blob_types))
        coverage.setdefault(column, {})[kind] = counted
    for (field_id, is_registered), (ndv, marks) in _counts(table, listing, found, live.places).items():
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
    table: Table, listing: Listing, found: FoundSidecar, live: Places
) -> dict[tuple[int, bool], tuple[int, CountMarks]]:
    """Return the distinct counts by field id and whether they are registered, the registered ones last."""
    counts = {(i, False): count for i, count in unregistered_counts(listing, found, live).items()}
    registered = statistics_of(table).get(found.snapshot_id, (found.statistics,))
    for blob in (blob for entry in reversed(registered) for blob in entry.blob_metadata):  # the first entry counts
        if len(blob.fields) == 1 and (ndv := count_of(blob.properties)) is not None:
            counts[blob.fields[0], True] = ndv, marks_today(table, listing, blob, found.snapshot_id)
    return counts


def _counted(sidecar: NumberedFiles, states: Coverage, numbers: Ordinals) -> KindCoverage:
    """Return the coverage of some files."""
    indexed = sidecar.count_flags(states.indexed, numbers)
    codes = states.codes[sidecar.units_of(numbers)].tolist()
    not_indexed = Counter(states.states[code].state for code in codes)
    del not_indexed[UnitState.INDEXED]
    return KindCoverage(int((indexed > 0).sum()), int(indexed.sum()), dict(not_indexed))
