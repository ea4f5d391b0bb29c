"""Slicing filters into bit rows, beside copying the same bytes to fresh memory; one thread, interleaved, medians.

The blocks of N filters lie in parts [N, r, 8] of about --part bytes, as the second stage of a build has them; the
bit rows of all parts go to memory that was not touched before, and so does the copy. Target: a third of the copy's
speed. The last columns are finished pages, checksums included, and the way back. Time is the thread's own CPU time,
so that what else runs on the machine counts little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.slicing import slice_blocks, unslice_pages
from sidecar.kernels.transpose import regions_from_blocks

PLACE = BlobContext(bytes(16), 1)
TARGET = 1 / 3


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="slicing", description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[658, 8_192, 100_000])
    parser.add_argument("--bytes", type=int, default=192 << 20, help="bytes of all filters together")
    parser.add_argument("--part", type=int, default=1 << 20, help="bytes sliced at a time")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args(arguments)
    print(f"{'filters':>8} {'blocks':>7} {'copy':>7} {'slice':>7} {'/copy':>6} {'pages':>7} {'unslice':>8}   GB/s")
    missed = False
    for members in options.members:
        speeds = measure(members, options.bytes, options.part, options.runs)
        ratio = speeds["slice"] / speeds["copy"]
        missed |= ratio < TARGET
        print(
            f"{members:>8} {int(speeds['blocks']):>7} {speeds['copy']:>7.2f} {speeds['slice']:>7.2f} {ratio:>6.2f} "
            f"{speeds['pages']:>7.2f} {speeds['unslice']:>8.2f}"
        )
    print(f"target: slicing at {TARGET:.2f} of copying or more: {'missed' if missed else 'met'}")
    return int(missed)


def measure(members: int, total: int, part: int, runs: int) -> dict[str, float]:
    """Speeds in GB/s of filter bytes."""
    step = max(1, part // (members * BLOCK_BYTES))
    blocks = max(1, total // (members * BLOCK_BYTES * step)) * step
    whole = np.random.default_rng(1).integers(0, 2**32, members * blocks * 8, dtype=np.uint32)
    parts = list(whole.reshape(-1, members, step, 8))
    (group,) = plan_groups(GroupMember(unit, "int64", "id", blocks * BLOCK_BYTES) for unit in range(members))
    pages = [slice_blocks(group, at * step, one, PLACE) for at, one in enumerate(parts)]
    jobs: dict[str, Callable[[], object]] = {
        "copy": lambda: np.copyto(np.empty_like(whole), whole),
        "slice": lambda: slice_rows(group, parts),
        "pages": lambda: [slice_blocks(group, at * step, one, PLACE) for at, one in enumerate(parts)],
        "unslice": lambda: [unslice_pages(group, at * step, step, page) for at, page in enumerate(pages)],
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(runs + 1):
        for name, job in jobs.items():
            start = time.thread_time()
            job()
            seconds[name].append(time.thread_time() - start)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    return {"blocks": blocks, **{name: whole.nbytes / median / 1e9 for name, median in medians.items()}}


def slice_rows(group: BundleGroup, parts: Sequence[np.ndarray]) -> None:
    """Bit rows of all parts into fresh memory, without checksums."""
    layout = group.layout
    out = np.empty((group.blocks, layout.region_stride), np.uint8)
    at = 0
    for part in parts:
        count = part.shape[1]
        regions_from_blocks(part, out[at : at + count], layout.row_bytes, layout.row_stride)
        at += count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
