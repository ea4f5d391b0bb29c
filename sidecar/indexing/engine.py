"""What the driver of a build asks of an engine, and what both engines answer.

Stage 1 gives records without their filters: those stay where the engine keeps them (a temporary file, a
cached Spark DataFrame) until the driver has fixed, once, which filter stands at which position of which
group. Stage 2 then gives the groups' finished regions in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from sidecar.indexing.slices import GroupTask, Key
from sidecar.indexing.tasks import BuildPlan, Record, UnitsTask


class Progress(Protocol):
    """Called as work goes on; draws nothing itself."""

    def __call__(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """``done`` of ``total`` steps of ``what``; ``None`` where that is not known."""


class Engine(Protocol):
    """Runs the two stages. To be closed, whatever happened."""

    name: str

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan, progress: Progress) -> list[Record]:
        """Stage 1: all records, in the order of their tasks; ``data`` of filters is ``None``."""

    def slices(self, groups: Sequence[GroupTask], progress: Progress) -> Iterator[tuple[int, bytes]]:
        """Stage 2: ``(group number, finished regions)``, groups in order, regions in order within each."""

    def page_indexes(self, keys: Sequence[Key]) -> Iterator[bytes]:
        """The data of ``pages`` records, in the order of ``keys``."""

    def close(self) -> None:
        """Drop what the engine keeps."""
