"""A table of mixed columns: sorted, random and repeating numbers, strings, doubles and a struct."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.benchmarks.harness import data

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

FILES = 6
ROW_GROUP = 50_000


def catalog_with_mixed_columns(rows: int) -> SqlCatalog:
    """Return a catalog with the table ``db.mixed``: six files of ``rows`` rows, with page indexes."""

    def make(folder: Path, catalog: SqlCatalog) -> None:
        random, paths = np.random.default_rng(6), []
        for number in range(FILES):
            start = number * rows
            columns = pa.table(
                {
                    "k": np.arange(start, start + rows),
                    "n": random.integers(0, 100, rows),
                    "r": random.integers(0, 2**62, rows),
                    "s": pa.array([f"{i:08x}-{i % 97}" for i in random.integers(0, 2**32, rows)]),
                    "d": random.random(rows),
                    "p": pa.array([{"a": int(i), "b": str(i % 1000)} for i in range(rows)]),
                }
            )
            path = folder / f"{number:04}.parquet"
            pq.write_table(columns, path, row_group_size=ROW_GROUP, write_page_index=True, data_page_size=64 * 1024)
            paths.append(f"file:{path}")
        catalog.create_table("db.mixed", columns.schema).add_files(paths)

    return data.table(f"mixed-{FILES}-of-{rows}", make)
