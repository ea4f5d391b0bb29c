"""Measures what ``advise`` predicts: how many files plans of lookups keep, with bounds alone and with filters."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

import sidecar
from tests.iceberg.cases import local


@dataclass(frozen=True)
class Measured:
    """The mean number of files that lookups keep; ``None`` if no absent value was found."""

    by_bounds: float
    with_filters: float


class Lookups:
    """Lookups in one column of a table. Values come out of the data files, through pyarrow."""

    def __init__(self, table: Table, column: str) -> None:
        self._table, self._column = table, column
        paths = [task.file.file_path for task in table.scan().plan_files()]
        columns = [pq.read_table(local(path), columns=[column])[column] for path in paths]
        self.of_file: list[Any] = [column.unique().drop_null() for column in columns]
        self._all = set(pa.concat_arrays([found.cast(found.type) for found in map(_flat, self.of_file)]).to_pylist())

    def existing(self, rng: random.Random) -> Any:
        """A random distinct value of a random file."""
        values = rng.choice([values for values in self.of_file if len(values)])
        return values[rng.randrange(len(values))].as_py()

    def absent(self, rng: random.Random) -> Any | None:
        """A value beside one of the table's own that no file has; ``None`` if twenty tries find none."""
        for _ in range(20):
            value = _beside(self.existing(rng))
            if value not in self._all:
                return value
        return None

    def measure(self, lookups: int, seed: int) -> tuple[Measured, Measured | None]:
        """The files that so many lookups of existing and of absent values keep. The table has filters of the column."""
        rng = random.Random(seed)
        existing = self._kept([self.existing(rng) for _ in range(lookups)])
        absent = [value for _ in range(lookups) if (value := self.absent(rng)) is not None]
        return existing, self._kept(absent) if absent else None

    def _kept(self, values: list[Any]) -> Measured:
        funnels = [sidecar.plan(self._table, EqualTo(self._column, value)).funnel for value in values]
        left = fmean(funnel.total - funnel.dropped_by_metadata for funnel in funnels)
        return Measured(left, fmean(funnel.kept for funnel in funnels))


def _flat(values: Any) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _beside(value: Any) -> Any:
    if isinstance(value, str):
        return f"{value}~"
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, Decimal):
        return value + Decimal(1).scaleb(int(value.as_tuple().exponent))
    if isinstance(value, dt.datetime):
        return value + dt.timedelta(microseconds=1)
    return value + dt.timedelta(days=1)


def factor(predicted: float, measured: float, least: float) -> float:
    """How many times one number is the other; numbers below ``least`` files count as ``least``."""
    low, high = sorted([max(predicted, least), max(measured, least)])
    return high / low


def events(part: int, rows: int, files: int) -> pa.Table:
    """A file of a log: ids in the order of time, users that come back, pages of which some are popular."""
    rng = np.random.default_rng(part)
    n = np.arange(part * rows, (part + 1) * rows)
    pages = np.minimum(rng.zipf(1.3, rows), 20 * rows)
    return pa.table(
        {
            "id": n * 3,
            "user_id": rng.integers(0, rows * files // 3, rows) * 2,
            "status": rng.choice(["ok", "slow", "failed"], rows, p=[0.9, 0.09, 0.01]),
            "url": [f"https://example.org/page/{page * 7919 % 1_000_003}" for page in pages],
            "message": [f"request {number:016x} took {number % 977} ms" for number in rng.integers(0, 2**60, rows)],
            "constant": ["eu-1"] * rows,
        }
    )


def create_events(catalog: SqlCatalog, name: str, files: int, rows: int, **properties: str) -> Table:
    """A table of :func:`events` with one data file a commit."""
    table = catalog.create_table(name, events(0, 1, files).schema, properties=properties)
    with table.transaction() as transaction:
        for part in range(files):
            transaction.append(events(part, rows, files))
    return catalog.load_table(name)
