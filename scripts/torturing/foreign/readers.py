"""Other readers of Parquet and ORC files, each a function from a path to the cells of the columns.

Whatever a reader raises is its refusal. One that ends the process is left out of the file by the caller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.orc as po
import pyarrow.parquet as pq

from scripts.torturing.foreign.cells import columns_of, plain

Columns = dict[str, list[Any]]
Reader = Callable[[str], Columns]


def by_pyarrow(path: str) -> Columns:
    with open(path, "rb") as file:
        return columns_of(pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read())


def by_pyarrow_orc(path: str) -> Columns:
    return columns_of(po.ORCFile(path).read())


def by_duckdb(path: str) -> Columns:
    return columns_of(
        duckdb_connection().execute("from read_parquet(?, hive_partitioning=false)", [path]).to_arrow_table()
    )


@cache
def duckdb_connection() -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": 1, "memory_limit": "1GB"})
    connection.execute("set TimeZone = 'UTC'")
    return connection


def by_polars(path: str) -> Columns:
    import polars

    frame = polars.read_parquet(path, hive_partitioning=False, glob=False)
    return columns_of(frame.to_arrow(compat_level=polars.CompatLevel.oldest()))


def by_pyorc(path: str) -> Columns:
    import pyorc

    with open(path, "rb") as file:
        reader = pyorc.Reader(file, struct_repr=pyorc.StructRepr.TUPLE, converters=_pyorc_converters())
        names, rows = [*reader.schema.fields], list(reader)
    return {name: [_of_pyorc(row[at]) for row in rows] for at, name in enumerate(names)}


@dataclass(frozen=True)
class _Converted:
    """A cell in the form of all readers, which must not be taken for a number or a text of pyorc's."""

    cell: int | str


@cache
def _pyorc_converters() -> dict[Any, Any]:
    from pyorc import TypeKind
    from pyorc.converters import ORCConverter

    class Instant(ORCConverter):
        @staticmethod
        def from_orc(*args: Any) -> _Converted:
            return _Converted(int(args[0]) * 1_000_000_000 + int(args[1]))

        @staticmethod
        def to_orc(*args: Any) -> Any:
            raise NotImplementedError

    class Day(Instant):
        @staticmethod
        def from_orc(*args: Any) -> _Converted:
            return _Converted(f"day {args[0]}")

    return {TypeKind.TIMESTAMP: Instant, TypeKind.TIMESTAMP_INSTANT: Instant, TypeKind.DATE: Day}


def _of_pyorc(cell: Any) -> Any:
    if isinstance(cell, tuple):
        return tuple(map(_of_pyorc, cell))
    if isinstance(cell, list):
        return [*map(_of_pyorc, cell)]
    if isinstance(cell, dict):
        return [(_of_pyorc(key), _of_pyorc(value)) for key, value in cell.items()]
    return cell.cell if isinstance(cell, _Converted) else plain(cell)


class SparkReader:
    """parquet-java and ORC Java, through Spark without its own vectorized decoders; starts with the first file."""

    @cached_property
    def session(self) -> Any:
        from tests.conftest import start_spark

        os.environ["TZ"] = "UTC"
        time.tzset()
        session = start_spark(Path(mkdtemp()))
        session.sparkContext.setLogLevel("OFF")
        for name, value in SPARK_SETTINGS.items():
            session.conf.set(f"spark.sql.{name}", value)
        return session

    def parquet(self, path: str) -> Columns:
        return columns_of(self.session.read.parquet(f"file:{path}").toArrow())

    def orc(self, path: str) -> Columns:
        return columns_of(self.session.read.orc(f"file:{path}").toArrow())


SPARK_SETTINGS = {
    "parquet.enableVectorizedReader": "false",
    "orc.enableVectorizedReader": "false",
    "parquet.datetimeRebaseModeInRead": "CORRECTED",
    "parquet.int96RebaseModeInRead": "CORRECTED",
    "parquet.inferTimestampNTZ.enabled": "true",
    "legacy.parquet.nanosAsLong": "true",
    "parquet.fieldId.read.enabled": "false",
    "files.maxPartitionBytes": "1g",
    "caseSensitive": "true",
}


def readers_of(kind: str, spark: SparkReader | None) -> dict[str, Reader]:
    """The readers of a format by name. Of ORC's, pyarrow and pyorc are both ORC C++, of two versions."""
    if kind == "orc":
        found: dict[str, Reader] = {"pyarrow": by_pyarrow_orc, "pyorc": by_pyorc}
        return found | ({"ORC Java": spark.orc} if spark else {})
    found = {"pyarrow": by_pyarrow, "DuckDB": by_duckdb, "polars": by_polars}
    return found | ({"parquet-java": spark.parquet} if spark else {})
