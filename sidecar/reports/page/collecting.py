"""Collects the facts of a page about one table. Only the advice reads data files: a sample of their row groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    UUIDType,
)

from sidecar.bundle.fill import count_bits
from sidecar.errors import SidecarError
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.iceberg.listing import Listing, list_snapshot
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import lineage, one_version, snapshots_by_id
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import marked_blobs
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.puffin.types import THETA
from sidecar.reports.advising.advise import advise
from sidecar.reports.page.facts import (
    MOST_CELLS,
    ColumnFill,
    DistinctCount,
    ExampleLookup,
    SnapshotInfo,
    TableFacts,
)
from sidecar.reports.status.distinct_counts import marks_today, unregistered_counts
from sidecar.reports.status.indexes import LivePlaces, live_files, opened_sidecar
from sidecar.reports.status.table_status import status as status_of

MOST_COLUMNS = 8
"""The most columns in which example lookups are made."""
MOST_SNAPSHOTS = 60
MOST_FILTER_BYTES = 64 << 20
"""The most bytes of filters that are read for the picture of a column."""
TRUNCATED = 16
"""Texts and bytes of this length in bounds may be cut, so that no row has them."""
_LOOKED_UP = (IntegerType, LongType, DecimalType, StringType, BinaryType, FixedType, UUIDType)
"""Types of columns in which example lookups are made."""


def collect_facts(table: Table, *, with_advice: bool = True) -> TableFacts:
    """Collect what a page says about the current snapshot of ``table``.

    ``with_advice`` reads a sample of the data, as :func:`sidecar.advise` does. Raises the errors of
    :func:`sidecar.status` and of :func:`sidecar.advise`.
    """
    table = one_version(table)
    status = status_of(table)
    advice = advise(table) if with_advice and status.snapshot_id is not None else None
    warnings: list[str] = []
    facts = TableFacts(status, [], [], [], list(_snapshots(table)), advice, warnings)
    if status.snapshot_id is None:
        return facts
    listing = list_snapshot(table)
    with opened_sidecar(table, listing) as search:
        warnings += search.warnings
        if search.found is not None:
            live = live_files(search.found, listing)
            facts.fill.extend(_fill(table, listing, live, warnings))
            facts.distinct.extend(_distinct(table, listing, search.found, live, warnings))
    for column in list(status.lookups)[:MOST_COLUMNS]:
        facts.lookups.extend(_lookups(table, listing, column, warnings))
    return facts


def _lookups(table: Table, listing: Listing, column: str, warnings: list[str]) -> Iterator[ExampleLookup]:
    """Plan a lookup of the lower bound of the middle file that has one, and one of the value beside it."""
    field = table.schema().find_field(column)
    kind = field.field_type
    if not isinstance(kind, _LOOKED_UP):
        return
    bounds = [bound.lower for file in listing.files if (bound := file.bounds.get(field.field_id)) and bound.lower]
    if not bounds:
        return
    value = _value(kind, bounds[len(bounds) // 2])
    beside = None if value is None else _beside(kind, value)
    asked = [("a value of a file", value), ("a value beside it", beside)]
    if isinstance(value, str | bytes) and len(value) >= TRUNCATED:
        del asked[0]
    for of, wanted in asked:
        if wanted is None:
            continue
        try:
            planned = plan(table, EqualTo(term=Reference(column), value=wanted), allow_equality_deletes=True)
        except SidecarError as error:
            warnings.append(f"no example lookup in {column}: {error}")
            return
        yield _example(column, of, planned)


def _example(column: str, of: str, planned: Plan) -> ExampleLookup:
    funnel = planned.funnel
    after_bounds = funnel.total - funnel.dropped_by_metadata
    return ExampleLookup(
        column=column,
        of=of,
        files=funnel.total,
        after_bounds=after_bounds,
        after_filters=after_bounds - funnel.dropped_by_filter,
        kept=planned.files_kept,
        bytes_kept=sum(task.file.file_size_in_bytes for task in planned.tasks),
        index_reads=planned.index_reads,
        index_bytes=planned.index_bytes_read,
    )


def _value(kind: PrimitiveType, bound: bytes) -> Any:
    """Return the value of a bound; ``None`` if it is none of the type."""
    try:
        return from_bytes(kind, bound)
    except Exception:  # bounds are written by others; the page is drawn without the example
        return None


def _beside(kind: PrimitiveType, value: Any) -> Any:
    if isinstance(kind, IntegerType | LongType):
        return value + 1 if value < kind.max else None
    if isinstance(kind, DecimalType):
        return value + Decimal(1).scaleb(-kind.scale)
    if isinstance(kind, UUIDType):
        return uuid.UUID(int=(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value)).int ^ 1)
    if isinstance(kind, FixedType):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else None
    return value + ("!" if isinstance(value, str) else b"!")


def _fill(table: Table, listing: Listing, live: LivePlaces, warnings: list[str]) -> Iterator[ColumnFill]:
    """Read filters, at most :data:`MOST_FILTER_BYTES` of each column, and count their bits by file.

    Columns whose filters are encrypted are left out.
    """
    age = [(file.known_as.file_sequence_number, file.path) for file in listing.files]
    in_order = sorted(range(len(age)), key=age.__getitem__)
    owners = np.full(live.sidecar.num_units, -1, np.int64)
    counts = live.sidecar.count_flags(np.ones(len(owners), np.bool_), live.places.numbers)
    owners[live.sidecar.units_of(live.places.numbers)] = np.repeat(live.places.at, counts)
    for field_id in live.sidecar.filtered_fields:
        column, groups = table.schema().find_column_name(field_id), [*live.sidecar.groups_of(field_id)]
        if column is None or any(bundle.toc.lock is not None for bundle, _, _ in groups):
            continue
        sums, counts = np.zeros(len(listing.files)), np.zeros(len(listing.files), np.int64)
        total = read = size = 0
        for bundle, group, units in groups:
            total += group.layout.members
            size += group.layout.length
            if size > MOST_FILTER_BYTES:
                continue
            try:
                shares, _ = count_bits(bundle, group)
            except SidecarError as error:
                warnings.append(f"filters of {column} cannot be read: {error}")
                continue
            read += len(shares)
            known = owners[units] >= 0
            np.add.at(sums, owners[units][known], shares[known])
            np.add.at(counts, owners[units][known], 1)
        yield ColumnFill(column, _cells(sums[in_order], counts[in_order]), read, total)


def _cells(sums: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> list[float | None]:
    """Return the mean of each file, or of neighbours if there are too many files."""
    step = max(1, -(-len(sums) // MOST_CELLS))
    starts = np.arange(0, len(sums), step)
    if not len(starts):
        return []
    added, numbers = np.add.reduceat(sums, starts), np.add.reduceat(counts, starts)
    return [float(a / n) if n else None for a, n in zip(added.tolist(), numbers.tolist(), strict=True)]


def _distinct(
    table: Table, listing: Listing, found: FoundSidecar, live: LivePlaces, warnings: list[str]
) -> Iterator[DistinctCount]:
    sidecar, path = found.sidecar, found.statistics.statistics_path
    unregistered = unregistered_counts(listing, found, live.places)
    for blob in marked_blobs(found.statistics, sidecar.puffin.metadata):
        column = table.schema().find_column_name(blob.fields[0]) if len(blob.fields) == 1 else None
        if blob.type != THETA or column is None:
            continue
        try:
            sketch = ThetaSketch.from_bytes(sidecar.puffin.read_blob(blob), LARGEST_LG_K, path)
        except SidecarError as error:
            warnings.append(f"the sketch of {column} cannot be read: {error}")
            continue
        low, high = int(sketch.lower_bound()), round(sketch.upper_bound())
        _, marks = unregistered.get(blob.fields[0]) or (0, marks_today(table, listing, blob, found.snapshot_id))
        yield DistinctCount(column, sketch.ndv, low, high, marks.upper_bound, marks.lower_bound)


def _snapshots(table: Table) -> Iterator[SnapshotInfo]:
    """Yield the last snapshots, oldest first."""
    entries = statistics_of(table)
    known = snapshots_by_id(table)
    last = islice((known[one] for one in lineage(table, None) if one in known), MOST_SNAPSHOTS)
    for snapshot in reversed(list(last)):
        summary = snapshot.summary
        registered = entries.get(snapshot.snapshot_id, ())
        yield SnapshotInfo(
            snapshot_id=snapshot.snapshot_id,
            committed=snapshot.timestamp_ms / 1000,
            operation=None if summary is None else str(summary.operation.value),
            files=_total(summary, "total-data-files"),
            rows=_total(summary, "total-records"),
            statistics_bytes=sum(entry.file_size_in_bytes for entry in registered) if registered else None,
        )


def _total(summary: Any, name: str) -> int | None:
    text = None if summary is None else summary.get(name)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
