"""The worked examples of the Parquet documents, against pyarrow's decoding and ours."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, Leaf
from sidecar.kernels import levels as kernels
from sidecar.kernels.rle import unaligned_words
from sidecar.parquet.bounds import Ordering
from sidecar.parquet.footer import read_footer
from sidecar.parquet.one_column_file import decode_pages
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, encode_struct
from sidecar.parquet.value_bounds import PageFolder
from sidecar.storage.source import BytesSource

VECTORS = Path(__file__).resolve().parents[2] / "spec_vectors" / "parquet" / "worked_examples.json"
EXAMPLES: dict[str, dict[str, Any]] = json.loads(VECTORS.read_text())


def leaf_of(physical: str) -> Leaf:
    encoding = Encoding.parse(physical.lower())
    return Leaf(0, ("v",), None, physical, None, Annotation(), encoding, 0, 0)


def stored(example: dict[str, Any]) -> list[Any]:
    """The values as Python has them."""
    if example["physical"] == "FLOAT":
        return [struct.unpack("<f", bytes.fromhex(value))[0] for value in example["values"]]
    return [bytes.fromhex(value) if isinstance(value, str) else value for value in example["values"]]


@pytest.mark.parametrize("name", EXAMPLES["values"])
def test_pyarrow_decodes_the_encodings_as_printed(name: str) -> None:
    example = EXAMPLES["values"][name]
    values = decode_pages(
        leaf_of(example["physical"]),
        [(example["encoding"], len(example["values"]), bytes.fromhex(example["encoded"]))],
    )
    assert values.to_pylist() == stored(example)


@pytest.mark.parametrize("name", EXAMPLES["values"])
def test_bounds_are_those_of_the_values(name: str) -> None:
    example = EXAMPLES["values"][name]
    kind = {"INT32": "signed", "FLOAT": "float", "BYTE_ARRAY": "bytes"}[example["physical"]]
    folder = PageFolder(leaf_of(example["physical"]), Ordering(kind, None if kind == "bytes" else 4))
    data = np.frombuffer(bytes.fromhex(example["encoded"]), np.uint8)
    page = folder.add(example["encoding"], len(example["values"]), data)
    folder.finish()
    assert page.lower is not None
    assert page.upper is not None
    ordering = folder.ordering
    assert ordering.decode(page.lower) == min(stored(example))
    assert ordering.decode(page.upper) == max(stored(example))
    if kind == "bytes":
        assert page.data_bytes == sum(map(len, stored(example)))


def delta_values(data: bytes) -> list[int]:
    """DELTA_BINARY_PACKED by the words of the specification, of any block size."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                return value

    def zigzag() -> int:
        raw = varint()
        return (raw >> 1) ^ -(raw & 1)

    block, miniblocks, count, first = varint(), varint(), varint(), zigzag()
    values = [first]
    while len(values) < count:
        least = zigzag()
        widths = data[at : at + miniblocks]
        at += miniblocks
        for width in widths:
            if len(values) == count:
                break
            length = block // miniblocks * width // 8
            packed = int.from_bytes(data[at : at + length], "little")
            at += length
            for i in range(min(block // miniblocks, count - len(values))):
                values.append(values[-1] + least + ((packed >> (i * width)) & ((1 << width) - 1)))
    return values


@pytest.mark.parametrize("name", ["delta_1", "delta_2"])
def test_the_short_blocks_of_the_document_mean_the_same(name: str) -> None:
    example = EXAMPLES["values"][name]
    for key in ("as_printed", "encoded"):
        assert delta_values(bytes.fromhex(example[key])) == example["values"]


@pytest.mark.parametrize("name", ["bit_packed", "rle"])
def test_both_bit_orders(name: str) -> None:
    example = EXAMPLES["levels"][name]
    data = np.frombuffer(bytes.fromhex(example["encoded"]), np.uint8)
    for count in range(9):  # the prefix of n levels is 0 to n - 1
        out = np.zeros(8, np.int64)
        if name == "rle":
            status = kernels.histogram(data, unaligned_words(data), 0, len(data), 3, count, out)
        else:
            status = kernels.histogram_bit_packed(data, 0, len(data), 3, count, out)
        assert status == 0
        assert out.tolist() == [1] * count + [0] * (8 - count)


def level_file(levels: bytes, encoding: int, count: int, depth: int, values: bytes) -> bytes:
    """One data page v1 of an INT32 inside ``depth`` optional parents, itself the last of them."""
    detail = Struct({1: (I32, count), 2: (I32, 0), 3: (I32, encoding), 4: (I32, 3)})
    body = (len(levels).to_bytes(4, "little") if encoding == 3 else b"") + levels + values
    header = encode_struct(Struct({1: (I32, 0), 2: (I32, len(body)), 3: (I32, len(body)), 5: (STRUCT, detail)}))
    names = [f"g{i}".encode() for i in range(depth)]
    schema = [Struct({4: (BINARY, b"root"), 5: (I32, 1)})]
    schema += [Struct({3: (I32, 1), 4: (BINARY, name), 5: (I32, 1)}) for name in names[:-1]]
    schema.append(Struct({1: (I32, 1), 3: (I32, 1), 4: (BINARY, names[-1])}))
    size = (I64, len(header) + len(body))
    meta = {1: (I32, 1), 2: (LIST, Items(I32, [0, 3])), 3: (LIST, Items(BINARY, names)), 4: (I32, 0)}
    column = Struct({**meta, 5: (I64, count), 6: size, 7: size, 9: (I64, 4)})
    chunk = Struct({2: (I64, 0), 3: (STRUCT, column)})
    group = Struct({1: (LIST, Items(STRUCT, [chunk])), 2: size, 3: (I64, count)})
    orders = Items(STRUCT, [Struct({1: (STRUCT, Struct())})])
    tree = {1: (I32, 1), 2: (LIST, Items(STRUCT, schema)), 3: (I64, count), 4: (LIST, Items(STRUCT, [group]))}
    footer = encode_struct(Struct({**tree, 7: (LIST, orders)}))
    return b"PAR1" + header + body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def depth_of(row: Any) -> int:
    """How many optional parents of a row are there."""
    depth = 0
    while row is not None:
        depth += 1
        row = next(iter(row.values())) if isinstance(row, dict) else None
    return depth


@pytest.mark.parametrize("name", ["bit_packed", "rle"])
def test_pyarrow_reads_levels_in_both_bit_orders(name: str) -> None:
    example = EXAMPLES["levels"][name]
    levels = bytes.fromhex(example["encoded"])
    data = level_file(levels, example["encoding"], 8, 7, (42).to_bytes(4, "little"))
    rows = pq.read_table(io.BytesIO(data)).column(0).to_pylist()
    want = example["values"]
    if name == "bit_packed":  # pyarrow unpacks these from the least significant bit on, against the document
        packed = int.from_bytes(levels, "little")
        want = [packed >> (3 * i) & 7 for i in range(8)]
    assert [depth_of(row) for row in rows] == want
    footer = read_footer(BytesSource(data))
    built = build_page_index(BytesSource(data), footer, footer.row_groups[0].columns[0])
    assert built.column_index is not None
    assert built.column_index.definition_level_histograms == [1] * 8
    assert built.column_index.null_counts == [7]
    assert built.column_index.min_values == [(42).to_bytes(4, "little")]


def test_a_thousand_nulls() -> None:
    example = EXAMPLES["levels"]["nulls"]
    data = level_file(bytes.fromhex(example["encoded"]), 3, 1000, 1, b"")
    table = pq.read_table(io.BytesIO(data))
    assert table.column(0).to_pylist() == [None] * 1000
    assert table.column(0).type == pa.int32()
    footer = read_footer(BytesSource(data))
    built = build_page_index(BytesSource(data), footer, footer.row_groups[0].columns[0])
    assert built.column_index is not None
    assert built.column_index.null_pages == [True]
    assert built.column_index.null_counts == [1000]
    assert built.column_index.min_values == built.column_index.max_values == [b""]
