"""Historical filters in Parquet files, and filters that are files: told apart, asked as what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidecar
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.bare_filter import is_bare_filter, probe_bare_filter, read_bare_filter, usual_encoding
from sidecar.parquet.bloom import HISTORICAL, FoundFilter, encode_header, read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import inspect_file, probe_file
from sidecar.parquet.thrift import I32, I64, STRUCT, Struct, decode_struct, encode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.filters.made_filters import historical_header

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
OLD, NEW = DATA / "apache_bloom_filter.bin", DATA / "apache_bloom_filter.xxhash.bin"
STORED = ["hello", "parquet", "bloom", "filter"]
LONGS = Encoding.parse("int64")


def plain_file(values: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"x": pa.array(values, pa.int64())})
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes()


def with_filter(file: bytes, data: bytes, *, length: int | None = None, at_start: bool = True) -> bytes:
    """The file with ``data`` at the start of its only column chunk, as old writers put it, or behind it."""
    footer_length = int.from_bytes(file[-8:-4], "little")
    body, tree = file[: -8 - footer_length], decode_struct(file[-8 - footer_length : -8])[0]
    place = 4 if at_start else len(body)
    meta: Struct = tree.structs(4)[0].structs(1)[0].struct(3)  # type: ignore[index, union-attr, assignment]
    if at_start:
        meta.fields[9] = (I64, meta.integer(9) + len(data))  # type: ignore[operator]
    meta.fields[14] = (I64, place)
    if length is not None:
        meta.fields[15] = (I32, length)
    footer = encode_struct(tree)
    return body[:place] + data + body[place:] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def old_filter(values: list[int], z: int = 8) -> bytes:
    made = HistoricalBloomFilter.empty(z)
    made.insert_arrow(pa.array(values, pa.int64()), LONGS)
    return historical_header(made.num_bytes) + made.to_bytes()


VALUES = list(range(0, 2000, 17))


@pytest.fixture(params=[True, False], ids=["at-the-start", "behind"])
def old_file(request: Any) -> bytes:
    file = with_filter(plain_file(VALUES), old_filter(VALUES), at_start=request.param)
    assert pq.read_table(pa.BufferReader(file))["x"].to_pylist() == VALUES
    return file


def found_in(file: bytes) -> FoundFilter:
    source = BytesSource(file)
    found = read_bloom_filter(source, read_footer(source).row_groups[0].columns[0])
    assert found is not None
    return found


# --- in a column chunk --------------------------------------------------------------------------------------


def test_a_historical_filter_of_a_chunk_is_read_and_never_trusted(old_file: bytes) -> None:
    found = found_in(old_file)
    assert isinstance(found.filter, HistoricalBloomFilter)
    assert (found.trusted, found.reason, found.defect) == (False, HISTORICAL, "")
    assert (found.header_length, found.length, found.hash) == (12, 12 + 256, "MURMUR3_X64_128")
    assert found.filter.check(hash_arrow(pa.array(VALUES), LONGS, function=found.filter.function)).all()


def test_a_probe_asks_it_by_its_own_hash(old_file: bytes) -> None:
    source = BytesSource(old_file)
    assert all(probe_file(source, "x", value)[0].might_contain is True for value in VALUES)
    absent = [probe_file(source, "x", value)[0].might_contain for value in range(10_000, 10_100)]
    assert absent.count(False) > 80


def test_inspect_says_what_it_is_and_verify_finds_no_fault(old_file: bytes) -> None:
    source = BytesSource(old_file)
    shown = inspect_file(source).units[0].columns["x"].bloom_filter
    assert shown.hash == "MURMUR3_X64_128"
    assert (shown.trusted, shown.reason) == (False, HISTORICAL)
    assert verify_file(source) == []


def test_lengths_are_checked_as_for_the_present_kind() -> None:
    file = with_filter(plain_file(VALUES), old_filter(VALUES), length=100)
    found = found_in(file)
    assert "bloom_filter_length is 100" in found.defect
    assert not found.trusted
    assert probe_file(BytesSource(file), "x", 10_000)[0].might_contain is None
    assert "bloom_filter_length is 100" in verify_file(BytesSource(file))[0].problem


def test_one_that_reaches_beyond_the_file_is_damaged() -> None:
    data = historical_header(1 << 20) + bytes(256)
    with pytest.raises(DamagedFileError, match="beyond the end"):
        found_in(with_filter(plain_file(VALUES), data))


def test_an_empty_one_for_values_is_a_defect() -> None:
    data = historical_header(256) + bytes(256)
    assert "empty" in found_in(with_filter(plain_file(VALUES), data)).defect


def test_a_build_takes_it_for_no_group_and_hashes_the_values(tmp_path: Path, old_file: bytes) -> None:
    """Hash and index rule never mix in a group: such a filter is not reused, whatever its rate."""
    from sidecar.indexing.columns import Options
    from sidecar.indexing.sketches import TaskSketches
    from sidecar.indexing.stage_one.chunks import ChunkIndexer

    (tmp_path / "old.parquet").write_bytes(old_file)
    source = LocalSource(str(tmp_path / "old.parquet"))
    footer = read_footer(source)
    options = Options(kinds=frozenset({"bloom"}), fpp=0.01, max_bits=None, reuse="always")
    indexer = ChunkIndexer(source, options, TaskSketches())
    result = indexer.index(footer.row_groups[0], {1: ("long", footer.columns[0])})[1]
    indexer.close()
    source.close()
    assert result.outcome.way == "values"
    assert result.bitset is not None
    assert SplitBlockBloomFilter.from_bytes(result.bitset).check(hash_arrow(pa.array(VALUES), LONGS)).all()


def test_embedding_carries_it_over_as_it_is_or_builds_anew(tmp_path: Path, old_file: bytes) -> None:
    (tmp_path / "old.parquet").write_bytes(old_file)
    for name, bloom in (("kept", ()), ("anew", ("x",))):
        sidecar.embed(str(tmp_path / "old.parquet"), into=str(tmp_path / name), bloom=bloom, page_index=True)
        found = found_in((tmp_path / name).read_bytes())
        assert isinstance(found.filter, SplitBlockBloomFilter if bloom else HistoricalBloomFilter)
        hashes = hash_arrow(pa.array(VALUES), LONGS, function=found.filter.function)
        assert found.filter.check(hashes).all()
        assert found.defect == ""


# --- files that are a filter --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "header_length"), [(OLD, HistoricalBloomFilter, 12), (NEW, SplitBlockBloomFilter, 16)]
)
def test_bare_filters_are_told_apart_by_content(path: Path, kind: type, header_length: int) -> None:
    source = BytesSource(path.read_bytes())
    found = read_bare_filter(source)
    assert type(found.filter) is kind
    assert (found.header_length, found.length, found.defect) == (header_length, source.size, "")
    answers = [probe_bare_filter(source, "string", value)[0].might_contain for value in (*STORED, "absent")]
    assert answers == [True] * 4 + [False]


def test_files_are_recognised_by_their_front_door(tmp_path: Path) -> None:
    path = tmp_path / "filter"
    path.write_bytes(OLD.read_bytes())
    shown = sidecar.inspect(str(path)).only
    assert (shown.format, shown.bloom_filter.hash) == ("bloom-filter", "MURMUR3_X64_128")
    assert "historical" in shown.form
    assert "XXH64" in sidecar.inspect(str(NEW)).only.form
    verified = sidecar.verify(str(path))
    assert (verified.checked, verified.problems) == (1, [])
    assert verified.scope == "structure only; the file does not say which values it has"
    assert sidecar.probe(str(path), "string", "hello").only.units[0].to_dict() == {
        "row_group": None,
        "might_contain": True,
        "reason": "asked as byte_array",
    }


@pytest.mark.parametrize("path", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("cut", [1, 12, 16, 40, 1000])
def test_a_bare_filter_of_another_length_is_damaged(path: Path, cut: int, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for data in (whole[:-cut], whole + bytes(cut)):
        source = BytesSource(data)
        if is_bare_filter(source):
            with pytest.raises(DamagedFileError, match="has the wrong length"):
                read_bare_filter(source)
        (tmp_path / "cut").write_bytes(data)
        assert len(sidecar.verify(str(tmp_path / "cut")).problems) == 1


@pytest.mark.parametrize("path", [OLD, NEW], ids=["old", "new"])
def test_every_change_of_a_header_is_our_error_or_the_same_filter(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(16):
        for flip in range(1, 256):
            changed = bytearray(whole)
            changed[at] ^= flip
            try:
                found = read_bare_filter(BytesSource(bytes(changed)))
            except SidecarError:
                continue
            assert at >= 12 or found.header_length == 16
            same_form = type(found.filter) is type(read_bare_filter(BytesSource(whole)).filter)
            assert same_form


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_filter_or_our_error(data: bytes) -> None:
    source = BytesSource(data)
    if is_bare_filter(source):
        try:
            read_bare_filter(source)
        except SidecarError:
            return
    else:
        with pytest.raises(SidecarError):
            read_bare_filter(source)


def test_an_unknown_hash_is_no_filter() -> None:
    header = decode_struct(encode_header(32))[0]
    header.fields[3] = (STRUCT, Struct({2: (STRUCT, Struct())}))
    assert not is_bare_filter(BytesSource(encode_struct(header) + bytes(32)))


@pytest.mark.parametrize(
    ("value_type", "encoding"),
    [
        ("string", "byte_array"),
        ("long", "int64"),
        ("uuid", "flba:16"),
        ("fixed[5]", "flba:5"),
        ("decimal(9, 2)", "int32/decimal:2"),
        ("decimal(18, 0)", "int64/decimal:0"),
        ("decimal(19, 3)", "flba:9/decimal:3"),
        ("decimal(38, 10)", "flba:16/decimal:10"),
    ],
)
def test_the_usual_encoding_of_a_type(value_type: str, encoding: str) -> None:
    assert usual_encoding(value_type).name == encoding


@pytest.mark.parametrize("value_type", ["", "x", "boolean", "decimal(39, 2)", "decimal(3, 9)", "list<int>", "struct"])
def test_what_is_no_type_is_refused(value_type: str) -> None:
    with pytest.raises(UsageError, match="has no column"):
        probe_bare_filter(BytesSource(OLD.read_bytes()), value_type, "1")


def test_a_type_may_name_its_encoding() -> None:
    made = SplitBlockBloomFilter.from_hashes(hash_arrow(pa.array([7], pa.int32()), Encoding.parse("int32")), 1)
    source = BytesSource(encode_header(32) + made.to_bytes())
    assert probe_bare_filter(source, "long as int32", "7")[0].might_contain is True
    assert probe_bare_filter(source, "long", "7")[0].might_contain is False
    assert probe_bare_filter(source, "long as uint32", "7")[0].might_contain is True
    assert probe_bare_filter(source, "int as int64", "7")[0].might_contain is None
    assert np.array_equal(read_bare_filter(source).filter.blocks, made.blocks)
