"""Defines what the driver of a build needs from an engine.

Stage 1 returns records without their filters. The engine keeps the filters (in a temporary file, or a cached Spark
DataFrame) until the driver has fixed, once, which filter is at which position of which group. Stage 2 then returns the
finished regions of the groups in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from sidecar.convert.outcome import Progress
from sidecar.indexing.slices import GroupTask, Key
from sidecar.indexing.tasks import BuildPlan, Record, UnitsTask


class Engine(Protocol):
    """Runs the two stages. Close it, also after an error."""

    name: str

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan, progress: Progress) -> list[Record]:
        """Run stage 1 and return all records in the order of their tasks; ``data`` of filters is ``None``.

        It can be called several times. Filters and page indexes are kept of the last call.
        """

    def slices(self, groups: Sequence[GroupTask], progress: Progress) -> Iterator[tuple[int, bytes]]:
        """Run stage 2 and yield ``(group number, finished regions)``: groups in order, regions in order in each."""

    def page_indexes(self, keys: Sequence[Key]) -> Iterator[bytes]:
        """Yield the data of ``pages`` records, in the order of ``keys``."""

    def close(self) -> None:
        """Free everything that the engine keeps."""
