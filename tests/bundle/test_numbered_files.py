"""Segments that are asked as one answer as each of them does, by running numbers."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from sidecar.bundle.numbered_files import NOT_RECORDED, NumberedFiles
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.writer import write_segment, write_toc
from sidecar.puffin.writer import PuffinWriter
from tests.bundle.cases import (
    SEQUENCE,
    SNAPSHOT,
    field_bundle,
    filter_of,
    open_bytes,
    probe_for,
    segment_header,
    units_table,
)

COUNTS = ([1, 2, 0], [3], [0, 1, 1, 2])
"""The row groups of each file of each segment. Value 7 is in the last unit of each."""


@pytest.fixture(scope="module")
def opened() -> SidecarFile:
    """Three segments. The second has no filters and no record of field 4."""
    sink = io.BytesIO()
    puffin, place, entries = PuffinWriter(sink), {"snapshot_id": SNAPSHOT, "sequence_number": SEQUENCE}, []
    for number, counts in enumerate(COUNTS):
        segment, units = bytes([number + 1]) * 16, sum(counts)
        table, bundles = units_table(len(counts), counts), []
        if number != 1:
            filters = [filter_of([7 if unit == units - 1 else 1000 + unit], 8) for unit in range(units)]
            bundles = [field_bundle(4, filters, segment)]
        else:
            files = [replace(file, bounds={}) for file in table.files]
            table = replace(table, files=files, coverage=table.coverage[:1])
        entries += write_segment(puffin, segment_header(segment), table, bundles, **place)
    write_toc(puffin, entries, **place)
    footer = puffin.finish().footer_size
    return open_bytes(sink.getvalue(), footer, strict=True)


def test_numbers_run_on_from_segment_to_segment(opened: SidecarFile) -> None:
    assert (opened.num_files, opened.num_units) == (8, 10)
    assert [(one.first_file, one.first_unit) for one in opened.segments] == [(0, 0), (3, 3), (4, 6)]
    assert opened.unit_ranges.tolist() == [0, 1, 3, 3, 6, 6, 7, 8, 10]
    assert opened.units_of(np.array([7, 1, 2])).tolist() == [8, 9, 1, 2]
    every = np.arange(10)
    assert opened.files_of_units(every).tolist() == [0, 1, 1, 3, 3, 3, 5, 6, 7, 7]
    flags = np.isin(every, [2, 8, 9])
    numbers = np.arange(8)
    assert opened.count_flags(flags, numbers).tolist() == [0, 1, 0, 0, 0, 0, 0, 2]
    assert opened.in_all_units(flags, numbers).nonzero()[0].tolist() == [7]
    assert opened.in_some_unit(flags, numbers).nonzero()[0].tolist() == [1, 7]


def test_entries_bounds_and_fingerprints_are_those_of_the_segments(opened: SidecarFile) -> None:
    wanted = [6, 0, 3, 7]
    first, second, third = opened.segments
    entries = [third.files([2])[0], first.files([0])[0], second.files([0])[0], third.files([3])[0]]
    assert opened.entries(wanted) == entries
    numbers = np.array([0, 3, 7])
    bounds = opened.bounds(4, numbers)
    assert bounds is not None
    assert bounds["upper"].to_pylist() == [b"z", None, b"z"], "a segment without bounds knows nothing of its files"
    assert opened.bounds(99, numbers) is None
    columns, partitions = opened.file_columns(numbers), opened.partitions(numbers)
    assert columns is not None
    assert partitions is not None
    assert columns["file_path"].to_pylist() == [entry.path for entry in opened.entries(numbers.tolist()) if entry]
    assert partitions["partition"].to_pylist() == [[bytes([n, 0, 0, 0]), None] for n in (0, 0, 3)]
    for number, entry in enumerate(opened.entries(range(8))):
        assert entry is not None
        assert number in opened.numbers_of(entry.identity)
        assert [one.first_file for one in opened.segments][opened.owner(number)] <= number


def test_filters_and_coverage_are_those_of_the_segments(opened: SidecarFile) -> None:
    kept = opened.might_match(probe_for(4, 7))
    assert kept.nonzero()[0].tolist() == [2, 3, 4, 5, 9], "units without a filter are kept"
    assert opened.units_with_filters(4).nonzero()[0].tolist() == [0, 1, 2, 6, 7, 8, 9]
    coverage, is_recorded = opened.coverage(4, "bloom")
    assert is_recorded.nonzero()[0].tolist() == [0, 1, 2, 4, 5, 6, 7]
    states = [coverage.states[code] for code in coverage.codes.tolist()]
    own = [[one.states[code] for code in one.codes] for s in opened.segments if (one := s.coverage(4, "bloom"))]
    assert states == [*own[0], *[NOT_RECORDED] * 3, *own[1]]
    assert not coverage.indexed[3:6].any()


def test_a_selection_of_segments_keeps_the_numbers(opened: SidecarFile) -> None:
    some = NumberedFiles([opened.segments[0], opened.segments[2]])
    numbers = np.array([1, 2, 4, 7])
    assert some.entries(numbers.tolist()) == opened.entries(numbers.tolist())
    assert some.units_of(numbers).tolist() == opened.units_of(numbers).tolist()
    assert some.coverage(4, "bloom")[1].tolist() == opened.coverage(4, "bloom")[1].tolist()
