"""Defines what the driver of a build needs from an engine, and chooses one by :mod:`sidecar.engines.choice`.

Stage 1 returns records without their filters, which come to this process and are kept in a temporary file
(:class:`sidecar.indexing.slices.KeptIndexes`) until the driver has fixed, once, which filter is at which position of
which group. Stage 2 runs here for both engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyiceberg.table import Table

from sidecar.engines.choice import ChosenEngine, choose_engine, session_of
from sidecar.iceberg.listing import SnapshotFile
from sidecar.indexing.local import LocalEngine
from sidecar.indexing.request import BuildMeans
from sidecar.indexing.slices import KeptIndexes
from sidecar.indexing.stage_one.tasks import BuildPlan, StageResult, UnitsTask
from sidecar.results.choices import EngineKind

NOTHING_TO_INDEX = "there is nothing to index"
"""The reason for the engine of a build without files."""


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


def engine_for(table: Table, files: Sequence[SnapshotFile], means: BuildMeans) -> tuple[Engine, str]:
    """Return the engine, and why it was chosen."""
    chosen = choose_build_engine(table, files, means)
    if chosen.name == "local":
        return LocalEngine(means.threads), chosen.reason
    from sidecar.spark.engine import SparkEngine

    return SparkEngine(session_of(means.spark, means.threads)), chosen.reason


def choose_build_engine(table: Table, files: Sequence[SnapshotFile], means: BuildMeans) -> ChosenEngine:
    """Return the engine for ``files`` of a table, and why it is chosen. Starts nothing."""
    if not files:
        return ChosenEngine("local", NOTHING_TO_INDEX)
    return choose_engine(means.chosen_engine(), means.spark, lambda: sum(file.file_size for file in files), table.io)
