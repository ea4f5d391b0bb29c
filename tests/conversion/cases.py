"""Parquet files with indexes by several writers, and their indexes as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sidecar
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
FOREIGN = (
    "j118_maxbytes1000",
    "j118_v1_none",
    "j118_v2_zstd",
    "pa26_v1_none",
    "rs60_v1_none_afterrg",
    "j118_adaptive",
)

Indexes = dict[tuple[int, str, str], bytes]


@contextmanager
def as_remote() -> Iterator[None]:
    """Take files for remote ones: extraction reads none of their pages, and records no digest."""
    with (
        patch("sidecar.conversion.matching.identity.is_local", return_value=False),
        patch("sidecar.conversion.matching.witness.is_local", return_value=False),
    ):
        yield


def foreign(name: str) -> Path:
    return DATA / f"{name}.parquet"


def indexes(path: Path, *, trusted_only: bool = True) -> Indexes:
    """Bytes of every filter (header and bitset), ColumnIndex and OffsetIndex of a file."""
    source = LocalSource(str(path))
    found: Indexes = {}
    for group in read_footer(source).row_groups:
        for chunk in group.columns:
            place = (group.ordinal, chunk.leaf.path)
            bloom = read_bloom_filter(source, chunk) if chunk.bloom_filter_offset else None
            if bloom is not None and (bloom.trusted or not trusted_only):
                found[(*place, "bloom")] = source.read(bloom.offset, bloom.length)
            if chunk.column_index_offset:
                found[(*place, "column")] = source.read(chunk.column_index_offset, chunk.column_index_length or 0)
            if chunk.offset_index_offset:
                found[(*place, "offset")] = source.read(chunk.offset_index_offset, chunk.offset_index_length or 0)
    source.close()
    return found


def rows(number: int, count: int = 3000) -> pa.Table:
    random = np.random.default_rng(number)
    keys = random.integers(0, 2**60, count)
    return pa.table(
        {
            "k": keys,
            "s": [None if i % 7 == 0 else f"row {key}" for i, key in enumerate(keys.tolist())],
            "n": pa.array((keys % 1000).astype(np.int32)),
            "tags": [[f"t{key % 50}"] * (i % 3) for i, key in enumerate(keys.tolist())],
        }
    )


def indexed(folder: Path, number: int, count: int = 3000, fpp: float = 0.01) -> Path:
    """A file with three row groups, filters and page indexes, and the same without indexes beside it."""
    plain, path = folder / f"plain-{number}.parquet", folder / f"part-{number}.parquet"
    pq.write_table(rows(number, count), plain, row_group_size=-(-count // 3), use_dictionary=["n"], data_page_size=4000)
    sidecar.embed(str(plain), into=str(path), bloom=["k", "s", "n"], page_index=True, fpp=fpp)
    return path


def plain_of(path: Path) -> Path:
    return path.with_name(path.name.replace("part-", "plain-"))
