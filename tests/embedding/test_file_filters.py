"""Which filters embedding puts into a file, how large they are, and which old ones do not live on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.embedding.embed import embed
from sidecar.parquet.bloom import read_bloom_filter
from tests.embedding.cases import (
    assert_same_pages,
    assert_sound,
    chunks,
    flat,
    leaf_paths,
    opened,
    written,
)
from tests.embedding.file_cases import DATA, embedded, reasons_of, ways_of
from tests.lost_values import duckdb_finds, empty_filters


def test_a_named_column_gets_a_filter_however_small_its_dictionary(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", flat(2000))
    _, report = embedded(path, ["small", "s"])
    assert ways_of(report, "bloom", "small") == ways_of(report, "bloom", "s") == {"dictionary"}


@pytest.mark.parametrize("dictionary", [True, False])
def test_nulls_alone_get_a_filter_only_if_the_footer_says_so(tmp_path: Path, dictionary: bool) -> None:
    """Readers doubt an empty filter of a chunk that may have values, and verify reports it."""
    table = pa.table({"n": pa.nulls(50, pa.int64()), "k": range(50)})
    for statistics, way in ((False, {"none"}), (True, {"dictionary" if dictionary else "values"})):
        path = tmp_path / f"{statistics}.parquet"
        pq.write_table(table, path, write_statistics=statistics, use_dictionary=dictionary)
        target, report = embedded(path, ["n", "k"])
        assert ways_of(report, "bloom", "n") == way
        assert sidecar.verify(target, data=True).problems == []
        target.unlink()


def test_small_integers_get_a_filter_only_if_bounds_hold_them(tmp_path: Path) -> None:
    """Without bounds, readers may show other numbers than are stored, so verify reports a filter."""
    table = pa.table({"n": pa.array(range(100), pa.int8())})
    for statistics in (False, True):
        path = tmp_path / f"{statistics}.parquet"
        pq.write_table(table, path, write_statistics=statistics, use_dictionary=False)
        target, report = embedded(path, ["n"])
        assert ways_of(report, "bloom", "n") == ({"values"} if statistics else {"none"})
        assert sidecar.verify(target, data=True).problems == []
        target.unlink()


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
    report = embed(str(path), into=str(target), bloom=["k"]).only
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
    report = embed(str(source), into=str(target), bloom=leaf_paths(source)[:1]).only
    assert any(dropped in o.reason for o in report.outcomes if o.kind == kind)
    assert_sound(target)
    repaired = tmp_path / "repaired.parquet"
    report = embed(str(source), into=str(repaired), bloom=leaf_paths(source), page_index=True).only
    assert_sound(repaired)
    assert_same_pages(source, repaired)
