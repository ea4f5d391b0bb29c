"""Builds and embedding take the same filters of a file as they are, by one rule."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from sidecar.conversion.outcome import EXACT
from sidecar.conversion.reuse import ALWAYS, GOOD, NEVER, why_not_reused
from sidecar.data_files.open_orc import OpenOrc
from sidecar.embedding.embed import embed
from sidecar.indexing.columns import Options
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.chunks import ChunkIndexer
from sidecar.indexing.stage_one.data_file import WantedColumn
from sidecar.indexing.stage_one.orc_file import OrcDataFile
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.parquet.footer import read_footer
from sidecar.storage.source import BytesSource

DATA = Path(__file__).resolve().parents[1] / "data"
PARQUET = (
    "j118_v1_snappy_dict",
    "j118_v2_zstd",
    "pa26_v2_zstd_dict",
    "rs60_v1_none_afterrg",
    "variants/duck",
)
ORC = (
    "java_zlib_2stripes_utf8",
    "java_zstd_unstable",
    "pyarrow_zlib_utf8",
    "pyorc_zlib_utc",
)
BUILD = Options(kinds=frozenset({"bloom"}), fpp=0.01, max_bits=None, reuse=GOOD)
Units = set[tuple[int, str]]
"""(row group, column)."""


def embedded(path: Path, columns: list[str], tmp_path: Path) -> Units:
    """The filters that stay in the file as they are."""
    report = embed(str(path), into=str(tmp_path / f"new{path.suffix}"), bloom=columns).only
    found = [one for one in report.outcomes if one.kind == "bloom" and one.way == "exact"]
    return {(one.row_group, one.column) for one in found if one.column in columns}


@pytest.mark.parametrize("name", PARQUET)
def test_embedding_takes_what_a_build_takes_of_a_parquet_file(tmp_path: Path, name: str) -> None:
    path = DATA / "parquet" / f"{name}.parquet"
    source = BytesSource(path.read_bytes())
    footer = read_footer(source)
    leaves = [leaf for leaf in footer.columns if leaf.encoding.not_indexable is None]
    indexer = ChunkIndexer(source, BUILD, TaskSketches())
    built: Units = set()
    for group in footer.row_groups:
        results = indexer.index(group, {leaf.index: (leaf.iceberg_type or "", leaf) for leaf in leaves})
        built |= {
            (group.ordinal, footer.columns[index].path)
            for index, result in results.items()
            if result.outcome.way == EXACT
        }
    indexer.close()
    assert built
    assert embedded(path, [leaf.path for leaf in leaves], tmp_path) == built


def reused_of_orc(path: Path) -> tuple[OrcTail, Units]:
    """The filters that a build takes, for the columns that a table can have."""
    source = BytesSource(path.read_bytes())
    tail = read_tail(source)
    opened = OpenOrc(source, tail)
    wanted = {
        leaf.column.id: WantedColumn(leaf.column.iceberg_type, leaf, "id")
        for leaf in opened.leaves
        if leaf.column.iceberg_type is not None
    }
    return tail, {
        (unit.entry.row_group, tail.columns[column].path)
        for unit in OrcDataFile(opened, BUILD, TaskSketches()).index(0, source.size, wanted)
        for column, result in unit.columns.items()
        if result.outcome.way == EXACT
    }


@pytest.mark.parametrize("name", ORC)
def test_embedding_takes_what_a_build_takes_of_an_orc_file(tmp_path: Path, name: str) -> None:
    """Embedding takes all filters of a column or none: readers expect them in each stripe."""
    path = DATA / "orc" / f"{name}.orc"
    tail, built = reused_of_orc(path)
    groups: dict[str, set[int]] = defaultdict(set)
    for row_group, column in built:
        groups[column].add(row_group)
    everywhere = set(range(sum(stripe.num_row_groups for stripe in tail.stripes)))
    whole = sorted(column for column, own in groups.items() if own == everywhere)
    assert whole
    assert embedded(path, whole, tmp_path) == {(group, column) for group in everywhere for column in whole}


def test_the_rule() -> None:
    assert why_not_reused(GOOD, 0.01002, 0.01) == "", "a full ORC filter that was written for 1 %"
    assert why_not_reused(GOOD, 0.0106, 0.01) == "its rate is more than 0.01"
    assert why_not_reused(GOOD, 0.00011, 0.0001) == "its rate is more than 0.0001"
    assert why_not_reused(ALWAYS, 0.5, 0.01) == ""
    assert why_not_reused(NEVER, 0.0, 0.01) == "to be built anew"


def test_full_filters_of_an_orc_writer_are_taken(tmp_path: Path) -> None:
    """The writer was asked for 1 %, and a row group with as many values as rows shows a little more."""
    path = tmp_path / "full.orc"
    table = pa.table({"k": pa.array(range(0, 210_000, 7), pa.int64())})
    orc.write_table(table, path, bloom_filter_columns=[1], bloom_filter_fpp=0.01, compression="uncompressed")
    report = embed(str(path), into=str(tmp_path / "new.orc"), bloom=["k"]).only
    rates = [one.rate_before for one in report.outcomes]
    assert all(rate is not None and 0.01 < rate < 0.0105 for rate in rates), rates
    assert {one.way for one in report.outcomes} == {"exact"}
    assert len(reused_of_orc(path)[1]) == len(rates) == 3
