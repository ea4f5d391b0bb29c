"""The page indexes and row indexes of a merged segment: the same bytes, under the units' new ordinals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sidecar.bundle.indexes.index_blob import IndexBlob
from sidecar.bundle.indexes.index_toc import IndexForm, IndexGroup, plan_index_groups
from sidecar.bundle.merging.merged_units import MergedUnits, Owners
from sidecar.bundle.merging.source_segment import CheckedSegment, FieldBlob, parts_of

ENTRIES_AT_ONCE = 256
"""Entries that are read together. The reader splits them if they are more than 16 MiB."""

_Origin = tuple[int, int]
"""The number of a segment, and a unit in it."""


@dataclass(frozen=True)
class MergedIndexes:
    """The merged entries of one field and form, and where each comes from, by merged unit."""

    key: FieldBlob
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
        return {unit: parts_of(blob, entry) for unit, entry in blob.read_surely(units).items()}


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


def index_owners(sources: Sequence[CheckedSegment], units: MergedUnits, keys: Sequence[FieldBlob]) -> Owners:
    """Return the number of the newest segment with an entry of one of the blobs for each unit."""
    owners = units.owners()
    for number, source in enumerate(sources):
        for key in keys:
            for unit in source.entries.get(key, {}):
                merged = units.new_units[number][unit]
                if merged >= 0:
                    owners[merged] = number
    return owners
