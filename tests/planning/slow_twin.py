"""A slow twin of the choice of files: file by file, unit by unit and value by value, without sets and their order.

It reads every manifest with pyiceberg, and asks each segment of the sidecar about each file by the file's fingerprint.
Nothing of it is in :mod:`sidecar.planning.files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.segment import Segment
from sidecar.filters.probes import FieldQuestion, ValueProbes
from sidecar.iceberg.manifests import identity_of
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.iceberg.refs import table_at
from sidecar.iceberg.resolve import resolution_holds
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.iceberg.struct_nulls import keeping_struct_nulls
from sidecar.planning.evaluators import evaluators_of
from sidecar.planning.file_question import FileQuestion
from sidecar.questions.conditions import AllOf, Condition, HoldsAny


@dataclass
class SlowFile:
    """What is known of one live data file."""

    path: str
    may_match: bool
    """Whether the manifest's summary, the partition and bounds allow a match."""
    passes: bool
    """Whether the manifest's summary allows a match."""
    denied: bool = False
    """Whether a segment that lists the file has no row group that may match."""
    is_listed: bool = False
    is_indexed: bool = False
    """Whether filters could have denied it."""
    is_in_listed_manifest: bool = False

    @property
    def is_kept(self) -> bool:
        return self.may_match and not self.denied


@dataclass
class SlowPlan:
    """All live files of a snapshot, in the order of the manifests."""

    asks_filters: bool
    """Whether the snapshot has a sidecar, and the predicate asks something of filters."""
    files: list[SlowFile] = field(default_factory=list)
    has_equality_deletes: bool = False
    """Whether the snapshot has some, so that pyiceberg refuses to read it."""

    def paths(self) -> list[str]:
        return [file.path for file in self.files if file.is_kept]

    def count(self, **wanted: bool) -> int:
        return sum(all(getattr(file, name) == value for name, value in wanted.items()) for file in self.files)


def slow_plan(table: Table, text: str, snapshot_id: int | None = None) -> SlowPlan:
    """Judge each file of a snapshot by itself."""
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    table, _ = table_at(table, snapshot_id)
    schema = table.schema()
    row_filter = as_expression(text, schema)
    question = FileQuestion(keeping_struct_nulls(row_filter, schema), schema).for_filters.condition
    evaluators = evaluators_of(table.scan(row_filter=row_filter, snapshot_id=snapshot.snapshot_id))
    with closing(_Segments(table, snapshot.snapshot_id)) as segments:
        planned = SlowPlan(question is not None and segments.are_there)
        for line in snapshot.manifests(table.io):
            if line.content != ManifestContent.DATA:
                deletes = (entry.data_file.content for entry in line.fetch_manifest_entry(table.io))
                planned.has_equality_deletes |= DataFileContent.EQUALITY_DELETES in deletes
                continue
            passes, is_listed = evaluators.manifest(line), segments.list_manifest(line)
            for entry in line.fetch_manifest_entry(table.io, discard_deleted=True):
                data = entry.data_file
                file = SlowFile(data.file_path, passes and evaluators.match(line, data), passes)
                file.is_in_listed_manifest = is_listed
                for segment, units in segments.places(identity_of(entry)):
                    file.is_listed = True
                    if question is not None and len(units):
                        matches = [segments.matches(question, segment, unit) for unit in units]
                        file.denied |= not any(matches)
                        file.is_indexed |= not any(_could_not_answer(question, segment, unit) for unit in units)
                planned.files.append(file)
    return planned


class _Segments:
    """The segments of a snapshot's sidecar; none if it has none."""

    def __init__(self, table: Table, snapshot_id: int) -> None:
        self._found = find_sidecar(table, Access(), snapshot_id)
        self._table = table
        self._segments = [] if self._found is None else list(self._found.sidecar.segments)
        self._files = SidecarFiles(self._segments, table.location())
        self._known: dict[Any, np.ndarray] = {}

    @property
    def are_there(self) -> bool:
        return self._found is not None

    def list_manifest(self, line: ManifestFile) -> bool:
        known = (m for segment in self._segments for m in segment.listed_manifests)
        return any((m.path, m.length, m.added_snapshot_id) == _facts(line) for m in known)

    def places(self, file: Any) -> Iterator[tuple[Segment, range]]:
        """Yield the segments that list a file, with its units: under its present path, else under an earlier one."""
        each = [(segment, segment.file_ordinal(file)) for segment in self._segments if file.is_certain]
        found = [(segment, ordinal) for segment, ordinal in each if ordinal is not None]
        if not found and file.is_certain:
            numbers = self._files.earlier(file)
            found = [
                (s, n - s.first_file) for s in self._segments for n in numbers if 0 <= n - s.first_file < s.num_files
            ]
        for segment, ordinal in found:
            yield segment, range(*segment.unit_ranges[ordinal : ordinal + 2].tolist())

    def matches(self, condition: Condition, segment: Segment, unit: int) -> bool:
        """Whether a unit may have such rows."""
        if isinstance(condition, HoldsAny):
            return any(bool(self._holding(condition, value, segment)[unit]) for value in condition.values)
        each = (self.matches(part, segment, unit) for part in condition.parts)  # type: ignore[union-attr]
        return all(each) if isinstance(condition, AllOf) else any(each)

    def _holding(self, leaf: HoldsAny, value: Any, segment: Segment) -> np.ndarray:
        """bool[units]: those whose filter has one value, or that have none."""
        column, key = leaf.column, (segment.id, leaf.column.index, repr(value))
        if key not in self._known:
            mapping, schema = self._table.metadata.name_mapping(), self._table.schema()
            ways = {group.resolution for group in segment.groups_of(column.index)}
            held = {(column.index, way): resolution_holds(way, column.index, mapping, schema) for way in ways}
            probes = ValueProbes([value], column.iceberg_type)
            self._known[key] = segment.might_match(FieldQuestion(column.index, probes, held))
        return self._known[key]

    def close(self) -> None:
        if self._found is not None:
            self._found.sidecar.close()


def _facts(line: ManifestFile) -> tuple[str, int, int | None]:
    return line.manifest_path, line.manifest_length, line.added_snapshot_id


def _could_not_answer(condition: Condition, segment: Segment, unit: int) -> bool:
    """Whether a unit would match even if every filter that there is said no."""
    if isinstance(condition, HoldsAny):
        units = np.zeros(segment.num_units, np.bool_)
        for group in segment.fields.get(condition.column.index, ()):
            units[group.units] = True
        return not units[unit]
    each = [_could_not_answer(part, segment, unit) for part in condition.parts]  # type: ignore[union-attr]
    return all(each) if isinstance(condition, AllOf) else any(each)
