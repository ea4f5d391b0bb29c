"""Stage 2: parts of a group have the blocks that whole filters would give, and so the same pages."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.filters.slicing import gather_blocks, group_pages
from sidecar.conversion.spool import Spool
from sidecar.indexing import slices
from sidecar.indexing.columns import FilterFacts
from sidecar.indexing.slices import GroupTask, KeptIndexes, UnitKey, part_step
from sidecar.indexing.stage_one.tasks import StageResult
from tests.indexing.cases import rng

PLACE = BlobContext(bytes(range(16)), 7)


def _filters(sizes: list[int]) -> list[np.ndarray]:
    return [rng().integers(0, 2**32, (size, 8), dtype=np.uint32) for size in sizes]


def _task(sizes: list[int]) -> GroupTask:
    members = [GroupMember(i, "int64", "id", 32 * size) for i, size in enumerate(sizes)]
    (group,) = plan_groups(members)
    return GroupTask(0, group, PLACE, part_step(group), [(i, 0, 7) for i in range(len(sizes))])


def _record(key: UnitKey, blocks: np.ndarray) -> StageResult:
    return StageResult("column", *key, data=blocks.tobytes(), filter=FilterFacts(blocks=len(blocks)))


CASES = {
    "one": [16],
    "transposed": [64] * 5,
    "transposed and widened": [8, 16, 16, 4, 16],
    "sliced": [32] * 70,
    "sliced and widened": [4, 32, 16] * 30,
    "rows with checksums": [4] * 2100,
}


@pytest.mark.parametrize("part_bytes", [1, 40_000, 8 << 20])
@pytest.mark.parametrize("sizes", CASES.values(), ids=CASES.keys())
def test_parts_make_the_groups_pages(sizes: list[int], part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters that came in any order, from any thread or worker."""
    monkeypatch.setattr(slices, "PART_BYTES", part_bytes)
    monkeypatch.setattr(slices, "SMALL_PART_BYTES", 1)  # so that threads share the parts
    task, filters = _task(sizes), _filters(sizes)
    whole = b"".join(group_pages(task.group, PLACE, lambda first, n: gather_blocks(task.group, filters, first, n)))
    with closing(KeptIndexes(2)) as kept:
        for position in rng().permutation(len(filters)).tolist():
            kept.keep(_record(task.keys[position], filters[position]))
        found = list(kept.slices([task]))
    assert [number for number, _ in found] == [0] * task.parts
    assert b"".join(data for _, data in found) == whole


def test_indexes_that_came_together_are_told_apart() -> None:
    """As Spark's workers send them: filters and page indexes of many records in one piece."""
    task, filters = _task([16, 8]), _filters([16, 8])
    pages = StageResult("pages", 0, 0, 7, length=11, data=b"page index.")
    sketch = StageResult("sketch", 1, field_id=7, data=b"sketch")
    records = [_record(task.keys[0], filters[0]), pages, sketch, _record(task.keys[1], filters[1])]
    with closing(KeptIndexes(1)) as kept:
        kept.keep(_record((5, 0, 7), filters[1]))
        found = kept.keep_all(records, b"".join([filters[0].tobytes(), b"page index.", filters[1].tobytes()]))
        assert [record.data for record in found] == [None, None, b"sketch", None]
        assert list(kept.page_indexes([(0, 0, 7)])) == [b"page index."]
        ((_, data),) = kept.slices([task])
    assert data == task.slice(0, gather_blocks(task.group, filters, 0, 16))


def test_small_groups_are_sliced_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting them would take longer than the work."""
    task, filters = _task([16, 8]), _filters([16, 8])
    monkeypatch.setattr(Thread, "start", lambda thread: pytest.fail(f"{thread.name} is started"))
    with closing(KeptIndexes(2)) as kept:
        for key, found in zip(task.keys, filters, strict=True):
            kept.keep(_record(key, found))
        (_, first), (_, second) = kept.slices([task, replace(task, number=1)])
    assert first == second == task.slice(0, gather_blocks(task.group, filters, 0, 16))


def test_of_a_unit_that_is_indexed_twice_the_last_filter_counts() -> None:
    task, filters = _task([16]), _filters([16, 16])
    with closing(KeptIndexes(1)) as kept:
        for found in filters:
            kept.keep(_record(task.keys[0], found))
        ((_, data),) = kept.slices([task])
    assert data == task.slice(0, gather_blocks(task.group, filters[1:], 0, 16))


def test_the_spool_gives_back_what_threads_appended() -> None:
    from concurrent.futures import ThreadPoolExecutor

    filters = _filters([1, 7, 30, 2] * 20)
    spool = Spool()
    assert spool.array().shape == (0,)
    with ThreadPoolExecutor(8) as pool:
        places = [at // 32 for at in pool.map(lambda f: spool.append(f.tobytes()), filters)]
    blocks = spool.array().view("<u4").reshape(-1, 8)
    assert all((blocks[at : at + len(f)] == f).all() for at, f in zip(places, filters, strict=True))
    del blocks
    spool.close()
