"""Embedding into files of every shape: pages untouched, footers otherwise equal, indexes used by others."""

from __future__ import annotations

import os
import re
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

from sidecar.embedding.file import EmbedReport, embed_file, strip_file
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.parquet.bloom import read_bloom_filter
from tests.embedding.cases import (
    arrow_rows,
    assert_same_data,
    assert_same_footer,
    assert_same_pages,
    assert_sound,
    chunks,
    datafusion,
    flat,
    leaf_paths,
    nested,
    opened,
    written,
)
from tests.lost_values import duckdb_finds, empty_filters

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
PLACEMENTS = pytest.mark.parametrize("placement", ["end", "row-group"])


def embedded(source: Path, columns: list[str] | None = None, **options: Any) -> tuple[Path, EmbedReport]:
    """The file with filters (on all leaves by default) and page indexes, checked in every general respect."""
    target = source.with_name(f"{source.stem}-{options.get('placement', 'end')}.parquet")
    bloom = leaf_paths(source) if columns is None else columns
    report = embed_file(str(source), str(target), bloom=bloom, page_index=True, **options)
    assert_same_pages(source, target)
    assert_same_footer(source, target, moved=options.get("placement") == "row-group")
    assert_sound(target)
    assert report.written.size == target.stat().st_size
    return target, report


def ways_of(report: EmbedReport, kind: str, column: str) -> set[str]:
    return {o.way for o in report.outcomes if o.kind == kind and o.column == column}


def reasons_of(report: EmbedReport, kind: str, column: str) -> set[str]:
    return {o.reason for o in report.outcomes if o.kind == kind and o.column == column}


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
    target, report = embedded(path, even_if_dictionary=True)
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
@pytest.mark.parametrize("harvest", ["good", "never"])
def test_lineitem(lineitem: Path, placement: str, harvest: str) -> None:
    target, report = embedded(lineitem, placement=placement, harvest=harvest)
    try:
        assert_same_data(lineitem, target)
        taken = "exact" if harvest == "good" else "values"
        assert ways_of(report, "page-index", "l_partkey") == {taken}
        assert ways_of(report, "bloom", "l_partkey") == {"dictionary"}
        assert ways_of(report, "bloom", "l_comment") <= {"dictionary", "values"}
        assert ways_of(report, "bloom", "l_linestatus") == {"none"}
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
    report = embed_file(
        str(path),
        str(target),
        bloom=["i64_opt", "str"],
        page_index=True,
        placement=placement,
        harvest="always",
    )
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


# --- rules ----------------------------------------------------------------------------------------------------


def test_a_filter_no_smaller_than_its_dictionary_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", flat(2000))
    target, report = embedded(path, ["small", "s"])
    assert ways_of(report, "bloom", "small") == {"none"}
    assert reasons_of(report, "bloom", "small") == {"the dictionary is exact, and no larger than a filter"}
    assert ways_of(report, "bloom", "s") == {"dictionary"}
    target.unlink()
    _, report = embedded(path, ["small"], even_if_dictionary=True)
    assert ways_of(report, "bloom", "small") == {"dictionary"}


def test_sizes_are_powers_of_two_and_meet_the_rate(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", flat(20_000), use_dictionary=False)
    for fpp in (0.1, 0.01, 0.0001):
        target, report = embedded(path, ["k"], fpp=fpp)
        (outcome,) = [o for o in report.outcomes if o.kind == "bloom"]
        (found,) = [f for c in chunks(opened(target)[1]) if (f := read_bloom_filter(opened(target)[0], c))]
        assert found.filter.num_bytes & (found.filter.num_bytes - 1) == 0
        assert outcome.rate_after == found.filter.estimated_fpp()
        assert outcome.rate_after <= fpp < found.filter.fold(found.filter.z // 2).estimated_fpp()
        target.unlink()


def test_ndv_bounds_the_size_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", flat(20_000), use_dictionary=False)
    _, report = embedded(path, ["k"], ndv={"k": 100})
    assert len(report.warnings()) == 1
    assert report.warnings()[0].startswith("k: ")


def test_an_existing_filter_is_rebuilt_if_it_misses_the_rate(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", flat(20_000), use_dictionary=False)
    first, _ = embedded(path, ["k", "s"], fpp=0.1)
    middle = first.rename(tmp_path / "b.parquet")
    _, report = embedded(middle, ["k"], fpp=0.001)
    assert ways_of(report, "bloom", "k") == {"values"}
    assert ways_of(report, "bloom", "s") == {"exact"}, "filters of other columns stay"
    (outcome,) = [o for o in report.outcomes if o.kind == "bloom" and o.column == "k"]
    assert outcome.rate_before is not None
    assert outcome.rate_before > 0.01 > (outcome.rate_after or 1)


@pytest.mark.parametrize("nulls_are_counted", [True, False])
def test_an_emptied_filter_of_another_column_does_not_live_on(tmp_path: Path, nulls_are_counted: bool) -> None:
    """Its lengths agree, so that nothing but its bits speaks against it; DuckDB believes it."""
    keys = list(range(0, 30_000, 10))
    table = pa.table({"k": pa.array(keys, pa.int64()), "other": pa.array(keys, pa.int64())})
    path, target = tmp_path / "emptied.parquet", tmp_path / "kept.parquet"
    options = {"bloom_filter_options": {"k": {"ndv": 3000}, "other": {"ndv": 3000}}, "use_dictionary": False}
    pq.write_table(table, path, write_statistics=nulls_are_counted, **options)
    empty_filters(path, "other")
    asked = keys[::30]
    if nulls_are_counted:  # without statistics DuckDB asks no filters
        assert duckdb_finds(path, "other", asked) == 0
    report = embed_file(str(path), str(target), bloom=["k"])
    assert ways_of(report, "bloom", "k") == {"exact"}
    assert ways_of(report, "bloom", "other") == {"none"}
    assert all("the filter is empty" in reason for reason in reasons_of(report, "bloom", "other"))
    assert duckdb_finds(target, "other", asked) == len(asked) == 100
    assert_sound(target)


@pytest.mark.parametrize(
    ("name", "kind", "dropped"),
    [
        ("m03_len_minus10", "bloom", "bloom_filter_length"),
        ("m03_len_plus32", "bloom", "bloom_filter_length"),
        ("p03_ci_without_oi_all", "page-index", "without an offset index"),
        ("p05_nullpage_nullcount0", "page-index", "null_counts add up to 0"),
        ("p06_ci_one_page_less", "page-index", "pages in the column index"),
        ("p17_bad_hist", "page-index", "histograms"),
        ("rs60_bad_null_pages_list", "page-index", "null_pages"),
    ],
)
def test_defective_indexes_do_not_live_on(tmp_path: Path, name: str, kind: str, dropped: str) -> None:
    source = DATA / "variants" / f"{name}.parquet"
    target = tmp_path / "kept.parquet"
    report = embed_file(str(source), str(target), bloom=leaf_paths(source)[:1])
    assert any(dropped in o.reason for o in report.outcomes if o.kind == kind)
    assert_sound(target)
    repaired = tmp_path / "repaired.parquet"
    report = embed_file(str(source), str(repaired), bloom=leaf_paths(source), page_index=True)
    assert_sound(repaired)
    assert_same_pages(source, repaired)


# --- used by others -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ten row groups, random even keys, sorted ``n`` in many pages."""
    rng = np.random.default_rng(11)
    keys = rng.integers(0, 2**40, 10_000) * 2
    table = pa.table({"k": keys, "s": [f"s{k}" for k in keys], "n": np.arange(10_000)})
    folder = tmp_path_factory.mktemp("used")
    source = written(
        folder / "plain.parquet", table, row_group_size=1000, data_page_size=1000, write_batch_size=100,
        use_dictionary=False,
    )  # fmt: skip
    return {placement: embedded(source, ["k", "s"], placement=placement)[0] for placement in ("end", "row-group")} | {
        "plain": source
    }


@PLACEMENTS
def test_duckdb_excludes_row_groups(clustered: dict[str, Path], placement: str) -> None:
    table = pq.read_table(clustered["plain"])
    with duckdb.connect() as connection:

        def excluded(column: str, value: Any) -> list[bool]:
            sql = f"select bloom_filter_excludes from parquet_bloom_probe('{clustered[placement]}', '{column}', $1)"
            return [row[0] for row in connection.execute(sql, [value]).fetchall()]

        for row in (0, 4321, 9999):
            for column in ("k", "s"):
                value = table[column][row].as_py()
                verdict = excluded(column, value)
                assert not verdict[row // 1000]
                assert sum(verdict) >= 8
                sql = f"select n from '{clustered[placement]}' where {column} = $1"
                assert connection.execute(sql, [value]).fetchall() == [(row,)]
        lengths = connection.execute(
            f"select path_in_schema, bloom_filter_length from parquet_metadata('{clustered[placement]}')"
        ).fetchall()
    assert {name for name, length in lengths if length} == {"k", "s"}


def pruned(path: Path, sql: str) -> tuple[list[Any], dict[str, tuple[str, str]]]:
    """Rows, and what DataFusion says that it pruned: name -> (before, after)."""
    context = datafusion()
    context.register_parquet("t", str(path))
    rows = [row for batch in context.sql(sql).collect() for row in batch.to_pylist()]
    plan = str(context.sql(f"explain analyze {sql}").collect()[0].to_pydict()["plan"])
    found = re.findall(r"(\w+_pruned_\w+|page_index_\w+)=([\d.]+ ?\w*) total → ([\d.]+ ?\w*) matched", plan)
    return rows, {name: (before, after) for name, before, after in found}


@PLACEMENTS
def test_the_parquet_crate_prunes_by_filters_and_pages(clustered: dict[str, Path], placement: str) -> None:
    path = clustered[placement]
    value = pq.read_table(path)["k"][4321].as_py()
    rows, counts = pruned(path, f"select n from t where k = {value}")
    assert rows == [{"n": 4321}]
    before, after = counts["row_groups_pruned_bloom_filter"]
    assert int(before) == 10
    assert int(after) <= 2
    rows, counts = pruned(path, f"select n from t where k = {value + 1}")
    assert rows == []
    assert int(counts["row_groups_pruned_bloom_filter"][1]) <= 1
    rows, counts = pruned(path, "select n from t where n = 4321")
    assert rows == [{"n": 4321}]
    assert counts["page_index_pages_pruned"][1] == "1"
    _, without = pruned(clustered["plain"], f"select n from t where k = {value}")
    assert without["row_groups_pruned_bloom_filter"] == ("10", "10"), "the plain file prunes nothing"


# --- stripping ------------------------------------------------------------------------------------------------


def test_stripping_gives_the_file_back(clustered: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "bare.parquet"
    report = strip_file(str(clustered["end"]), str(target))
    assert target.read_bytes() == clustered["plain"].read_bytes()
    assert report.written.dead_bytes == 0
    assert report.ways() == {"bloom": {"none": 20}, "page-index": {"none": 30}}


def test_stripping_filters_between_row_groups_leaves_dead_bytes(clustered: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "bare.parquet"
    report = strip_file(str(clustered["row-group"]), str(target))
    _, footer = opened(clustered["row-group"])
    filters = [c.bloom_filter_length or 0 for c in chunks(footer) if c.row_group < 9]
    assert report.written.dead_bytes == sum(filters)
    assert_same_pages(clustered["plain"], target)
    assert_same_data(clustered["plain"], target)
    assert not any(c.bloom_filter_offset or c.offset_index_offset for c in chunks(opened(target)[1]))


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
        embed_file(str(DATA / name), str(tmp_path / "x.parquet"), page_index=True)
    with pytest.raises(UnsupportedFeatureError, match=r"encrypted|file_path"):
        strip_file(str(DATA / name), str(tmp_path / "x.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_a_metadata_file_is_refused(tmp_path: Path) -> None:
    collected: list[Any] = []
    pq.write_to_dataset(flat(100), tmp_path / "data", metadata_collector=collected)
    pq.write_metadata(flat(1).schema, tmp_path / "_metadata", metadata_collector=collected)
    with pytest.raises(UnsupportedFeatureError, match="file_path"):
        embed_file(str(tmp_path / "_metadata"), str(tmp_path / "x.parquet"), bloom=["k"])
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
        (other, {"ndv": {"nosuch": 3}}, "no column 'nosuch'"),
        (other, {"ndv": {"k": 0}}, "at least 1"),
        (other, {"fpp": 0.0}, "between 0 and 1"),
        (other, {"placement": "front"}, "placement"),
        (other, {"harvest": "some"}, "harvest"),
    ):
        with pytest.raises(UsageError, match=sentence):
            embed_file(str(path), target, **options)  # type: ignore[arg-type]
    written(tmp_path / "taken.parquet", flat(5))
    taken = (tmp_path / "taken.parquet").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        embed_file(str(path), str(tmp_path / "taken.parquet"), page_index=True)
    assert (tmp_path / "taken.parquet").read_bytes() == taken
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"a.parquet", "taken.parquet"}
