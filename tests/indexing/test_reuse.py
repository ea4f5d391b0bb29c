"""Stage 1: which filters of a file are reused, and which are made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from tests.indexing.cases import (
    LONG,
    columns_of,
    filter_of,
    ints_file,
    misses,
    plan_for,
    rng,
    schema_of,
    sketch_of,
    stage_one,
)


def _with_filter(path: Path, keys: Any, fpp: float) -> Path:
    return ints_file(path, keys, use_dictionary=False, bloom_filter_options={"k": {"ndv": len(keys), "fpp": fpp}})


def _own_bitset(path: Path) -> bytes:
    source = LocalSource(str(path))
    found = read_bloom_filter(source, read_footer(source).row_groups[0].columns[0])
    source.close()
    assert found is not None
    return found.filter.to_bytes()


@pytest.mark.parametrize(
    ("fpp", "reuse", "expected"),
    [
        (0.001, "good", "reused"),
        (0.2, "good", "scanned"),
        (0.2, "always", "reused"),
        (0.001, "never", "scanned"),
    ],
)
def test_reuse_rules(tmp_path: Path, fpp: float, reuse: str, expected: str) -> None:
    keys = rng().integers(0, 2**60, 3000)
    path = _with_filter(tmp_path / "k.parquet", keys, fpp)
    (record,) = columns_of(records := stage_one([path], plan_for(LONG, reuse=reuse)), 1)
    assert record.how == expected
    assert (filter_of(record).to_bytes() == _own_bitset(path)) == (expected == "reused")
    assert misses(filter_of(record), "int64", "long", keys.tolist()) == []
    assert sketch_of(records, 1).estimate == len(np.unique(keys))  # values are read for it all the same


def test_a_reused_filter_alone_reads_no_data(tmp_path: Path) -> None:
    path = _with_filter(tmp_path / "k.parquet", rng().integers(0, 2**60, 30_000), 0.001)
    (record,) = columns_of(stage_one([path], plan_for(LONG, theta=False)), 1)
    assert (record.how, record.theta_reason) == ("reused", "")
    assert record.bytes_read < 1.1 * len(_own_bitset(path)) + 4096


def test_a_filter_that_is_not_trusted_is_not_reused(tmp_path: Path) -> None:
    """A bitset of zeros denies everything, whatever the file says."""
    keys = rng().integers(0, 2**60, 3000)
    path = _with_filter(tmp_path / "k.parquet", keys, 0.001)
    data = path.read_bytes()
    bits = _own_bitset(path)
    path.write_bytes(data.replace(bits, bytes(len(bits))))
    (record,) = columns_of(stage_one([path], plan_for(LONG, reuse="always")), 1)
    assert record.how == "scanned"
    assert misses(filter_of(record), "int64", "long", keys.tolist()) == []


def test_odd_filters_of_other_writers_keep_their_tail(shared_data: Path) -> None:
    """parquet-java writes 1000 bytes if told so: 31 blocks and eight bytes."""
    path = shared_data / "parquet" / "j118_maxbytes1000.parquet"
    arrow = pq.ParquetFile(path).schema_arrow
    names = [f.name for f in arrow if f.type in (pa.int32(), pa.int64())]
    plan = plan_for(schema_of(pa.schema([arrow.field(n) for n in names])), reuse="always", theta=False)
    tails = {len(r.filter.tail) for r in stage_one([path], plan) if r.how == "reused"}
    assert tails == {8}
