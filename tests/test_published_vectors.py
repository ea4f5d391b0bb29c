"""The vectors of published formats: foreign writers' files, held against the specifications' own words, bit for bit.

What a filter must be is computed here from the rows, by formulas out of the Parquet and ORC documents with the hash
functions of other packages. sidecar only reads the files.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path

import mmh3
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
import xxhash

import sidecar
from sidecar.filters.theta import ThetaSketch
from sidecar.parquet.bare_filter import read_bare_filter
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.footer import read_footer
from sidecar.puffin.reader import PuffinReader
from sidecar.storage.local import LocalSource

HERE = Path(__file__).resolve().parents[1] / "spec_vectors" / "published"
ROWS = json.loads((HERE / "rows.json").read_text())
PARQUET = ["parquet_java", "pyarrow", "duckdb", "parquet_crate"]
ORC = ["orc_java", "orc_pyarrow", "orc_pyorc"]
SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
M64 = 2**64 - 1


def split_block(hashes: list[int], num_bytes: int, *, historical: bool = False) -> bytes:
    """BloomFilter.md: a block by the upper 32 bits, a bit in each of its words by the lower 32."""
    z = num_bytes // 32
    blocks = [[0] * 8 for _ in range(z)]
    for h in hashes:
        upper, lower = h >> 32, h & 0xFFFFFFFF
        block = blocks[upper & (z - 1) if historical else (upper * z) >> 32]
        for word, salt in enumerate(SALT):
            block[word] |= 1 << (lower * salt % 2**32 >> 27)
    return b"".join(struct.pack("<8I", *block) for block in blocks)


def parquet_hashes(column: str, first: int, count: int) -> list[int]:
    plain = [struct.pack("<q", v) if column == "k" else v.encode() for v in ROWS[column][first : first + count]]
    return [xxhash.xxh64_intdigest(value) for value in plain]


def orc_long(key: int) -> int:
    """Thomas Wang's hash of 64-bit integers, as BloomFilter.java has it: on signed numbers that wrap."""

    def signed(x: int) -> int:
        return (x + 2**63 & M64) - 2**63

    key = signed(~key + (key << 21))
    key ^= key >> 24
    key = signed(key + (key << 3) + (key << 8))
    key ^= key >> 14
    key = signed(key + (key << 2) + (key << 4))
    key ^= key >> 28
    return signed(key + (key << 31)) & M64


def orc_hash(column: str, value: int | str) -> int:
    """Integers by Thomas Wang's hash, strings by ORC's own Murmur3.hash64."""
    if isinstance(value, int):
        return orc_long(value)
    data, h = value.encode(), 104729

    def mix(k: int) -> int:
        k = k * 0x87C37B91114253D5 & M64
        return (k << 31 | k >> 33) & M64

    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        h ^= mix(int.from_bytes(data[at : at + 8], "little")) * 0x4CF5AD432745937F & M64
        h = ((h << 27 | h >> 37) * 5 + 0x52DCE729) & M64
    if whole < len(data):
        h ^= mix(int.from_bytes(data[whole:], "little")) * 0x4CF5AD432745937F & M64
    h ^= len(data)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ h >> 33) * factor & M64
    return h ^ h >> 33


def orc_filter(hashes: list[int], k: int, m: int) -> bytes:
    """Bits (h1 + i h2) mod m in words of 64, h1 and h2 the lower and the upper half of the hash."""
    bits = 0
    for h in hashes:
        for i in range(1, k + 1):
            combined = ((h & 0xFFFFFFFF) + i * (h >> 32)) & 0xFFFFFFFF
            combined ^= 0xFFFFFFFF if combined >> 31 else 0
            bits |= 1 << combined % m
    return bits.to_bytes(m // 8, "little")


@pytest.mark.parametrize("name", PARQUET)
def test_split_block_filters_are_the_specifications_bit_for_bit(name: str) -> None:
    """Each writer chose its own size; DuckDB has every row twice."""
    source = LocalSource(str(HERE / f"{name}.parquet"))
    footer = read_footer(source)
    seen = 0
    for group in footer.row_groups:
        for chunk, found in read_bloom_filters(source, group.columns):
            assert isinstance(found, FoundFilter), (name, chunk.leaf.path)
            hashes = parquet_hashes(chunk.leaf.path, group.first_row, group.num_rows)
            assert found.filter.to_bytes() == split_block(hashes, found.filter.num_bytes)
            assert found.trusted
            seen += 1
    assert seen == 2 * len(footer.row_groups)
    assert sidecar.verify(source.name, data=True).problems == []


def test_writers_agree_on_what_the_rows_are() -> None:
    expected = pa.table({"k": pa.array(ROWS["k"], pa.int64()), "s": ROWS["s"]})
    for name in ("parquet_java", "pyarrow", "parquet_crate"):
        assert pq.read_table(HERE / f"{name}.parquet").cast(expected.schema).equals(expected), name
    assert pq.read_table(HERE / "duckdb.parquet").slice(300).cast(expected.schema).equals(expected)
    for name in ORC:
        assert po.read_table(HERE / f"{name}.orc").cast(expected.schema).equals(expected), name


def test_the_historical_form_is_murmur3_with_a_mask() -> None:
    found = read_bare_filter(LocalSource(str(HERE / "historical.bin")))
    words = [b"hello", b"parquet", b"bloom", b"filter"]
    hashes = [mmh3.hash64(word, 1361930890, signed=False)[0] for word in words]
    assert found.filter.form != "split-block Bloom filter"
    assert found.filter.to_bytes() == split_block(hashes, found.filter.num_bytes, historical=True)
    assert found.filter.to_bytes() != split_block(hashes, found.filter.num_bytes)
    for word, expected in (("hello", True), ("parquet", True), ("nobody", False)):
        (unit,) = sidecar.probe(str(HERE / "historical.bin"), "string", word).only.units
        assert unit.might_contain is expected


@pytest.mark.parametrize("name", ORC)
def test_orc_filters_are_those_of_the_java_classes_bit_for_bit(name: str) -> None:
    path = str(HERE / f"{name}.orc")
    (unit,) = sidecar.inspect(path).only.units
    for column in ("k", "s"):
        hashes = [orc_hash(column, value) for value in ROWS[column]]
        kinds = {"BLOOM_FILTER_UTF8": unit.columns[column].bloom_filter}
        if name == "orc_java":
            kinds["BLOOM_FILTER"] = unit.columns[column].legacy_bloom_filter
        for stream, found in kinds.items():
            assert found.stream == stream
            assert found.trusted
            expected = orc_filter(hashes, found.k, found.m)
            assert found.sha256 == hashlib.sha256(expected).hexdigest(), (stream, column)
    assert sidecar.verify(path, data=True).problems == []


@pytest.mark.parametrize("name", ["theta_python", "theta_java", "theta_python_estimating"])
def test_theta_sketches_are_read_as_datasketches_reads_them(name: str) -> None:
    datasketches = pytest.importorskip("datasketches", reason="datasketches has no wheel for this Python")
    data = (HERE / f"{name}.bin").read_bytes()
    theirs = datasketches.compact_theta_sketch.deserialize(data)
    ours = ThetaSketch.from_bytes(data)
    assert ours.estimate == theirs.get_estimate()
    assert ours.is_exact == (not theirs.is_estimation_mode())
    assert ours.is_exact == ("estimating" not in name)
    assert ours.retained.tolist() == sorted(theirs)
    whole = ThetaSketch.from_arrow(pa.array(ROWS["k"], pa.int64()), "long")
    assert set(ours.retained.tolist()) <= set(whole.retained.tolist())
    if ours.is_exact:
        assert whole.ndv == ours.ndv == len(set(ROWS["k"]))


def test_puffin_by_icebergs_own_writer() -> None:
    reader = PuffinReader(LocalSource(str(HERE / "iceberg.puffin")))
    assert reader.metadata.properties == {"created-by": "Iceberg's Puffin writer", "note": "größe"}
    found = [
        (blob.type, blob.fields, blob.snapshot_id, blob.sequence_number, blob.compression_codec)
        for blob in reader.metadata.blobs
    ]
    assert found == [
        ("apache-datasketches-theta-v1", (1,), 2**62, 7, None),
        ("some-blob", (1, 2), 2**62, 7, "zstd"),
        ("empty-blob", (), 2**62, 7, None),
    ]
    contents = [reader.read_blob(blob) for blob in reader.metadata.blobs]
    assert contents == [(HERE / "theta_java.bin").read_bytes(), b"content " * 40, b""]
    assert reader.metadata.blobs[0].properties == {"ndv": "300"}
    assert sidecar.verify(str(HERE / "iceberg.puffin")).problems == []


def test_each_deviation_names_tests_that_exist() -> None:
    """The last tables of SPEC.md: three cells a row, and in the last one tests of this folder."""
    text = (HERE.parent / "SPEC.md").read_text()
    rows = [line for line in text[text.index("## Deviations") :].splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| ---", "| the text"))]
    assert len(rows) >= 25
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 3, row
        assert all(cells)
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", cells[2])
        assert named, row
        for path, name in named:
            assert f"def {name}(" in (HERE.parents[1] / "tests" / path).read_text(), (path, name)


def test_every_file_of_the_folder_is_read_by_a_test() -> None:
    read = {f"{name}.parquet" for name in PARQUET} | {f"{name}.orc" for name in ORC}
    read |= {"historical.bin", "iceberg.puffin", "rows.json", "make_published.py", "README.md"}
    read |= {"theta_python.bin", "theta_java.bin", "theta_python_estimating.bin"}
    read.add("parquet_java_encrypted_v2.parquet")  # by tests/parquet/test_tamper.py
    assert {path.name for path in HERE.iterdir() if path.name != "__pycache__"} == read
