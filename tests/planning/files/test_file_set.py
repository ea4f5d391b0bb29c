"""A set that stages narrow: what is left, what dropped the rest, and why files are kept, beside lists of Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestEntry, ManifestFile

from sidecar.planning.files.file_set import DroppedBy, FileSet, Line, Reasons
from sidecar.planning.files.sources import OpenedManifest, PlannedFiles
from sidecar.planning.funnel import KeptFilesBecause, NotIndexed
from sidecar.questions.row_ranges import RowRanges

STAGES = [DroppedBy.METADATA, DroppedBy.FILTER, DroppedBy.BOUNDS]
COUNT = 9


def everything() -> FileSet[PlannedFiles]:
    return FileSet.all(PlannedFiles([f"{n}" for n in range(COUNT)], [None] * COUNT))


@given(
    st.lists(st.tuples(st.sampled_from(STAGES), st.sampled_from("nwh"), st.sets(st.integers(0, COUNT - 1)))),
    st.integers(0, 4),
)
def test_a_set_has_what_all_stages_leave(steps: list[tuple[DroppedBy, str, set[int]]], reasons_after: int) -> None:
    files, left = everything(), list(range(COUNT))
    dropped, asked = dict[int, DroppedBy](), dict[int, list[tuple[DroppedBy, bool]]]()
    reason_of = dict[int, Any]()
    for number, (by, way, keep) in enumerate(steps):
        if number == reasons_after:
            odd = np.flatnonzero(files.rows % 2)
            reasons = Reasons.all(len(files), KeptFilesBecause.NOT_LISTED).put(odd, KeptFilesBecause.MAY_MATCH)
            files = FileSet(files.source, files.left, files.steps, reasons, files.counts)
            reason_of = {row: KeptFilesBecause.MAY_MATCH if row % 2 else KeptFilesBecause.NOT_LISTED for row in left}
        flags = np.array([row in keep for row in left], np.bool_)
        rows = RowRanges.of_rows(np.array(sorted(keep), np.int64))
        entries: dict[int, ManifestEntry] = dict.fromkeys((row for row in left if row in keep), ManifestEntry())
        narrowed = {"n": lambda: files.narrow(flags, by), "w": lambda: files.within(rows, by)}  # noqa: B023
        files = files.having(entries) if way == "h" else narrowed[way]()
        by = DroppedBy.METADATA if way == "h" else by
        for row in left:
            asked.setdefault(row, []).append((by, row in keep))
        dropped |= {row: by for row in left if row not in keep}
        left = [row for row in left if row in keep]
    assert (files.rows.tolist(), len(files), bool(len(files))) == (left, len(left), bool(left))
    assert files.dropped_by() == dropped
    assert {by: n for by, n in files.dropped().items() if n} == Counter(dropped.values())
    for row in range(COUNT):
        assert [(one.by, one.is_kept) for one in files.judgements(row)] == asked.get(row, [])
    if files.reasons is not None:
        assert files.reasons.each() == [reason_of[row] for row in left]


def test_reasons_are_put_one_over_another() -> None:
    why = NotIndexed("k", "no filters were built")
    reasons = (
        Reasons.all(3, KeptFilesBecause.NOT_LISTED)
        .put(np.array([0, 2]), why)
        .put(np.array([2]), KeptFilesBecause.DAMAGED)
    )
    assert reasons.each() == [why, KeptFilesBecause.NOT_LISTED, KeptFilesBecause.DAMAGED]
    assert reasons.put(np.array([], np.int64), KeptFilesBecause.MAY_MATCH) is reasons
    assert reasons.only(np.array([False, True, True])).each() == [KeptFilesBecause.NOT_LISTED, KeptFilesBecause.DAMAGED]


def test_entries_are_looked_up_once() -> None:
    """A plan takes those of one manifest after the other."""
    looked_up = list[int]()

    class Entries(dict[int, ManifestEntry]):
        def __getitem__(self, row: int) -> ManifestEntry:
            looked_up.append(row)
            return super().__getitem__(row)

    entries = Entries.fromkeys(range(4), ManifestEntry())
    files = FileSet.all(OpenedManifest(Line(0, ManifestFile()), 4, entries))
    assert [len(files.entries[at : at + 2]) for at in (0, 2)] == [2, 2]
    assert looked_up == [0, 1, 2, 3]
