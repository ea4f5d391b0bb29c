"""verify of a whole file: each defect of the hand-made files is named, sound ones pass, values are looked up."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import UsageError
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.footer import read_footer
from sidecar.parquet.thrift import BINARY, I32, STRUCT, Items, Struct, decode_struct, encode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.parquet.verify.filters import value_problems
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource
from tests.parquet.foreign import DATA, WRITERS
from tests.parquet.page_files import CODECS, rewrite, write

VARIANTS = DATA / "variants"
SOUND = {
    *("base", "m01_ok", "m01b_keep_old_footer", "m02_nolength", "m04_96bytes", "m06_reverse"),
    *("m08_hdr_unknown_long_nolen", "m09_unknown_fields", "p12_no_null_counts", "p15_unknown_column_order"),
    *("p16_oi_unknown_field", "p18_listbool_false_as_0", "pa_int96", "f16_both"),
}
"""Files that every rule of the formats allows, however odd."""

DEFECTIVE = {
    "duck": "normalised values",
    "iv_marker": "normalised values",
    "er_enc_ctr_ef": "the footer is encrypted",
    "er_enc_ef": "the footer is encrypted",
    "rs_enc_bloom": "the footer is encrypted",
    "er_enc_pf_badsig": "the column is encrypted",
    "er_enc_pf_signed": "the column is encrypted",
    "f16_2byte": "lacks the 4-byte floats that DuckDB looks up",
    "nn_bloom": "lacks the canonical NaN",
    "nan_gt": "have NaN, but there are no nan_counts",
    "m03_len_minus10": "bloom_filter_length is 262, but header and bitset have 272 bytes",
    "m03_len_plus32": "bloom_filter_length is 304, but header and bitset have 272 bytes",
    "m12_filepath_other": "is in another file (file_path)",
    "m14_alg_unknown": "algorithm is unknown",
    "p02_no_oi_for_str": "a column index without an offset index",
    "p03_ci_without_oi_all": "a column index without an offset index",
    "p05_nullpage_nullcount0": "page 0 has 120 nulls, not 0",
    "p06_ci_one_page_less": "2 pages in the column index, 3 in the offset index",
    "p17_bad_hist": "repetition_level_histograms has 3 entries",
    "rs60_bad_null_pages_list": "page 0 is marked as a null page, but has values",
}


def test_every_variant_is_known() -> None:
    assert {path.stem for path in VARIANTS.glob("*.parquet")} == SOUND | set(DEFECTIVE)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_sound_files_pass_with_their_values_too(name: str) -> None:
    check = ValueCheck()
    assert verify_file(LocalSource(str(VARIANTS / f"{name}.parquet")), check) == []
    assert check.units == check.units_total > 0
    assert (check.values > 0) == (name[0] in "mf" or name == "pa_int96")


@pytest.mark.parametrize("name", sorted(DEFECTIVE))
def test_each_defect_is_named(name: str) -> None:
    answer = sidecar.verify(str(VARIANTS / f"{name}.parquet"))
    assert any(DEFECTIVE[name] in problem.problem for problem in answer.problems)


def test_duckdb_denies_the_values_that_verify_warns_of() -> None:
    """The defect is real: DuckDB believes that a FLOAT16 value is there only if its 4-byte form is."""
    excluded = {}
    for name in ("f16_2byte", "f16_both"):
        path = VARIANTS / f"{name}.parquet"
        value = pq.read_table(path)["x"][0].as_py()
        probe = f"select bloom_filter_excludes from parquet_bloom_probe('{path}', 'x', {float(value)}::float)"
        excluded[name] = duckdb.sql(probe).fetchall()
    assert excluded == {"f16_2byte": [(True,)], "f16_both": [(False,)]}


# filters against values


@pytest.mark.parametrize("name", WRITERS)
def test_filters_of_other_writers_hold_their_values(name: str) -> None:
    check = ValueCheck()
    texts = [p.problem for p in verify_file(LocalSource(str(DATA / f"{name}.parquet")), check)]
    assert check.values > 100
    assert not [text for text in texts if "denies" in text or "looked up" in text]


CELLS: dict[str, pa.Array[Any]] = {
    "i": pa.array([i % 40 for i in range(200)], pa.int32()),
    "s": pa.array([f"value {i % 50}" if i % 3 else None for i in range(200)]),
    "d": pa.array([i / 4 for i in range(200)]),
    "l": pa.array([[i, i + 1] for i in range(200)], pa.list_(pa.int64())),
}


def with_filters(**options: Any) -> bytes:
    sink = io.BytesIO()
    paths = {path: {"ndv": 200} for path in ("i", "s", "d", "l.list.element")}
    pq.write_table(pa.table(CELLS), sink, row_group_size=100, bloom_filter_options=paths, **options)
    return sink.getvalue()


def emptied(data: bytes, path: str, row_group: int, keep: int) -> bytes:
    """One word in ``keep`` of a filter is left, all others are 0."""
    chunk = next(c for c in read_footer(BytesSource(data)).row_groups[row_group].columns if c.leaf.path == path)
    ((_, found),) = read_bloom_filters(BytesSource(data), [chunk])
    assert isinstance(found, FoundFilter)
    out = bytearray(data)
    for at in range(found.offset + found.header_length, found.offset + found.length, 4):
        if at // 4 % keep:
            out[at : at + 4] = bytes(4)
    return bytes(out)


@pytest.mark.parametrize("path", ["i", "s", "d", "l.list.element"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_filter_that_denies_values_is_named(path: str, dictionary: bool, version: str) -> None:
    data = with_filters(use_dictionary=dictionary, data_page_version=version)
    assert verify_file(BytesSource(data), ValueCheck()) == []
    spoiled = BytesSource(emptied(data, path, 1, 9))
    (problem,) = verify_file(spoiled, ValueCheck())
    assert (problem.unit, problem.column) == (1, path)
    assert problem.problem.startswith("Bloom filter: denies ")
    assert bool(verify_file(spoiled)) == (path == "d")  # floats are always looked up


@pytest.mark.parametrize("encoding", ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
def test_values_of_other_encodings_are_looked_up(encoding: str) -> None:
    data = with_filters(use_dictionary=False, column_encoding={"i": encoding})
    assert verify_file(BytesSource(data), ValueCheck()) == []
    assert len(verify_file(BytesSource(emptied(data, "i", 0, 9)), ValueCheck())) == 1


def test_entries_of_a_dictionary_that_no_row_uses_need_not_be_there() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, 0], pa.int32()), pa.array(["a", "b", "c"]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": column}), sink, bloom_filter_options={"x": {"ndv": 3}})
    source = BytesSource(sink.getvalue())
    footer = read_footer(source)
    chunk = footer.row_groups[0].columns[0]
    used = sidecar.SplitBlockBloomFilter.from_arrow(pa.array(["a", "c"]), chunk.leaf.encoding, fpp=1e-6)
    assert not used.might_contain("b", "string", chunk.leaf.encoding)
    check = ValueCheck()
    assert list(value_problems(source, footer, chunk, used, check)) == []
    assert check.values == 2
    one = sidecar.SplitBlockBloomFilter.from_arrow(pa.array(["a", "b"]), chunk.leaf.encoding, fpp=1e-6)
    assert list(value_problems(source, footer, chunk, one)) == [
        "Bloom filter: denies 1 of 2 values that the column chunk has"
    ]


@pytest.mark.parametrize(
    ("kind", "value", "lacks"),
    [
        (pa.float32(), struct.unpack("<f", b"\x01\0\xc0\xff")[0], "canonical NaN"),
        (pa.float64(), -0.0, "+0.0"),
        (pa.float64(), 0.0, ""),
        (pa.float64(), float("nan"), ""),
    ],
)
def test_forms_in_which_readers_ask(kind: pa.DataType, value: float, lacks: str) -> None:
    word = "<u4" if kind == pa.float32() else "<u8"
    bits = np.array([value], word.replace("u", "f"))
    if lacks == "canonical NaN":
        bits = np.frombuffer(b"\x01\0\xc0\xff", "<f4")  # Python would make it canonical
    array = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bits.tobytes())])
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": array}), sink, bloom_filter_options={"x": {"ndv": 9}}, use_dictionary=False)
    texts = [p.problem for p in verify_file(BytesSource(sink.getvalue()))]
    assert (len(texts), *texts)[1:] == tuple(t for t in texts if lacks and lacks in t)
    assert bool(texts) == bool(lacks)


def test_a_sample_reads_some_row_groups_and_says_how_many(tmp_path: Any) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"x": pa.array(range(4000), pa.int64())})
    pq.write_table(table, path, row_group_size=100, bloom_filter_options={"x": {"ndv": 100}}, use_dictionary=False)
    answer = sidecar.verify(str(path), sample=0.1)
    assert answer.problems == []
    assert answer.looked_up.to_dict() == {"units": 4, "units_total": 40, "values": 400, "indexes": 0}
    full = sidecar.verify(str(path), data=True)
    assert full.looked_up.to_dict() == {"units": 40, "units_total": 40, "values": 4000, "indexes": 0}
    assert "looked_up" not in sidecar.verify(str(path)).to_dict()
    few = CountingSource(LocalSource(str(path)))
    verify_file(few, ValueCheck(0.001, random.Random(1)))
    all_of_it = CountingSource(LocalSource(str(path)))
    verify_file(all_of_it, ValueCheck())
    assert few.bytes_read < 0.7 * all_of_it.bytes_read


@pytest.mark.parametrize("sample", [0.0, -1.0, 1.5])
def test_what_is_no_share_is_refused(sample: float) -> None:
    with pytest.raises(UsageError, match="share above 0"):
        sidecar.verify(str(VARIANTS / "base.parquet"), sample=sample)


def test_what_has_no_values_is_refused() -> None:
    with pytest.raises(UsageError, match="has values to check against"):
        sidecar.verify(str(DATA / "apache_bloom_filter.xxhash.bin"), data=True)


# defects of structure


def changed_footer(data: bytes, change: Callable[[Struct], None]) -> BytesSource:
    footer = read_footer(BytesSource(data))
    tree, _ = decode_struct(data, footer.offset)
    change(tree)
    end = encode_struct(tree)
    return BytesSource(data[: footer.offset] + end + len(end).to_bytes(4, "little") + b"PAR1")


def first_group(tree: Struct) -> Items:
    groups = tree.structs(4)
    assert groups is not None
    items = groups[0].fields[1][1]
    assert isinstance(items, Items)
    return items


PLAIN = write(pa.table({"a": list(range(50)), "b": [str(i) for i in range(50)]}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tree: first_group(tree).values.pop(), "column"),
        (lambda tree: first_group(tree).values.append(first_group(tree).values[0]), "column"),
        (lambda tree: first_group(tree).values[1].fields.pop(3), "meta"),
        (lambda tree: tree.fields[4][1].values.pop(), "num_rows is 50, the row groups have 0 rows"),
    ],
)
def test_a_missing_or_surplus_chunk_is_named(change: Any, problem: str) -> None:
    assert any(problem in p.problem for p in verify_file(changed_footer(PLAIN, change)))


def test_a_chunk_of_another_file_is_named_and_its_neighbour_checked() -> None:
    def change(tree: Struct) -> None:
        chunk = first_group(tree).values[1]
        chunk.fields = dict(sorted({**chunk.fields, 1: (BINARY, b"other.parquet")}.items()))

    problems = verify_file(changed_footer(PLAIN, change))
    assert {p.column for p in problems} == {"b"}
    assert all("is in another file (file_path)" in p.problem for p in problems)


def test_a_metadata_file_is_inspected_and_its_chunks_named(tmp_path: Any) -> None:
    collected: list[Any] = []
    table = pa.table({"x": [1, 2, 3]})
    pq.write_to_dataset(table, tmp_path, metadata_collector=collected)
    pq.write_metadata(table.schema, tmp_path / "_metadata", metadata_collector=collected)
    path = str(tmp_path / "_metadata")
    assert sidecar.inspect(path).only.rows == 3
    problems = sidecar.verify(path).problems
    assert problems
    assert all("is in another file (file_path)" in p.problem for p in problems)


def dictionary_page() -> bytes:
    header = Struct({1: (I32, 2), 2: (I32, 8), 3: (I32, 8), 7: (STRUCT, Struct({1: (I32, 1), 2: (I32, 0)}))})
    return encode_struct(header) + bytes(8)


def test_second_and_late_dictionary_pages_are_named() -> None:
    plain = write(pa.table({"x": pa.array(range(60), pa.int64())}))
    coded = write(pa.table({"x": pa.array([1, 2] * 30, pa.int64())}), use_dictionary=True)
    second = rewrite(coded, before=dictionary_page())
    texts = [p.problem for p in verify_file(BytesSource(second))]
    assert any("the dictionary page at" in text and "not the chunk's first page" in text for text in texts)
    # behind the first data page: the chunk's pages are put in another order
    assert verify_file(BytesSource(rewrite(plain))) == []
    late = late_dictionary(plain)
    assert any("not the chunk's first page" in p.problem for p in verify_file(BytesSource(late)))


def late_dictionary(data: bytes) -> bytes:
    """The chunk with a dictionary page behind its first data page."""
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[0]
    header, at = decode_struct(data, chunk.start)
    at += header.need_integer(3, "")
    page = dictionary_page()

    def change(tree: Struct) -> None:
        meta = first_group(tree).values[0].struct(3)
        kind, size = meta.fields[7]
        meta.fields[7] = (kind, size + len(page))

    source = changed_footer(data, change)
    return data[:at] + page + source.read(at, source.size - at)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_wrong_checksum_is_named_and_a_missing_one_is_not(version: str) -> None:
    table = pa.table({"x": pa.array(range(60), pa.int64()), "y": pa.array(range(60), pa.int64())})
    data = write(table, data_page_version=version, write_page_checksum=True)
    assert verify_file(BytesSource(data)) == []
    assert verify_file(BytesSource(rewrite(data, CODECS["zstd"]))) == []  # without checksums
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[1]
    damaged = bytearray(data)
    damaged[chunk.start + chunk.total_compressed_size - 1] ^= 1
    (problem,) = verify_file(BytesSource(bytes(damaged)))
    assert problem.column == "y"
    assert "the checksum of a page is wrong" in problem.problem


@pytest.mark.parametrize(("value", "problem"), [(9999, "above max_value"), (-1, "below min_value")])
@pytest.mark.parametrize("place", [0, 2500, 4999])
def test_every_page_is_held_against_the_statistics_of_its_chunk(
    tmp_path: Path, value: int, problem: str, place: int
) -> None:
    """The footer is that of a file whose pages have the same lengths, and one value less far out."""

    def made(odd: int) -> bytes:
        values = [*range(place), odd, *range(place + 1, 5000)]
        table = pa.table({"k": pa.array(values, pa.int64())})
        return write(table, use_dictionary=False, compression="none", data_page_size=2000)

    sound, other = made(place), made(value)
    footer = int.from_bytes(sound[-8:-4], "little") + 8
    path = tmp_path / "a.parquet"
    path.write_bytes(other[: len(sound) - footer] + sound[-footer:])
    found = [one.problem for one in sidecar.verify(str(path), data=True).problems]
    assert found == [f"statistics: the pages have a value {problem}"]
