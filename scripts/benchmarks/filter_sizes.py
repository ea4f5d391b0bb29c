"""What filters in quarter steps of size would save, and what lookups would pay for it.

Units have lognormal numbers of distinct values around a mean that runs over two octaves, and the auto rate. Sizes are
either powers of two, as they are, or 4, 5, 6 or 7 times a power of two (*quarter steps*), or all units of a field have
the same one of these four factors (*one factor*, the best for each field). *own* are the bytes of all filters over
those of the smallest filters that meet the rate, and *stored* those in the bundle, where filters are widened to share
a group. A lookup reads each group once. Filters widen by integer factors alone, so those of 4, 5, 6 and 7 never share
a group.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from scripts.benchmarks.harness.bench import Bench
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.filters.sizing import auto_fpp, false_positive_rate

FACTORS = (4, 5, 6, 7)
CHOICES: dict[str, Sequence[Sequence[int]]] = {
    "powers of two": [FACTORS[:1]],
    "quarter steps": [FACTORS],
    "one factor": [(factor,) for factor in FACTORS],
}
"""The factors that filters of a field may have, each time; the choice that stores the least is taken."""


MEANS = 8
"""Mean numbers of distinct values, over two octaves."""


def measure(bench: Bench) -> None:
    """Compare the choices for each spread of the units' sizes."""
    units = bench.size(658, quick=50)
    fpp = auto_fpp(units)
    for spread in (0.0, 0.1, 0.5, 1.0):
        values = [_values(units, 50_000 * 2 ** (2 * mean / MEANS), spread) for mean in range(MEANS)]
        for name, choices in CHOICES.items():
            found = [min((compare(one, factors, fpp) for factors in choices), key=lambda c: c[1]) for one in values]
            own, stored, groups = (statistics.mean(column) for column in zip(*found, strict=True))
            what = f"{name}, spread {spread:g}"
            bench.row(f"bytes stored: {what}", stored, "x", against="the smallest filters", note=f"alone {own:.2f}")
            bench.row(f"reads of a lookup: {what}", groups, "groups")


def compare(values: Iterable[int], factors: Sequence[int], fpp: float) -> tuple[float, float, int]:
    """Return the bytes of filters over those of the smallest ones, the same in groups, and the number of groups."""
    least = sizes = stored = groups = 0
    by_factor: dict[int, list[int]] = defaultdict(list)
    for distinct in values:
        load = _load(fpp)
        least += -(-distinct // load)
        blocks, factor = min((_rounded(distinct / load / factor) * factor, factor) for factor in factors)
        sizes += blocks
        by_factor[factor].append(blocks)
    for factor, same in by_factor.items():
        members = [GroupMember(i, "int64", "id", blocks // factor * 4 * BLOCK_BYTES) for i, blocks in enumerate(same)]
        planned = plan_groups(members)
        groups += len(planned)
        stored += sum(len(group.units) * group.blocks for group in planned) * factor // 4
    return sizes / least, stored / least, groups


@lru_cache
def _load(fpp: float) -> int:
    """Return the most values per block that meet the rate, in thousands of blocks."""
    return _last(lambda load: false_positive_rate(1000, load * 1000) <= fpp)


def _last(holds: Callable[[int], bool]) -> int:
    load = 1
    while holds(load + 1):
        load += 1
    return load


def _rounded(number: float) -> int:
    return 1 << max(int(np.ceil(np.log2(number))), 0)


def _values(units: int, mean: float, spread: float) -> list[int]:
    return np.maximum(np.random.default_rng(1).lognormal(np.log(mean), spread, units), 1).astype(np.int64).tolist()
