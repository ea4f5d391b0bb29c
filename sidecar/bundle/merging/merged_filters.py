"""The filters of a merged segment: positions planned anew, bits copied from the groups of the source segments.

Groups are planned by the rules of a build (:mod:`sidecar.bundle.filters.positions`), so filters that differ in hash,
encoding, resolution or odd size never share one, and widening follows the same limits. A filter of z blocks of its own
that is stored widened to z1 blocks and is now widened to z2 is copied without its values: block b of the new form is
the own block b // (z2 / z), which is the stored block (b // (z2 / z)) * (z1 / z). Own filters do not change, so a
merged filter gives every answer that it gave before, and is extracted as the same bytes.

A unit has filters in several segments if a column was built again. Those of the newest segment are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BlobContext, PieceOverhead
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.pages import (
    bare_group,
    open_pages,
    pages_step,
    read_own_blocks,
    read_pages,
    read_tails,
    walk_pages,
)
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import RULES, IndexRule
from sidecar.bundle.filters.slicing import group_pages, unslice_pages
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.merging.kind_merge import KindMerge, SegmentMerge
from sidecar.bundle.merging.merged_units import MergedUnits, Owners
from sidecar.bundle.merging.source_segment import CheckedGroup, CheckedSegment, SourceSegment
from sidecar.errors import DamagedFileError
from sidecar.filters.arrays import Blocks, Ordinals


@dataclass(frozen=True)
class _Contribution:
    """The filters that a merged group takes from one stored group: ``sources`` become ``targets`` (positions)."""

    stored: CheckedGroup
    sources: Ordinals
    targets: Ordinals


_Planned = Sequence[tuple[BundleGroup, Sequence[_Contribution]]]
"""The merged groups of one field, each with its sources: those of split-block filters, then those of ORC filters."""


def _pages(planned: _Planned, place: BlobContext) -> Iterator[bytes]:
    """Yield the pages and tails of all groups in order.

    Memory: a few times :data:`sidecar.bundle.filters.pages.PIECE_BYTES`, or one block of every filter of a group.
    """
    for group, parts in planned:
        load = partial(_load_blocks, group, [_BlockLoader(part) for part in parts])
        yield from group_pages(group, place, load, _tails(group, parts))


def _load_blocks(group: BundleGroup, loaders: Sequence[_BlockLoader], first: int, count: int) -> Blocks:
    out = np.empty((len(group.units), count, 8), np.uint32)
    for loader in loaders:
        loader.fill(out, first, group.blocks)
    return out


def _plan(
    sources: Sequence[CheckedSegment], units: MergedUnits, field_id: int, owners: Owners, sealing: PieceOverhead
) -> _Planned:
    """Plan the groups of a field. ``sealing`` is the overhead of the merged pieces."""
    planned = []
    for rule in RULES:
        taken = list(_taken(sources, units, field_id, owners, rule))
        members = [member for stored, positions, at in taken for member in _members(stored, positions, at)]
        planned += [(group, list(_contributions(group, taken))) for group in plan_groups(members, sealing)]
    return planned


_Taken = tuple[CheckedGroup, Ordinals, Ordinals]
"""A stored group, the positions in it that are taken, and their merged units."""


def _taken(
    sources: Sequence[CheckedSegment], units: MergedUnits, field_id: int, owners: Owners, rule: type[IndexRule]
) -> Iterator[_Taken]:
    for number, source in enumerate(sources):
        for stored in source.filters.get(field_id, ()):
            if not isinstance(stored.group.rule, rule):
                continue
            at = units.new_units[number][stored.group.units]
            positions = np.flatnonzero((at >= 0) & (owners[at] == number)) if units.num_units else np.empty(0, np.int64)
            if len(positions):
                yield stored, positions, at[positions]


def _members(stored: CheckedGroup, positions: Ordinals, at: Ordinals) -> Iterator[GroupMember]:
    group = stored.group
    for own, unit in zip(stored.own_blocks[positions].tolist(), at.tolist(), strict=True):
        num_bytes = group.rule.num_bytes(own, group.layout.tail)
        yield GroupMember(unit, group.encoding, group.resolution, num_bytes, rule=group.rule)


def _contributions(group: BundleGroup, taken: Sequence[_Taken]) -> Iterator[_Contribution]:
    for stored, positions, at in taken:
        targets = np.searchsorted(group.units, at)
        inside = targets < len(group.units)
        inside[inside] = group.units[targets[inside]] == at[inside]
        if inside.any():
            yield _Contribution(stored, positions[inside], targets[inside])


def _tails(group: BundleGroup, parts: Sequence[_Contribution]) -> list[bytes | None]:
    tails: list[bytes | None] = [None] * len(group.units)
    for part in parts:
        for source, target in zip(part.sources.tolist(), part.targets.tolist(), strict=True):
            tails[target] = part.stored.tails[source]
    return tails


class _BlockLoader:
    """Copies blocks of one stored group to a merged group. Ranges that rise are read once."""

    def __init__(self, part: _Contribution) -> None:
        self._part = part
        self._first = self._end = 0
        self._blocks: Blocks = np.empty((0, 0, 8), np.uint32)

    def fill(self, out: Blocks, first: int, blocks: int) -> None:
        """Write the blocks from ``first`` of filters widened to ``blocks`` to ``out``, uint32[N, count, 8]."""
        stored, wanted = self._part.stored, np.arange(first, first + out.shape[1])
        own_blocks = stored.own_blocks[self._part.sources]
        for own in np.unique(own_blocks).tolist():
            chosen = own_blocks == own
            sources, targets = self._part.sources[chosen], self._part.targets[chosen]
            places = wanted // (blocks // own) * (stored.group.layout.blocks // own)
            at = 0
            while at < len(places):
                self._load(int(places[at]))
                end = int(np.searchsorted(places, self._end))
                out[targets[:, None], np.arange(at, end)] = self._blocks[sources[:, None], places[at:end] - self._first]
                at = end

    def _load(self, block: int) -> None:
        """Have the range of stored blocks with ``block`` in memory."""
        if self._first <= block < self._end:
            return
        stored = self._part.stored
        group, bundle = stored.group, stored.bundle
        layout = group.layout
        first = block // layout.page_regions * layout.page_regions
        count = min(pages_step(group), layout.blocks - first)
        pages, bad = open_pages(group, bundle.place, read_pages(group, bundle.read_ranges, first, count))
        for name in bad:
            raise stored.source.damaged_meanwhile(f"{name} of filter group {group.ordinal}", bundle.toc.field_id)
        self._blocks = unslice_pages(bare_group(group), first, pages.blocks, pages.data)
        self._first, self._end = first, first + pages.blocks


def _rates(sources: Sequence[CheckedSegment], field_id: int, planned: _Planned) -> tuple[float | None, float | None]:
    """Return the declared rate and the expected false units of a field's merged filters; ``None`` if unknown.

    The declared rate is the highest of the sources. A source counts its expected units by the share of its filters
    that are kept, as if they had equal rates.
    """
    every = [part for _, parts in planned for part in parts]
    rates = [part.stored.bundle.toc.fpp for part in every]
    fpp = max((rate for rate in rates if rate is not None), default=None) if None not in rates else None
    expected = 0.0
    for source in sources:
        stored = {id(checked.bundle) for checked in source.filters.get(field_id, ())}
        parts = [part for part in every if id(part.stored.bundle) in stored]
        if not parts:
            continue
        known = parts[0].stored.bundle.toc.expected_false_units
        if known is None:
            return fpp, None
        # A field's two bundles state the same number, for the filters of both.
        total = sum(g.layout.members for b in source.segment.bundles_of(field_id) for g in b.toc.groups)
        expected += known * sum(len(part.sources) for part in parts) / total
    return fpp, expected


class FilterMerge(KindMerge):
    """How filters are merged."""

    def check(self, checked: CheckedSegment) -> None:
        """Find the groups without damage."""
        for (blob_type, field_id), bundle in checked.source.blobs.items():
            if isinstance(bundle, FilterBundle):
                with checked.noting_damage((blob_type, field_id)) as damaged:
                    found = _sound_groups(checked.source, bundle, damaged)
                checked.filters.setdefault(field_id, []).extend(found)

    def owners(self, sources: Sequence[CheckedSegment], units: MergedUnits, field_id: int) -> Owners:
        """See :meth:`KindMerge.owners`."""
        owners = units.owners()
        for number, source in enumerate(sources):
            for checked in source.filters.get(field_id, ()):
                at = units.new_units[number][checked.group.units]
                owners[at[at >= 0]] = number
        return owners

    def parts(self, merge: SegmentMerge) -> Iterator[FieldBundle]:
        """Yield the merged filters of each field that has some."""
        for field_id, owners in merge.owned(BLOOM):
            place = merge.place(field_id)
            planned = _plan(merge.sources, merge.units, field_id, owners, place.sealing)
            if planned:
                groups, rates = [group for group, _ in planned], _rates(merge.sources, field_id, planned)
                properties = merge.properties([(rule.blob_type, field_id) for rule in RULES])
                key = merge.keys.get(field_id)
                yield FieldBundle(field_id, groups, _pages(planned, place), *rates, key, properties)


def _sound_groups(source: SourceSegment, bundle: FilterBundle, damaged: npt.NDArray[np.bool_]) -> list[CheckedGroup]:
    """Return the groups without damage; set ``damaged`` for the units of the others."""
    sound, place, read = [], bundle.place, bundle.read_ranges
    for group in bundle.toc.groups:
        try:
            own_blocks, tails = read_own_blocks(group, place, read), read_tails(group, place, read)
        except DamagedFileError as error:
            bundle.report(error)
            damaged[group.units] = True
            continue
        bad = next((bad for pages in walk_pages(group, read) if (bad := open_pages(group, place, pages)[1])), None)
        if bad is None:
            sound.append(CheckedGroup(source, bundle, group, own_blocks, tails))
        else:
            bundle.report(DamagedFileError(f"the filters of group {group.ordinal} are damaged, {bad[0]}"))
            damaged[group.units] = True
    return sound
