"""The part of a build for each index kind: what records say, and whether an earlier segment serves a file."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, THETA
from sidecar.bundle.model import CoverageState, UnitState
from sidecar.bundle.segment import Segment
from sidecar.indexing.stage_one.tasks import StageResult


class BuildPart(ABC):
    """A build's part of one kind. A record is that of one column of one unit, as stage 1 returns it."""

    @abstractmethod
    def reason(self, record: StageResult) -> str:
        """Return why the unit has no index; empty if it has one, or if none was asked for."""

    def state(self, record: StageResult) -> CoverageState:
        """Return what coverage says of the unit."""
        return CoverageState(self.reason(record) or UnitState.INDEXED, record.resolution)

    def serves(self, segment: Segment, field_id: int, fpp: float | None) -> bool:
        """Return whether a segment that says so has indexes of a field, with filters for the rate (``None``: any)."""
        return True


class _FilterPart(BuildPart):
    def reason(self, record: StageResult) -> str:
        return record.reason

    def state(self, record: StageResult) -> CoverageState:
        if record.filter.blocks:
            return CoverageState(UnitState.INDEXED, record.resolution)
        return CoverageState(record.reason or "no filter was made", record.resolution)

    def serves(self, segment: Segment, field_id: int, fpp: float | None) -> bool:
        bundles = segment.bundles_of(field_id)
        return bool(bundles) and all(fpp in (None, bundle.toc.fpp) for bundle in bundles)


class _SketchPart(BuildPart):
    """Sketches are looked for by :mod:`sidecar.indexing.previous.earlier_sketches`, group by group."""

    def reason(self, record: StageResult) -> str:
        return record.theta_reason


class _EntryPart(BuildPart):
    def reason(self, record: StageResult) -> str:
        return record.reason

    def state(self, record: StageResult) -> CoverageState:
        return CoverageState(UnitState.INDEXED if record.length else record.reason, record.resolution)

    def serves(self, segment: Segment, field_id: int, fpp: float | None) -> bool:
        return field_id in segment.page_index_blobs or field_id in segment.row_index_blobs


PARTS: dict[str, BuildPart] = {BLOOM: _FilterPart(), THETA: _SketchPart(), PAGE_INDEX: _EntryPart()}
"""The part of each kind by its name."""
