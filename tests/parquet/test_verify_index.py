"""verify: every defect of a page index is named, and sound files have none."""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    OffsetIndex,
    decode_column_index,
    decode_offset_index,
    encode_offset_index,
)
from sidecar.parquet.thrift import BINARY, BOOL, I32, I64, LIST, Items, Struct, encode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.parquet.verify.page_index import ARROW_SIZES, verify_page_index
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.parquet.foreign import DATA
from tests.parquet.page_files import attach, write

DEFECTS = {
    "p02_no_oi_for_str": {("str", "column index: a column index without an offset index")},
    "p05_nullpage_nullcount0": {("null_page", "column index: page 0 has 120 nulls, not 0")},
    "p06_ci_one_page_less": {("i32_req_asc", "column index: 2 pages in the column index, 3 in the offset index")},
    "p17_bad_hist": {("str", "column index: repetition_level_histograms has 3 entries, not 5 pages x 1 levels")},
    "rs60_bad_null_pages_list": {
        ("l.list.element", "column index: null_pages contradict definition_level_histograms"),
        ("l.list.element", "column index: page 0 is marked as a null page, but has values"),
    },
    "nan_gt": {("x", "column index: 2 pages (the first is 3) have NaN, but there are no nan_counts")},
    "m12_filepath_other": {("str", "offset index: the column chunk is in another file (file_path)")},
}
SOUND = [
    "variants/base",
    "variants/duck",
    "variants/m01_ok",
    "variants/m01b_keep_old_footer",
    "variants/m02_nolength",
    "variants/m03_len_minus10",
    "variants/m06_reverse",
    "variants/m09_unknown_fields",
    "variants/p12_no_null_counts",
    "variants/p15_unknown_column_order",
    "variants/p16_oi_unknown_field",
    "variants/p18_listbool_false_as_0",
    "variants/pa_int96",
    "j118_v1_none",
    "j118_v2_zstd",
    "j118_v1_snappy_dict",
    "j118_adaptive",
    "rs60_v1_none_afterrg",
    "apache_alltypes_tiny_pages_plain",
    "apache_data_index_bloom_encoding_stats",
    "apache_int32_with_null_pages",
    "apache_fixed_length_byte_array",
]


def found(name: str) -> set[tuple[str | None, str]]:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    return {(p.column, p.problem) for p in verify_page_index(source, read_footer(source))}


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_of_foreign_files_are_named(name: str) -> None:
    problems = found(f"variants/{name}")
    assert DEFECTS[name] <= problems
    assert {column for column, _ in DEFECTS[name]} <= {column for column, _ in problems}
    everything = {(p.column, p.problem) for p in verify_file(LocalSource(str(DATA / f"variants/{name}.parquet")))}
    assert DEFECTS[name] <= everything


def test_a_column_may_have_no_page_index() -> None:
    data = write(TABLE.select(["n", "s", "l"]), write_page_index=True)
    for column in range(3):
        source = BytesSource(attach(data, {(0, column): (None, None)}))
        assert verify_page_index(source, read_footer(source)) == []


def test_column_indexes_without_any_offset_index() -> None:
    problems = found("variants/p03_ci_without_oi_all")
    assert len(problems) == 6
    assert {text for _, text in problems} == {"column index: a column index without an offset index"}


@pytest.mark.parametrize("name", SOUND)
def test_sound_indexes_pass(name: str) -> None:
    assert found(name) == set()


def test_arrow_leaves_nan_out_without_a_word() -> None:
    assert {column for column, _ in found("pa26_v1_none")} == {"f32_nan", "f64_nan"}


def test_wrong_checksums_are_named_once() -> None:
    source = LocalSource(str(DATA / "apache_datapage_v1-corrupt-checksum.parquet"))
    texts = [p.problem for p in verify_file(source)]
    assert sum("checksum" in text for text in texts) == 2
    assert any("checksum" in p.problem for p in verify_page_index(source, read_footer(source)))


TABLE = pa.table(
    {
        "n": pa.array([None if i % 5 == 0 else i for i in range(96)], pa.int32()),
        "s": pa.array([f"value {i:03d}" for i in range(96)]),
        "f": pa.array([float("nan") if i == 30 else i / 2 for i in range(96)]),
        "l": pa.array([[i] * (i % 3) for i in range(96)], pa.list_(pa.int64())),
    }
)
PLAIN = write(TABLE, write_batch_size=24, data_page_size=1)  # four pages, of 24 rows if flat


def spoiled(
    column: int,
    change_column: Callable[[Struct], None] = lambda tree: None,
    change_offsets: Callable[[list[tuple[int, int, int]]], Any] = lambda table: table,
) -> set[str]:
    """Problems of the file whose column's index, built by us, was changed."""
    source = BytesSource(PLAIN)
    footer = read_footer(source)
    indexes: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = {}
    for i, chunk in enumerate(footer.row_groups[0].columns):
        built = build_page_index(source, footer, chunk)
        assert built.offset_index is not None
        offsets: OffsetIndex = built.offset_index
        columns: ColumnIndex | None = built.column_index
        raw = None if columns is None else columns.raw
        if i == column:
            arrays = (offsets.offsets, offsets.compressed_page_sizes, offsets.first_row_indexes)
            table = [(int(a), int(b), int(c)) for a, b, c in zip(*arrays, strict=True)]
            offsets = encode_offset_index(change_offsets(table), offsets.unencoded_byte_array_data_bytes)
            if columns is not None:
                change_column(columns.tree)
                raw = encode_struct(columns.tree)
        indexes[0, i] = (raw, offsets.raw)
    data = BytesSource(attach(PLAIN, indexes))
    problems = verify_page_index(data, read_footer(data))
    leaf = footer.columns[column].path
    assert {p.column for p in problems} <= {leaf}
    assert all(p in verify_file(data) for p in problems)
    return {p.problem for p in problems}


def set_item(field_id: int, at: int, value: Any) -> Callable[[Struct], None]:
    def change(tree: Struct) -> None:
        tree.fields[field_id][1].values[at] = value

    return change


def test_what_we_build_passes() -> None:
    for column in range(4):
        assert spoiled(column) == set()


def number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


@pytest.mark.parametrize(
    ("column", "change", "problem"),
    [
        (0, set_item(2, 1, number(26)), "column index: page 1 has a value below its min_value"),
        (0, set_item(3, 1, number(46)), "column index: page 1 has a value above its max_value"),
        (0, set_item(5, 1, 4), "column index: page 1 has 5 nulls, not 4"),
        (1, set_item(2, 0, b"value 001"), "column index: page 0 has a value below its min_value"),
        (1, set_item(3, 3, b"value 09"), "column index: page 3 has a value above its max_value"),
        (3, set_item(6, 0, 23), "column index: page 0 has repetition levels [18, 6], not [23, 6]"),
        (3, set_item(7, 0, 7), "column index: page 0 has definition levels [0, 6, 0, 18], not [7, 6, 0, 18]"),
        (0, set_item(1, 2, 1), "column index: page 2 is marked as a null page, but has values"),
    ],
)
def test_each_lie_about_values_is_named(column: int, change: Callable[[Struct], None], problem: str) -> None:
    assert problem in spoiled(column, change)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: [t[0], (t[1][0], t[1][1], 23), *t[2:]], "first_row_index of page 1 is 23, should be 24"),
        (lambda t: [t[0], (t[1][0] + 1, t[1][1] - 1, 24), *t[2:]], "offset of page 1 is"),
        (lambda t: [(t[0][0], t[0][1] - 1, 0), *t[1:]], "compressed_page_size of page 0 is"),
        (lambda t: t[:-1], "3 pages, the column chunk has 4"),
        (lambda t: [(t[0][0], t[0][1], 0), (t[1][0], t[1][1], 96), *t[2:]], "a page begins at row 96 of 96"),
    ],
)
def test_each_lie_about_places_is_named(change: Any, problem: str) -> None:
    assert any(problem in text for text in spoiled(1, change_offsets=change))


def test_lies_about_the_bytes_of_strings_are_named() -> None:
    source = BytesSource(PLAIN)
    footer = read_footer(source)
    built = build_page_index(source, footer, footer.row_groups[0].columns[1])
    assert built.offset_index is not None
    tree = built.offset_index.tree
    for values, problem in (
        ([1] * 4, "page 0 has 216 bytes of values, not 1"),
        ([1], "1 unencoded_byte_array"),
    ):
        tree.fields[2] = (LIST, Items(I64, values))
        raw = encode_struct(tree)
        assert decode_offset_index(raw).num_pages == 4
        data = BytesSource(attach(PLAIN, {(0, 1): (None, raw)}))
        problems = verify_page_index(data, read_footer(data))
        assert any(problem in p.problem for p in problems)


def test_nan_that_nan_counts_do_not_tell_is_named() -> None:
    low, high = struct.pack("<d", -0.0), struct.pack("<d", 1000.0)
    lists = {1: (BOOL, 2), 2: (BINARY, low), 3: (BINARY, high), 5: (I64, 0), 8: (I64, 0)}
    tree = Struct({i: (LIST, Items(kind, [value] * 4)) for i, (kind, value) in lists.items()})
    tree.fields[4] = (I32, 1)
    raw = encode_struct(tree)
    assert decode_column_index(raw).num_pages == 4
    whole = BytesSource(PLAIN)
    offsets = build_page_index(whole, read_footer(whole), read_footer(whole).row_groups[0].columns[2]).offset_index
    assert offsets is not None
    data = BytesSource(attach(PLAIN, {(0, 2): (raw, offsets.raw)}))
    texts = {p.problem for p in verify_page_index(data, read_footer(data)) if p.column == "f"}
    assert texts == {
        "column index: page 1 has 1 NaN, not 0",
        "column index: bounds of a page are outside those of the whole",
    }


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_sizes_that_arrow_counts_short_in_delta_byte_array_are_explained(version: str) -> None:
    """Arrow leaves out values that the one before begins with; the true number is that of pyarrow's own values."""
    values = ["abc", "abc", "ab", "", None, "abd", "abd", "xyz", "xyz" * 5]
    out = BytesIO()
    pq.write_table(
        pa.table({"s": values}),
        out,
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
        data_page_version=version,
        write_page_index=True,
    )
    data = BytesSource(out.getvalue())
    stored = pq.read_table(BytesIO(out.getvalue()))["s"].to_pylist()
    counted = sum(len(value) for value in stored if value)
    skipped = sum(len(b) for a, b in zip(["", *values], values, strict=False) if a and b and a.startswith(b))
    texts = [p.problem for p in verify_page_index(data, read_footer(data))]
    assert texts == [f"offset index: page 0 has {counted} bytes of values, not {counted - skipped} ({ARROW_SIZES})"]
