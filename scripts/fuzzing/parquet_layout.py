"""Parquet files taken apart: parts replaced, with lengths, places and checksums made good again."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sidecar.parquet.footer import CODECS
from sidecar.parquet.thrift import I32, I64, Struct, decode_struct, encode_struct

DICTIONARY, DATA, DATA_V2 = 2, 0, 3
_CODEC_NAMES = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4_RAW": "lz4_raw"}


@dataclass
class StoredPage:
    """A page: its header as a tree, and its body as stored."""

    header: Struct
    body: bytes

    @property
    def kind(self) -> int:
        return int(self.header.fields[1][1])

    def stored(self) -> bytes:
        return encode_struct(self.header) + self.body


class ParquetLayout:
    """The parts of a Parquet file. What is replaced is appended, and the footer leads there."""

    def __init__(self, data: bytes) -> None:
        length = int.from_bytes(data[-8:-4], "little")
        self.body = data[: -8 - length]
        self.footer, _ = decode_struct(data[-8 - length : -8])

    def chunks(self) -> list[Struct]:
        """The ColumnChunk structures of all row groups."""
        groups = self.footer.structs(4) or []
        return [chunk for group in groups for chunk in group.structs(1) or []]

    def file(self, footer: bytes | None = None) -> bytes:
        """The file, with these bytes as its footer."""
        tail = encode_struct(self.footer) if footer is None else footer
        return self.body + tail + len(tail).to_bytes(4, "little") + b"PAR1"

    def replace_part(self, target: Struct, offset_field: int, data: bytes) -> None:
        """Have the footer lead to new bytes; the field after that of the offset is the length."""
        target.fields[offset_field] = (I64, len(self.body))
        target.fields[offset_field + 1] = (I32, len(data))
        self.body += data

    def part(self, target: Struct, offset_field: int) -> bytes | None:
        """The bytes at an offset and length of the footer."""
        offset, length = target.integer(offset_field), target.integer(offset_field + 1)
        return None if not offset or length is None else self.body[offset : offset + length]

    def pages(self, chunk: Struct) -> list[StoredPage]:
        """The pages of a chunk, in order."""
        meta = _metadata(chunk)
        at, end = _start(meta), _start(meta) + meta.need_integer(7, "size")
        found = []
        while at < end:
            header, body = decode_struct(self.body, at)
            at = body + header.need_integer(3, "size")
            found.append(StoredPage(header, self.body[body:at]))
        return found

    def replace_pages(self, chunk: Struct, pages: list[StoredPage]) -> None:
        """Append a chunk of these pages, and have footer and offset index lead to them."""
        meta, places = _metadata(chunk), []
        at = start = len(self.body)
        first_data = start
        for page in pages:
            data = page.stored()
            if page.kind != DICTIONARY:
                first_data = first_data if places else at
                places.append((at, len(data)))
            self.body += data
            at += len(data)
        meta.fields[7], meta.fields[9] = (I64, at - start), (I64, first_data)
        if 11 in meta.fields:
            meta.fields[11] = (I64, start)
        index = self.part(chunk, 4)
        if index is not None:
            tree, _ = decode_struct(index)
            for entry, (offset, length) in zip(tree.structs(1) or [], places, strict=False):
                entry.fields[1], entry.fields[2] = (I64, offset), (I32, length)
            self.replace_part(chunk, 4, encode_struct(tree))

    def codec(self, chunk: Struct) -> str:
        """The name of a chunk's codec."""
        return CODECS[_metadata(chunk).need_integer(4, "codec")]


def metadata_of(chunk: Struct) -> Struct:
    """The ColumnMetaData of a chunk."""
    return _metadata(chunk)


def _metadata(chunk: Struct) -> Struct:
    found = chunk.struct(3)
    assert found is not None
    return found


def _start(meta: Struct) -> int:
    dictionary, data = meta.integer(11), meta.need_integer(9, "offset")
    return min(dictionary, data) if dictionary else data


def levels_length(page: StoredPage) -> int:
    """Bytes of the levels before a page's values, which only pages of the second version keep uncompressed."""
    detail = page.header.struct(8)
    return 0 if detail is None else detail.need_integer(5, "levels") + detail.need_integer(6, "levels")


def is_stored_plain(page: StoredPage) -> bool:
    """Whether a page of the second version says that its values are not compressed."""
    detail = page.header.struct(8)
    return detail is not None and detail.boolean(7) is False


def change_body(page: StoredPage, codec: str, change: Callable[[bytes], bytes]) -> None:
    """Change what is in a page, and make sizes and the checksum in its header good again."""
    plain = levels_length(page)
    codec = "UNCOMPRESSED" if is_stored_plain(page) else codec
    levels, packed = page.body[:plain], page.body[plain:]
    size = page.header.need_integer(2, "size") - plain
    content = levels + unpacked(packed, codec, size)
    new = change(content)
    levels, values = new[:plain], new[plain:]
    page.body = levels + compressed(values, codec)
    page.header.fields[2], page.header.fields[3] = (I32, len(new)), (I32, len(page.body))
    if 4 in page.header.fields:
        page.header.fields[4] = (I32, signed_crc(page.body))


def signed_crc(data: bytes) -> int:
    """The checksum of a page as its header stores it."""
    crc = zlib.crc32(data)
    return crc - (1 << 32) if crc >> 31 else crc


def unpacked(data: bytes, codec: str, size: int) -> bytes:
    """The content of a page's body."""
    if codec == "UNCOMPRESSED" or not data:
        return data
    return bytes(pa.Codec(_CODEC_NAMES[codec]).decompress(data, size, asbytes=True))


def compressed(data: bytes, codec: str) -> bytes:
    """A page's body with this content."""
    if codec == "UNCOMPRESSED" or not data:
        return data
    return bytes(pa.Codec(_CODEC_NAMES[codec]).compress(data, asbytes=True))


def page_ranges(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the bodies of pages with a checksum are in a file."""
    layout = ParquetLayout(data)
    for chunk in layout.chunks():
        at = _start(_metadata(chunk))
        for page in layout.pages(chunk):
            body = at + len(page.stored()) - len(page.body)
            at = body + len(page.body)
            if 4 in page.header.fields and page.body:
                yield body, at


def any_chunk(rng: random.Random, layout: ParquetLayout, field_id: int | None = None) -> Struct:
    """A chunk, one with this field if there is any."""
    chunks = layout.chunks()
    having = [chunk for chunk in chunks if field_id in chunk.fields or field_id in _metadata(chunk).fields]
    return rng.choice(having or chunks)
