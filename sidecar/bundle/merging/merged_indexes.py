"""The page indexes and row indexes of a merged segment: the same bytes, under the units' new ordinals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.bundle.indexes.index_blob import FieldIndexes, IndexBlob
from sidecar.bundle.indexes.index_toc import MEMBERS_PER_PIECE, IndexForm, IndexGroup, plan_index_groups
from sidecar.bundle.indexes.row_indexes import INDEX_FORMS
from sidecar.bundle.kinds.declared import KINDS, PAGE_INDEX
from sidecar.bundle.merging.kind_merge import KindMerge, SegmentMerge
from sidecar.bundle.merging.merged_units import MergedUnits, Owners
from sidecar.bundle.merging.source_segment import BlobOfField, CheckedEntry, CheckedSegment

ENTRIES_AT_ONCE = 256
"""Entries that are read together. The reader splits them if they are more than 16 MiB."""

_Origin = tuple[int, int]
"""The number of a segment, and a unit in it."""


@dataclass(frozen=True)
class MergedIndexes:
    """The merged entries of one field and form, and where each comes from, by merged unit."""

    key: BlobOfField
    groups: list[IndexGroup[Any]]
    origins: dict[int, _Origin]

    def entries(self, sources: Sequence[CheckedSegment]) -> Iterator[tuple[bytes, ...]]:
        """Yield the parts of all entries in the order of the groups. Memory: :data:`ENTRIES_AT_ONCE` entries."""
        units = (unit for group in self.groups for unit in group.units.tolist())
        while batch := list(islice(units, ENTRIES_AT_ONCE)):
            by_source: dict[int, list[int]] = {}
            for number, unit in map(self.origins.__getitem__, batch):
                by_source.setdefault(number, []).append(unit)
            read = {number: self._read(sources[number], own) for number, own in by_source.items()}
            for unit in batch:
                number, own = self.origins[unit]
                if own not in read[number]:
                    raise sources[number].source.damaged_meanwhile(f"the index of unit {own}", self.key[1])
                yield read[number][own]

    def _read(self, source: CheckedSegment, units: Sequence[int]) -> dict[int, tuple[bytes, ...]]:
        blob = source.source.blobs[self.key]
        assert isinstance(blob, IndexBlob)
        return {unit: entry.pieces for unit, entry in blob.read_surely(units).items()}


def merge_indexes(
    sources: Sequence[CheckedSegment], units: MergedUnits, form: IndexForm[Any], field_id: int, owners: Owners
) -> MergedIndexes:
    """Plan the groups of a field. ``owners`` is the newest segment with an index of each unit."""
    key = form.blob_type, field_id
    members, origins = [], {}
    for number, source in enumerate(sources):
        for unit, entry in source.entries.get(key, {}).items():
            merged = int(units.new_units[number][unit])
            if merged >= 0 and owners[merged] == number:
                members.append((merged, entry.kind, entry.lengths))
                origins[merged] = number, unit
    return MergedIndexes(key, plan_index_groups(form, members), origins)


class EntryMerge(KindMerge):
    """How page indexes and row indexes are merged."""

    def check(self, checked: CheckedSegment) -> None:
        """Find the entries without damage."""
        for key, blob in checked.source.blobs.items():
            if isinstance(blob, IndexBlob):
                with checked.noting_damage(key) as damaged:
                    checked.entries[key] = _sound_entries(blob, damaged)

    def owners(self, sources: Sequence[CheckedSegment], units: MergedUnits, field_id: int) -> Owners:
        """See :meth:`KindMerge.owners`. A unit has an entry of one form, so the forms share their owners."""
        owners = units.owners()
        for number, source in enumerate(sources):
            for blob_type in KINDS[PAGE_INDEX].blob_types:
                for unit in source.entries.get((blob_type, field_id), {}):
                    merged = units.new_units[number][unit]
                    if merged >= 0:
                        owners[merged] = number
        return owners

    def parts(self, merge: SegmentMerge) -> Iterator[FieldIndexes]:
        """Yield the merged page indexes and row indexes of each field that has some."""
        for field_id, owners in merge.owned(PAGE_INDEX):
            for form in INDEX_FORMS:
                merged = merge_indexes(merge.sources, merge.units, form, field_id, owners)
                if merged.groups:
                    entries = merged.entries(merge.sources)
                    key, properties = merge.keys.get(field_id), merge.properties([merged.key])
                    yield FieldIndexes(form, field_id, merged.groups, entries, key, properties)


def _sound_entries(blob: IndexBlob[Any, Any], damaged: npt.NDArray[np.bool_]) -> dict[int, CheckedEntry]:
    """Return the sound entries of a blob by unit; set ``damaged`` for the other members."""
    sound: dict[int, CheckedEntry] = {}
    for group in blob.toc.groups:
        units = group.ordinals().tolist()
        for first in range(0, len(units), MEMBERS_PER_PIECE):
            members = units[first : first + MEMBERS_PER_PIECE]
            found = blob.read_surely(members)
            sound |= {unit: CheckedEntry(entry.kind, tuple(map(len, entry.pieces))) for unit, entry in found.items()}
            damaged[[unit for unit in members if unit not in found]] = True
    return sound
