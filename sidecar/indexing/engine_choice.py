"""Chooses the engine of a build by :mod:`sidecar.engines.choice`, for the data files that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.table import Table

from sidecar.engines.choice import ChosenEngine, choose_engine, session_of
from sidecar.iceberg.listing import SnapshotFile
from sidecar.indexing.engine import Engine
from sidecar.indexing.local import LocalEngine
from sidecar.indexing.stage_one.tasks import TableOpener
from sidecar.results.choices import BuildEngine

NOTHING_TO_INDEX = "there is nothing to index"
"""The reason for the engine of a build without files."""


def engine_for(
    table: Table, files: Sequence[SnapshotFile], engine: BuildEngine, spark: Any, threads: int | None
) -> tuple[Engine, str]:
    """Return the engine, and why it was chosen."""
    opener = TableOpener(table.io.properties, table.metadata_location, table.io)
    chosen = choose_build_engine(files, engine, spark)
    if chosen.name == "local":
        return LocalEngine(opener, threads), chosen.reason
    from sidecar.spark.engine import SparkEngine

    return SparkEngine(session_of(spark, threads), opener), chosen.reason


def choose_build_engine(files: Sequence[SnapshotFile], engine: BuildEngine, spark: Any) -> ChosenEngine:
    """Return the engine for ``files``, and why it is chosen. Starts nothing."""
    if not files:
        return ChosenEngine("local", NOTHING_TO_INDEX)
    return choose_engine(engine, spark, lambda: sum(file.file_size for file in files))
