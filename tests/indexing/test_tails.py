"""Odd bytes behind the blocks of filters that files carry: each unit keeps its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.embedding.filters import encode_filter
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.embed import GroupIndexes, embed
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from sidecar.storage.target import create_target
from tests.bundle.cases import group_filters
from tests.tables import iceberg_schema, new_catalog

ROWS = 40


def odd_filter(values: range, tail: bytes) -> bytes:
    """A filter of whole blocks with ``tail`` behind them, as parquet-java writes where its size is limited."""
    found = SplitBlockBloomFilter.from_arrow(pa.array(values, pa.int64()), Encoding.parse("int64"), fpp=0.01)
    return found.to_bytes() + tail


def write_with_filters(path: Path, first: int, tails: list[bytes]) -> dict[int, bytes]:
    """A file with a row group for each tail; the filter of each, by row group."""
    values = range(first, first + ROWS * len(tails))
    plain = path.with_suffix(".plain")
    pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), plain, row_group_size=ROWS)
    bits = {n: odd_filter(values[n * ROWS : (n + 1) * ROWS], tail) for n, tail in enumerate(tails)}
    source = LocalSource(str(plain))
    with create_target(str(path)) as target:
        groups = (GroupIndexes({0: encode_filter(own)}, {}, {}) for own in bits.values())
        embed(source, read_footer(source), target, groups)
    plain.unlink()
    return bits


@pytest.mark.parametrize("files", [1, 3])
def test_each_unit_gets_its_own_tail_back(files: int, tmp_path: Path) -> None:
    """Two files in one group of equal sizes: a tail of the wrong unit would come back in another file's filter."""
    catalog = new_catalog(tmp_path, "local")
    table = catalog.create_table("db.t", iceberg_schema("k long"))
    expected: list[bytes] = []
    for n in range(files):
        path = tmp_path / f"{n}.parquet"
        tails = [bytes([16 * n + unit + 1]) * 8 for unit in range(2)]
        expected += write_with_filters(path, 1000 * n, tails).values()
        table.add_files([str(path)])
    report = sidecar.build(table, ["k"], kinds=["bloom"], reuse="always", engine="local")
    assert report.files_indexed == files
    table.refresh()
    (segment,) = sidecar.open_sidecar(table).segments
    (group,) = segment.fields[1]
    found = dict(group_filters(segment, 1, group))
    by_place = {
        (entry.path, unit.row_group): found[ordinal + unit.row_group]
        for file, entry in enumerate(segment.files(range(segment.num_files)))
        if entry is not None
        for ordinal in [int(segment.unit_ranges[file])]
        for unit in entry.units
    }
    paths = [str(tmp_path / f"{n}.parquet") for n in range(files)]
    assert [by_place[path, unit] for path in paths for unit in range(2)] == expected
