"""Reading page indexes: equal to what parquet-java reads, and never believed when they contradict themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.parquet.bounds import (
    IEEE_754_TOTAL_ORDER,
    Ordering,
    find_ordering,
    total_order,
    truncate_lower,
    truncate_upper,
)
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_bounds import (
    chunk_bounds,
    column_index_problems,
    offset_index_problems,
    page_bounds,
)
from sidecar.parquet.page_index import (
    ColumnIndex,
    OffsetIndex,
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    read_column_index,
    read_offset_index,
    read_page_indexes,
)
from sidecar.parquet.thrift import BINARY, BOOL, BOOL_FALSE, I32, I64, LIST, Items, Struct, encode_struct
from sidecar.questions.bounds import Bounds
from sidecar.source import BytesSource, CountingSource, LocalSource
from tests.parquet.foreign import DATA, WRITERS, expected, same_column_index

READABLE = [p for p in sorted(DATA.rglob("*.parquet")) if p.read_bytes()[-4:] == b"PAR1"]


def open_file(name: str) -> tuple[LocalSource, Footer]:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    return source, read_footer(source)


def chunk_of(footer: Footer, path: str, group: int = 0) -> ColumnChunk:
    leaf = footer.leaf(path)
    assert leaf is not None
    return footer.row_groups[group].columns[leaf.index]


def indexes(name: str, path: str, group: int = 0) -> tuple[Footer, ColumnChunk, ColumnIndex, OffsetIndex]:
    source, footer = open_file(name)
    chunk = chunk_of(footer, path, group)
    column, offset = read_column_index(source, footer, chunk), read_offset_index(source, footer, chunk)
    assert column is not None
    assert offset is not None
    return footer, chunk, column, offset


def verdict(name: str, path: str, group: int = 0) -> Bounds | str:
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
            if isinstance(pages, str) or whole.lower[0] is None or whole.upper[0] is None:
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
    assert problem in found


def test_a_page_without_values_needs_nulls_in_the_column() -> None:
    source, footer = open_file("apache_datapage_v1-corrupt-checksum")
    chunk = chunk_of(footer, "a")
    column, offset = read_column_index(source, footer, chunk), read_offset_index(source, footer, chunk)
    assert column is not None
    assert column.null_pages == [True, True]
    assert "a null page in a column without nulls" not in list(column_index_problems(footer, chunk, column, offset))
    assert isinstance(page_bounds(footer, chunk, column, offset), str)  # type: ignore[arg-type]


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


# contradictions, one after another


def changed(column: ColumnIndex, field_id: int, kind: int, value: Any) -> ColumnIndex:
    tree = Struct(dict(column.tree.fields))
    tree.fields[field_id] = (kind, value)
    return decode_column_index(encode_struct(tree))


def _items_of(kind: int, change: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], Items]:
    return lambda values: Items(kind, change(values))


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


# fmt: off
CONTRADICTIONS: list[tuple[str, int, int, Any, str]] = [
    # column, field, type, what becomes of its value, problem
    ("i32_req_asc", 4, I32, 7, "boundary_order is 7"),
    ("i32_req_asc", 4, I32, 2, "boundary_order is descending, the bounds are not"),
    ("i64_desc", 4, I32, 1, "boundary_order is ascending, the bounds are not"),
    ("i32_req_asc", 1, LIST, _items_of(BOOL, first(1)), "a null page in a column without nulls"),
    ("i32_opt", 1, LIST, _items_of(BOOL, first(1)), "null_pages contradict null_counts"),
    ("i32_opt", 5, LIST, _items_of(I64, first(101)), "a null_count is greater than the number of entries of its page"),
    ("i32_opt", 5, LIST, _items_of(I64, lambda v: v[1:]), "3 null_counts for 4 pages"),
    ("i32_opt", 5, LIST, _items_of(I64, first(-1)), "null_counts has a negative number"),
    ("i32_opt", 5, LIST, _items_of(I64, first(0)), "null_counts add up to"),
    ("i32_opt", 8, LIST, _items_of(I64, first(0)), "nan_counts on a column that is not a float"),
    ("f64_clean", 8, LIST, _items_of(I64, lambda v: v[1:]), "3 nan_counts for 4 pages"),
    ("i32_opt", 7, LIST, _items_of(I64, lambda v: [1, 2, 3]), "definition_level_histograms has 3 entries, not 4 pages"),
    ("i32_opt", 7, LIST, _items_of(I64, lambda _: [0, 249, 0, 1, 0, 0, 0, 0]), "definition_level_histograms and the"),
    ("i32_opt", 7, LIST, _items_of(I64, lambda v: [0, 251] + [0] * 6), "definition_level_histograms has 251"),
    ("i32_opt", 7, LIST, _items_of(I64, lambda v: [0, 250] + [0] * 6), "null_counts contradict definition_level"),
    ("list_i32.list.element", 6, LIST, _items_of(I64, lambda v: [0] * 9), "repetition_level_histograms has 9 entries"),
    ("i32_opt", 2, LIST, _items_of(BINARY, first(b"")), "a bound has the wrong length"),
    ("i32_opt", 2, LIST, _items_of(BINARY, lambda v: [*v[:-1], b"\xff\xff\xff\x7f"]), "a page's min_value is greater"),
]
# fmt: on


@pytest.mark.parametrize(("path", "field_id", "kind", "value", "problem"), CONTRADICTIONS)
def test_each_contradiction_is_named(path: str, field_id: int, kind: int, value: Any, problem: str) -> None:
    footer, chunk, column, offset = indexes("j118_v1_none", path)
    assert not isinstance(page_bounds(footer, chunk, column, offset), str)
    if callable(value):
        old = column.tree.fields.get(field_id, (LIST, Items(I64, [0] * column.num_pages)))[1]
        value = value(old.values)
    bad = changed(column, field_id, kind, value)
    problems = list(column_index_problems(footer, chunk, bad, offset))
    assert any(found.startswith(problem) for found in problems), problems
    assert isinstance(page_bounds(footer, chunk, bad, offset), str)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: [(o, s, r + 1) for o, s, r in t], "the first page begins at row 1"),
        (lambda t: [(o, s, 0) for o, s, r in t], "first_row_index does not increase"),
        (lambda t: [*t[:-1], (t[-1][0], t[-1][1], 250)], "a page begins at row 250 of 250"),
        (lambda t: [*t[:-1], (t[-1][0], t[-1][1] + 1, t[-1][2])], "a page is outside the column chunk"),
        (lambda t: [(t[0][0] - 1000, *t[0][1:]), *t[1:]], "a page is outside the column chunk"),
        (lambda t: [(t[0][0], t[0][1] + 1, 0), *t[1:]], "pages overlap or are out of order"),
        (lambda t: [(t[0][0], 0, 0), *t[1:]], "a page has no bytes"),
        (lambda t: [], "no page for 250 rows"),
    ],
)
def test_each_defect_of_an_offset_index_is_named(change: Any, problem: str) -> None:
    footer, chunk, _, offset = indexes("j118_v1_none", "i32_req_asc")
    arrays = (offset.offsets, offset.compressed_page_sizes, offset.first_row_indexes)
    table = [tuple(map(int, row)) for row in zip(*arrays, strict=True)]
    assert not list(offset_index_problems(footer, chunk, encode_offset_index(table)))  # type: ignore[arg-type]
    found = list(offset_index_problems(footer, chunk, encode_offset_index(change(table))))
    assert any(text.startswith(problem) for text in found), found


def test_a_null_page_of_a_repeated_column_needs_a_histogram() -> None:
    footer, chunk, column, offset = indexes("j118_v1_none", "list_i32.list.element")
    pages = column.num_pages
    nulls = [1] * pages
    assert chunk.null_count is not None
    nulls[0] = chunk.null_count - (pages - 1)
    bounds = ([b"", *column.min_values[1:]], [b"", *column.max_values[1:]])
    for nothing in (None, []):  # writers leave an empty list, too
        bare = encode_column_index(
            [True] + [False] * (pages - 1), *bounds, 0, nulls, definition_level_histograms=nothing
        )
        found = page_bounds(footer, chunk, bare, offset)
        assert isinstance(found, Bounds)
        assert found.all_null == [False] * pages
        assert found.lower[0] is None
        assert found.lower[1] is not None
        assert "without a definition level histogram" in found.reason


@pytest.mark.parametrize(
    ("change", "nulls", "lower"),
    [
        (lambda fields: None, True, True),
        (lambda fields: [fields.pop(k) for k in (5, 6)], True, False),  # only the older, signed pair is left
        (lambda fields: fields.update({6: fields[5], 5: fields[6]}), True, False),  # the wrong way round
        (lambda fields: fields.update({3: (I64, 10**6)}), False, True),  # more nulls than values
        (lambda fields: fields.pop(3), False, True),
        (lambda fields: fields.update({5: (BINARY, b"1")}), True, False),
    ],
)
def test_statistics_of_chunks_count_only_if_sound(change: Any, nulls: bool, lower: bool) -> None:
    _, footer = open_file("j118_v1_none")
    chunk = chunk_of(footer, "i32_opt")
    statistics = footer.metadata.structs(4)[0].structs(1)[chunk.leaf.index].struct(3).struct(12)  # type: ignore
    statistics.fields |= {1: (BINARY, b"old!"), 2: (BINARY, b"old!")}
    change(statistics.fields)
    found = chunk_bounds(footer, chunk)
    assert (found.null_counts[0] is not None) == nulls
    assert (found.lower[0] is not None) == (found.upper[0] is not None) == lower
    assert found.all_null == [False]
    assert bool(found.reason) != lower


@pytest.mark.parametrize("bound", [1, 2, 5, 6])
def test_a_chunk_of_nulls_has_no_bounds(bound: int) -> None:
    """Neither those of today nor the older pair: where one of them stands, the null count is wrong."""
    _, footer = open_file("j118_v1_none")
    chunk = chunk_of(footer, "all_null")
    assert chunk_bounds(footer, chunk).all_null == [True]
    statistics = footer.metadata.structs(4)[0].structs(1)[chunk.leaf.index].struct(3).struct(12)  # type: ignore
    statistics.fields[bound] = (BINARY, b"0000")
    assert chunk_bounds(footer, chunk).all_null == [False]


# damage


@pytest.mark.parametrize("path", ["str", "f64_clean", "list_i32.list.element", "null_page"])
def test_any_bytes_give_an_index_or_our_error(path: str) -> None:
    footer, chunk, column, offset = indexes("j118_v2_zstd", path)
    random.seed(path)
    for index, decode in ((column, decode_column_index), (offset, decode_offset_index)):
        for end in range(len(index.raw)):
            with pytest.raises(DamagedFileError):
                decode(index.raw[:end])
        for _ in range(1500):
            raw = bytearray(index.raw)
            raw[random.randrange(len(raw))] = random.randrange(256)
            try:
                found: Any = decode(bytes(raw))
            except SidecarError:
                continue
            if isinstance(found, ColumnIndex):
                assert isinstance(page_bounds(footer, chunk, found, offset), Bounds | str)
            else:
                list(offset_index_problems(footer, chunk, found))
                page_bounds(footer, chunk, column, found)


def test_ranges_outside_the_file_cost_their_chunk_only() -> None:
    data = (DATA / "j118_v1_none.parquet").read_bytes()
    footer = read_footer(BytesSource(data))
    good, bad = footer.row_groups[0].columns[1:3]
    for change in ({"column_index_offset": footer.offset}, {"column_index_length": 1 << 31}):
        broken = type(bad)(**{**vars(bad), **change})
        columns, _ = read_page_indexes(BytesSource(data), footer, [good, broken], [])
        assert isinstance(columns[0], ColumnIndex)
        assert isinstance(columns[1], DamagedFileError)
        assert isinstance(page_bounds(footer, broken, columns[1], encode_offset_index([])), str)
    overlapping = type(bad)(**{**vars(bad), "column_index_offset": good.column_index_offset})
    columns, _ = read_page_indexes(BytesSource(data), footer, [good, overlapping], [])
    assert sum(isinstance(index, DamagedFileError) for index in columns) == 1


# orders and truncation


def test_orders_of_the_types() -> None:
    _, footer = open_file("rs60_v1_none_afterrg")
    kinds = {leaf.path: find_ordering(footer, leaf) for leaf in footer.columns}
    want = {
        "bool_opt": "boolean",
        "i32_opt": "signed",
        "u32": "unsigned",
        "u64": "unsigned",
        "i96": "int96",
        "f32_nan": "float",
        "f16": "float",
        "str": "bytes",
        "uuid": "bytes",
        "dec_flba": "decimal",
    }
    for path, kind in want.items():
        if path in kinds:
            found = kinds[path]
            assert isinstance(found, Ordering), (path, found)
            assert found.kind == kind, path
    assert isinstance(kinds["interval"], str)


def test_total_order_is_that_of_ieee_754() -> None:
    floats = [
        "ffffffff",
        "ff800000",
        "bf800000",
        "80000001",
        "80000000",
        "00000000",
        "3f800000",
        "7f800000",
        "7fc00000",
    ]
    keys = [total_order(bytes.fromhex(text)[::-1]) for text in floats]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert Ordering("float", 4, IEEE_754_TOTAL_ORDER).key(b"\0\0\0\x80") == -1


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        (b"abc", b"abc", b"abc"),
        (b"abcde", b"abcd", b"abce"),
        ("abc€x".encode(), b"abc", b"abd"),
        ("ab\u007fdx".encode(), b"ab\x7fd", b"ab\x7fe"),
        ("abc\u007fx".encode(), b"abc\x7f", b"abd"),
        ("\U0010ffffx".encode(), "\U0010ffff".encode(), "\U0010ffffx".encode()),
        ("a\ud7ffbc".encode(), "a\ud7ff".encode(), "a\ue000".encode()),
        (b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff"),
        (b"a\xff\xff\xff\xff", b"a\xff\xff\xff", b"b"),
    ],
)
def test_truncated_bounds_are_outer_bounds(value: bytes, lower: bytes, upper: bytes) -> None:
    assert (truncate_lower(value, 4), truncate_upper(value, 4)) == (lower, upper)
    assert lower <= value <= upper


def test_lemma_truncation_holds_for_random_texts_and_bytes() -> None:
    random.seed(11)
    alphabet = "az\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
    for _ in range(3000):
        text = "".join(random.choices(alphabet, k=random.randrange(12)))
        for value in (text.encode(), random.choice([b"\xff", b"a"]) * random.randrange(9)):
            lower, upper = truncate_lower(value, 8), truncate_upper(value, 8)
            assert lower <= value <= upper
            assert len(lower) <= 8
            assert len(upper) <= 8 or upper == value
            if len(value) > 8 and value == text.encode():
                lower.decode()
                upper.decode()
