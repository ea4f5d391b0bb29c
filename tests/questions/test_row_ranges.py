"""Sets of rows as ranges: every operation against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.questions.row_ranges import RowRanges

MOST = 60
sets = st.sets(st.integers(0, MOST - 1))
spans = st.lists(st.tuples(st.integers(0, MOST), st.integers(0, MOST)))


def ranges_of(rows: set[int]) -> RowRanges:
    return RowRanges.of_rows(np.array(sorted(rows), np.int64))


def rows_of(ranges: RowRanges) -> set[int]:
    rows = ranges.rows().tolist()
    assert rows == sorted(set(rows))
    assert ranges.num_rows == len(rows)
    gaps = ranges.pairs[1:, 0] - ranges.pairs[:-1, 1]
    assert (gaps > 0).all()
    assert (ranges.pairs[:, 1] > ranges.pairs[:, 0]).all()
    return set(rows)


@settings(deadline=None)
@given(sets, sets)
def test_sets_of_rows(left: set[int], right: set[int]) -> None:
    a, b = ranges_of(left), ranges_of(right)
    assert rows_of(a) == left
    assert rows_of(a & b) == left & right
    assert rows_of(a | b) == left | right
    assert rows_of(a.without(np.array(sorted(right), np.int64))) == left - right
    assert rows_of(a.cut(10, 40)) == {row - 10 for row in left if 10 <= row < 40}
    assert (a == b) == (left == right)
    assert bool(a) == bool(left)
    every = np.arange(MOST)
    assert set(every[a.holds(every)].tolist()) == left
    assert a.places_of(np.array(sorted(left), np.int64)).tolist() == list(range(len(left)))


@given(spans)
def test_pairs_in_any_order(pairs: list[tuple[int, int]]) -> None:
    assert rows_of(RowRanges(pairs)) == {row for start, end in pairs for row in range(start, end)}


@given(sets, st.integers(0, 5))
def test_gaps_are_closed(rows: set[int], most: int) -> None:
    closed = rows_of(ranges_of(rows).close_gaps(most))
    ordered = sorted(rows)
    filled = {gap for before, after in pairwise(ordered) if after - before - 1 <= most for gap in range(before, after)}
    assert closed == rows | filled


@given(st.sets(st.integers(1, MOST - 1)), st.data())
def test_pages(cuts: set[int], data: st.DataObject) -> None:
    first_rows = [0, *sorted(cuts)]
    keep = data.draw(st.lists(st.booleans(), min_size=len(first_rows), max_size=len(first_rows)))
    ends = [*first_rows[1:], MOST]
    wanted = {row for start, end, kept in zip(first_rows, ends, keep, strict=True) if kept for row in range(start, end)}
    found = RowRanges.of_pages(np.array(first_rows, np.int64), MOST, np.array(keep, np.bool_))
    assert rows_of(found) == wanted
    touched = found.touches(np.array([*first_rows, MOST], np.int64))
    assert touched.tolist() == keep
