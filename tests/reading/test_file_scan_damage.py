"""Damage: a pruned scan of broken bytes gives our error or the right rows.

What nobody can notice is left out and counted: a bound that became another plausible bound of its page.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index, encode_offset_index
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.scan.part_file import read_page
from sidecar.parquet.thrift import I32, I64, Struct, decode_struct, encode_struct
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource

pytestmark = pytest.mark.usefixtures("each_footer_decoded_once")

ROWS = 600
PREDICATES = {
    "k = 333": [333],
    "k < 5 or k > 590": [*range(5), *range(591, ROWS)],
    "n is null and k > 300": [k for k in range(301, ROWS) if k % 4 == 0],
    "s = '0123'": [123],
}


def written(**options: Any) -> bytes:
    table = pa.table(
        {
            "k": pa.array(range(ROWS)),
            "n": pa.array([None if k % 4 == 0 else k for k in range(ROWS)], pa.int32()),
            "s": [f"{k:04}" for k in range(ROWS)],
            "l": pa.array([[k] * (k % 3) for k in range(ROWS)]),
            "m": pa.array([[{"x": k, "y": str(k)}] * (k % 3) for k in range(ROWS)]),
        }
    )
    sink = BytesIO()
    pq.write_table(
        table,
        sink,
        **(
            {
                "row_group_size": 300,
                "max_rows_per_page": 40,
                "write_page_index": True,
                "use_dictionary": False,
                "write_page_checksum": True,
                "write_batch_size": 10,
            }
            | options
        ),
    )
    return sink.getvalue()


def index_ranges(footer: Footer, which: str) -> Iterator[tuple[int, int]]:
    for group in footer.row_groups:
        for chunk in group.columns:
            offset, length = getattr(chunk, f"{which}_offset"), getattr(chunk, f"{which}_length")
            assert offset
            yield offset, length


def flipped(data: bytes, at: int, bit: int) -> bytes:
    out = bytearray(data)
    out[at] ^= 1 << bit
    return bytes(out)


def outcome(data: bytes, predicate: str) -> list[int] | None:
    """The rows found, ``None`` for an error of ours; every column is read, and whole rows must be right."""
    try:
        with open_scan(BytesSource(data), predicate) as scan:
            found = list(scan.found())
    except SidecarError:
        return None
    for part in found:
        rows = part.rows.to_pylist()
        for position, row in zip(part.positions.tolist(), rows, strict=True):
            assert row["k"] == position
            assert row["n"] == (None if position % 4 == 0 else position)
            assert row["s"] == f"{position:04}"
            assert row["l"] == [position] * (position % 3)
            assert row["m"] == [{"x": position, "y": str(position)}] * (position % 3)
    return [p for part in found for p in part.positions.tolist()]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_flipped_bits_of_offset_indexes(version: str) -> None:
    data = written(data_page_version=version)
    rng = random.Random(1)
    footer = read_footer(BytesSource(data))
    kept = 0
    for offset, length in index_ranges(footer, "offset_index"):
        for at in range(offset, offset + length, 5):
            predicate = rng.choice(list(PREDICATES))
            found = outcome(flipped(data, at, rng.randrange(8)), predicate)
            assert found is None or found == PREDICATES[predicate], (at, predicate)
            kept += found is not None
    assert kept > 40


@pytest.mark.parametrize("first_row", [38, 39, 41, 42])
def test_a_page_with_other_rows_than_its_index_says_costs_the_index_alone(first_row: int) -> None:
    """The second page of a column that is not asked, 40 rows behind the first, is said to begin elsewhere."""
    data = written()
    footer = read_footer(BytesSource(data))
    leaf = next(leaf.index for leaf in footer.columns if leaf.path == "n")
    chunk = footer.row_groups[1].columns[leaf]
    at, length = chunk.offset_index_offset or 0, chunk.offset_index_length or 0
    index = decode_offset_index(data[at : at + length])
    rows = index.first_row_indexes.tolist()
    assert rows[:3] == [0, 40, 80]

    def encoded(rows: list[int]) -> bytes:
        places = zip(index.offsets.tolist(), index.compressed_page_sizes.tolist(), rows, strict=True)
        return encode_offset_index(list(places)).raw

    assert encoded(rows) == data[at : at + length]
    wrong = data[:at] + encoded([0, first_row, *rows[2:]]) + data[at + length :]
    for predicate, wanted in {
        "k = 333": [333],
        "k = 343": [343],
        "k >= 337 and k <= 341": [*range(337, 342)],
    }.items():
        assert outcome(wrong, predicate) == wanted


def test_flipped_bits_of_column_indexes() -> None:
    data = written()
    rng = random.Random(2)
    footer = read_footer(BytesSource(data))
    lost = tried = 0
    for offset, length in index_ranges(footer, "column_index"):
        before = decode_column_index(data[offset : offset + length])
        for at in range(offset, offset + length, 5):
            bad = flipped(data, at, rng.randrange(8))
            predicate, rows = rng.choice(list(PREDICATES.items()))
            found = outcome(bad, predicate)
            tried += 1
            if found is not None and found != rows:
                after = decode_column_index(bad[offset : offset + length])
                assert set(found) < set(rows)
                assert (after.min_values, after.max_values) != (before.min_values, before.max_values)
                assert after.null_pages == before.null_pages
                lost += 1
    assert tried > 200
    assert lost < 0.01 * tried


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_flipped_bits_of_pages_with_checksums(version: str) -> None:
    data = written(data_page_version=version)
    source = BytesSource(data)
    rng = random.Random(3)
    pages = [p for g in read_footer(source).row_groups for c in g.columns for p in walk_pages(source, c)]
    for page in rng.sample(pages, 60):
        at = rng.randrange(page.body, page.end)
        for predicate, rows in PREDICATES.items():
            assert outcome(flipped(data, at, rng.randrange(8)), predicate) in (None, rows)


def test_a_wrong_checksum_is_an_error_where_the_page_is_read_and_none_elsewhere() -> None:
    data = written()
    source = BytesSource(data)
    chunk = read_footer(source).row_groups[0].columns[0]
    page = [p for p in walk_pages(source, chunk) if p.is_data][2]
    bad = BytesSource(flipped(data, page.body + 3, 0))
    with pytest.raises(DamagedFileError, match="checksum of a page is wrong") as caught:
        sidecar.scan(bad, "k = 90")
    assert caught.value.column == "k"
    assert caught.value.offset == page.offset
    assert sidecar.scan(bad, "k = 10", ["k"])["k"].to_pylist() == [10]


def test_flipped_bits_of_page_headers() -> None:
    """Where pyarrow reads the damaged file without an error, it is the oracle."""
    data = written(write_page_checksum=False)
    source = BytesSource(data)
    rng = random.Random(4)
    pages = [p for g in read_footer(source).row_groups for c in g.columns for p in walk_pages(source, c)]
    for page in rng.choices(pages, k=80):
        bad = flipped(data, rng.randrange(page.offset, page.body), rng.randrange(8))
        try:
            ours = sidecar.scan(BytesSource(bad), "k >= 0").to_pylist()
        except SidecarError:
            continue
        assert ours == pq.read_table(BytesIO(bad)).to_pylist()


def test_flipped_bits_of_footers() -> None:
    data = written()
    footer = read_footer(BytesSource(data))
    rng = random.Random(5)
    for at in rng.sample(range(footer.offset, len(data)), 400):
        bad = flipped(data, at, rng.randrange(8))
        for columns in (None, ["k", "l"]):
            try:
                sidecar.scan(BytesSource(bad), "k > 100 and n < 200", columns)
            except SidecarError:
                continue


def test_truncations() -> None:
    data = written()
    for end in np.linspace(0, len(data) - 1, 150).astype(int):
        with pytest.raises(SidecarError):
            sidecar.scan(BytesSource(data[:end]), "k = 5")


def test_a_row_group_with_more_rows_than_values_is_damaged() -> None:
    """The reader would otherwise make a list of all pieces of 2^40 rows."""
    data = written()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    (footer.structs(4) or [])[0].fields[3] = (I64, 1 << 40)
    footer.fields[3] = (I64, (1 << 40) + ROWS // 2)
    tail = encode_struct(footer)
    bad = BytesSource(data[: -8 - length] + tail + len(tail).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DamagedFileError, match="fewer values than its row group has rows"):
        sidecar.scan(bad, "true")


def test_a_dictionary_with_more_values_than_bytes_is_refused_before_it_is_decoded() -> None:
    data = written(use_dictionary=True, compression="none", write_page_checksum=False)
    source = BytesSource(data)
    footer = read_footer(source)
    page = next(walk_pages(source, footer.row_groups[0].columns[0]))
    raw = data[page.offset : page.end]
    header, body = decode_struct(raw)
    assert read_page(raw, page.offset, footer.columns[0]).num_values == 300
    (header.struct(7) or Struct()).fields[1] = (I32, 1 << 28)
    with pytest.raises(DamagedFileError, match="too short for its values"):
        read_page(encode_struct(header) + raw[body:], page.offset, footer.columns[0])
