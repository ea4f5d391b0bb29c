"""Hash and insert, hash and check, update a sketch, slice filters into bit rows: one thread each.

Values are int64; half of those asked for were inserted. sidecar's time is that of the path a build takes: batches of an
Arrow array, hashed, then inserted or checked. One filter fits the cache, the other has 13 bits a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa

from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_least, at_most
from scripts.benchmarks.harness.timing import Side
from scripts.benchmarks.peers.pipe import PipePeer, java_command, rust_command
from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.slicing import slice_blocks, unslice_pages
from sidecar.filters.array_hash import hash_arrow, theta_hashes
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.theta import ThetaSketch
from sidecar.kernels.transpose import regions_from_blocks

BATCH = 64 * 1024
INT64 = Encoding.parse("int64")
FILTERS = {"1 MiB": 1 << 20, "16 MiB": 1 << 24}
PEERS: dict[str, tuple[Callable[[], list[str]], float]] = {
    "parquet crate": (partial(rust_command, "kernels_peer"), 1.3),
    "parquet-java": (partial(java_command, "KernelsPeer"), 2.5),
}
"""The command of each peer, and how many times as fast sidecar is to be."""
SLICED_TOGETHER = 1 << 20
PLACE = BlobContext(bytes(16), 1)


def measure(bench: Bench) -> None:
    """Measure filters, sketches and slicing."""
    values = bench.size(10_000_000, quick=1_000_000)
    commands = {}
    for name, (command, _) in PEERS.items():
        try:
            commands[name] = command()
        except RuntimeError as error:
            bench.absent("insert and check", error, against=name)
    for name, size in FILTERS.items():
        compare_filters(bench, commands, values, name, size)
    compare_sketches(bench, values)
    for members in (658, 8_192, 100_000):
        compare_slicing(bench, members, bench.size(96 << 20, quick=16 << 20))


class OurFilter:
    """sidecar under the protocol of the peers."""

    def __init__(self, values: int, size: int) -> None:
        self._blocks = size // 32
        self._stored, self._asked = numbers(0, values), numbers(values // 2, values)
        self._filter = SplitBlockBloomFilter.empty(self._blocks)
        self.count = 0

    def clear(self) -> None:
        self._filter = SplitBlockBloomFilter.empty(self._blocks)

    def insert(self) -> None:
        for batch in batches(self._stored):
            self._filter.insert(hash_arrow(batch, INT64))

    def check(self) -> None:
        self.count = sum(int(np.count_nonzero(self._filter.check(hash_arrow(b, INT64)))) for b in batches(self._asked))


def numbers(first: int, count: int) -> Any:
    rising = np.arange(first, first + count, dtype=np.uint64)
    return pa.array((rising * np.uint64(0x9E3779B97F4A7C15)).view(np.int64))


def batches(values: Any) -> Iterator[Any]:
    for at in range(0, len(values), BATCH):
        yield values.slice(at, BATCH)


def compare_filters(bench: Bench, commands: dict[str, list[str]], values: int, name: str, size: int) -> None:
    ours = OurFilter(values, size)
    peers = {peer: PipePeer([*command, str(values), str(size)]) for peer, command in commands.items()}
    for task, own in (("insert", Side(ours.insert, before=ours.clear)), ("check", Side(ours.check))):
        what = f"{task} {values:,} int64, filter of {name}"
        sides = {"sidecar": own} | {peer: Side(partial(found.run, task)) for peer, found in peers.items()}
        times = bench.compare(what, sides, warm_ups=2)  # the JVM compiles for longer
        bench.row(f"{what}: speed", values / times.of("sidecar").median / 1e6, "million/s")
        for peer in peers:
            bench.faster(what, times, "sidecar", peer, at_least(PEERS[peer][1]))
    if len({ours.count, *(peer.count for peer in peers.values())}) != 1:
        raise RuntimeError("the sides disagree on how many values are found")
    for peer in peers.values():
        peer.close()


def compare_sketches(bench: Bench, values: int) -> None:
    stored = numbers(0, values)
    few = stored.slice(0, values // 20)

    def ours() -> None:
        sketch = ThetaSketch()
        for batch in batches(few):
            sketch.update(theta_hashes(batch, "long"))

    listed = few.to_pylist()

    def theirs() -> None:
        sketch = datasketches.update_theta_sketch(12)
        for value in listed:
            sketch.update(value)

    what = f"update a theta sketch with {len(few):,} int64"
    times = bench.compare(what, {"sidecar": Side(ours, repeat=5), "datasketches": Side(theirs)})
    bench.faster(what, times, "sidecar", "datasketches", at_least(8))


def compare_slicing(bench: Bench, members: int, total: int) -> None:
    """Blocks of filters lie in parts, as the second stage of a build has them, and go to memory that was used before.

    A build's pieces are small, so they get such memory too. New memory would cost as much as the copy, or nothing,
    as the kernel has large pages at hand or not.
    """
    step = max(1, SLICED_TOGETHER // (members * BLOCK_BYTES))
    blocks = max(1, total // (members * BLOCK_BYTES * step)) * step
    whole = np.random.default_rng(1).integers(0, 2**32, members * blocks * 8, dtype=np.uint32)
    parts = list(whole.reshape(-1, members, step, 8))
    (group,) = plan_groups(GroupMember(unit, "int64", "id", blocks * BLOCK_BYTES) for unit in range(members))
    pages = [slice_blocks(group, at * step, one, PLACE) for at, one in enumerate(parts)]
    what = f"slice {members:,} filters"
    rows, copied = np.ones((group.blocks, group.layout.region_stride), np.uint8), np.ones_like(whole)
    sides = {
        "sidecar slices": lambda: slice_rows(group, parts, rows),
        "sidecar, pages with checksums": lambda: [
            slice_blocks(group, at * step, one, PLACE) for at, one in enumerate(parts)
        ],
        "sidecar, the way back": lambda: [unslice_pages(group, at * step, step, page) for at, page in enumerate(pages)],
        "copy of the bytes": lambda: np.copyto(copied, whole),
    }
    times = bench.compare(what, sides)
    bench.ratio(what, times, "sidecar slices", "copy of the bytes", at_most(2), clock="cpu")


def slice_rows(group: BundleGroup, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
    layout, at = group.layout, 0
    for part in parts:
        count = part.shape[1]
        regions_from_blocks(part, out[at : at + count], layout.row_bytes, layout.row_stride)
        at += count
