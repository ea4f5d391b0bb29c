"""Parquet files for page tests: pages of pyarrow's files put into other codecs, and what each page holds.

The truth about a page comes from the rows that were written, in plain Python; pyarrow's writer gives the pages.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
from collections.abc import Callable
from typing import Any

import lz4.block
import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_indexes.build import BuiltPageIndex, build_page_index
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems, page_bounds
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.thrift import I32, I64, LIST, STRUCT, Items, Struct, decode_struct, encode_struct
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import BytesSource


def write(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file of small pages without page indexes, by pyarrow."""
    defaults: dict[str, Any] = {
        "compression": "none",
        "data_page_size": 64,
        "write_batch_size": 16,
        "max_rows_per_page": 24,
        "write_statistics": True,
        "use_dictionary": False,
    }
    sink = io.BytesIO()
    pq.write_table(table, sink, **(defaults | options))
    return sink.getvalue()


def hadoop_lz4(data: bytes) -> bytes:
    """Two frames, each with both lengths in front, big-endian, as Hadoop's codec does."""
    half = len(data) // 2
    out = b""
    for part in (data[:half], data[half:]):
        if part:
            block = lz4.block.compress(part, store_size=False)
            out += len(part).to_bytes(4, "big") + len(block).to_bytes(4, "big") + block
    return out


def _arrow(name: str) -> Callable[[bytes], bytes]:
    return lambda data: pa.Codec(name).compress(data, asbytes=True)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, lambda data: data),
    "snappy": (1, _arrow("snappy")),
    "gzip": (2, gzip.compress),
    "gzip-members": (2, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    "brotli": (4, _arrow("brotli")),
    "lz4-hadoop": (5, hadoop_lz4),
    "zstd": (6, _arrow("zstd")),
    "lz4-raw": (7, lambda data: lz4.block.compress(data, store_size=False)),
}
LZO = (3, lambda data: b"\x11\0\0" + data)

PageChange = Callable[[Struct, bytes], tuple[Struct, bytes]]


def rewrite(
    data: bytes,
    codec: tuple[int, Callable[[bytes], bytes]] = CODECS["none"],
    change: PageChange = lambda header, body: (header, body),
    before: bytes = b"",
) -> bytes:
    """The file with every page changed, then compressed; ``before`` goes in front of each chunk's data pages.

    ``data`` must be uncompressed; statistics and column orders stay, indexes and filters do not.
    """
    footer = read_footer(BytesSource(data))
    out = bytearray(b"PAR1")
    groups = []
    for group, tree in zip(footer.row_groups, footer.metadata.structs(4) or [], strict=True):
        columns = []
        for chunk, column in zip(group.columns, tree.structs(1) or [], strict=True):
            columns.append(_rewrite_chunk(data, chunk, column, out, codec, change, before))
        size = sum(c.struct(3).need_integer(7, "") for c in columns)  # type: ignore[union-attr]
        fields = {k: v for k, v in tree.fields.items() if k not in (1, 5)} | {6: (I64, size)}
        groups.append(Struct({1: (LIST, Items(STRUCT, columns)), **fields}))
    fields = footer.metadata.fields | {4: (LIST, Items(STRUCT, groups))}
    end = encode_struct(Struct(dict(sorted(fields.items()))))
    return bytes(out) + end + len(end).to_bytes(4, "little") + b"PAR1"


def _rewrite_chunk(
    data: bytes,
    chunk: ColumnChunk,
    column: Struct,
    out: bytearray,
    codec: tuple[int, Callable[[bytes], bytes]],
    change: PageChange,
    before: bytes,
) -> Struct:
    start, at, first_data = len(out), chunk.start, None
    while at < chunk.start + chunk.total_compressed_size:
        header, body_at = decode_struct(data, at)
        at = body_at + header.need_integer(3, "")
        body = data[body_at:at]
        header, body = change(header, body)
        kept = 0
        if header.integer(1) == 3:
            detail = header.struct(8)
            assert detail is not None
            kept = detail.need_integer(5, "") + detail.need_integer(6, "")
            detail.fields[7] = (1, True)
        packed = body[:kept] + (codec[1](body[kept:]) if body[kept:] else b"")
        header.fields.pop(4, None)
        header.fields |= {2: (I32, len(body)), 3: (I32, len(packed))}
        header = Struct(dict(sorted(header.fields.items())))
        if header.integer(1) != 2 and first_data is None:
            out += before
            first_data = len(out)
        out += encode_struct(header) + packed
    meta = column.struct(3)
    assert meta is not None
    size = (I64, len(out) - start)
    fields = {k: v for k, v in meta.fields.items() if k not in (11, 14, 15)}
    fields |= {4: (I32, codec[0]), 6: size, 7: size, 9: (I64, first_data)}
    if first_data != start and not (before and first_data == start + len(before)):
        fields[11] = (I64, start)
    elif before:
        fields[9] = (I64, start)
    return Struct({2: (I64, 0), 3: (STRUCT, Struct(dict(sorted(fields.items()))))})


def leaf_entries(rows: list[Any]) -> list[list[Any]]:
    """For each row the entries of its leaf: one, or those of a list (a null or empty list is one null entry)."""
    return [(row or [None]) if isinstance(row, list) else [row] for row in rows]


def plain_bytes(ordering: Ordering, value: Any) -> bytes:
    """PLAIN bytes of a Python value, by the kind of its order."""
    kind, width = ordering.kind, ordering.width or 0
    if kind == "boolean":
        return bytes([value])
    if kind == "float":
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[width], value)
    if kind == "decimal":
        unscaled = int(value.scaleb(-value.as_tuple().exponent))
        return unscaled.to_bytes(width, "big", signed=True)
    if kind == "bytes":
        return value.encode() if isinstance(value, str) else bytes(value)
    return int(value).to_bytes(width, "little", signed=kind == "signed")


def check_index(source: BytesSource, footer: Footer, chunk: ColumnChunk, rows: list[Any]) -> BuiltPageIndex:
    """Build a chunk's index and hold it against the rows of its row group; the index must say all there is."""
    built = build_page_index(source, footer, chunk)
    if built.offset_index is None:  # pyarrow sometimes begins with a page of nothing
        first = next(page for page in walk_pages(source, chunk) if page.is_data)
        assert "an empty data page" in built.reason
        assert not first.num_values
        return built
    assert not list(offset_index_problems(footer, chunk, built.offset_index))
    index = built.column_index
    if index is None:
        return built
    assert not list(column_index_problems(footer, chunk, index, built.offset_index))
    bounds = page_bounds(footer, chunk, index, built.offset_index)
    assert not isinstance(bounds, Unknown)
    ordering = find_ordering(footer, chunk.leaf)
    assert isinstance(ordering, Ordering)
    starts = [*map(int, built.offset_index.first_row_indexes), len(rows)]
    for page in range(index.num_pages):
        entries = [e for row in leaf_entries(rows[starts[page] : starts[page + 1]]) for e in row]
        values = [e for e in entries if e is not None]
        assert index.null_counts is not None
        assert index.null_counts[page] == len(entries) - len(values)
        assert index.null_pages[page] == (not values)
        numbers = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
        if index.nan_counts is not None:
            assert index.nan_counts[page] == len(values) - len(numbers)
        if not numbers:
            continue
        keys = [ordering.decode(plain_bytes(ordering, value)) for value in numbers]
        low, high = bounds.lower[page], bounds.upper[page]
        assert low is not None
        assert high is not None
        assert low <= min(keys)
        assert max(keys) <= high
        if not isinstance(low, bytes) or max(map(len, keys)) <= 64:  # type: ignore[arg-type]
            assert (low, high) == (min(keys), max(keys))
    return built


def attach(data: bytes, indexes: dict[tuple[int, int], tuple[bytes | None, bytes | None]]) -> bytes:
    """The file with other page indexes: (row group, column) -> bytes of ColumnIndex and OffsetIndex."""
    footer = read_footer(BytesSource(data))
    out = bytearray(data[: footer.offset])
    for (group, column), pair in indexes.items():
        tree = (footer.metadata.structs(4) or [])[group]
        chunk = (tree.structs(1) or [])[column]
        for field_id, raw in zip((6, 4), pair, strict=True):
            for old in (field_id, field_id + 1):
                chunk.fields.pop(old, None)
            if raw is not None:
                chunk.fields |= {field_id: (I64, len(out)), field_id + 1: (I32, len(raw))}
                out += raw
        chunk.fields = dict(sorted(chunk.fields.items()))
    end = encode_struct(footer.metadata)
    return bytes(out) + end + len(end).to_bytes(4, "little") + b"PAR1"
