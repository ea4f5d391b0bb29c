"""Asks the filters of a table for one value, with an answer for each row group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table

from sidecar.bundle.model import FileEntry
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.crypto.keys import EncryptionKeys
from sidecar.filters.probes import AnyEncoding, probe_for
from sidecar.filters.values import Probe
from sidecar.iceberg.listing import ListedFile, list_snapshot
from sidecar.iceberg.literals import PredicateColumn, exact_value, find_column
from sidecar.iceberg.refs import check_readable, is_empty, table_at
from sidecar.iceberg.resolve import resolution_holds
from sidecar.iceberg.table_names import name_of
from sidecar.planning.files.by_filters import BLOOM, state_of
from sidecar.planning.funnel import KeptBecause
from sidecar.planning.inspect import live_files, opened_sidecar
from sidecar.results.base import ProbedRowGroup, Result

DAMAGED = "the index of this row group cannot be read, see the warnings"


@dataclass(frozen=True, repr=False, slots=True)
class TableProbe(Result):
    """The answers of a column's filters in a table."""

    table: str
    """The name of the table."""
    snapshot_id: int | None
    """The snapshot that was asked about."""
    column: str
    """The name of the column."""
    units: list[ProbedRowGroup]
    """The answer for each row group of each data file."""
    index_reads: int
    """The number of reads from the sidecar."""
    warnings: list[str]
    """What is wrong with the sidecar, in words."""


def probe_table(
    table: Table,
    column: str,
    value: object,
    *,
    at: int | str | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> TableProbe:
    """Ask the filters of one ``column`` for one value, in a snapshot of ``table``.

    ``at`` is a snapshot id, a branch or a tag, by default the current snapshot. The name is as in the
    schema in which a plan reads it. ``value`` is a text as
    a person writes it, or a value that the column's type takes exactly. The result has an answer for each row group of
    each live file. A file whose row groups are unknown has one answer with ``row_group`` ``None``.
    ``encryption_keys`` open encrypted filters. Raises :class:`sidecar.errors.UsageError` for an unknown column and for
    a value that does not fit it.
    """
    table, snapshot_id = table_at(table, at)
    check_readable(table, snapshot_id)
    found_column = find_column(table.schema(), column)
    literal = exact_value(value, found_column)
    if is_empty(table, snapshot_id):
        return _answer(table, None, found_column, [], 0, [])
    listing = list_snapshot(table, snapshot_id)
    warnings: list[str] = []
    with opened_sidecar(table, listing, warnings) as found:
        segments: list[Segment] = []
        if found is not None:
            found.use_keys(table, encryption_keys)
            segments = found.sidecar.vouched_segments([found_column.field_id])
        probes = [
            _probe(table, found.sidecar, segment, files, found_column, literal)
            for segment, files in zip(segments, live_files(table, segments, listing), strict=True)
            if found
        ]
        units = [unit for file in listing.files for unit in _units_of(file, probes)]
        if found is not None:
            warnings += found.sidecar.warnings
        reads = found.sidecar.index_reads if found else 0
    return _answer(table, listing.snapshot_id, found_column, units, reads, warnings)


def _answer(
    table: Table,
    snapshot_id: int | None,
    column: PredicateColumn,
    units: list[ProbedRowGroup],
    reads: int,
    warnings: list[str],
) -> TableProbe:
    return TableProbe(
        table=name_of(table),
        snapshot_id=snapshot_id,
        column=column.name,
        units=units,
        index_reads=reads,
        warnings=list(dict.fromkeys(warnings)),
    )


@dataclass(frozen=True)
class _Probed:
    """One segment's answer about one value: whether each unit may hold it (``may``), or why this is unknown."""

    segment: Segment
    files: dict[int, int]
    """Ordinals of the snapshot's files in the segment, by their ordinals in the listing."""
    may: npt.NDArray[np.bool_]
    unknown: list[str | None]
    entries: dict[int, FileEntry | None]

    def units(self, file: ListedFile) -> list[ProbedRowGroup] | None:
        ordinal = self.files.get(file.ordinal)
        if ordinal is None:
            return None
        first, last = self.segment.unit_ranges[ordinal], self.segment.unit_ranges[ordinal + 1]
        entry = self.entries[ordinal]
        answers = []
        for unit in range(first, last):
            row_group = None if entry is None else entry.units[unit - first].row_group
            reason = self.unknown[unit]
            contains = bool(self.may[unit]) if reason is None else None
            text = reason or ("the filter admits it" if contains else "the filter excludes it")
            answers.append(_unit(file, row_group, contains, text))
        return answers or [_unit(file, None, None, "no row group of the file was indexed")]


def _unit(file: ListedFile, row_group: int | None, contains: bool | None, reason: str) -> ProbedRowGroup:
    return ProbedRowGroup(file=file.path, row_group=row_group, might_contain=contains, reason=reason)


def _units_of(file: ListedFile, probes: list[_Probed]) -> list[ProbedRowGroup]:
    """Return the units of a file as the first segment answers that is certain of one, else as the first one answers."""
    answers = [units for units in (probe.units(file) for probe in probes) if units is not None]
    if not answers:
        return [_unit(file, None, None, KeptBecause.NOT_LISTED.text)]
    certain = [units for units in answers if any(unit.might_contain is not None for unit in units)]
    return (certain or answers)[0]


def _probe(
    table: Table,
    sidecar: SidecarFile,
    segment: Segment,
    live: dict[int, int],
    column: PredicateColumn,
    value: Any,
) -> _Probed:
    mapping, schema = table.metadata.name_mapping(), table.schema()

    def probe(encoding: AnyEncoding) -> Probe:
        return probe_for(value, str(column.type), encoding)

    def holds(resolution: str) -> bool:
        return resolution_holds(resolution, column.field_id, mapping, schema)

    coverage = segment.coverage(column.field_id, BLOOM)
    unknown: list[str | None] = [f"not indexed: {state_of(coverage, unit)}" for unit in range(segment.num_units)]
    for group in segment.groups_of(column.field_id):
        reason = None
        if not holds(group.resolution):
            reason = f"the column was indexed as {group.resolution}, but is not found in that way today"
        elif (answer := probe(group.rule.parse_encoding(group.encoding))).verdict == "unknown":
            reason = answer.reason or "nothing certain can be said of this value"
        for unit in group.ordinals().tolist():
            unknown[unit] = reason
    before = len(sidecar.warnings)
    may = segment.might_match(column.field_id, probe, holds)
    if len(sidecar.warnings) > before:
        unknown = [DAMAGED if may[unit] and reason is None else reason for unit, reason in enumerate(unknown)]
    files = segment.files(range(segment.num_files))
    return _Probed(segment, live, may, unknown, dict(enumerate(files)))
