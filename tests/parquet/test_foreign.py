"""Filters, schemas and pages of files that parquet-java, Arrow C++ and the parquet crate wrote."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filter, read_bloom_filters
from sidecar.parquet.dictionary import read_dictionary, read_used
from sidecar.parquet.footer import footer_of, read_footer
from sidecar.parquet.inspect import inspect_file
from sidecar.parquet.pages import wholly_dictionary
from sidecar.parquet.scan.survivors import _GroupVerdict
from sidecar.parquet.stored_values import entries_of
from sidecar.parquet.thrift import I64, STRUCT, Struct
from sidecar.questions.row_ranges import RowRanges
from sidecar.storage.local import LocalSource
from sidecar.storage.source import CountingSource
from tests.parquet.foreign import DATA, WRITERS, expected, leaf_values, written

PLAIN_FILES = [path for path in sorted(DATA.rglob("*.parquet")) if path.read_bytes()[-4:] == b"PAR1"]
# pyarrow 26 cannot open files with INTERVAL of parquet-java; signed footers it opens only with keys
FOR_PYARROW = [p for p in PLAIN_FILES if "iv_" not in p.name and "_pf_" not in p.name and "plainfooter" not in p.name]


def test_the_files_are_there() -> None:
    assert len(WRITERS) == 8
    assert len(written()) == 36


@pytest.mark.parametrize("name", WRITERS)
def test_filters_equal_what_parquet_java_reads(name: str) -> None:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    footer = read_footer(source)
    groups = expected(name)["row_groups"]
    assert [(g.first_row, g.num_rows) for g in footer.row_groups] == [(g["first_row"], g["rows"]) for g in groups]
    compared = 0
    for group, want in zip(footer.row_groups, groups, strict=True):
        for chunk, found in read_bloom_filters(source, group.columns):
            column = want["columns"][chunk.leaf.path]
            assert not isinstance(found, SidecarError)
            assert (found is None) == ("bloom" not in column)
            if found is None:
                continue
            assert (found.offset, found.length) == (column["bloom_offset"], column["bloom_length"])
            assert found.filter.to_bytes().hex() == column["bloom"]
            assert found.trusted == (chunk.leaf.physical != "BOOLEAN"), found.reason
            compared += 1
    assert compared == sum("bloom" in c for g in groups for c in g["columns"].values())


@pytest.mark.parametrize("name", WRITERS)
def test_every_value_that_was_written_is_in_its_filter(name: str) -> None:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    for group in read_footer(source).row_groups:
        for chunk, found in read_bloom_filters(source, group.columns):
            if not isinstance(found, FoundFilter) or not found.trusted:
                continue
            plain = leaf_values(chunk.leaf.path, group.first_row, group.num_rows)
            hashes = np.array([xxhash.xxh64_intdigest(value) for value in plain], np.uint64)
            assert found.filter.check(hashes).all(), chunk.leaf.path


@pytest.mark.parametrize("name", WRITERS)
def test_inspect_names_the_bytes_of_each_filter(name: str) -> None:
    seen = inspect_file(LocalSource(str(DATA / f"{name}.parquet")))
    for unit, want in zip(seen.units, expected(name)["row_groups"], strict=True):
        assert unit.rows == want["rows"]
        for path, column in want["columns"].items():
            found = unit.columns[path]
            if "bloom" in column:
                bitset = bytes.fromhex(column["bloom"])
                assert found.bloom_filter.sha256 == hashlib.sha256(bitset).hexdigest()
                assert found.bloom_filter.bytes == len(bitset)
            else:
                assert found.bloom_filter is None
            if path != "i96":  # parquet-java does not hand out an index in INT96 order
                assert (found.column_index is not None) == (column.get("column_index") is not None)
            assert (found.offset_index is not None) == (column.get("offset_index") is not None)


def test_odd_sizes_keep_their_tail() -> None:
    source = LocalSource(str(DATA / "j118_maxbytes1000.parquet"))
    sizes = set()
    for chunk, found in read_bloom_filters(source, read_footer(source).row_groups[0].columns):
        assert isinstance(found, FoundFilter), chunk.leaf.path
        sizes.add((found.bitset_length, found.filter.z, len(found.filter.tail)))
    assert (1000, 31, 8) in sizes


@pytest.mark.parametrize("path", FOR_PYARROW, ids=lambda path: path.name)
def test_schemas_and_chunks_are_those_that_pyarrow_sees(path: object) -> None:
    theirs = pq.ParquetFile(str(path), arrow_extensions_enabled=False).metadata
    ours = read_footer(LocalSource(str(path)))
    assert (ours.num_rows, len(ours.row_groups)) == (theirs.num_rows, theirs.num_row_groups)
    for leaf in ours.columns:
        column = theirs.schema.column(leaf.index)
        assert leaf.path == column.path
        assert leaf.physical == column.physical_type
        assert (leaf.max_def, leaf.max_rep) == (column.max_definition_level, column.max_repetition_level)
    for group in ours.row_groups:
        for chunk in group.columns:
            want = theirs.row_group(group.ordinal).column(chunk.leaf.index)
            assert chunk.num_values == want.num_values
            assert chunk.total_compressed_size == want.total_compressed_size
            assert chunk.data_page_offset == want.data_page_offset
            assert (chunk.dictionary_page_offset or None) == (want.dictionary_page_offset or None)


ENCODINGS = {
    "bool_opt": ("boolean", "boolean"),
    "i32_opt": ("int32", "int"),
    "i64_opt": ("int64", "long"),
    "i96": ("int96", "timestamp"),
    "f32_nan": ("float", "float"),
    "f64_nan": ("double", "double"),
    "f16": ("float16", "float"),
    "bin": ("byte_array", "binary"),
    "str": ("byte_array", "string"),
    "json": ("byte_array", None),  # pyarrow wrote no annotation
    "flba5": ("flba:5", "fixed[5]"),
    "uuid": ("flba:16", None),
    "dec_i32": ("int32/decimal:2", "decimal(9, 2)"),
    "dec_i64": ("int64/decimal:4", "decimal(18, 4)"),
    "date": ("int32/date", "date"),
    "time_ms": ("int32/time-ms", "time"),
    "time_us": ("int64/time-us", "time"),
    "ts_ms": ("int64/timestamp-ms", None),
    "ts_us": ("int64/timestamp-us", None),
    "ts_ns": ("int64/timestamp-ns", None),
    "i8": ("int32", "int"),
    "u32": ("uint32", "long"),
    "u64": ("uint64", "decimal(20, 0)"),
    "list_i32.list.element": ("int32", "int"),
    "list_str.list.element": ("byte_array", "string"),
}


@pytest.mark.parametrize("name", ["j118_v1_none", "pa26_v1_none", "rs60_v1_none_afterrg"])
def test_annotations_give_the_encodings(name: str) -> None:
    footer = read_footer(LocalSource(str(DATA / f"{name}.parquet")))
    checked = 0
    for path, (encoding, iceberg_type) in ENCODINGS.items():
        leaf = footer.leaf(path) or footer.leaf(path.replace("element", "item"))
        if leaf is None:
            continue
        checked += 1
        assert leaf.encoding.name == encoding, path
        assert iceberg_type in (None, leaf.iceberg_type), path
    assert checked >= 23


@pytest.mark.parametrize("path", PLAIN_FILES, ids=lambda path: path.name)
def test_dictionaries_hold_exactly_the_values_of_their_chunk(path: object) -> None:
    source = LocalSource(str(path))
    for group in read_footer(source).row_groups:
        for chunk in group.columns:
            if chunk.file_path is not None or not wholly_dictionary(source, chunk):
                continue
            page = read_dictionary(source, chunk)
            used = read_used(source, chunk)[1]
            assert used.shape == (page.num_values,)
            if chunk.leaf.path.split(".")[0] in written() and "variants" not in str(path):
                plain = set(leaf_values(chunk.leaf.path, group.first_row, group.num_rows))
                want = {xxhash.xxh64_intdigest(value) for value in plain}
                hashes = entries_of(page, used).hashes(chunk.leaf.encoding, twins=False)
                assert set(hashes.tolist()) == want


def test_dictionary_chunks_are_found_in_both_writers() -> None:
    counts = {}
    for name in ("j118_v1_snappy_dict", "pa26_v2_zstd_dict", "j118_v1_none"):
        source = LocalSource(str(DATA / f"{name}.parquet"))
        chunks = [chunk for group in read_footer(source).row_groups for chunk in group.columns]
        counts[name] = sum(wholly_dictionary(source, chunk) for chunk in chunks)
    assert counts == {"j118_v1_snappy_dict": 10, "pa26_v2_zstd_dict": 96, "j118_v1_none": 0}


def test_a_small_footer_takes_one_read_and_its_filters_few() -> None:
    source = CountingSource(LocalSource(str(DATA / "pa26_v1_none.parquet")))
    footer = read_footer(source)
    assert source.reads == 1
    found = [f for group in footer.row_groups for _, f in read_bloom_filters(source, group.columns)]
    assert sum(isinstance(f, FoundFilter) for f in found) == 96
    assert source.reads == 4  # the filters of a row group stand together
    chunk = footer.row_groups[0].columns[1]
    read_bloom_filter(source, chunk)
    assert source.reads == 5


def test_the_header_is_the_one_that_everybody_writes() -> None:
    assert encode_header(256).hex(" ") == "15 80 04 1c 1c 00 00 1c 1c 00 00 1c 1c 00 00 00"
    assert [len(encode_header(n)) for n in (32, 64, 4064, 1 << 20, 128 << 20)] == [15, 16, 16, 18, 19]


def test_the_filter_of_parquet_testing_holds_its_words() -> None:
    data = (DATA / "apache_bloom_filter.xxhash.bin").read_bytes()
    assert data.startswith(encode_header(1024))
    from sidecar.filters.sbbf import SplitBlockBloomFilter

    bits = SplitBlockBloomFilter.from_bytes(data[len(encode_header(1024)) :])
    assert all(bits.might_contain_hash(xxhash.xxh64_intdigest(w)) for w in (b"hello", b"parquet", b"bloom", b"filter"))
    assert bits.fill() == 32 / 8192


def _is_encrypted(name: str) -> bool:
    return name.endswith(".encrypted") or "_enc_" in name


ENCRYPTED = [path for path in sorted(DATA.rglob("*.parquet*")) if _is_encrypted(path.name)]


@pytest.mark.parametrize("path", [p for p in ENCRYPTED if p.read_bytes()[-4:] == b"PARE"], ids=lambda path: path.name)
def test_an_encrypted_footer_is_named(path: object) -> None:
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        read_footer(LocalSource(str(path)))


@pytest.mark.parametrize("path", [p for p in ENCRYPTED if p.read_bytes()[-4:] == b"PAR1"], ids=lambda path: path.name)
def test_encrypted_columns_of_a_plaintext_footer_are_named(path: object) -> None:
    source = LocalSource(str(path))
    footer = read_footer(source)
    assert footer.locked
    for group in footer.row_groups:
        for index in footer.locked:
            assert group.columns.get(index) is None
            assert all(chunk.leaf.index != index for chunk in group.columns)
            with pytest.raises(UnsupportedFeatureError, match="its key was not given"):
                group.columns[index]


def test_statistics_in_the_clear_of_a_locked_column_rule_out_nothing() -> None:
    """Anybody can write them into a footer whose signature nobody checks, for example that all values are null."""
    source = LocalSource(str(DATA / "j118_enc_gcmctr_plainfooter_aadsupplied.parquet"))
    whole = read_footer(source)
    for group in whole.metadata.structs(4) or ():
        for chunk in group.structs(1) or ():
            meta = chunk.struct(3)
            if 8 in chunk.fields and meta is not None:
                meta.fields[12] = (STRUCT, Struct({3: (I64, meta.integer(5))}))
    footer = footer_of(source, whole.offset, whole.raw, whole.metadata)
    indexes: Any = None
    nullable = [index for index in footer.locked if footer.columns[index].max_def]
    for group in footer.row_groups:
        verdict = _GroupVerdict(footer, group, RowRanges.all(group.num_rows), indexes, indexes, [])
        for index in nullable:
            found = verdict.statistics(index)
            assert (found.lower, found.upper, found.all_null, found.null_counts) == ([None], [None], [False], [None])
    assert nullable
