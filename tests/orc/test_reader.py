"""Reading ORC files of foreign writers: their filters bit for bit, and no value that was written is denied."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.orc as pa_orc
import pytest

from sidecar.orc.compression import decompress_stream
from sidecar.orc.inspect import ask_row_group, inspect_file
from sidecar.orc.protobuf import Message, encode
from sidecar.orc.row_index import RowIndexEntry, take_apart
from tests.orc.files import DATA, FILES, JAVA, PYARROW, literal, load, read_all, source

WITH_FILTERS = [name for name in JAVA if "nofilters" not in name]
ONE_STRIPE = [name for name in WITH_FILTERS if "2stripes" not in name]


def expected_filters(name: str, kind: str, column: str) -> list[dict[str, Any]] | None:
    found = load("filters_pyarrow.json" if name == PYARROW else "filters_java.json")
    if kind == "BLOOM_FILTER" and column in found["BLOOM_FILTER_where_different"]:
        return found["BLOOM_FILTER_where_different"][column]
    return found["BLOOM_FILTER_UTF8"].get(column)


def encode_row_index(entries: Sequence[RowIndexEntry | bytes]) -> bytes:
    """Return the bytes of a RowIndex message with ``entries``, which are decoded or still bytes."""
    index = Message()
    index.set_all(1, [entry if isinstance(entry, bytes) else entry.raw for entry in entries])
    return encode(index)


@pytest.mark.parametrize("name", [*ONE_STRIPE, PYARROW])
def test_filters_are_those_of_the_writer_bit_for_bit(name: str) -> None:
    tail, (stripe,) = read_all(source(name), legacy=True)
    compared = 0
    for column in tail.columns[1:]:
        index = stripe.indexes[column.id]
        for found in (index.filters, index.legacy_filters):
            if not found:
                continue
            expected = expected_filters(name, found[0].stream_kind, column.path)
            assert expected is not None
            bits = [{"k": f.filter.k, "m": f.filter.m, "bitset": f.filter.to_bytes().hex()} for f in found if f.filter]
            assert bits == expected
            compared += len(bits)
    streams = 2 if "original" in name else 1
    assert compared == (16 * 3 if name == PYARROW else streams * 19 * 3)


def test_filters_of_two_stripes_are_those_of_their_own_rows() -> None:
    """Row groups begin anew in each stripe, so no vector has these filters: they are built from the values."""
    _, stripes = read_all(source("java_zlib_2stripes_utf8.orc"))
    counts = [len(stripe.indexes[4].filters or ()) for stripe in stripes]
    assert counts == [1, 2]
    assert all(f.trusted for stripe in stripes for f in stripe.indexes[4].filters or ())


def rows_of_groups(name: str) -> list[range]:
    return [range(u.first_row, u.first_row + u.rows) for u in inspect_file(source(name)).units]


@pytest.mark.parametrize("name", [*JAVA, PYARROW])
def test_no_value_that_was_written_is_denied(name: str) -> None:
    """All values of two files, every seventeenth of the others, whose filters are the same."""
    step = 1 if name in (PYARROW, "java_none_original.orc") else 17
    tail, stripes = read_all(source(name), legacy=True)
    values, asked, group = load("values.json")["columns"], 0, 0
    ranges = rows_of_groups(name)
    for stripe in stripes:
        for ordinal in range(stripe.footer.stripe.num_row_groups):
            for column in tail.columns[1:]:
                if column.kind.startswith("TIMESTAMP"):
                    continue  # what was written is not what is read back: the test below
                for row in ranges[group][::step]:
                    value = values[column.path][row]
                    if value is None:
                        continue
                    answer = ask_row_group(stripe.indexes[column.id], ordinal, literal(column.path, value))
                    assert answer[0] is not False, (column.path, row, value, answer)
                    asked += 1
            group += 1
    assert group == 3
    assert asked > 30_000 / step


@pytest.mark.parametrize("name", [*JAVA, PYARROW])
def test_no_value_that_arrow_reads_is_denied(name: str) -> None:
    """The values of a scan; Arrow refuses Java's columns of times, which reach beyond its nanoseconds."""
    tail, stripes = read_all(source(name))
    columns = [c for c in tail.columns[1:] if name == PYARROW or not c.kind.startswith("TIMESTAMP")]
    table = pa_orc.ORCFile(DATA / name).read([column.path for column in columns])
    ranges, group, asked = rows_of_groups(name), 0, 0
    for stripe in stripes:
        for ordinal in range(stripe.footer.stripe.num_row_groups):
            for column in columns:
                part = table[column.path].slice(ranges[group].start, len(ranges[group]))
                step = 1 if name == PYARROW else 17
                for value in set(arrow_literals(part, column.kind)[::step]):
                    answer = ask_row_group(stripe.indexes[column.id], ordinal, value)
                    assert answer[0] is not False, (column.path, value, answer)
                    asked += 1
            group += 1
    assert asked > 10_000 / step


def arrow_literals(part: pa.ChunkedArray, kind: str) -> list[Any]:
    if kind.startswith("TIMESTAMP"):
        return [nanos // 1000 for nanos in part.cast(pa.int64()).drop_null().to_pylist()]
    if kind == "DATE":
        return part.cast(pa.int32()).drop_null().to_pylist()
    return part.drop_null().to_pylist()


@pytest.mark.parametrize("name", ["java_none_original.orc", "java_zlib_2stripes_utf8.orc"])
def test_no_time_that_java_stores_is_denied(name: str) -> None:
    """Microseconds of instants, and from 1970 of wall clocks; Java stores (-1 s, 0) as its image one second later."""
    tail, stripes = read_all(source(name))
    zone, values, group, asked = ZoneInfo("America/Los_Angeles"), load("values.json")["columns"], 0, 0
    ranges = rows_of_groups(name)
    for stripe in stripes:
        for ordinal in range(stripe.footer.stripe.num_row_groups):
            for row in ranges[group]:
                for path in ("c_tsi", "c_ts"):
                    if values[path][row] is None:
                        continue
                    seconds, nanos = values[path][row]
                    seconds += seconds == -1 and nanos > 999_999
                    if path == "c_ts":
                        if not 0 <= seconds < 4 * 10**9:
                            continue
                        offset = datetime.fromtimestamp(seconds, zone).utcoffset()
                        seconds += int(offset.total_seconds()) if offset else 0
                    index = stripe.indexes[tail.column(path).id]
                    answer = ask_row_group(index, ordinal, seconds * 10**6 + nanos // 1000)
                    assert answer[0] is not False, (path, row, answer)
                    asked += 1
            group += 1
    assert asked > 3_000


@pytest.mark.parametrize("name", FILES)
def test_everything_is_encoded_as_it_was(name: str) -> None:
    """Messages of tail, stripe footers and row indexes come back byte by byte, so whatever is not known survives."""
    of = source(name)
    tail, stripes = read_all(of)

    def content(offset: int, length: int) -> bytes:
        return bytes(decompress_stream(of.read(offset, length), tail.compression, tail.block_size))

    assert encode(tail.postscript) == of.read(tail.postscript_offset, tail.size - 1 - tail.postscript_offset)
    assert encode(tail.footer) == content(tail.footer_offset, tail.footer_length)
    for stripe in stripes:
        footer = stripe.footer
        assert encode(footer.raw) == content(footer.stripe.footer_offset, footer.stripe.footer_length)
        for index in stripe.indexes.values():
            if index.row_index is not None:
                stream = index.streams["ROW_INDEX"]
                assert encode_row_index(index.row_index.parts) == content(stream.offset, stream.length)
                assert encode_row_index(index.row_index.entries) == content(stream.offset, stream.length)


@pytest.mark.parametrize("name", FILES)
def test_positions_are_taken_apart_without_a_number_left(name: str) -> None:
    tail, stripes = read_all(source(name))
    taken = 0
    for stripe in stripes:
        for column in tail.columns:
            index = stripe.indexes[column.id].row_index
            assert index is not None
            present = stripe.footer.stream(column.id, "PRESENT") is not None
            for group, entry in enumerate(index.entries):
                found = take_apart(
                    entry,
                    column,
                    stripe.footer.encodings[column.id],
                    has_present=present,
                    compressed=tail.compression != "NONE",
                    file_version=tail.file_version,
                )
                assert (found.get("PRESENT") is not None) == present
                assert group or not any(number for numbers in found.values() for number in numbers)
                taken += 1
    assert taken == len(tail.columns) * tail.num_row_groups
