"""Tables of random even longs in every file: bounds rule nothing out, and every odd number is absent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.benchmarks.harness import data

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SEED = 5
SCHEMA = pa.schema([("k", pa.int64())])


def files_of_longs(files: int, rows: int, *, with_filters: bool) -> list[str]:
    """Return the paths of plain Parquet files, which have Bloom filters of their own (1 %) if asked for."""

    def make(folder: Path) -> None:
        options = {"bloom_filter_options": {"k": {"ndv": rows, "fpp": 0.01}}} if with_filters else {}
        for number, values in enumerate(_values(files, rows)):
            path = folder / f"{number:05}.parquet"
            pq.write_table(pa.table({"k": values}), path, use_dictionary=False, compression="none", **options)

    folder = data.made(f"longs-{files}-of-{rows}" + ("-with-filters" if with_filters else ""), make)
    return [str(path) for path in sorted(folder.glob("*.parquet"))]


def keys_of(files: int, rows: int) -> list[int]:
    """Return a key of each file, in no order."""
    keys = [int(values[0]) for values in _values(files, rows)]
    return [keys[at] for at in np.random.default_rng(SEED).permutation(files)]


def _values(files: int, rows: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(SEED)
    return (random.integers(-(2**62), 2**62, rows) * 2 for _ in range(files))


def catalog_of_longs(files: int, rows: int, *, with_filters: bool) -> SqlCatalog:
    """Return a catalog with the tables ``db.longs`` and ``db.rated``, both of these files."""
    paths = [f"file:{path}" for path in files_of_longs(files, rows, with_filters=with_filters)]

    def make(folder: Path, catalog: SqlCatalog) -> None:
        for name in ("db.longs", "db.rated"):
            catalog.create_table(name, SCHEMA).add_files(paths, check_duplicate_files=False)

    name = f"tables-of-longs-{files}-of-{rows}" + ("-with-filters" if with_filters else "")
    return data.table(name, make)


def catalog_of_two_longs(rows: int, files: int = 8) -> SqlCatalog:
    """Return a catalog with the table ``db.longs`` of so many rows of two columns ``k`` and ``m``, in equal files."""

    def make(folder: Path, catalog: SqlCatalog) -> None:
        random, paths = np.random.default_rng(SEED), []
        for number in range(files):
            path = folder / f"{number}.parquet"
            columns = {name: random.integers(0, 2**62, rows // files) for name in ("k", "m")}
            pq.write_table(pa.table(columns), path, use_dictionary=False, compression="none")
            paths.append(f"file:{path}")
        schema = pa.schema([("k", pa.int64()), ("m", pa.int64())])
        catalog.create_table("db.longs", schema).add_files(paths, check_duplicate_files=False)

    return data.table(f"table-of-two-longs-{rows}-in-{files}", make)
