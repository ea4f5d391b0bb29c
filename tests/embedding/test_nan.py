"""A file gets only ColumnIndexes of floats by which no reader loses NaN rows, and ``verify`` passes these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from tests.embedding.cases import opened
from tests.parquet.single_indexes import read_column_index, read_offset_index
from tests.tables import new_catalog

ROWS, PAGE = 4_000, 500
NAN_ROW = 2_100
"""The row with NaN: it is in the fifth page, whose other values are small."""
LOST = "have NaN, but there are no nan_counts"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of Arrow C++ without nan_counts: ``f`` has one NaN, which its page's bounds leave out; ``g`` has none."""
    values = np.arange(ROWS, dtype="<f8")
    with_nan = values.copy()
    with_nan[NAN_ROW] = np.nan
    path = tmp_path_factory.mktemp("nan") / "foreign.parquet"
    pq.write_table(
        pa.table({"f": with_nan, "g": values, "n": np.arange(ROWS)}),
        path,
        use_dictionary=False,
        max_rows_per_page=PAGE,
        write_batch_size=PAGE,
        write_page_index=True,
        write_statistics=True,
    )
    return path


def column_indexes(path: Path) -> set[str]:
    """The columns that have a ColumnIndex; each has an OffsetIndex."""
    source, footer = opened(path)
    found = set()
    for chunk in footer.row_groups[0].columns:
        assert read_offset_index(source, footer, chunk) is not None
        if read_column_index(source, footer, chunk) is not None:
            found.add(chunk.leaf.path)
    return found


def problems_of(path: Path) -> list[tuple[str | None, str]]:
    return [(p.column, p.problem) for p in sidecar.verify(str(path), data=True).problems]


def test_verify_names_what_arrow_writes(foreign: Path) -> None:
    assert column_indexes(foreign) == {"f", "g", "n"}
    assert problems_of(foreign) == [("f", f"column index: 1 pages (the first is 4) {LOST}")]


@pytest.mark.parametrize("page_index", [False, True])
def test_embed_leaves_out_what_readers_lose_nan_by(foreign: Path, page_index: bool, tmp_path: Path) -> None:
    target = tmp_path / "indexed.parquet"
    report = sidecar.embed(str(foreign), into=str(target), bloom=["n"], page_index=page_index).only
    assert column_indexes(target) == {"g", "n"}
    assert problems_of(target) == []
    told = {o.column: (o.way, o.reason) for o in report.outcomes if o.kind == "page-index"}
    assert told["g"] == told["n"] == ("exact", "")
    assert "NaN" in told["f"][1]


def test_what_comes_out_of_a_sidecar_is_held_to_the_same_rule(foreign: Path, tmp_path: Path) -> None:
    """The sidecar has the index as it was, since sidecar's own plans expect NaN where no count denies it."""
    puffin, bare, back = tmp_path / "x.puffin", tmp_path / "bare.parquet", tmp_path / "back.parquet"
    extracted = sidecar.extract([str(foreign)], str(puffin))
    assert {unit.way for unit in extracted.units if unit.kind == "page-index"} == {"exact"}
    sidecar.strip(str(foreign), str(bare))
    sidecar.embed(str(bare), into=str(back), from_=str(puffin))
    assert column_indexes(back) == {"g", "n"}
    assert problems_of(back) == []


def test_a_tables_sidecar_keeps_the_index_and_its_plans_keep_nan(foreign: Path, tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, "local")
    table = catalog.create_table("db.t", pq.read_schema(foreign))
    table.add_files([str(foreign)])
    sidecar.build(table, ["f", "g"], kinds=["page-index"], engine="local")
    table.refresh()
    found = sidecar.verify(table, data=True)
    assert found.problems == []
    assert found.looked_up.indexes == 2
    rows = sidecar.scan(table, "f is nan or f > 1e9", columns=["n"])["n"].to_pylist()
    assert rows == [NAN_ROW]


@pytest.mark.jvm
def test_spark_finds_the_nan_that_the_foreign_index_hides(spark: object, foreign: Path, tmp_path: Path) -> None:
    """To Spark NaN is greater than any number. Chunk statistics leave it out too, so a high value stands beside."""
    target = tmp_path / "indexed.parquet"
    sidecar.embed(str(foreign), into=str(target), bloom=["n"], page_index=True)

    def found(path: Path) -> list[int]:
        frame = spark.read.parquet(str(path)).where("f > 3990.0D").select("n")  # type: ignore[attr-defined]
        return sorted(row.n for row in frame.collect())

    high = list(range(3991, ROWS))
    assert found(foreign) == high, "Spark reads NaN pages by now: the rule may be dropped"
    assert found(target) == [NAN_ROW, *high]
