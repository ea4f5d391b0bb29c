"""The units table of a merged segment: files, manifests, bounds, and the states of units."""

from __future__ import annotations

from sidecar.bundle.model import UNLISTED, CoverageState, FileEntry, UnitState
from tests.bundle.cases import copy_file, known_as
from tests.bundle.merging.lake import Key, Lake, OwnFilter, Part, merged, only, opened, write_parts

INDEXED = CoverageState(UnitState.INDEXED.value, "id")
OWN = OwnFilter(b"\1" * 32)


def states(data: bytes, field_id: int, kind: str) -> list[str]:
    coverage = only(opened(data, strict=True)).coverage(field_id, kind)
    return [] if coverage is None else [coverage.states[code].state for code in coverage.codes]


def all_of(files: range, state: CoverageState = INDEXED) -> dict[Key, CoverageState]:
    return {(file, 0): state for file in files}


def test_a_manifest_is_listed_only_if_all_its_files_are() -> None:
    lake = Lake([1] * 30)
    data, _ = write_parts(lake, [Part(range(15), {1: {(0, 0): OWN}}), Part(range(15, 30), number=1)])
    assert [len(s.listed_manifests) for s in opened(data).segments] == [1, 0]
    whole = only(opened(merged(lake, opened(data), list(range(30))), strict=True))
    assert [(m.first_file, m.live_files) for m in whole.listed_manifests] == [(0, 10), (10, 10), (20, 10)]
    files = whole.files(range(30))
    assert [file.manifest for file in files if file] == [0] * 10 + [1] * 10 + [2] * 10
    assert [file.entry for file in files if file] == [lake.entry(file).entry for file in range(30)]
    without = only(opened(merged(lake, opened(data), [f for f in range(30) if f != 12]), strict=True))
    assert [m.first_file for m in without.listed_manifests] == [0]
    assert without.num_files == 29
    assert without.file_ordinal(lake.entry(12).identity) is None
    assert without.file_ordinal(lake.entry(13).identity) == 12


def test_bounds_and_partitions_are_carried() -> None:
    lake = Lake([1, 0, 2])
    data, _ = write_parts(lake, [Part([2, 0]), Part([1], number=1)])
    segment = only(opened(merged(lake, opened(data), [0, 1, 2]), strict=True))
    bounds, partitions = segment.bounds(1), segment.partitions()
    assert bounds is not None
    assert partitions is not None
    assert bounds["upper"].to_pylist() == [n.to_bytes(8, "little") for n in range(3)]
    assert partitions["partition"].to_pylist() == [[n.to_bytes(4, "little")] for n in range(3)]
    assert segment.unit_ranges.tolist() == [0, 1, 1, 3]


def test_an_entry_that_was_not_recorded_stays_so() -> None:
    lake = Lake([1] * 3)
    data, _ = write_parts(lake, [Part(range(3), unlisted=frozenset([1]))])
    segment = only(opened(merged(lake, opened(data), [0, 1, 2]), strict=True))
    assert [bool(file.entry) for file in segment.files(range(3)) if file] == [True, False, True]


def test_the_header_is_that_of_the_newest_part() -> None:
    lake = Lake([1] * 3)
    stored = opened(write_parts(lake, [Part([0]), Part([1], number=1)])[0])
    header = only(opened(merged(lake, stored, [0, 1]), strict=True)).header
    assert (header.snapshot_id, header.sequence_number) == (71, 91)
    assert header.segment_id not in {segment.header.segment_id for segment in stored.segments}


def test_a_part_with_other_units_of_a_file_does_not_speak_for_it() -> None:
    """The file may have been replaced in place, so the older indexes are not of its rows."""

    class SameRows(Lake):
        def entry(self, ordinal: int, manifest: int = UNLISTED) -> FileEntry:
            return known_as(super().entry(ordinal, manifest), record_count=600)

    old, new = SameRows([2, 1]), SameRows([3, 1])
    old_data, _ = write_parts(old, [Part([0, 1], {1: {(0, 0): OWN, (0, 1): OWN, (1, 0): OWN}})])
    new_data, _ = write_parts(new, [Part([0], {4: {(0, 0): OWN}}, number=1)])
    data, _ = copy_file(opened(old_data), opened(new_data))
    both = opened(data, strict=True)
    segment = only(opened(merged(new, both, [0, 1]), strict=True))
    assert segment.unit_ranges.tolist() == [0, 3, 4]
    assert segment.fields[1][0].ordinals().tolist() == [3]
    assert segment.fields[4][0].ordinals().tolist() == [0]


def test_files_that_a_sketch_counted_stay_counted_without_those_that_are_gone() -> None:
    lake = Lake([1] * 4)
    coverage = {(1, "theta"): all_of(range(3))}
    more = {(1, "theta"): all_of(range(3, 4), CoverageState("the column is encrypted"))}
    data, _ = write_parts(lake, [Part(range(3), coverage=coverage), Part([3], coverage=more, number=1)])
    whole = merged(lake, opened(data), [0, 1, 2, 3])
    assert states(whole, 1, "theta") == [UnitState.INDEXED] * 3 + ["the column is encrypted"]
    less = merged(lake, opened(data), [0, 2, 3])
    assert states(less, 1, "theta") == [UnitState.INDEXED] * 2 + ["the column is encrypted"]
    again = merged(lake, opened(less), [0, 2, 3])
    assert states(again, 1, "theta") == states(less, 1, "theta")


def test_states_of_dropped_columns_are_left_out() -> None:
    lake = Lake([1] * 2)
    coverage = {(1, "theta"): all_of(range(2)), (4, "theta"): all_of(range(2))}
    data, _ = write_parts(lake, [Part(range(2), coverage=coverage)])
    segment = only(opened(merged(lake, opened(data), [0, 1], live_fields={4}), strict=True))
    assert [(c.field_id, c.kind) for c in segment.coverages] == [(4, "theta")]


def test_indexed_means_that_the_merged_segment_has_the_filter() -> None:
    """A bundle that was left out leaves units that its part still calls indexed."""
    lake = Lake([1] * 2)
    data, _ = write_parts(lake, [Part([0, 1], {1: {(0, 0): OWN}}, coverage={(1, "bloom"): all_of(range(2))})])
    found = merged(lake, opened(data), [0, 1])
    assert states(found, 1, "bloom") == [UnitState.INDEXED, UnitState.NOT_BUILT]


def test_nothing_is_left_of_segments_whose_files_are_all_gone() -> None:
    lake = Lake([1, 2])
    data, _ = write_parts(lake, [Part([0, 1], {1: {(0, 0): OWN, (1, 1): OWN}})])
    written = merged(lake, opened(data), [])
    segment = only(opened(written, strict=True))
    assert (segment.num_files, segment.num_units, segment.fields, segment.coverages) == (0, 0, {}, [])


def test_a_base_that_is_far_from_the_files_end_costs_one_read_before_its_filters() -> None:
    """Numbers of units, manifests and lengths of pieces are read together."""
    lake = Lake([2] * 70 + [1] * 2)
    filters = {(file, 0): OwnFilter(bytes(1 << 16)) for file in (70, 71)}
    data, _ = write_parts(lake, [Part(range(70)), Part([70, 71], {1: filters}, number=1)])
    stored = opened(data, strict=True)
    base, before = stored.segments[0], stored.index_reads
    assert base.entry.offset + base.entry.length < stored.puffin.tail_offset
    assert base.unit_ranges[-1] == 140
    assert len(base.listed_manifests) == 7
    assert stored.index_reads == before + 1
    assert [file.path for file in base.units.files([65])] == [lake.entry(65).path]
    assert stored.index_reads == before + 2
