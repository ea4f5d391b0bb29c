"""The tables that are asked, in one SQL catalog ``bench``.

``db.few`` and ``db.many`` have real manifests, and no data files. The filters of ``db.many`` rule nothing
out. ``db.real`` has data: a key is in one file of it. ``db.groups`` has files of many row groups with sorted keys.
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
GROUPS, GROUP_FILES, WIDE = 16, 4, 7


def write_served_tables(name_of_folder: str, few: int, many: int, rows: int) -> None:
    """Make the tables the first time, and their sidecars each time. ``rows`` are those of a file of ``db.groups``."""
    shapes = {"few": (few, 100), "many": (many, 1_000)}

    def make(folder: Path, catalog: SqlCatalog) -> None:
        write_real(catalog, folder / "files", few)
        write_groups(catalog, folder / "groups", rows)
        for name, (files, per_manifest) in shapes.items():
            write_table(catalog, files, per_manifest, f"db.{name}")

    catalog = data.table(name_of_folder, make)
    for name in shapes:
        write_sidecar(catalog.load_table(f"db.{name}"), 1, rules_out=name == "few")
    for name in ("real", "groups"):
        sidecar.build(catalog.load_table(f"db.{name}"), ["k"], engine="local")


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


def write_groups(catalog: SqlCatalog, folder: Path, rows: int) -> None:
    """Write sorted keys. Bounds rule no file out, and all row groups but one of each."""
    folder.mkdir()
    random, paths = np.random.default_rng(4), []
    schema = pa.schema([("k", pa.int64()), *((f"v{number}", pa.float64()) for number in range(WIDE))])
    for number in range(GROUP_FILES):
        values = {f"v{column}": random.random(rows) for column in range(WIDE)}
        path = folder / f"{number}.parquet"
        keys = np.arange(rows) * GROUP_FILES + number
        pq.write_table(pa.table({"k": keys, **values}, schema=schema), path, row_group_size=max(1, rows // GROUPS))
        paths.append(f"file:{path}")
    catalog.create_table("db.groups", schema).add_files(paths, check_duplicate_files=False)
