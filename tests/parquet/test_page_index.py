"""Reading page indexes: equal to what parquet-java reads, and never believed when they contradict themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.chunk_statistics import chunk_bounds
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems, page_bounds
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    OffsetIndex,
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    read_page_indexes,
)
from sidecar.parquet.thrift import BOOL_FALSE, LIST, STRUCT, Items, Struct, encode_struct
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.storage.local import LocalSource
from sidecar.storage.source import CountingSource
from tests.parquet.foreign import DATA, WRITERS, expected, same_column_index
from tests.parquet.page_index_cases import chunk_of, indexes, open_file
from tests.parquet.single_indexes import read_column_index, read_offset_index

READABLE = [p for p in sorted(DATA.rglob("*.parquet")) if p.read_bytes()[-4:] == b"PAR1"]


def verdict(name: str, path: str, group: int = 0) -> Bounds | Unknown:
    return page_bounds(*indexes(name, path, group))


@pytest.mark.parametrize("name", WRITERS)
def test_indexes_equal_what_parquet_java_reads(name: str) -> None:
    source, footer = open_file(name)
    compared = 0
    for group, want in zip(footer.row_groups, expected(name)["row_groups"], strict=True):
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            there = want["columns"][chunk.leaf.path]
            assert not isinstance(offset, SidecarError)
            assert (offset is None) == ("offset_index" not in there)
            if offset is not None:
                table = zip(offset.offsets, offset.compressed_page_sizes, offset.first_row_indexes, strict=True)
                assert [list(row) for row in table] == there["offset_index"]
                assert (offset.unencoded_byte_array_data_bytes or []) == (there.get("unencoded") or [])
                assert not list(offset_index_problems(footer, chunk, offset))
            assert not isinstance(column, SidecarError)
            # INT96 in its own order (3) is what parquet-java does not look at
            assert (column is None) == ("column_index" not in there) or chunk.leaf.physical == "INT96"
            if column is not None and "column_index" in there:
                same_column_index(column, there["column_index"])
                compared += 1
            if column is not None:
                assert isinstance(offset, OffsetIndex)
                assert not list(column_index_problems(footer, chunk, column, offset))
    assert compared == sum("column_index" in c for g in expected(name)["row_groups"] for c in g["columns"].values())


@pytest.mark.parametrize("path", READABLE, ids=lambda p: p.stem)
def test_encoding_the_tree_gives_the_bytes_back(path: Path) -> None:
    source = LocalSource(str(path))
    footer = read_footer(source)
    for group in footer.row_groups:
        for answers in read_page_indexes(source, footer, group.columns, group.columns):
            for index in answers:
                if isinstance(index, ColumnIndex | OffsetIndex):
                    assert encode_struct(index.tree) == index.raw


@pytest.mark.parametrize("name", WRITERS)
def test_bounds_of_every_chunk_hold_those_of_its_pages(name: str) -> None:
    source, footer = open_file(name)
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            assert isinstance(offset, OffsetIndex)
            whole, pages = chunk_bounds(footer, chunk), page_bounds(footer, chunk, column, offset)
            if isinstance(pages, Unknown) or whole.lower[0] is None or whole.upper[0] is None:
                continue
            assert whole.lower[0] <= min(b for b in pages.lower if b is not None)
            assert whole.upper[0] >= max(b for b in pages.upper if b is not None)


def test_all_indexes_of_a_file_come_in_one_read() -> None:
    source, footer = open_file("j118_v1_none")
    counting = CountingSource(source)
    chunks = [chunk for group in footer.row_groups for chunk in group.columns]
    columns, offsets = read_page_indexes(counting, footer, chunks, chunks)
    assert counting.reads == 1
    assert sum(isinstance(index, OffsetIndex) for index in offsets) == len(chunks)
    assert sum(isinstance(index, ColumnIndex) for index in columns) > 90


def test_unknown_fields_survive() -> None:
    _, _, _, offset = indexes("variants/p16_oi_unknown_field", "str")
    assert set(offset.tree.fields) - {1, 2}
    assert encode_struct(offset.tree) == offset.raw


def test_false_in_a_list_may_be_0_and_the_element_type_2() -> None:
    _, _, column, _ = indexes("variants/p18_listbool_false_as_0", "null_page")
    assert set(column.tree.fields[1][1].values) == {0}
    assert column.null_pages == [False] * column.num_pages
    items = Items(BOOL_FALSE, [1, 0, 2])
    tree = decode_column_index(encode_column_index([True] * 3, [b""] * 3, [b""] * 3, 1, [1, 1, 1]).raw).tree
    tree.fields[1] = (LIST, items)
    again = decode_column_index(encode_struct(tree))
    assert again.null_pages == [True, False, False]
    assert again.tree.fields[1][1].element_type == BOOL_FALSE


def test_bytes_behind_the_structure_are_kept_and_ignored() -> None:
    """parquet-java pads what it encrypts."""
    raw = encode_offset_index([(4, 10, 0), (14, 10, 7)]).raw
    index = decode_offset_index(raw + bytes(90))
    assert index.num_pages == 2
    assert index.raw == raw + bytes(90)


# what each defect is called


@pytest.mark.parametrize(
    ("name", "path", "problem"),
    [
        ("p05_nullpage_nullcount0", "null_page", "null_counts add up to 0, the chunk's statistics say 120"),
        ("p06_ci_one_page_less", "i32_req_asc", "2 pages in the column index, 3 in the offset index"),
        ("p17_bad_hist", "str", "repetition_level_histograms has 3 entries, not 5 pages x 1 levels"),
        ("rs60_bad_null_pages_list", "l.list.element", "null_pages contradict definition_level_histograms"),
    ],
)
def test_defective_indexes_are_not_believed(name: str, path: str, problem: str) -> None:
    source, footer = open_file(f"variants/{name}")
    found = [
        verdict(f"variants/{name}", path, g.ordinal)
        for g in footer.row_groups
        if read_column_index(source, footer, chunk_of(footer, path, g.ordinal))
    ]
    assert Unknown(problem) in found


def test_a_page_without_values_needs_nulls_in_the_column() -> None:
    source, footer = open_file("apache_datapage_v1-corrupt-checksum")
    chunk = chunk_of(footer, "a")
    column, offset = read_column_index(source, footer, chunk), read_offset_index(source, footer, chunk)
    assert column is not None
    assert column.null_pages == [True, True]
    assert "a null page in a column without nulls" not in list(column_index_problems(footer, chunk, column, offset))
    assert isinstance(page_bounds(footer, chunk, column, offset), Unknown)  # type: ignore[arg-type]


def test_a_column_index_needs_its_offset_index() -> None:
    source, footer = open_file("variants/p03_ci_without_oi_all")
    chunk = chunk_of(footer, "str")
    column = read_column_index(source, footer, chunk)
    assert column is not None
    assert read_offset_index(source, footer, chunk) is None
    assert next(column_index_problems(footer, chunk, column, None)) == "a column index without an offset index"


def test_an_unknown_column_order_leaves_the_null_counts() -> None:
    found = verdict("variants/p15_unknown_column_order", "null_page", 1)
    assert isinstance(found, Bounds)
    assert found.lower == found.upper == [None] * 3
    assert found.null_counts == [0, 0, 0]
    assert "column order 9 is unknown" in found.reason


def test_a_column_order_of_two_members_is_none() -> None:
    _, footer = open_file("variants/nan_gt")
    leaf = chunk_of(footer, "x").leaf
    assert isinstance(find_ordering(footer, leaf), Ordering)
    orders = footer.metadata.structs(7)
    assert orders is not None
    orders[leaf.index].fields[9] = (STRUCT, Struct())
    assert find_ordering(footer, leaf) == Unknown("the column order has 2 members, not one")


def test_nan_is_possible_where_nobody_counted() -> None:
    found = verdict("variants/nan_gt", "x")
    assert isinstance(found, Bounds)
    assert found.may_have_nan == [True] * 8
    assert found.lower[1] is not None
    counted = verdict("j118_v1_none", "f64_clean")
    assert isinstance(counted, Bounds)
    assert not any(counted.may_have_nan)
    with_nan = verdict("j118_v1_none", "f32_nan")
    assert isinstance(with_nan, Bounds)
    assert any(with_nan.may_have_nan)


def test_missing_null_counts_are_unknown() -> None:
    found = verdict("variants/p12_no_null_counts", "null_page")
    assert isinstance(found, Bounds)
    assert found.null_counts == [None]
    assert found.all_null == [False]


def test_encrypted_and_foreign_chunks_have_no_index_to_read() -> None:
    source, footer = open_file("variants/er_enc_pf_signed")
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        read_column_index(source, footer, chunk_of(footer, "str"))
    source, footer = open_file("variants/m12_filepath_other")
    with pytest.raises(UnsupportedFeatureError, match="file_path"):
        read_offset_index(source, footer, chunk_of(footer, "str"))
