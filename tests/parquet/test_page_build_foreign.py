"""Page indexes that are built equal those of other writers, and hold every value that was written."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.page_indexes.page_bounds import page_bounds
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, read_page_indexes
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.storage.local import LocalSource
from sidecar.storage.source import CountingSource
from tests.parquet.foreign import DATA, WRITERS, leaf_values


def leaf_rules(index: ColumnIndex) -> tuple[Any, ...]:
    return index.null_pages, index.null_counts


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        # what the rules leave open, or the writer does otherwise
        ("j118_v1_none", {"max_values"}),
        ("j118_v1_snappy_dict", {"max_values"}),
        ("j118_v2_zstd", {"max_values"}),
        ("j118_adaptive", {"max_values"}),
        ("j118_maxbytes1000", {"max_values"}),
        # Arrow C++ cuts no strings, counts no NaN, has histograms of flat columns and calls all-null unordered
        (
            "pa26_v1_none",
            {"min_values", "max_values", "nan_counts", "definition_level_histograms", "boundary_order"},
        ),
        (
            "pa26_v2_zstd_dict",
            {"min_values", "max_values", "nan_counts", "definition_level_histograms", "boundary_order"},
        ),
        # the parquet crate has histograms of flat columns
        ("rs60_v1_none_afterrg", {"max_values", "definition_level_histograms"}),
        ("apache_alltypes_tiny_pages_plain", {"nan_counts"}),
        ("apache_int32_with_null_pages", set()),
        ("apache_fixed_length_byte_array", set()),
        ("apache_data_index_bloom_encoding_stats", set()),
    ],
)
def test_built_indexes_equal_those_of_other_writers(name: str, apart: set[str]) -> None:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    footer = read_footer(source)
    compared = equal = 0
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            built = build_page_index(source, footer, chunk)
            assert isinstance(offset, OffsetIndex)
            assert built.offset_index is not None
            same_offsets(built.offset_index, offset)
            if not isinstance(column, ColumnIndex):
                continue
            if built.column_index is None:  # only because Arrow C++ keeps NaN apart without a word
                assert "NaN" in built.reason
                assert name.startswith("pa26")
                continue
            compared += 1
            equal += same_columns(built.column_index, column, apart, find_ordering(footer, chunk.leaf))
            assert not isinstance(page_bounds(footer, chunk, built.column_index, offset), Unknown)
    assert compared
    if "j118_v" in name:
        assert (compared, equal) == (102, 101)  # byte for byte, but for one truncated maximum


def same_offsets(built: OffsetIndex, other: OffsetIndex) -> None:
    for field in ("offsets", "compressed_page_sizes", "first_row_indexes"):
        assert (getattr(built, field) == getattr(other, field)).all()
    if other.unencoded_byte_array_data_bytes is not None:
        assert built.unencoded_byte_array_data_bytes == other.unencoded_byte_array_data_bytes


def same_columns(built: ColumnIndex, other: ColumnIndex, apart: set[str], ordering: Ordering | str) -> bool:
    """Equal but for the fields that may differ; of those, bounds only by truncation. True if byte for byte."""
    assert (built.null_pages, built.null_counts) == (other.null_pages, other.null_counts)
    assert built.repetition_level_histograms == (other.repetition_level_histograms or None)
    for field in ("boundary_order", "nan_counts", "definition_level_histograms"):
        if field not in apart:
            assert getattr(built, field) == (getattr(other, field) or (0 if field == "boundary_order" else None))
    if built.definition_level_histograms is not None:
        assert built.definition_level_histograms == other.definition_level_histograms
    if other.nan_counts is not None:
        assert built.nan_counts == other.nan_counts
    if built.boundary_order != other.boundary_order:
        assert all(built.null_pages)
    for field in ("min_values", "max_values"):
        for mine, theirs in zip(getattr(built, field), getattr(other, field), strict=True):
            if field not in apart or max(len(mine), len(theirs)) < 61:  # cut at a character's start
                assert mine == theirs
            else:
                assert len(mine) <= 64 or mine == theirs
    assert isinstance(ordering, Ordering)
    return built.raw == other.raw


@pytest.mark.parametrize("name", WRITERS)
def test_no_value_that_was_written_lies_outside_its_page(name: str) -> None:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    footer = read_footer(source)
    checked = 0
    for group in footer.row_groups:
        for chunk in group.columns:
            built = build_page_index(source, footer, chunk)
            ordering = find_ordering(footer, chunk.leaf)
            if built.column_index is None or built.offset_index is None or isinstance(ordering, Unknown):
                continue
            bounds = page_bounds(footer, chunk, built.column_index, built.offset_index)
            assert isinstance(bounds, Bounds)
            starts = [*map(int, built.offset_index.first_row_indexes), group.num_rows]
            for page, (start, end) in enumerate(pairwise(starts)):
                plain = leaf_values(chunk.leaf.path, group.first_row + start, end - start)
                values = [value for value in map(ordering.decode, plain) if value == value]  # not NaN
                assert bounds.all_null[page] == (not plain)
                assert bounds.may_have_nan[page] == (len(values) < len(plain))
                for value in values:
                    assert bounds.lower[page] <= value <= bounds.upper[page]  # type: ignore[operator]
                checked += len(values)
    assert checked > 1000


@pytest.mark.parametrize("name", ["rs60_bad_null_pages_list", "nan_gt", "p05_nullpage_nullcount0"])
def test_defective_indexes_are_not_built_again(name: str) -> None:
    source = LocalSource(str(DATA / "variants" / f"{name}.parquet"))
    footer = read_footer(source)
    differing = 0
    for group in footer.row_groups:
        columns, _ = read_page_indexes(source, footer, group.columns, [])
        for chunk, column in zip(group.columns, columns, strict=True):
            built = build_page_index(source, footer, chunk)
            if not isinstance(column, ColumnIndex):
                continue
            if built.column_index is None or leaf_rules(built.column_index) != leaf_rules(column):
                differing += 1
    assert differing == 1


def test_a_chunk_is_read_once_in_windows() -> None:
    source = CountingSource(LocalSource(str(DATA / "j118_v1_none.parquet")))
    footer = read_footer(source)
    chunk = footer.row_groups[0].columns[3]
    source.reads = source.bytes_read = 0
    build_page_index(source, footer, chunk)
    assert (source.reads, source.bytes_read) == (1, chunk.total_compressed_size)
