"""Merging of each index kind: the check of a segment's indexes, and one index written of those of several segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.field_parts import FieldPart
from sidecar.bundle.merging.merged_units import MergedUnits, Owners
from sidecar.bundle.merging.source_segment import BlobOfField, CheckedSegment
from sidecar.bundle.model import SegmentHeader


@dataclass(frozen=True)
class SegmentMerge:
    """One merge, once its files and units are known."""

    sources: Sequence[CheckedSegment]
    """The merged segments, oldest first."""
    units: MergedUnits
    header: SegmentHeader
    keys: Mapping[int, FieldKey]
    """The keys of fields whose blobs are encrypted in the merged segment."""
    owners: Mapping[tuple[int, str], Owners]
    """The segment from which each unit's index comes, by field id and kind, for kinds of which the newest index
    stays."""

    def owned(self, kind: str) -> Iterator[tuple[int, Owners]]:
        """Yield the fields, in order, with the owners of their indexes of a kind."""
        return ((field_id, owners) for (field_id, own), owners in self.owners.items() if own == kind)

    def place(self, field_id: int) -> BlobContext:
        """Return the context of a field's pieces in the merged segment."""
        key = self.keys.get(field_id)
        return BlobContext(self.header.segment_id, field_id) if key is None else key.place

    def properties(self, blobs: Sequence[BlobOfField]) -> dict[str, str]:
        """Return the properties of all merged blobs: a mark of one of them holds for the merged blob."""
        found: dict[str, str] = {}
        for source in self.sources:
            stored = source.source.properties
            for blob in blobs:
                found |= stored.get(blob, {})
        return found


class KindMerge(ABC):
    """How segments merge what they have of one kind."""

    @abstractmethod
    def check(self, checked: CheckedSegment) -> None:
        """Read and verify all indexes of the kind in a segment.

        Sound ones go to a member of ``checked``, units with a damaged one to ``checked.damaged``.
        """

    def owners(self, sources: Sequence[CheckedSegment], units: MergedUnits, field_id: int) -> Owners:
        """Return the number of the newest segment that has a sound index of each unit.

        By default no segment has one, so the merged segment has no index. A kind of which the newest index stays has
        its own method. It is not called for kinds whose indexes are united.
        """
        return units.owners()

    @abstractmethod
    def parts(self, merge: SegmentMerge) -> Iterator[FieldPart]:
        """Yield what the merged segment has of the kind, field by field."""
