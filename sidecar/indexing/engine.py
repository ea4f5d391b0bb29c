"""Defines what the driver of a build needs from an engine.

Stage 1 returns records without their filters, which come to this process and are kept in a temporary file
(:class:`sidecar.indexing.slices.KeptIndexes`) until the driver has fixed, once, which filter is at which position of
which group. Stage 2 runs here for both engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sidecar.indexing.slices import KeptIndexes
from sidecar.indexing.stage_one.tasks import BuildPlan, StageResult, UnitsTask
from sidecar.results.choices import EngineKind


class Engine(Protocol):
    """Runs stage 1. Close it, also after an error."""

    name: EngineKind
    kept: KeptIndexes
    """The filters and page indexes of all calls of :meth:`index`; of the same unit and column, those of the last."""

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan) -> list[StageResult]:
        """Run stage 1 and return all records in the order of their tasks.

        ``data`` of filters and page indexes is ``None``, and in :attr:`kept`.
        """

    def close(self) -> None:
        """Free everything that the engine keeps."""
