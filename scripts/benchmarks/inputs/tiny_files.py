"""Tables of very many tiny files or row groups, where the cost of each counts and not that of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.benchmarks.harness import data

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

ROWS = 20
"""Rows of a file."""


def catalog_of_tiny_files(files: int) -> SqlCatalog:
    """Return a catalog with the table ``db.t`` of so many files of 20 rows, columns ``k`` and ``m``."""

    def make(folder: Path, catalog: SqlCatalog) -> None:
        (folder / "data").mkdir()
        paths = [f"{folder}/data/{number:06}.parquet" for number in range(files)]
        for number, path in enumerate(paths):
            pq.write_table(rows(number), path, compression="none", use_dictionary=False)
        catalog.create_table("db.t", rows(0).schema).add_files(paths, check_duplicate_files=False)

    return data.table(f"tiny-{files}", make)


def catalog_of_row_groups(files: int, row_groups: int, columns: int) -> SqlCatalog:
    """Return a catalog with the table ``db.t`` of files of so many row groups of 20 rows, columns ``c0``, ``c1`` ..."""

    def make(folder: Path, catalog: SqlCatalog) -> None:
        (folder / "data").mkdir()
        names = [f"c{number}" for number in range(columns)]
        values = np.arange(row_groups * ROWS)
        paths = [f"{folder}/data/{number:04}.parquet" for number in range(files)]
        for number, path in enumerate(paths):
            rows_of_file = pa.table({name: values * (7 + at) + number for at, name in enumerate(names)})
            pq.write_table(rows_of_file, path, row_group_size=ROWS, compression="none", use_dictionary=False)
        catalog.create_table("db.t", rows_of_file.schema).add_files(paths, check_duplicate_files=False)

    return data.table(f"tiny-{files}-of-{row_groups}-with-{columns}", make)


def rows(number: int) -> pa.Table:
    """Return the rows of a file: ``k`` counts on from file to file."""
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table({"k": ids, "m": ids * 7})


def rate(blocks: int) -> float:
    """Return the rate for which the filter of a file gets so many blocks.

    With so few values a filter has at most one value in a block, so its rate is that of one block times their share;
    with half the blocks it would be twice as much.
    """
    return 1.5 * ROWS / blocks * 32.0**-8
