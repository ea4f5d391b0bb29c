"""The tables that are asked, in one SQL catalog ``bench``.

``db.few`` and ``db.many`` have real manifests, and no data files. The filters of ``db.many`` rule nothing
out. ``db.real`` has data: a key is in one file of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from plan import catalog_of, write_sidecar, write_table

import sidecar

ROWS = 2_000


def environment(folder: Path) -> dict[str, str]:
    """What tells a process of the catalog."""
    prefix = "PYICEBERG_CATALOG__BENCH__"
    return {
        f"{prefix}TYPE": "sql",
        f"{prefix}URI": f"sqlite:///{folder}/cat.db",
        f"{prefix}WAREHOUSE": f"file:{folder}/wh",
    }


def write_tables(folder: Path, few: int, many: int) -> None:
    catalog = catalog_of(folder)
    write_real(catalog, folder / "files", few)
    for name, files, per_manifest, rules_out in (("few", few, 100, True), ("many", many, 1000, False)):
        made = write_table(catalog, files, per_manifest, f"db.{name}")
        write_sidecar(made, 1, rules_out=rules_out)


def write_real(catalog: Any, folder: Path, files: int) -> None:
    """Even keys at random. Every odd one is absent, and within the bounds of every file."""
    folder.mkdir()
    random, schema = np.random.default_rng(3), pa.schema([("k", pa.int64()), ("v", pa.float64())])
    paths = []
    for number in range(files):
        keys = random.integers(-(2**61), 2**61, ROWS) * 2
        keys[0] = 2 * number
        keys[1:3] = -(2**62), 2**62
        path = folder / f"{number:05}.parquet"
        pq.write_table(pa.table({"k": keys, "v": random.random(ROWS)}, schema=schema), path)
        paths.append(f"file:{path}")
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.real", schema)
    table.add_files(paths)
    sidecar.build(table, ["k"], engine="local")
