"""A file is dropped only if all its row groups are known not to match; where the sidecar is no use, notes say why."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.fingerprints import Fingerprints, fingerprint
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import ComparedColumn
from sidecar.filters.probes import FieldQuestion
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files.by_filters import IndexedFiles, by_filters, places_of
from sidecar.planning.files.file_set import FileSet
from sidecar.planning.files.sources import PlannedFiles
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.planner import plan
from sidecar.questions.conditions import AllOf, AnyOf, Condition, HoldsAny
from sidecar.questions.row_ranges import RowRanges
from tests.planning.plan_cases import create_longs


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Five files, indexed."""
    return create_longs(catalog, "db.file_pruner")


class FakeSegment:
    """A segment of four files: two row groups, one, none that is known, one."""

    def __init__(self, holds: list[set[int]], fields: dict[int, list[int]]) -> None:
        self.holds = holds
        self.num_files = self.num_units = 4
        self.first_file = self.first_unit = 0
        self.unit_ranges = np.array([0, 2, 3, 3, 4])
        self.fields = {field: [type("Group", (), {"units": np.array(units)})] for field, units in fields.items()}
        self.listed_manifests: list[Any] = []
        self.header = SimpleNamespace(sequence_number=0)

    files_with, _without_units = Segment.files_with, Segment._without_units

    def groups_of(self, field_id: int) -> list[Any]:
        return self.fields.get(field_id, [])

    def ordinals_of(self, fingerprints: Fingerprints) -> np.ndarray:
        known = {fingerprint(live(str(n))): n for n in range(4)}
        return np.array([known.get(one.tobytes(), -1) for one in fingerprints])

    def file_ordinal(self, _file: DataFileIdentity) -> None:
        return None

    def coverage(self, _field: int, _kind: str) -> None:
        return None

    def might_match(self, question: FieldQuestion) -> np.ndarray:
        hashes = {one for probe in question.probes[Encoding.parse("int64")] for one in probe.hashes}
        known = {unit for group in self.groups_of(question.field_id) for unit in group.units.tolist()}
        return np.array([unit not in known or bool(hashes & held) for unit, held in enumerate(self.holds)])


def indexed(segments: list[Any], question: Condition) -> IndexedFiles:
    for at, segment in enumerate(segments):
        segment.first_file = segment.first_unit = 4 * at
    return IndexedFiles(SidecarFiles(segments, "file:/t"), question)


def column(field_id: int, name: str) -> ComparedColumn:
    return ComparedColumn(field_id, "long", Encoding.parse("int64"), name)


def hashes_of(*values: int) -> set[int]:
    from sidecar.filters.values import probe_hashes

    return {h for value in values for h in probe_hashes(value, "long", Encoding.parse("int64")).hashes}


def live(path: str) -> DataFileIdentity:
    return DataFileIdentity(path, 0, 0, added_snapshot_id=1)


def files(*identities: DataFileIdentity | None) -> FileSet[PlannedFiles]:
    return FileSet.all(PlannedFiles([""] * len(identities), identities))


def keeps(index: IndexedFiles) -> list[bool]:
    left = by_filters(files(*(live(str(n)) for n in range(4))), index)
    return [row in left.rows for row in range(4)]


def reason(index: IndexedFiles, file: DataFileIdentity | None) -> Any:
    """Why a file is kept."""
    left = by_filters(files(file), index)
    assert len(left) == 1
    assert left.reasons is not None
    return left.reasons.each()[0]


def test_a_file_is_dropped_only_if_every_row_group_of_it_is_known_not_to_match() -> None:
    one = HoldsAny(column(1, "a"), (1,))
    holds = [hashes_of(9), hashes_of(1), hashes_of(9), hashes_of(9)]
    everything = FakeSegment(holds, {1: [0, 1, 2, 3]})
    assert keeps(indexed([everything], one)) == [True, False, True, False]
    partly = FakeSegment([set()] * 4, {1: [0, 2, 3]})
    assert keeps(indexed([partly], one)) == [True, False, True, False]
    assert reason(indexed([partly], one), live("elsewhere")) is KeptFilesBecause.NOT_LISTED
    assert reason(indexed([partly], one), live("2")).text.startswith("not indexed")


def test_files_of_units_are_those_with_one_of_them_and_those_without_units() -> None:
    segment = FakeSegment([], {})
    for chosen in range(1 << segment.num_units):
        units = [unit for unit in range(segment.num_units) if chosen >> unit & 1]
        ranges = list(enumerate(pairwise(segment.unit_ranges.tolist())))
        files = [file for file, (start, end) in ranges if start == end or set(range(start, end)) & set(units)]
        assert segment.files_with(RowRanges.of_rows(np.array(units, np.int64))).rows().tolist() == files
    unknown = FakeSegment([], {})
    unknown.unit_ranges = np.zeros(5, np.int64)  # damage: every file is kept
    assert unknown.files_with(RowRanges.all(4)) == unknown.files_with(RowRanges()) == RowRanges.all(4)


def test_each_segment_that_lists_a_file_can_drop_it() -> None:
    question = AllOf((HoldsAny(column(1, "a"), (1,)), HoldsAny(column(2, "b"), (2,))))
    first = FakeSegment([hashes_of(1)] * 4, {1: [0, 1, 2, 3]})
    second = FakeSegment([hashes_of(2), hashes_of(2), hashes_of(9), hashes_of(2)], {2: [0, 1, 2, 3]})
    assert keeps(indexed([first, second], question)) == [True, False, True, True]
    for unknown in (None, live("1")._replace(added_snapshot_id=None)):
        asked = indexed([first, second], question)
        assert reason(asked, unknown) is KeptFilesBecause.NOT_LISTED
        assert places_of(files(unknown), asked) == [[]]
    either = AnyOf(question.parts)
    assert keeps(indexed([second], either)) == [True] * 4


def test_a_line_of_the_manifest_list_must_be_the_listed_manifest(table: Table) -> None:
    from sidecar.iceberg.manifests import read_manifests
    from sidecar.iceberg.recorded_entries import is_listed
    from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar

    found = find_sidecar(table, Access())
    assert found is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    line: ManifestFile = read_manifests(table.io, snapshot.manifest_list)[0]
    entry = next(m for m in found.sidecar.segments[0].listed_manifests if m.path == line.manifest_path)
    found.sidecar.close()
    assert is_listed(line, entry)
    for position, value in (
        (0, "other"),
        (1, 1),
        (2, 5),
        (3, 1),
        (4, 99),
        (6, 99),
        (6, None),
        (7, 99),
        (10, 99),
    ):
        changed = type(line)(*line._data)
        changed._data[position] = value
        assert not is_listed(changed, entry), position
    unknown = type(line)(*line._data)
    unknown._data[6] = 0
    assert not is_listed(unknown, replace(entry, added_snapshot_id=0))


def test_notes_come_from_the_question(table: Table) -> None:

    schema = table.schema()
    text = " or ".join(f"k = {n}" for n in range(150))
    asked = FileQuestion(parse_predicate(text, schema), schema).for_filters
    assert plan(table, text).notes == asked.notes != ()
