"""Building page indexes: every encoding, codec and page version, and what other writers built for the same data."""

from __future__ import annotations

import decimal
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet import value_bounds
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, encode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.source import BytesSource
from tests.parquet.foreign import DATA
from tests.parquet.page_files import CODECS, LZO, check_index, rewrite, write

ROWS = 300


def holes(values: list[Any], every: int) -> list[Any]:
    """With nulls, some of them long runs: pages of nothing else."""
    return [None if i % every == 0 or 100 <= i < 180 else value for i, value in enumerate(values)]


def columns() -> dict[str, pa.Array[Any]]:
    random.seed(5)
    numbers = [random.randrange(-(10**6), 10**6) for _ in range(ROWS)]
    texts = [f"{abs(n) % 97:03d} {'é' * (abs(n) % 5)}" for n in numbers]
    floats = [n / 16 for n in numbers]
    flags = [n % 3 == 0 for n in numbers]
    decimals = [decimal.Decimal(n).scaleb(-2) for n in numbers]
    lists = [None if n % 7 == 0 else [n + k if k % 2 else None for k in range(abs(n) % 4)] for n in numbers]
    return {
        "i32": pa.array(holes(numbers, 6), pa.int32()),
        "i64": pa.array(numbers, pa.int64()),
        "u32": pa.array(holes([n % 2**32 for n in numbers], 9), pa.uint32()),
        "f32": pa.array(holes(floats, 5), pa.float32()),
        "f64": pa.array(floats, pa.float64()),
        "text": pa.array(holes(texts, 4), pa.string()),
        "fixed": pa.array(holes([t.encode()[:4] for t in texts], 8), pa.binary(4)),
        "flag": pa.array(holes(flags, 6), pa.bool_()),
        "money": pa.array(holes(decimals, 6), pa.decimal128(20, 2)),
        "list": pa.array(lists, pa.list_(pa.int32())),
    }


COLUMNS = columns()
TABLE = pa.table({name: (array.cast(array.type)) for name, array in COLUMNS.items()})
NUMBERS = ["i32", "i64", "u32"]
# encoding -> columns that can have it, options of pyarrow's writer
ENCODINGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "PLAIN": (list(COLUMNS), {}),
    "PLAIN_DICTIONARY": (
        [n for n in COLUMNS if n not in ("flag", "u32")],  # version 1.0 has no unsigned numbers
        {"use_dictionary": True, "version": "1.0"},
    ),
    "RLE_DICTIONARY": ([n for n in COLUMNS if n != "flag"], {"use_dictionary": True, "version": "2.6"}),
    "RLE": (["flag"], {}),
    "DELTA_BINARY_PACKED": ([*NUMBERS, "list"], {}),
    "DELTA_LENGTH_BYTE_ARRAY": (["text"], {}),
    "DELTA_BYTE_ARRAY": (["text", "fixed", "money"], {}),
    "BYTE_STREAM_SPLIT": ([*NUMBERS, "f32", "f64", "fixed", "money"], {}),
}


def encoded(encoding: str, version: int) -> bytes:
    names, options = ENCODINGS[encoding]
    paths = dict.fromkeys(names, encoding)
    if "list" in paths:
        paths["list.list.element"] = paths.pop("list")
    asked = {} if "DICTIONARY" in encoding or encoding == "PLAIN" else {"column_encoding": paths}
    return write(TABLE.select(names), data_page_version=f"{version}.0", **options, **asked)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_encoding_codec_and_page_version(codec: str, encoding: str, version: int) -> None:
    plain = encoded(encoding, version)
    data = rewrite(plain, CODECS[codec])
    names = ENCODINGS[encoding][0]
    assert pq.read_table(pa.BufferReader(data)).equals(TABLE.select(names))  # the file is what it should be
    source = BytesSource(data)
    footer = read_footer(source)
    number = {"PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "DELTA_BINARY_PACKED": 5, "RLE_DICTIONARY": 8}
    number |= {"DELTA_LENGTH_BYTE_ARRAY": 6, "DELTA_BYTE_ARRAY": 7, "BYTE_STREAM_SPLIT": 9}
    for chunk, name in zip(footer.row_groups[0].columns, names, strict=True):
        default = version == 2 and name == "flag"  # pyarrow's own choice for booleans is RLE
        assert (3 if default else number[encoding]) in chunk.encodings
        built = check_index(source, footer, chunk, COLUMNS[name].to_pylist())
        assert built.reason == ""
        assert built.column_index is not None
        assert built.column_index.num_pages > (3 if name != "flag" else 0)


@pytest.mark.parametrize("room", [1, 700, 3000])
def test_pages_that_wait_to_be_decoded_are_decoded_when_there_are_many(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that waited keep their bounds when the next one is more than is decoded at once."""
    monkeypatch.setattr(value_bounds, "BATCH_BYTES", room)
    source = BytesSource(encoded("DELTA_BINARY_PACKED", 2))
    footer = read_footer(source)
    for chunk, name in zip(footer.row_groups[0].columns, [*NUMBERS, "list"], strict=True):
        built = check_index(source, footer, chunk, COLUMNS[name].to_pylist())
        assert built.column_index is not None
        assert built.column_index.num_pages > 3


@pytest.mark.parametrize("version", [1, 2])
def test_a_chunk_that_falls_back_from_its_dictionary(version: int) -> None:
    data = write(TABLE, use_dictionary=True, dictionary_pagesize_limit=300, data_page_version=f"{version}.0")
    source = BytesSource(data)
    footer = read_footer(source)
    for chunk, name in zip(footer.row_groups[0].columns, COLUMNS, strict=True):
        assert check_index(source, footer, chunk, COLUMNS[name].to_pylist()).column_index is not None


def bit_pack(levels: list[int], width: int) -> bytes:
    """Levels of ``width`` bits, from the most significant bit on."""
    bits = "".join(f"{level:0{width}b}" for level in levels)
    return bytes(int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8))


def levels_of(rows: list[Any]) -> list[tuple[int, int]]:
    """(repetition, definition) level of each entry of a column of optional texts, or of lists of optional numbers."""
    out: list[tuple[int, int]] = []
    for row in rows:
        if not isinstance(row, list):
            out.append((0, int(row is not None)))
        else:
            out += [(int(i > 0), 2 + (item is not None)) for i, item in enumerate(row)] or [(0, 1)]
    return out


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", ["text", "list"])
def test_bit_packed_levels(name: str, codec: str) -> None:
    rows = COLUMNS[name].to_pylist()
    levels = levels_of(rows)
    at = 0

    def change(header: Struct, body: bytes) -> tuple[Struct, bytes]:
        nonlocal at
        detail = header.struct(5)
        assert detail is not None
        count = detail.need_integer(1, "")
        mine = levels[at : at + count]
        at += count
        packed = b""
        for field_id, width, kind in ((4, 1, 0), (3, 2, 1)) if name == "list" else ((3, 1, 1),):
            detail.fields[field_id] = (I32, 4)
            packed += bit_pack([level[kind] for level in mine], width)
            body = body[4 + int.from_bytes(body[:4], "little") :]
        return header, packed + body

    data = rewrite(write(TABLE.select([name])), CODECS[codec], change)
    source = BytesSource(data)
    footer = read_footer(source)
    built = check_index(source, footer, footer.row_groups[0].columns[0], rows)
    assert built.column_index is not None
    assert any(built.column_index.null_pages) == (name == "text")


# what cannot be indexed, and why


@pytest.mark.parametrize("version", [1, 2])
def test_lzo_is_named_and_leaves_flat_columns_their_offsets(version: int) -> None:
    data = rewrite(write(TABLE.select(["i64", "list"]), data_page_version=f"{version}.0"), LZO)
    source = BytesSource(data)
    footer = read_footer(source)
    flat, nested = (build_page_index(source, footer, c) for c in footer.row_groups[0].columns)
    assert flat.column_index is None
    assert flat.offset_index is not None
    assert "LZO" in flat.reason
    assert "LZO" in nested.reason
    assert nested.column_index is None
    assert nested.offset_index is None


def test_unknown_page_types_are_stepped_over() -> None:
    unknown = encode_struct(Struct({1: (I32, 9), 2: (I32, 5), 3: (I32, 5)})) + b"?????"
    index_page = encode_struct(Struct({1: (I32, 1), 2: (I32, 2), 3: (I32, 2), 6: (STRUCT, Struct())})) + b"??"
    data = rewrite(write(TABLE.select(["i64"])), before=unknown + index_page)
    source = BytesSource(data)
    footer = read_footer(source)
    chunk = footer.row_groups[0].columns[0]
    built = check_index(source, footer, chunk, COLUMNS["i64"].to_pylist())
    assert built.column_index is not None
    assert built.offset_index is not None
    assert int(built.offset_index.offsets[0]) == chunk.start + len(unknown + index_page)


def test_an_unknown_encoding_leaves_the_chunk_without_bounds() -> None:
    def change(header: Struct, body: bytes) -> tuple[Struct, bytes]:
        header.struct(5).fields[2] = (I32, 10)  # type: ignore[union-attr]
        return header, body

    source = BytesSource(rewrite(write(TABLE.select(["f64"])), change=change))
    footer = read_footer(source)
    built = build_page_index(source, footer, footer.row_groups[0].columns[0])
    assert built.column_index is None
    assert "encoding" in built.reason
    assert "10" in built.reason


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([1.0, float("nan"), 2.0]), "NaN"),
        (pa.array([1.5, float("nan")], pa.float16()), "NaN"),
        (pa.array([b"\xff" * 5000]), "4096 bytes"),
    ],
)
def test_no_column_index_where_it_would_lie_or_weigh(array: pa.Array[Any], reason: str) -> None:
    source = BytesSource(write(pa.table({"x": array})))
    footer = read_footer(source)
    built = build_page_index(source, footer, footer.row_groups[0].columns[0])
    assert built.column_index is None
    assert reason in built.reason
    assert built.offset_index is not None


def test_int96_in_type_order_has_offsets_only() -> None:
    table = pa.table({"t": pa.array([1, 2, None], pa.timestamp("ns"))})
    source = BytesSource(write(table, use_deprecated_int96_timestamps=True))
    footer = read_footer(source)
    built = build_page_index(source, footer, footer.row_groups[0].columns[0])
    assert built.column_index is None
    assert "INT96" in built.reason
    assert built.offset_index is not None
    assert built.offset_index.num_pages == 1


def test_zeros_get_the_sign_that_keeps_the_other_zero() -> None:
    table = pa.table({"x": pa.array([0.0, 0.0, 5.0]), "y": pa.array([-5.0, -0.0, -0.0], pa.float32())})
    source = BytesSource(write(table))
    footer = read_footer(source)
    x, y = (build_page_index(source, footer, c).column_index for c in footer.row_groups[0].columns)
    assert x is not None
    assert y is not None
    assert x.min_values == [bytes(7) + b"\x80"]
    assert y.max_values == [bytes(4)]
    assert x.nan_counts == y.nan_counts == [0]


def split_page_file() -> bytes:
    """A data page v1 of a list column whose second page goes on with the first one's last row."""
    schema = [
        Struct({4: (BINARY, b"root"), 5: (I32, 1)}),
        Struct({1: (I32, 1), 3: (I32, 2), 4: (BINARY, b"r")}),
    ]
    pages = b""
    for levels in ([0, 1, 0, 1], [1, 1, 0, 1]):
        packed = sum(level << i for i, level in enumerate(levels))
        body = b"\x02\0\0\0\x03" + bytes([packed]) + b"\x02\0\0\0\x08\x01"  # rep bit-packed, def run of 4 ones
        body += b"".join(value.to_bytes(4, "little") for value in range(4))
        detail = Struct({1: (I32, 4), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)})
        header = Struct({1: (I32, 0), 2: (I32, len(body)), 3: (I32, len(body)), 5: (STRUCT, detail)})
        pages += encode_struct(header) + body
    size = (I64, len(pages))
    meta = {1: (I32, 1), 2: (LIST, Items(I32, [0])), 3: (LIST, Items(BINARY, [b"r"])), 4: (I32, 0)}
    column = Struct({**meta, 5: (I64, 8), 6: size, 7: size, 9: (I64, 4)})
    chunk = Struct({2: (I64, 0), 3: (STRUCT, column)})
    group = Struct({1: (LIST, Items(STRUCT, [chunk])), 2: size, 3: (I64, 3)})
    orders = Items(STRUCT, [Struct({1: (STRUCT, Struct())})])
    tree = {1: (I32, 1), 2: (LIST, Items(STRUCT, schema)), 3: (I64, 3), 4: (LIST, Items(STRUCT, [group]))}
    footer = encode_struct(Struct({**tree, 7: (LIST, orders)}))
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_page_in_the_middle_of_a_row_has_no_index() -> None:
    data = split_page_file()
    assert pq.read_table(pa.BufferReader(data)).num_rows == 3
    source = BytesSource(data)
    footer = read_footer(source)
    built = build_page_index(source, footer, footer.row_groups[0].columns[0])
    assert (built.column_index, built.offset_index) == (None, None)
    assert "does not begin with a row" in built.reason


def test_row_groups_without_rows() -> None:
    source = BytesSource(write(TABLE.slice(0, 0)))
    footer = read_footer(source)
    for group in footer.row_groups:
        for chunk in group.columns:
            built = build_page_index(source, footer, chunk)
            assert built.column_index is None
            assert built.offset_index is not None


# damage


def test_wrong_checksums_are_errors_and_missing_ones_are_not() -> None:
    data = write(TABLE.select(["i64"]), write_page_checksum=True)
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[0]
    assert build_page_index(BytesSource(data), read_footer(BytesSource(data)), chunk).reason == ""
    broken = bytearray(data)
    broken[chunk.start + chunk.total_compressed_size - 1] ^= 1
    with pytest.raises(DamagedFileError, match="checksum"):
        build_page_index(BytesSource(bytes(broken)), read_footer(BytesSource(bytes(broken))), chunk)


def test_second_and_late_dictionary_pages_are_errors_and_named() -> None:
    data = write(TABLE.select(["text"]), use_dictionary=True)
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[0]
    dictionary = data[chunk.start : chunk.data_page_offset]
    plain = encode_struct(Struct({1: (I32, 9), 2: (I32, 1), 3: (I32, 1)})) + b"?"
    for broken in (
        rewrite(data, before=dictionary),  # a second one
        rewrite(write(TABLE.select(["text"])), before=plain + dictionary),  # one that is not the first page
    ):
        source = BytesSource(broken)
        footer = read_footer(source)
        with pytest.raises(DamagedFileError, match="dictionary page"):
            build_page_index(source, footer, footer.row_groups[0].columns[0])
        assert any("dictionary page" in problem.problem for problem in verify_file(source))


def test_pages_that_state_billions_of_values_cost_nothing() -> None:
    """A run of definition levels and one of dictionary indices take any number in five bytes."""
    for name, options in (("i32", {}), ("text", {"use_dictionary": True}), ("flag", {})):
        data = write(TABLE.select([name]), data_page_size=1 << 20, **options)

        def change(header: Struct, body: bytes) -> tuple[Struct, bytes]:
            if header.integer(1) == 0:
                header.struct(5).fields[1] = (I32, (1 << 31) - 1)  # type: ignore[union-attr]
                run = b"\xfe\xff\xff\xff\x1f\x01"
                body = len(run).to_bytes(4, "little") + run + b"\x01\xfe\xff\xff\xff\x1f\x00"
            return header, body

        source = BytesSource(rewrite(data, change=change))
        footer = read_footer(source)
        built = build_page_index(source, footer, footer.row_groups[0].columns[0])
        assert (built.column_index, built.offset_index) == (None, None)
        assert built.reason == f"a page has too many values: {(1 << 31) - 1}"


@pytest.mark.parametrize("name", ["pa26_v2_zstd_dict", "j118_v1_snappy_dict", "j118_v1_none"])
def test_any_bytes_of_pages_give_an_index_or_our_error(name: str) -> None:
    data = bytearray((DATA / f"{name}.parquet").read_bytes())
    footer = read_footer(BytesSource(data))
    random.seed(name)
    answers = {"error": 0, "index": 0}
    for _ in range(700):
        chunk = random.choice(footer.row_groups[2].columns)
        at = chunk.start + random.randrange(chunk.total_compressed_size)
        held, data[at] = data[at], random.randrange(256)
        try:
            build_page_index(BytesSource(bytes(data)), footer, chunk)
            answers["index"] += 1
        except SidecarError:
            answers["error"] += 1
        data[at] = held
    assert min(answers.values()) > 0
