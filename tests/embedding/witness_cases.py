"""Files of one shape with other values, and what is asked of the filters that they are given."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

import sidecar
from tests.conversion.cases import as_remote
from tests.embedding.cases import assert_sound
from tests.lost_values import duckdb_finds

ROWS = 3000
OPTIONS: dict[str, Any] = {
    "use_dictionary": False,
    "compression": "none",
    "data_page_size": 2048,
    "row_group_size": 1000,
    "write_batch_size": 100,
}


def keys_of(seed: int) -> list[int]:
    """Keys of one file: none is in two files but the bounds of each row group, which are in all."""
    keys = np.random.default_rng(seed).choice(2**40, ROWS, replace=False) * 8 + 16 + seed
    keys[::1000], keys[1::1000] = 1, 2**60
    return keys.tolist()


def write(path: Path, seed: int, **options: Any) -> Path:
    """A file whose size and footer are those of all others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = keys_of(seed)
    table = pa.table({"k": pa.array(keys, pa.int64()), "s": [f"{key:020}" for key in keys]})
    pq.write_table(table, path, **{**OPTIONS, **options})
    return path


def indexed_file(folder: Path) -> Path:
    """A file with filters and page indexes; it lies in a folder of its own."""
    bare = write(folder / "bare" / "a.parquet", 1)
    target = folder / "one" / "a.parquet"
    target.parent.mkdir()
    sidecar.embed(str(bare), into=str(target), bloom=["k", "s"], page_index=True)
    return target


def asked(seed: int) -> list[int]:
    """100 keys of a file that no other file has."""
    return keys_of(seed)[2::30]


def assert_nothing_lost(path: Path, seed: int) -> None:
    found = duckdb_finds(path, "k", asked(seed))
    assert (found, len(asked(seed))) == (100, 100)
    assert duckdb_finds(path, "s", [f"{key:020}" for key in asked(seed)]) == 100
    assert_sound(path)


def extracted(path: Path, *, digest: bool = True) -> str:
    """A Puffin file with the indexes of a file; without its digest it is as of a remote file."""
    puffin = path.parent / "x.puffin"
    with nullcontext() if digest else as_remote():
        sidecar.extract([str(path)], str(puffin))
    return str(puffin)
