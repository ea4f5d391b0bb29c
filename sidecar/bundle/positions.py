"""Which unit stands at which position of which group: fixed once, by the driver, when all sizes are known.

Members of one group share hash and index rule, encoding, resolution, tail length and number of blocks z; their
order is that of the unit ordinals. Each group costs a read per lookup, so few groups are wanted.
The rule of ORC filters has k and m in it, so those of one group are all of one size: they are never widened.

Widening lemma: for z' = f z with an integer f, the filter that repeats each block f times answers every probe as
the original does. Block index floor(h z' / 2^32) // f = floor(h z / 2^32), since floor(floor(f x) / f) = floor(x).
It holds for integer factors alone: from 64 to 80 blocks repeating loses a third of the values.

Rule: sizes of one kind are merged, cheapest merge first, as long as all bytes that widening adds stay within half
of the bytes of the filters themselves, or within 1 MiB. A widened member's own z is recorded, so that taking it
out gives its own bytes again. Filters of an odd size (no power of two, or with a tail) are never widened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import CHECKED, PieceOverhead
from sidecar.bundle.layout import BLOCK_BYTES, Layout
from sidecar.bundle.rules import RULES, SPLIT_BLOCK, IndexRule
from sidecar.errors import UsageError

FREE_BYTES = 1 << 20
"""Widening may add this much whatever the size of the filters."""


@dataclass(frozen=True)
class GroupMember:
    """One filter that is to be put into a bundle.

    ``unit`` is the unit's ordinal in its segment, ``encoding`` a name of the registry, ``resolution`` says how
    the column was found in the file (``id`` or ``name:<path>``), ``num_bytes`` is the length of the bitset, odd
    tail bytes included. ``harvested`` filters are carried as they are. ``rule`` says how a hash becomes bits.
    """

    unit: int
    encoding: str
    resolution: str
    num_bytes: int
    harvested: bool = False
    rule: IndexRule = SPLIT_BLOCK

    @property
    def blocks(self) -> int:
        """Blocks of 32 bytes: the filter's own z."""
        return self.rule.size(self.num_bytes)[0]

    @property
    def tail(self) -> int:
        """Odd bytes after the last whole block."""
        return self.rule.size(self.num_bytes)[1]


@dataclass(frozen=True)
class BundleGroup:
    """A group of a bundle: who its members are and how its bytes lie.

    ``units``: int64[N], rising; position p of the group is unit ``units[p]``. ``own_blocks``: int64[N], each
    member's own z, which divides ``blocks``. ``ordinal`` counts the groups of one field and class of rules.
    """

    ordinal: int
    rule: IndexRule
    encoding: str
    resolution: str
    blocks: int
    tail: int
    units: npt.NDArray[np.int64] = field(repr=False)
    own_blocks: npt.NDArray[np.int64] = field(repr=False)
    sealing: PieceOverhead = CHECKED
    """That of the blob, see :attr:`sidecar.bundle.checksum.Place.sealing`."""

    @property
    def widened(self) -> bool:
        """Whether some member's own filter is smaller."""
        return bool((self.own_blocks != self.blocks).any())

    @property
    def layout(self) -> Layout:
        """Where the group's bytes lie."""
        alone_from = self.rule.rows_alone_from(self.sealing)
        return Layout(len(self.units), self.blocks, self.tail, self.widened, alone_from, self.sealing)

    @property
    def block_step(self) -> int:
        """Block ranges handed to ``slice_blocks`` begin at multiples of this (1 if sliced by bit)."""
        return self.layout.page_regions

    def region_bytes(self, first_block: int, count: int) -> int:
        """Length of what ``slice_blocks`` returns for this range of blocks."""
        return self.layout.body_bytes(first_block, count)


def plan_groups(members: Iterable[GroupMember], sealing: PieceOverhead = CHECKED) -> list[BundleGroup]:
    """Groups of one field's filters; each unit at most once. Raises :class:`UsageError` for impossible sizes.

    Groups of split-block filters stand before those of ORC filters; the ordinals of either count from 0.
    """
    kinds: dict[_Kind, list[GroupMember]] = defaultdict(list)
    seen: set[int] = set()
    for member in members:
        blocks, tail = member.rule.size(member.num_bytes)
        if member.unit in seen or member.unit < 0:
            raise UsageError("a unit stands twice among the filters of a field", found=f"unit {member.unit}")
        seen.add(member.unit)
        odd = blocks if tail or blocks & (blocks - 1) else 0
        kinds[_Kind(_order(member.rule), member.encoding, member.resolution, tail, odd)].append(member)
    groups: list[BundleGroup] = []
    counts: dict[str, int] = defaultdict(int)
    for kind, same in sorted(kinds.items()):
        rule = same[0].rule
        for blocks, merged in _merge_sizes(same):
            merged.sort(key=lambda member: member.unit)
            units = np.array([member.unit for member in merged], np.int64)
            own = np.array([member.blocks for member in merged], np.int64)
            ordinal = counts[rule.name]
            counts[rule.name] += 1
            described = rule, kind.encoding, kind.resolution, blocks, kind.tail
            groups.append(BundleGroup(ordinal, *described, units, own, sealing))
    return groups


class _Kind(NamedTuple):
    """What the members of a group have in common; ``odd``: the number of blocks, where they must not be widened."""

    rule: tuple[int, ...]
    encoding: str
    resolution: str
    tail: int
    odd: int


@lru_cache  # asked for each member, and taking a dataclass apart is slow
def _order(rule: IndexRule) -> tuple[int, ...]:
    return RULES.index(type(rule)), *astuple(rule)


def _merge_sizes(members: Sequence[GroupMember]) -> list[tuple[int, list[GroupMember]]]:
    """Members by number of blocks after widening, larger first; all sizes are powers of two, or all are one."""
    classes: dict[int, list[GroupMember]] = defaultdict(list)
    for member in members:
        classes[member.blocks].append(member)
    allowance = max(FREE_BYTES, sum(member.blocks for member in members) * BLOCK_BYTES // 2)
    while len(classes) > 1:
        sizes = sorted(classes)
        cost, small, large = min(
            (len(classes[small]) * (large - small) * BLOCK_BYTES, small, large)
            for small, large in pairwise(sizes)
        )
        if cost > allowance:
            break
        allowance -= cost
        classes[large] += classes.pop(small)
    return sorted(classes.items(), reverse=True)
