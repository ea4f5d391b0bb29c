"""Thrift fields of another type than the format has: generated readers skip them, so sidecar reads such files too."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue

import sidecar
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.chunk_statistics import chunk_bounds
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.page_index import decode_column_index
from sidecar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, encode_struct
from sidecar.storage.source import BytesSource
from tests.parquet.false_statements import restated, written

LIST_OF_NUMBERS = (LIST, Items(I32, [1, 2, 3]))
NUMBER = (I32, 7)
OPTIONAL = {
    "file": (5, 6, 7),
    "schema element": (6, 7, 8, 9, 10),
    "row group": (4, 5, 6, 7),
    "column chunk": (1, 4, 5, 6, 7),
    "column metadata": (8, 11, 12, 13, 14, 15, 16, 17),
    "statistics": tuple(range(1, 9)),
}


LISTS = {("file", 5), ("file", 7), ("row group", 4), ("column metadata", 8), ("column metadata", 13)}


def structs_of(metadata: Struct, what: str) -> Iterator[Struct]:
    groups = metadata.structs(4) or []
    chunks = [chunk for group in groups for chunk in group.structs(1) or []]
    metas = [meta for chunk in chunks if (meta := chunk.struct(3))]
    known = {
        "file": [metadata],
        "schema element": metadata.structs(2) or [],
        "row group": groups,
        "column chunk": chunks,
        "column metadata": metas,
        "statistics": [found for meta in metas if (found := meta.struct(12))],
    }
    yield from known[what]


@pytest.fixture(scope="module")
def original() -> bytes:
    return written(bloom_filter_options={"s": True})


@pytest.mark.parametrize("field", [LIST_OF_NUMBERS, NUMBER], ids=["list", "number"])
@pytest.mark.parametrize("what", OPTIONAL)
def test_optional_fields_of_another_type_are_skipped(original: bytes, what: str, field: tuple[int, object]) -> None:
    for field_id in OPTIONAL[what]:
        if field == LIST_OF_NUMBERS and (what, field_id) in LISTS:
            continue

        def change(metadata: Struct, field_id: int = field_id) -> None:
            for found in structs_of(metadata, what):
                if (
                    field_id in found.fields and found.fields[field_id][0] not in (I32, I64)
                ) or field == LIST_OF_NUMBERS:
                    found.fields = dict(sorted({**found.fields, field_id: field}.items()))

        data = restated(original, change)
        expected = pq.read_table(io.BytesIO(data))
        assert sidecar.scan(BytesSource(data), AlwaysTrue()).equals(expected), field_id
        some = sidecar.scan(BytesSource(data), "i >= 250 and s != 'text 00260'")
        assert some.num_rows == 350 - 35 - 1, field_id


def test_a_list_in_place_of_the_length_of_a_filter(original: bytes) -> None:
    def change(metadata: Struct) -> None:
        for meta in structs_of(metadata, "column metadata"):
            meta.fields[15] = LIST_OF_NUMBERS

    data = restated(original, change)
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[1]
    assert chunk.bloom_filter_length is None
    found = read_bloom_filter(BytesSource(data), chunk)
    assert found is not None
    assert found.trusted


def test_a_bound_of_another_type_is_no_bound(original: bytes) -> None:
    def change(metadata: Struct) -> None:
        for found in structs_of(metadata, "statistics"):
            found.fields[6] = NUMBER  # min_value

    footer = read_footer(BytesSource(restated(original, change)))
    bounds = [chunk_bounds(footer, chunk) for chunk in footer.row_groups[0].columns]
    assert [known for found in bounds for known in found.lower] == [None] * 4


def test_counts_of_another_type_in_a_column_index_are_skipped() -> None:
    pages = {1: (LIST, Items(1, [2])), 2: (LIST, Items(BINARY, [b"a"])), 3: (LIST, Items(BINARY, [b"b"])), 4: (I32, 0)}
    index = decode_column_index(encode_struct(Struct({**pages, 5: (STRUCT, Struct())})))
    assert index.null_counts is None
    assert index.min_values == [b"a"]
