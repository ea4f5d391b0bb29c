"""Plans the groups of a bundle: which unit is at which position of which group. The driver does it once.

Members of one group share hash, index rule, encoding, resolution, tail length and number of blocks z. They are in the
order of their unit ordinals. Each group costs a read per lookup, so fewer groups are better.
The rule of ORC filters includes k and m, so all filters of a group have one size and are never widened.

Widening lemma: for z' = f z with an integer f, the filter that repeats each block f times answers every probe as
the original does. Block index floor(h z' / 2^32) // f = floor(h z / 2^32), since floor(floor(f x) / f) = floor(x).
It holds only for integer factors: repeating from 64 to 80 blocks loses a third of the values.

Rule: sizes of one kind are merged, the cheapest merge first, as long as the bytes that widening adds are at most half
of the bytes of the filters, or at most 1 MiB. A widened member's own z is recorded, so that extracting it
returns its original bytes. Filters of an odd size (not a power of two, or with a tail) are never widened.
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

from sidecar.bundle.envelopes.checksum import CHECKED, PieceOverhead
from sidecar.bundle.filters.layout import BLOCK_BYTES, Layout
from sidecar.bundle.filters.rules import RULES, SPLIT_BLOCK, IndexRule
from sidecar.errors import UsageError

FREE_BYTES = 1 << 20
"""Widening may add this many bytes, no matter how small the filters are."""


@dataclass(frozen=True)
class GroupMember:
    """One filter to put into a bundle.

    ``unit`` is the unit's ordinal in its segment. ``encoding`` is a name in the registry. ``resolution`` says how
    the column was found in the file (``id`` or ``name:<path>``). ``num_bytes`` is the length of the bitset with its
    odd tail bytes. ``rule`` turns a hash into bits.
    """

    unit: int
    encoding: str
    resolution: str
    num_bytes: int
    rule: IndexRule = SPLIT_BLOCK


@dataclass(frozen=True)
class BundleGroup:
    """A group of a bundle: its members and their layout.

    ``units``: int64[N], rising; position p of the group is unit ``units[p]``. ``own_blocks``: int64[N], each
    member's own z, a divisor of ``blocks``. ``ordinal`` counts the groups of one field and rule class from 0.
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
    """The blob's sealing, see :attr:`sidecar.bundle.envelopes.checksum.BlobContext.sealing`."""

    @property
    def widened(self) -> bool:
        """Whether some member's own filter is smaller."""
        return bool((self.own_blocks != self.blocks).any())

    @property
    def layout(self) -> Layout:
        """The layout of the group's bytes."""
        alone_from = self.rule.rows_alone_from(self.sealing)
        return Layout(len(self.units), self.blocks, self.tail, self.widened, alone_from, self.sealing)

    @property
    def block_step(self) -> int:
        """Ranges of blocks for ``slice_blocks`` must begin at multiples of this (1 if sliced by bit)."""
        return self.layout.page_regions


def plan_groups(members: Iterable[GroupMember], sealing: PieceOverhead = CHECKED) -> list[BundleGroup]:
    """Group one field's filters. Raises :class:`UsageError` for impossible sizes and units that occur twice.

    Groups of split-block filters come before groups of ORC filters; the ordinals of each kind count from 0.
    """
    kinds: dict[_Kind, list[_Sized]] = defaultdict(list)
    rules: dict[_Kind, IndexRule] = {}
    seen: set[int] = set()
    for member in members:
        blocks, tail = member.rule.size(member.num_bytes)
        if member.unit in seen or member.unit < 0:
            raise UsageError("a unit occurs twice among the filters of a field", found=f"unit {member.unit}")
        seen.add(member.unit)
        odd = blocks if tail or blocks & (blocks - 1) else 0
        kind = _Kind(_order(member.rule), member.encoding, member.resolution, tail, odd)
        kinds[kind].append((member.unit, blocks))
        rules[kind] = member.rule
    groups: list[BundleGroup] = []
    counts: dict[str, int] = defaultdict(int)
    for kind, same in sorted(kinds.items()):
        rule = rules[kind]
        for blocks, merged in _merge_sizes(same):
            units, own_blocks = np.array(sorted(merged), np.int64).T.copy()
            ordinal = counts[rule.name]
            counts[rule.name] += 1
            described = rule, kind.encoding, kind.resolution, blocks, kind.tail
            groups.append(BundleGroup(ordinal, *described, units, own_blocks, sealing))
    return groups


class _Kind(NamedTuple):
    """The facts that members of a group share. ``odd`` is the number of blocks if they must not be widened, else 0."""

    rule: tuple[int, ...]
    encoding: str
    resolution: str
    tail: int
    odd: int


@lru_cache  # called for each member, and astuple is slow
def _order(rule: IndexRule) -> tuple[int, ...]:
    return RULES.index(type(rule)), *astuple(rule)


_Sized = tuple[int, int]
"""The unit of a member, and its own z."""


def _merge_sizes(members: Sequence[_Sized]) -> list[tuple[int, list[_Sized]]]:
    """Merge members of similar sizes. Returns (blocks, members), larger sizes first.

    All sizes are powers of two, or all are equal.
    """
    classes: dict[int, list[_Sized]] = defaultdict(list)
    for member in members:
        classes[member[1]].append(member)
    allowance = max(FREE_BYTES, sum(blocks for _, blocks in members) * BLOCK_BYTES // 2)
    while len(classes) > 1:
        sizes = sorted(classes)
        cost, small, large = min(
            (len(classes[small]) * (large - small) * BLOCK_BYTES, small, large) for small, large in pairwise(sizes)
        )
        if cost > allowance:
            break
        allowance -= cost
        classes[large] += classes.pop(small)
    return sorted(classes.items(), reverse=True)
