"""Embedding into files of every shape: pages untouched, footers otherwise equal, indexes used by others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.embedding.embed import embed
from sidecar.embedding.strip import strip
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.parquet.bloom import read_bloom_filter
from tests.embedding.cases import (
    arrow_rows,
    assert_same_data,
    assert_same_footer,
    assert_same_pages,
    chunks,
    flat,
    nested,
    opened,
    written,
)
from tests.embedding.file_cases import DATA, PLACEMENTS, embedded, reasons_of, ways_of

# --- shapes ---------------------------------------------------------------------------------------------------


@PLACEMENTS
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_flat_columns(tmp_path: Path, placement: str, version: str, dictionary: bool) -> None:
    path = written(
        tmp_path / "flat.parquet",
        flat(),
        row_group_size=1500,
        data_page_version=version,
        use_dictionary=dictionary,
        data_page_size=4000,
        write_batch_size=200,
        store_decimal_as_integer=True,
    )
    target, report = embedded(path, placement=placement)
    assert_same_data(path, target)
    assert ways_of(report, "bloom", "k") == {"dictionary" if dictionary else "values"}
    assert ways_of(report, "bloom", "flag") == {"none"}
    assert "readers disagree" in reasons_of(report, "bloom", "flag").pop()
    assert {o.way for o in report.outcomes if o.kind == "page-index"} == {"values"}
    metadata = pq.ParquetFile(target).metadata
    assert all(
        metadata.row_group(g).column(c).has_offset_index
        for g in range(metadata.num_row_groups)
        for c in range(metadata.num_columns)
    )


@PLACEMENTS
def test_nested_columns(tmp_path: Path, placement: str) -> None:
    path = written(
        tmp_path / "nested.parquet", nested(), row_group_size=1000, data_page_size=3000, write_batch_size=64,
        use_dictionary=False, data_page_version="2.0",
    )  # fmt: skip
    target, report = embedded(path, placement=placement)
    assert_same_data(path, target)
    for column in ("tags.list.element", "map.key_value.key", "pair.x", "deep.list.element.list.element"):
        assert ways_of(report, "bloom", column) == {"values"}
        assert ways_of(report, "page-index", column) == {"values"}


@PLACEMENTS
def test_many_row_groups(tmp_path: Path, placement: str) -> None:
    path = written(tmp_path / "many.parquet", flat(3000).select(["k", "s", "small"]), row_group_size=20)
    target, report = embedded(path, ["k", "s"], placement=placement)
    assert_same_data(path, target)
    assert report.ways()["page-index"] == {"values": 450}


def test_a_thousand_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = pa.table({f"c{n}": rng.integers(0, 2**60, 50) for n in range(1000)})
    path = written(tmp_path / "wide.parquet", table)
    target, report = embedded(path)
    assert report.ways() == {"bloom": {"dictionary": 1000}, "page-index": {"values": 1000}}
    assert_same_data(path, target)
    with duckdb.connect() as connection:
        (count,) = connection.execute(
            f"select count(*) from parquet_metadata('{target}') where bloom_filter_offset is not null"
        ).fetchone()
    assert count == 1000


@PLACEMENTS
def test_a_file_without_row_groups(tmp_path: Path, placement: str) -> None:
    path = tmp_path / "empty.parquet"
    pq.ParquetWriter(path, flat(1).schema).close()
    target, report = embedded(path, placement=placement)
    assert report.outcomes == []
    assert_same_data(path, target)
    assert path.read_bytes() == target.read_bytes()


@PLACEMENTS
def test_row_groups_without_rows(tmp_path: Path, placement: str) -> None:
    table = flat(500)
    path = tmp_path / "holes.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (
            table.slice(0, 0),
            table.slice(0, 300),
            table.slice(0, 0),
            table.slice(300),
            table.slice(0, 0),
        ):
            writer.write_table(part)
    assert [group.num_rows for group in opened(path)[1].row_groups] == [0, 300, 0, 200, 0]
    target, _ = embedded(path, placement=placement)
    assert_same_data(path, target)


@pytest.fixture(scope="module")
def lineitem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parquet crate writes a file with string views. Its writer is a package of the extra [test], so CI has it."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    tool = shutil.which("tpchgen-cli", path=places)
    assert tool, "tpchgen-cli is not installed: install the extra [test]"
    folder = tmp_path_factory.mktemp("tpch")
    options = ["-s", "0.003", "--tables=lineitem", "--row-group-bytes=500KB", f"--output-dir={folder}"]
    subprocess.run([tool, "parquet", *options], check=True, capture_output=True)
    return folder / "lineitem.parquet"


@PLACEMENTS
@pytest.mark.parametrize("reuse", ["good", "never"])
def test_lineitem(lineitem: Path, placement: str, reuse: str) -> None:
    target, report = embedded(lineitem, placement=placement, reuse=reuse)
    try:
        assert_same_data(lineitem, target)
        taken = "exact" if reuse == "good" else "values"
        assert ways_of(report, "page-index", "l_partkey") == {taken}
        assert ways_of(report, "bloom", "l_partkey") == {"dictionary"}
        assert ways_of(report, "bloom", "l_comment") <= {"dictionary", "values"}
        assert ways_of(report, "bloom", "l_linestatus") == {"dictionary"}
    finally:
        target.unlink()


@PLACEMENTS
def test_files_by_duckdb(tmp_path: Path, placement: str) -> None:
    path = tmp_path / "duck.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            f"""copy (select i, i * 7919 as k, 'name ' || (i % 100) as s, [i, i + 1] as l from range(9000) t(i))
            to '{path}' (format parquet, row_group_size 2048)"""
        )
    target, report = embedded(path, placement=placement)
    assert_same_data(path, target)
    assert ways_of(report, "bloom", "s") == {"exact"}, "DuckDB writes filters for dictionaries"
    assert ways_of(report, "bloom", "k") == {"values"}


@PLACEMENTS
@pytest.mark.parametrize(
    "name",
    [
        "j118_v1_none",
        "j118_v1_snappy_dict",
        "j118_v2_zstd",
        "pa26_v1_none",
        "pa26_v2_zstd_dict",
        "rs60_v1_none_afterrg",
    ],
)
def test_files_by_other_writers_keep_their_indexes_bit_by_bit(tmp_path: Path, name: str, placement: str) -> None:
    path = Path(shutil.copy(DATA / f"{name}.parquet", tmp_path))
    target = tmp_path / "embedded.parquet"
    report = embed(
        str(path), into=str(target), bloom=["i64_opt", "str"], page_index=True, placement=placement, reuse="always"
    ).only
    assert_same_pages(path, target)
    assert_same_footer(path, target, moved=placement == "row-group")
    (old_source, old), (new_source, new) = opened(path), opened(target)
    kept = {(o.row_group, o.column) for o in report.outcomes if o.kind == "bloom" and o.way == "exact"}
    assert len(kept) > 50
    for one, other in zip(chunks(old), chunks(new), strict=True):
        if (one.row_group, one.leaf.path) in kept:
            before, after = read_bloom_filter(old_source, one), read_bloom_filter(new_source, other)
            assert before is not None
            assert after is not None
            assert old_source.read(before.offset, before.length) == new_source.read(after.offset, after.length)
    if name not in ("pa26_v2_zstd_dict", "pa26_v1_none"):  # with INTERVAL, which pyarrow does not read
        return
    assert arrow_rows(target) == arrow_rows(path)


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "j118_enc_gcm_encfooter.parquet",
        "j118_enc_gcmctr_plainfooter_aadsupplied.parquet",
        "apache_encrypt_columns_plaintext_footer.parquet.encrypted",
        "variants/m12_filepath_other.parquet",
        "variants/er_enc_pf_signed.parquet",
    ],
)
def test_encrypted_files_and_other_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"encrypted|file_path"):
        embed(str(DATA / name), into=str(tmp_path / "x.parquet"), page_index=True)
    with pytest.raises(UnsupportedFeatureError, match=r"encrypted|file_path"):
        strip(str(DATA / name), str(tmp_path / "x.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_a_metadata_file_is_refused(tmp_path: Path) -> None:
    collected: list[Any] = []
    pq.write_to_dataset(flat(100), tmp_path / "data", metadata_collector=collected)
    pq.write_metadata(flat(1).schema, tmp_path / "_metadata", metadata_collector=collected)
    with pytest.raises(UnsupportedFeatureError, match="file_path"):
        embed(str(tmp_path / "_metadata"), into=str(tmp_path / "x.parquet"), bloom=["k"])
    assert not (tmp_path / "x.parquet").exists()


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", flat(10))
    before = path.read_bytes()
    other = str(tmp_path / "b.parquet")
    for target, options, sentence in (
        (str(path), {}, "the same file"),
        (f"{tmp_path}/../{tmp_path.name}/a.parquet", {}, "the same file"),
        (f"file://{path}", {}, "the same file"),
        (other, {"bloom": ["nosuch"]}, "no column 'nosuch'"),
        (other, {"fpp": 0.0}, "between 0 and 1"),
        (other, {"placement": "front"}, "placement"),
        (other, {"reuse": "some"}, "reuse"),
    ):
        with pytest.raises(UsageError, match=sentence):
            embed(str(path), into=target, **{"page_index": True, **options})
    written(tmp_path / "taken.parquet", flat(5))
    taken = (tmp_path / "taken.parquet").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        embed(str(path), into=str(tmp_path / "taken.parquet"), page_index=True)
    assert (tmp_path / "taken.parquet").read_bytes() == taken
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"a.parquet", "taken.parquet"}
