"""Chooses the engine of a build: this process or Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.table import Table

from sidecar.iceberg.listing import ListedFile
from sidecar.indexing.engine import Engine
from sidecar.indexing.local import LocalEngine
from sidecar.indexing.tasks import TableOpener

NOTHING_TO_INDEX = "there is nothing to index"
"""The reason for the engine of a build without files."""

LOCAL_BYTES = 4 << 30
"""``engine="auto"`` runs tables of at most this many bytes of data files in this process."""


def engine_for(
    table: Table, files: Sequence[ListedFile], engine: str, spark: Any, threads: int | None
) -> tuple[Engine, str]:
    """Return the engine, and why it was chosen."""
    opener = TableOpener(table.io.properties, table.metadata_location, table.io)
    name, why = choose_engine(files, engine, spark)
    if name == "local":
        return LocalEngine(opener, threads), why
    from sidecar.spark.engine import SparkEngine
    from sidecar.spark.session import embedded_session

    return SparkEngine(spark if spark is not None else embedded_session(threads), opener), why


def choose_engine(files: Sequence[ListedFile], engine: str, spark: Any) -> tuple[str, str]:
    """Return the name of the engine for ``files``, and why it is chosen. Starts nothing."""
    if not files:
        return "local", NOTHING_TO_INDEX
    if engine != "auto":
        return engine, "as asked for"
    if spark is not None:
        return "spark", "a Spark session was given"
    size = sum(file.file_size for file in files)
    if size <= LOCAL_BYTES:
        return "local", f"at most {LOCAL_BYTES >> 30} GiB of data files are to be indexed"
    from sidecar.spark.session import unavailable

    missing = unavailable()
    if missing:
        return "local", f"Spark cannot start: {missing}"
    return "spark", f"more than {LOCAL_BYTES >> 30} GiB of data files are to be indexed"
