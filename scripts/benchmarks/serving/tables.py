"""The tables that are asked, in one SQL catalog ``bench``.

``db.few`` and ``db.many`` have real manifests, and no data files. The filters of ``db.many`` rule nothing
out. ``db.real`` has data: a key is in one file of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.inputs.manifests import write_sidecar, write_table

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

ROWS = 2_000
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def write_served_tables(name_of_folder: str, few: int, many: int) -> None:
    """Make the three tables the first time, and their sidecars each time."""
    shapes = {"few": (few, 100), "many": (many, 1_000)}

    def make(folder: Path, catalog: SqlCatalog) -> None:
        write_real(catalog, folder / "files", few)
        for name, (files, per_manifest) in shapes.items():
            write_table(catalog, files, per_manifest, f"db.{name}")

    catalog = data.table(name_of_folder, make)
    for name in shapes:
        write_sidecar(catalog.load_table(f"db.{name}"), 1, rules_out=name == "few")
    sidecar.build(catalog.load_table("db.real"), ["k"], engine="local")


def write_real(catalog: SqlCatalog, folder: Path, files: int) -> None:
    """Write even keys at random. Every odd one is absent, and within the bounds of every file."""
    folder.mkdir()
    random, paths = np.random.default_rng(3), []
    for number in range(files):
        keys = random.integers(-(2**61), 2**61, ROWS) * 2
        keys[0] = 2 * number
        keys[1:3] = -(2**62), 2**62
        path = folder / f"{number:05}.parquet"
        pq.write_table(pa.table({"k": keys, "v": random.random(ROWS)}, schema=SCHEMA), path)
        paths.append(f"file:{path}")
    catalog.create_table("db.real", SCHEMA).add_files(paths, check_duplicate_files=False)
