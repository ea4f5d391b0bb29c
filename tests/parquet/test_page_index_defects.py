"""Page indexes that contradict themselves, their chunk or the file: each defect is named, and none is believed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.bounds import find_ordering
from sidecar.parquet.chunk_statistics import chunk_bounds
from sidecar.parquet.footer import footer_of, read_footer
from sidecar.parquet.page_indexes.page_bounds import (
    claimed_bounds,
    column_index_problems,
    offset_index_problems,
    page_bounds,
)
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    read_page_indexes,
)
from sidecar.parquet.thrift import BINARY, BOOL, I32, I64, LIST, Items, Struct, encode_struct
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.storage.source import BytesSource
from tests.parquet.foreign import DATA
from tests.parquet.page_index_cases import chunk_of, indexes, open_file


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
    ordering = find_ordering(footer, chunk.leaf)
    assert claimed_bounds(ordering, chunk.leaf, column) == page_bounds(footer, chunk, column, offset)
    if callable(value):
        old = column.tree.fields.get(field_id, (LIST, Items(I64, [0] * column.num_pages)))[1]
        value = value(old.values)
    bad = changed(column, field_id, kind, value)
    problems = list(column_index_problems(footer, chunk, bad, offset))
    assert any(found.startswith(problem) for found in problems), problems
    assert isinstance(page_bounds(footer, chunk, bad, offset), Unknown)
    claimed = claimed_bounds(ordering, chunk.leaf, bad)
    if isinstance(claimed, Unknown):
        assert claimed.reason in problems
    else:
        assert {len(part) for part in list(vars(claimed).values())[:5]} == {bad.num_pages}


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
        (lambda t: [(o, s - 17, r) for o, s, r in t], "page 0 ends before page 1: its size may lack"),
        (lambda t: [*t[:-1], (t[-1][0], t[-1][1] - 17, t[-1][2])], "page 3 ends before the end of the column chunk"),
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


@pytest.mark.parametrize("start", [-(1 << 40), -1, 1 << 40])
def test_a_chunk_that_begins_outside_the_file_has_no_pages_in_it(start: int) -> None:
    footer, chunk, _, offset = indexes("j118_v1_none", "i32_req_asc")
    moved = replace(chunk, data_page_offset=start, dictionary_page_offset=None, total_compressed_size=1 << 41)
    assert list(offset_index_problems(footer, moved, offset)) == ["the column chunk is outside the file"]
    ends_inside = replace(moved, total_compressed_size=footer.size - start)
    assert list(offset_index_problems(footer, ends_inside, offset)) == ["the column chunk is outside the file"]


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
    source, footer = open_file("j118_v1_none")
    chunk = chunk_of(footer, "i32_opt")
    statistics = footer.metadata.structs(4)[0].structs(1)[chunk.leaf.index].struct(3).struct(12)  # type: ignore
    statistics.fields |= {1: statistics.fields[5], 2: statistics.fields[6]}
    change(statistics.fields)
    changed = footer_of(source, footer.offset, footer.raw, footer.metadata)
    found = chunk_bounds(changed, chunk_of(changed, "i32_opt"))
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
                assert isinstance(page_bounds(footer, chunk, found, offset), Bounds | Unknown)
            else:
                list(offset_index_problems(footer, chunk, found))
                page_bounds(footer, chunk, column, found)


def test_ranges_outside_the_file_cost_their_chunk_only() -> None:
    data = (DATA / "j118_v1_none.parquet").read_bytes()
    footer = read_footer(BytesSource(data))
    good, bad = footer.row_groups[0].columns.stored[1:3]
    for change in ({"column_index_offset": footer.offset}, {"column_index_length": 1 << 31}):
        broken = type(bad)(**{**vars(bad), **change})
        columns, _ = read_page_indexes(BytesSource(data), footer, [good, broken], [])
        assert isinstance(columns[0], ColumnIndex)
        assert isinstance(columns[1], DamagedFileError)
        assert isinstance(page_bounds(footer, broken, columns[1], encode_offset_index([])), Unknown)
    overlapping = type(bad)(**{**vars(bad), "column_index_offset": good.column_index_offset})
    columns, _ = read_page_indexes(BytesSource(data), footer, [good, overlapping], [])
    assert sum(isinstance(index, DamagedFileError) for index in columns) == 1
