"""Stage 2: both engines gather the blocks that whole filters would give, and so the same pages."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.filters.slicing import gather_blocks, group_pages
from sidecar.convert.outcome import no_progress
from sidecar.convert.spool import Spool
from sidecar.indexing import slices
from sidecar.indexing.local import LocalEngine
from sidecar.indexing.slices import GroupTask, cut, gather, part_step
from sidecar.indexing.tasks import Record
from sidecar.source import BytesSource
from tests.indexing.cases import rng

PLACE = BlobContext(bytes(range(16)), 7)


def _filters(sizes: list[int]) -> list[np.ndarray]:
    return [rng().integers(0, 2**32, (size, 8), dtype=np.uint32) for size in sizes]


def _task(sizes: list[int]) -> GroupTask:
    members = [GroupMember(i, "int64", "id", 32 * size) for i, size in enumerate(sizes)]
    (group,) = plan_groups(members)
    return GroupTask(0, group, PLACE, part_step(group), [(i, 0, 7) for i in range(len(sizes))])


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
    monkeypatch.setattr(slices, "PART_BYTES", part_bytes)
    task, filters = _task(sizes), _filters(sizes)
    whole = b"".join(group_pages(task.group, PLACE, lambda first, n: gather_blocks(task.group, filters, first, n)))
    shuffled: dict[int, list[tuple[int, int, bytes]]] = {part: [] for part in range(task.parts)}
    for position in rng().permutation(len(filters)).tolist():
        for piece in cut(filters[position].tobytes(), task, position):
            shuffled[piece.part].append((position, piece.factor, piece.data))
    assert b"".join(task.slice(p, gather(task, p, shuffled[p])) for p in range(task.parts)) == whole


@pytest.mark.parametrize("sizes", CASES.values(), ids=CASES.keys())
def test_the_local_engine_gives_the_groups_pages_in_order(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "PART_BYTES", 1 << 14)
    task, filters = _task(sizes), _filters(sizes)
    whole = b"".join(group_pages(task.group, PLACE, lambda first, n: gather_blocks(task.group, filters, first, n)))
    with closing(LocalEngine(lambda path, size: BytesSource(b""))) as engine:
        for position in rng().permutation(len(filters)).tolist():
            engine._keep(Record("column", *task.keys[position], data=filters[position].tobytes()))
        found = list(engine.slices([task], no_progress))
    assert [number for number, _ in found] == [0] * task.parts
    assert b"".join(data for _, data in found) == whole


def test_a_position_without_its_filter_is_all_ones() -> None:
    task, filters = _task([16, 16, 8]), _filters([16, 16, 8])
    pieces = [(p, piece.factor, piece.data) for p in (0, 2) for piece in cut(filters[p].tobytes(), task, p)]
    whole = gather_blocks(task.group, [filters[0], None, filters[2]], 0, 16)
    assert (gather(task, 0, pieces) == whole).all()


def test_a_filter_of_another_size_than_was_placed_is_left_out() -> None:
    task = _task([16, 16])
    assert list(cut(bytes(32 * 8), task, 0)) == []


def test_what_travels_is_not_widened() -> None:
    task, (small, _) = _task([4, 32]), _filters([4, 32])
    assert task.group.blocks == 32
    assert sum(len(piece.data) for piece in cut(small.tobytes(), task, 0)) == small.nbytes


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
