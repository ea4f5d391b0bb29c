"""Parquet files: footer, filter headers, page indexes, page headers, dictionary and data pages."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from scripts.fuzzing.cases import Case, Change, ExactSource, Fuzzer, WrongAnswerError, attempt_each, value_of
from scripts.fuzzing.mutation import bytes_like, number_like
from scripts.fuzzing.parquet_layout import (
    DICTIONARY,
    ParquetLayout,
    any_chunk,
    change_body,
    metadata_of,
    page_ranges,
    signed_crc,
)
from scripts.fuzzing.trees import change_struct, extend_struct, struct_changed, thrift_changed
from sidecar.errors import SidecarError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.dictionary import read_dictionary, read_used
from sidecar.parquet.footer import ColumnChunk, read_footer
from sidecar.parquet.identity import pages_digest
from sidecar.parquet.page_indexes.page_index import read_indexes_by_leaf
from sidecar.parquet.thrift import I32, Struct, decode_struct, encode_struct
from sidecar.reading.scanning import scan
from tests.parquet.damage_worker import doors, small_file

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = (
    "spec_vectors/published/duckdb.parquet",
    "spec_vectors/published/parquet_crate.parquet",
    "tests/data/parquet/apache_int32_with_null_pages.parquet",
    "tests/data/parquet/apache_fixed_length_byte_array.parquet",
    "tests/data/parquet/apache_float16_nonzeros_and_nans.parquet",
)
COLUMNS = 8
"""Columns whose values are asked for by themselves."""


@cache
def sound_files() -> tuple[bytes, ...]:
    """Small files of several writers, codecs, encodings and page versions; most have checksums of pages."""
    return (
        small_file(compression="snappy", write_page_checksum=True),
        small_file(compression="zstd", data_page_version="2.0", use_dictionary=False, write_page_checksum=True),
        small_file(
            compression="gzip",
            use_dictionary=False,
            column_encoding={"k": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
            write_page_checksum=True,
        ),
        small_file(compression="none", write_page_checksum=True),
        small_file(compression="brotli", use_dictionary=False, column_encoding={"s": "DELTA_LENGTH_BYTE_ARRAY"}),
        *((ROOT / name).read_bytes() for name in FOREIGN),
    )


def rows_of(data: bytes) -> str:
    """The text of all rows of a file, because NaN differs from itself, and Python does not have all values."""
    rows = scan(ExactSource(data), "true").combine_chunks()
    texts = (column.to_string(window=1 << 30, container_window=1 << 30) for column in rows.columns)
    return "\n".join((*rows.column_names, *texts))


@cache
def sound_rows(data: bytes) -> str:
    return rows_of(data)


class ParquetFuzzer(Fuzzer):
    """What all parts of a Parquet file have in common: the seeds, and what reads them."""

    every_door = 6
    """One case in so many goes through every door, the others only to what decodes the part."""

    def make_seeds(self) -> list[bytes]:
        self.folder = tempfile.TemporaryDirectory()
        return list(sound_files())

    def read(self, case: Case) -> None:
        source = ExactSource(case.data)
        if case.change is Change.NEUTRAL and value_of(lambda: rows_of(case.data)) != sound_rows(self.seeds[case.seed]):
            raise WrongAnswerError("a field that readers do not know changes the rows")
        if len(case.data) % self.every_door == 0 or case.change is Change.NEUTRAL:
            for _, call in doors(case.data, Path(self.folder.name)):
                value_of(call)
        footer = read_footer(source)
        chunks = [chunk for group in footer.row_groups for chunk in group.columns][:COLUMNS]
        calls: list[Any] = [lambda: rows_of(case.data), lambda: pages_digest(source, footer, check=True)]
        calls += [
            lambda group=group: read_indexes_by_leaf(source, footer, group.columns) for group in footer.row_groups[:4]
        ]
        for chunk in chunks:
            calls += [
                lambda chunk=chunk: _whole_filter(source, chunk),
                lambda chunk=chunk: read_used(source, chunk)[1],
                lambda chunk=chunk: read_dictionary(source, chunk).to_arrow(chunk.leaf).validate(full=False),
            ]
        attempt_each(calls)

    def extended(self, rng: random.Random, seed: int) -> bytes:
        layout = ParquetLayout(self.seeds[seed])
        extend_struct(rng, layout.footer)
        return layout.file()


def _whole_filter(source: ExactSource, chunk: ColumnChunk) -> None:
    """Read a filter. What is left of its bits, or more than them, would deny values."""
    found = read_bloom_filter(source, chunk)
    if found is None:
        return
    end = found.offset + found.length
    stored = source.read(found.offset + found.header_length, max(found.bitset_length, 0))
    if not found.offset + found.header_length < end <= source.size or found.filter.to_bytes() != stored:
        raise WrongAnswerError(f"a filter of {found.bitset_length} bytes has other bits than the file")


class ParquetFooters(ParquetFuzzer):
    name = "parquet-footer"
    what = "footers of Parquet files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        layout = ParquetLayout(self.seeds[seed])
        return layout.file(struct_changed(rng, layout.footer))

    def blind(self, rng: random.Random, seed: int) -> bytes:
        layout = ParquetLayout(self.seeds[seed])
        return layout.file(bytes_like(rng, encode_struct(layout.footer)))

    def read(self, case: Case) -> None:
        footer = read_footer(ExactSource(case.data))
        stated = columns_of(footer.metadata.structs(2) or [])
        if stated != [leaf.path for leaf in footer.columns]:
            raise WrongAnswerError("the columns of the footer are not those that its schema states")
        super().read(case)


def columns_of(elements: list[Struct]) -> list[str] | None:
    """The dotted paths of a schema's columns by the format's own words; ``None`` if they do not say which these are.

    An element has a type or children, and each is followed by its children.
    """
    rest, found = iter(elements), list[str]()

    def walk(above: tuple[str, ...] | None, element: Struct) -> bool:
        path = () if above is None else (*above, element.text(4) or "")
        children = element.integer(5) or 0
        if above is not None and element.integer(1) is not None:
            found.append(".".join(path))
            return not children
        return all((child := next(rest, None)) is not None and walk(path, child) for _ in range(children))

    first = next(rest, None)
    is_tree = first is not None and walk(None, first) and next(rest, None) is None
    return found if is_tree else None


class ParquetFilterHeaders(ParquetFuzzer):
    name = "parquet-filter"
    what = "headers and bits of Bloom filters in Parquet files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        change = size_changed if rng.random() < 0.4 else thrift_changed
        return self._with_filter(rng, seed, lambda data: change(rng, data))

    def blind(self, rng: random.Random, seed: int) -> bytes:
        return self._with_filter(rng, seed, lambda data: bytes_like(rng, data[:40]) + data[40:])

    def _with_filter(self, rng: random.Random, seed: int, change: Any) -> bytes:
        layout = ParquetLayout(self.seeds[seed])
        meta = metadata_of(any_chunk(rng, layout, 14))
        offset = meta.integer(14)
        if not offset:
            meta = metadata_of(any_chunk(rng, layout := ParquetLayout(self.seeds[0]), 14))
            offset = meta.integer(14)
        header, start = decode_struct(layout.body, offset or 0)
        end = start + header.need_integer(1, "size")
        layout.replace_part(meta, 14, change(layout.body[offset:end]))
        if rng.random() < 0.3:
            del meta.fields[15]
        return layout.file()


def size_changed(rng: random.Random, data: bytes) -> bytes:
    """A filter whose header states another size than that of the bits after it."""
    header, start = decode_struct(data)
    header.fields[1] = (I32, number_like(rng, len(data) - start))
    return encode_struct(header) + data[start:]


class ParquetPageIndexes(ParquetFuzzer):
    name = "parquet-page-index"
    what = "column indexes and offset indexes in Parquet files"

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        def add(data: bytes) -> bytes:
            tree, _ = decode_struct(data)
            extend_struct(rng, tree)
            return encode_struct(tree)

        return self._with_index(rng, seed, add)

    def changed(self, rng: random.Random, seed: int) -> bytes:
        return self._with_index(rng, seed, lambda data: thrift_changed(rng, data)) or super().blind(rng, seed)

    def blind(self, rng: random.Random, seed: int) -> bytes:
        return self._with_index(rng, seed, lambda data: bytes_like(rng, data)) or super().blind(rng, seed)

    def _with_index(self, rng: random.Random, seed: int, change: Any) -> bytes | None:
        layout = ParquetLayout(self.seeds[seed])
        field_id = rng.choice((4, 6))
        chunk = any_chunk(rng, layout, field_id)
        old = layout.part(chunk, field_id)
        if old is None:
            return None
        layout.replace_part(chunk, field_id, change(old))
        return layout.file()


class ParquetPageHeaders(ParquetFuzzer):
    name = "parquet-page-header"
    what = "headers of pages in Parquet files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        return self._with_header(rng, seed, lambda header: change_struct(rng, header))

    def extended(self, rng: random.Random, seed: int) -> bytes:
        return self._with_header(rng, seed, lambda header: extend_struct(rng, header))

    def _with_header(self, rng: random.Random, seed: int, change: Any) -> bytes:
        layout = ParquetLayout(self.seeds[seed])
        chunk = any_chunk(rng, layout)
        pages = layout.pages(chunk)
        change(rng.choice(pages).header)
        layout.replace_pages(chunk, [page for page in pages if _has_type(page.header)])
        return layout.file()


def _has_type(header: Struct) -> bool:
    """Whether a header still says what kind of page it is, which the layout asks for."""
    return header.fields.get(1, (0, 0))[0] == I32


class ParquetPages(ParquetFuzzer):
    name = "parquet-page"
    what = "dictionary and data pages of Parquet files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        layout = ParquetLayout(self.seeds[seed])
        chunk = any_chunk(rng, layout)
        pages = layout.pages(chunk)
        page = pages[0] if pages[0].kind == DICTIONARY and rng.random() < 0.4 else rng.choice(pages)
        codec = layout.codec(chunk)
        if rng.random() < 0.8:
            change_body(page, codec, lambda content: bytes_like(rng, content))
        else:
            page.body = bytes_like(rng, page.body)
            page.header.fields[3] = (I32, len(page.body))
            if 4 in page.header.fields:
                page.header.fields[4] = (I32, signed_crc(page.body))
        if rng.random() < 0.3:
            change_struct(rng, page.header)
        layout.replace_pages(chunk, [page for page in pages if _has_type(page.header)])
        return layout.file()

    def blind(self, rng: random.Random, seed: int) -> bytes:
        """One byte or a few of a page's body, while its checksum stays: the rows are the same, or it is noticed."""
        data = bytearray(self.seeds[seed])
        ranges = list(page_ranges(self.seeds[seed]))
        if not ranges:
            return super().blind(rng, seed)
        for _ in range(rng.choice((1, 1, 3))):
            start, end = rng.choice(ranges)
            data[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
        return bytes(data)

    def read(self, case: Case) -> None:
        seed = self.seeds[case.seed]
        if case.change is Change.BLIND and any(True for _ in page_ranges(seed)):
            try:
                found = rows_of(case.data)
            except SidecarError:
                found = None
            if found is not None and found != sound_rows(seed):
                raise WrongAnswerError("damage of a page with a checksum gives other rows")
        super().read(case)
