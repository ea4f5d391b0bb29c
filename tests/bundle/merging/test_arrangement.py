"""One base and one delta, whatever is added."""

from __future__ import annotations

import random

import pytest

from sidecar.bundle.merging.arrangement import FOLD_SHARE, Arrangement, SegmentRun, StoredSize, arrange


def live(*sizes: int) -> list[StoredSize]:
    return [StoredSize(size, 10, 10) for size in sizes]


def test_the_delta_is_merged_at_each_build_and_folded_at_an_eighth() -> None:
    keep, merge = SegmentRun((0,), False), SegmentRun((0, 1), True)
    delta = SegmentRun((1,), False)
    assert arrange([], 5) == Arrangement(())
    assert arrange(live(80), 50) == Arrangement((keep,))
    assert arrange(live(80, 4), 6) == Arrangement((keep, delta), with_new=True)
    assert arrange(live(80, 4), 7) == Arrangement((merge,))
    assert arrange(live(80, 60), None) == Arrangement((keep, delta))
    assert arrange(live(80, 5, 5), None) == Arrangement((keep, SegmentRun((1, 2), True)))
    assert arrange(live(80, 5, 6), None) == Arrangement((SegmentRun((0, 1, 2), True),))


def test_a_segment_of_which_more_than_a_third_is_gone_is_rewritten() -> None:
    half_gone, third_gone = StoredSize(80, 10, 5), StoredSize(80, 9, 6)
    assert arrange([half_gone], 1) == Arrangement((SegmentRun((0,), True),))
    assert arrange([third_gone], 1) == Arrangement((SegmentRun((0,), False),))
    assert arrange([half_gone, *live(1)], 1) == Arrangement((SegmentRun((0, 1), True),))
    assert arrange([*live(80), half_gone], None) == Arrangement((SegmentRun((0,), False), SegmentRun((1,), True)))


@pytest.mark.parametrize("step", [1, 7, 500])
def test_two_segments_are_enough_and_writing_costs_what_is_stated(step: int) -> None:
    """Bytes that pass through merges for each byte added, over ten folds of a base of 10,000."""
    chance, base = random.Random(step), 10_000
    sizes, written, added = [base], 0, 0
    while added < base * 10 // FOLD_SHARE:
        new = chance.randrange(1, 2 * step + 1)
        found = arrange(live(*sizes), new)
        runs = [sum(sizes[number] for number in run.members) for run in found.runs]
        assert sorted(n for run in found.runs for n in run.members) == list(range(len(sizes)))
        if found.with_new:
            runs[-1] += new
            written += runs[-1]
        else:
            written += sum(size for size, run in zip(runs, found.runs, strict=True) if run.rewritten)
            runs.append(new)
        sizes, added = runs, added + new
        assert len(sizes) == 2
    grown = (base + sum(sizes)) / 2
    assert written / added <= 1.25 * (grown / (16 * step) + FOLD_SHARE + 1)
