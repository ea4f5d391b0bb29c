"""The compiled walk over pages of indices says what the decoder that knows everything says, or leaves it to that."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import SidecarError
from sidecar.kernels import page_headers as columns
from sidecar.parquet import dictionary
from sidecar.parquet.dictionary import read_used
from sidecar.parquet.dictionary_runs import mark_index_pages
from sidecar.parquet.footer import ColumnChunk, read_footer
from sidecar.parquet.pages import DICTIONARY_ENCODINGS, ChunkReader, PageHeader, walk_pages
from sidecar.parquet.thrift import I32, STRUCT, Struct, decode_struct, encode_struct
from sidecar.storage.source import BytesSource

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
CODECS = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]


def written(values: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values}), sink, **{"data_page_size": 300, "write_batch_size": 64, **options})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def first_chunk(file: bytes) -> tuple[BytesSource, ColumnChunk]:
    source = BytesSource(file)
    return source, read_footer(source).row_groups[0].columns[0]


def slowly(source: BytesSource, chunk: ColumnChunk, patch: pytest.MonkeyPatch) -> Any:
    """The answer without the compiled walk: used entries, or the error."""
    with patch.context() as patched:
        patched.setattr(dictionary, "mark_index_pages", lambda reader, offset, *_: (0, offset))
        return outcome(source, chunk)


def outcome(source: BytesSource, chunk: ColumnChunk) -> Any:
    try:
        return read_used(source, chunk)[1].tolist()
    except SidecarError as error:
        return type(error), str(error)


def table_of(data: bytes, chunk: ColumnChunk, most: int = 1000) -> Any:
    table = np.empty((most, columns.WIDTH), np.int64)
    levels = (chunk.leaf.max_def, chunk.leaf.max_rep)
    return table[: columns.walk_headers(np.frombuffer(data, np.uint8), 0, *levels, 1 << 40, table)]


def as_row(page: PageHeader, start: int) -> list[int]:
    """What the walk must say of a page of the slow decoder; the fields that the page's type has not are left out."""
    row = [page.type, page.uncompressed_size, page.compressed_size]
    row.append(columns.ABSENT if page.crc is None else page.crc & 0xFFFFFFFF)
    row += [page.num_values, page.encoding, page.body - start]
    return row + ([page.def_length, page.rep_length, int(page.is_compressed)] if page.type == 3 else [])


def from_table(row: Any) -> list[int]:
    order = [columns.TYPE, columns.UNCOMPRESSED, columns.COMPRESSED, columns.CRC, columns.NUM_VALUES]
    order += [columns.ENCODING, columns.BODY]
    if row[columns.TYPE] == 3:
        order += [columns.DEF_LENGTH, columns.REP_LENGTH, columns.IS_COMPRESSED]
    values = [int(row[column]) for column in order]
    if row[columns.TYPE] == 3 and values[-1] == columns.ABSENT:
        values[-1] = 1  # absent means compressed
    return values


# --- headers ------------------------------------------------------------------------------------------------

FILES = [DATA / f"{name}.parquet" for name in ("j118_v1_snappy_dict", "pa26_v2_zstd_dict")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_headers_of_every_writer_are_read_as_the_slow_decoder_reads_them(path: Path) -> None:
    file = path.read_bytes()
    source = BytesSource(file)
    walked = 0
    for group in read_footer(source).row_groups:
        for chunk in group.columns:
            pages = list(walk_pages(source, chunk))
            for number, page in enumerate(pages):
                rows = table_of(file[page.offset : chunk.start + chunk.total_compressed_size], chunk)
                expected = [as_row(later, page.offset) for later in pages[number : number + len(rows)]]
                assert [from_table(row) for row in rows] == expected
                walked += len(rows)
                if len(rows) == 0 and page.is_data and page.num_values:
                    assert page.encoding not in DICTIONARY_ENCODINGS or 4 in (
                        page.def_encoding,
                        page.rep_encoding,
                    )
    assert walked > 20


def header(**changes: Any) -> Struct:
    data = Struct({1: (I32, 10), 2: (I32, 8), 3: (I32, 3), 4: (I32, 3)})
    data.fields.update(changes.get("data", {}))
    fields: dict[int, Any] = {1: (I32, 0), 2: (I32, 7), 3: (I32, 7), 5: (STRUCT, data)}
    fields.update(changes.get("page", {}))
    return Struct(dict(sorted((key, value) for key, value in fields.items() if value is not None)))


PLAIN_CHUNK = first_chunk(written(pa.array([1, 2, 3])))[1]


def walked(value: Struct) -> int:
    return len(table_of(encode_struct(value) + bytes(7), PLAIN_CHUNK))


def test_an_ordinary_header_is_read() -> None:
    assert walked(header()) == 1
    assert walked(header(page={4: (I32, -5)})) == 1  # a CRC
    assert walked(header(data={5: (STRUCT, Struct({3: (6, 4), 5: (8, b"abc"), 7: (1, True)}))})) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {5: (STRUCT, Struct({8: (STRUCT, Struct({}))}))}},  # a structure in the statistics
        {"data": {5: (STRUCT, Struct({5: (STRUCT, Struct({}))}))}},
        {"page": {1: (I32, 2)}},  # a dictionary page
        {"page": {1: (I32, 3)}},  # V2 without its part
        {"page": {1: (I32, 9)}},
        {"page": {1: None}},
        {"page": {2: None}},
        {"page": {3: None}},
        {"page": {5: None}},
        {"page": {3: (I32, -1)}},
        {"page": {2: (I32, -1)}},
        {"page": {3: (I32, 8)}},  # beyond the bytes at hand
        {"page": {9: (I32, 1)}},  # unknown fields
        {"page": {9: (8, b"x")}},
        {"page": {40: (I32, 1)}},
        {"page": {1: (6, 0)}},  # another integer type
        {"data": {1: (I32, -1)}},
        {"data": {1: (I32, 0)}},
        {"data": {2: (I32, 0)}},  # PLAIN
        {"data": {3: (I32, 4)}},  # BIT_PACKED levels of an optional column
        {"data": {6: (I32, 1)}},
        {"data": {5: (STRUCT, Struct({1: (STRUCT, Struct())}))}},
    ],
)
def test_what_is_not_ordinary_is_left_to_the_slow_decoder(changes: Any) -> None:
    assert walked(header(**changes)) == 0


def header_v2(def_length: int, rep_length: int, uncompressed: int, compressed: int) -> Struct:
    numbers = {1: 10, 2: 0, 3: 10, 4: 8, 5: def_length, 6: rep_length}
    part = Struct({key: (I32, value) for key, value in numbers.items()})
    return Struct({1: (I32, 3), 2: (I32, uncompressed), 3: (I32, compressed), 8: (STRUCT, part)})


def test_levels_of_both_kinds_fit_into_the_page_together() -> None:
    """Otherwise a loop without bounds checks would read behind the page."""
    assert walked(header_v2(3, 4, 7, 7)) == 1
    for def_length, rep_length in ((4, 4), (3, 5), (0, 8), (8, 0)):
        assert walked(header_v2(def_length, rep_length, 7, 7)) == 0
        assert walked(header_v2(def_length, rep_length, 8, 7)) == 0
        assert walked(header_v2(def_length, rep_length, 7, 6)) == 0


def test_missing_parts_of_a_data_header_are_not_ordinary() -> None:
    for gone in (1, 2, 3, 4):
        value = header()
        value.fields[5][1].fields.pop(gone)
        assert walked(value) == 0


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 30), st.integers(1, 255), st.integers(0, 40))
def test_a_changed_or_cut_header_is_never_read_otherwise(at: int, flip: int, cut: int) -> None:
    """What the walk takes, the slow decoder takes, with the same numbers."""
    data = bytearray(encode_struct(header(page={4: (I32, 77)})) + bytes(60))
    data[at] ^= flip
    data = data[: len(data) - cut]
    for row in table_of(bytes(data), PLAIN_CHUNK, 1):
        value, length = decode_struct(bytes(data))
        part = value.struct(8 if row[columns.TYPE] == 3 else 5)
        assert part is not None
        assert row[columns.BODY] == length
        assert (value.integer(1), value.integer(2), value.integer(3)) == tuple(row[: columns.CRC])
        assert part.integer(1) == row[columns.NUM_VALUES]


# --- used entries -------------------------------------------------------------------------------------------


@st.composite
def files(draw: Any) -> tuple[bytes, pa.Array]:
    distinct = draw(st.integers(1, 300))
    rows = draw(st.integers(1, 900))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    numbers = rng.integers(0, distinct, rows)
    values = pa.array(np.sort(numbers) if draw(st.booleans()) else numbers)
    if draw(st.booleans()):
        values = pa.array(values.to_pylist(), mask=rng.random(rows) < draw(st.sampled_from([0.1, 0.9])))
    if draw(st.booleans()):
        cuts = np.sort(rng.integers(0, rows + 1, 40))
        values = pa.ListArray.from_arrays(pa.array([0, *cuts.tolist(), rows], pa.int32()), values)
    version, codec = draw(st.sampled_from(["1.0", "2.0"])), draw(st.sampled_from(CODECS))
    checksum = draw(st.booleans())
    return written(values, data_page_version=version, compression=codec, write_page_checksum=checksum), values


@settings(deadline=None, max_examples=60)
@given(files())
def test_used_entries_are_those_of_the_slow_decoder(made: tuple[bytes, pa.Array]) -> None:
    source, chunk = first_chunk(made[0])
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(source, chunk) == slowly(source, chunk, patch)
    assert isinstance(outcome(source, chunk), list)


def test_the_pages_are_really_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    source, chunk = first_chunk(written(pa.array(np.arange(60_000) // 20), write_batch_size=1024))
    assert len(list(walk_pages(source, chunk))) > 30

    def refuse(*_: Any) -> int:
        raise AssertionError("a page was decoded alone")

    monkeypatch.setattr(dictionary, "_mark_page", refuse)
    assert read_used(source, chunk)[1].all()


def test_pages_across_the_windows_of_a_chunk_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.array(np.random.default_rng(0).permutation(np.arange(20_000) // 2))
    source, chunk = first_chunk(written(values, compression="none", write_batch_size=500, data_page_size=700))
    wanted = read_used(source, chunk)[1]
    for window in (100, 1000, 5000, 1 << 30):
        monkeypatch.setattr(dictionary, "DATA_WINDOW", window)
        assert (read_used(source, chunk)[1] == wanted).all()


def test_reading_stops_when_every_entry_was_seen() -> None:
    values = pa.array(np.tile(np.arange(8), 50_000))
    source, chunk = first_chunk(written(values, compression="none", data_page_size=4096, write_batch_size=1024))
    reader = ChunkReader(source, chunk, 1 << 20)
    page = reader.header(reader.start)
    used = np.zeros(8, np.bool_)
    marked, behind = mark_index_pages(reader, page.end, chunk, used, 2)
    assert used.all()
    assert 0 < marked < 50_000
    assert page.end < behind < reader.end


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksum", [True, False])
def test_damage_is_told_as_the_slow_decoder_tells_it(
    version: str, checksum: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte of a chunk changed in turn: the same entries, or the same error in the same words."""
    values = pa.array([n % 90 if n % 7 else None for n in range(500)])
    file = written(values, data_page_version=version, write_page_checksum=checksum, data_page_size=64)
    _, chunk = first_chunk(file)
    rng = random.Random(5)
    told = set()
    for at in range(chunk.start, chunk.start + chunk.total_compressed_size):
        changed = bytearray(file)
        changed[at] ^= 1 << rng.randrange(8)
        source = BytesSource(bytes(changed))
        fast, slow = outcome(source, chunk), slowly(source, chunk, monkeypatch)
        assert fast == slow, at
        told.add(slow[0] if isinstance(slow, tuple) else "entries")
    assert len(told) >= 2


def test_a_page_that_is_not_sound_marks_nothing() -> None:
    """The page before it counts; its own indices do not."""
    values = pa.array([*range(40), *([0] * 60)] * 3)
    file = bytearray(written(values, compression="none", data_page_size=64, write_batch_size=100))
    source, chunk = first_chunk(bytes(file))
    pages = [page for page in walk_pages(source, chunk) if page.is_data]
    file[pages[1].end - 1] = 0xFF  # the last run's value: beyond the dictionary
    source = BytesSource(bytes(file))
    reader = ChunkReader(source, chunk, 1 << 20)
    used = np.zeros(40, np.bool_)
    marked, behind = mark_index_pages(reader, pages[0].offset, chunk, used, 10)
    assert (marked, behind) == (pages[0].num_values, pages[1].offset)
    assert mark_index_pages(reader, pages[1].offset, chunk, used, 10) == (0, pages[1].offset)
