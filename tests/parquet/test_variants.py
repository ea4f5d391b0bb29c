"""Files with one property changed by hand: what is wrong is named and never prunes, what is right is used."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from sidecar.errors import DamagedFileError
from sidecar.filters.array_hash import hash_arrow
from sidecar.parquet.bloom import FoundFilter, encode_header, header_doubt, read_bloom_filters
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import inspect_file, probe_file
from sidecar.parquet.thrift import STRUCT, Struct, decode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from tests.parquet.foreign import DATA

VARIANTS = DATA / "variants"

GOOD = [
    "m01_ok",
    "m01b_keep_old_footer",
    "m02_nolength",
    "m04_96bytes",
    "m06_reverse",
    "m08_hdr_unknown_long_nolen",
    "m09_unknown_fields",
]
BAD = {
    "m03_len_minus10": "bloom_filter_length is 262, but header and bitset have 272 bytes",
    "m03_len_plus32": "bloom_filter_length is 304, but header and bitset have 272 bytes",
    "m12_filepath_other": "is in another file",
    "m14_alg_unknown": "algorithm is unknown",
}


def source_of(name: str) -> LocalSource:
    return LocalSource(str(VARIANTS / f"{name}.parquet"))


def filters(name: str) -> list[tuple[Any, Any]]:
    source = source_of(name)
    return [found for group in read_footer(source).row_groups for found in read_bloom_filters(source, group.columns)]


@pytest.mark.parametrize("name", GOOD)
def test_good_files_are_read_and_hold_every_value(name: str) -> None:
    base = pq.ParquetFile(VARIANTS / "base.parquet")
    assert verify_file(source_of(name)) == []
    found = filters(name)
    assert len(found) == 18
    for chunk, answer in found:
        assert isinstance(answer, FoundFilter)
        assert answer.trusted, answer.reason
        column = base.read_row_group(chunk.row_group, columns=[chunk.leaf.path]).column(0)
        if pa.types.is_list(column.type):
            column = pa.chunked_array([part.flatten() for part in column.chunks], column.type.value_type)
        assert answer.filter.check(hash_arrow(column, chunk.leaf.encoding)).all()


def test_an_odd_number_of_blocks_is_read() -> None:
    assert {found.filter.z for _, found in filters("m04_96bytes")} == {3}


@pytest.mark.parametrize(("name", "reason"), BAD.items())
def test_bad_files_are_named_and_never_prune(name: str, reason: str) -> None:
    for unit in inspect_file(source_of(name)).units:
        for column in unit.columns.values():
            assert column.bloom_filter.trusted is False
            assert reason in column.bloom_filter.reason
    for value in ("no such text", ""):
        for unit in probe_file(source_of(name), "str", value):
            assert unit.might_contain is None
            assert reason in unit.reason
    problems = Counter(problem.unit for problem in verify_file(source_of(name)) if reason in problem.problem)
    assert all(problems[group] >= 6 for group in range(3))


def test_the_same_question_prunes_where_the_filter_is_good() -> None:
    assert [unit.might_contain for unit in probe_file(source_of("m01_ok"), "str", "no such text")] == [False] * 3
    held = pq.read_table(VARIANTS / "base.parquet", columns=["str"])["str"].drop_null()[17].as_py()
    assert any(unit.might_contain for unit in probe_file(source_of("m01_ok"), "str", held))


def test_normalised_intervals_are_not_trusted() -> None:
    for name in ("iv_marker", "duck"):
        found = [f for chunk, f in filters(name) if chunk.leaf.encoding.name == "interval" and f is not None]
        assert found, name
        assert all(not f.trusted and "INTERVAL" in f.reason for f in found)


def test_filters_of_nan_and_float16_hold_what_was_hashed_but_are_not_asked() -> None:
    assert probe_file(source_of("nn_bloom"), _leaf("nn_bloom", "double"), "nan")[0].might_contain is None
    for name in ("f16_2byte", "f16_both"):
        assert probe_file(source_of(name), _leaf(name, "float16"), "1.5")[0].might_contain is None


def _leaf(name: str, encoding: str) -> str:
    return next(leaf.path for leaf in read_footer(source_of(name)).columns if leaf.encoding.name == encoding)


def test_duckdb_agrees_on_every_answer_over_its_own_file() -> None:
    source = source_of("duck")
    path = VARIANTS / "duck.parquet"
    table = duckdb.sql(f"select * from '{path}'").to_arrow_table()
    asked = 0
    for leaf in read_footer(source).columns:
        kind = leaf.iceberg_type
        if kind not in ("int", "long", "string") or leaf.path not in table.column_names:
            continue
        values = [value for value in table[leaf.path].to_pylist()[:40] if value is not None]
        for value in values:
            units = probe_file(source, leaf.path, value)
            assert any(unit.might_contain is not False for unit in units)
            asked += 1
    assert asked >= 80


def test_checksums_of_pages_are_verified() -> None:
    problems = verify_file(LocalSource(str(DATA / "apache_datapage_v1-corrupt-checksum.parquet")))
    assert {problem.column for problem in problems} == {"a", "b"}
    assert sum("checksum" in problem.problem for problem in problems) == 2
    # its column indexes are wrong too: pages with values are called null pages
    assert all("checksum" in p.problem or "null_counts" in p.problem for p in problems)


def test_boolean_filters_are_ignored() -> None:
    source = LocalSource(str(DATA / "j118_v1_none.parquet"))
    for value in ("true", "false"):
        assert {unit.might_contain for unit in probe_file(source, "bool_opt", value)} == {None}
    assert all("BOOLEAN" in problem.problem for problem in verify_file(source) if problem.column != "f16")


def test_hashes_of_equal_zeros_are_both_asked() -> None:
    """parquet-java and the others insert the bits that they see, so one zero alone would lose the other."""
    for name in ("j118_v1_none", "pa26_v1_none", "rs60_v1_none_afterrg"):
        source = LocalSource(str(DATA / f"{name}.parquet"))
        for zero in ("0", "-0.0"):
            assert all(unit.might_contain for unit in probe_file(source, "f64_zeros", zero))


def test_a_filter_without_a_bit_is_not_believed() -> None:
    data = bytearray((VARIANTS / "m01_ok.parquet").read_bytes())
    source = source_of("m01_ok")
    chunk, found = next((c, f) for c, f in filters("m01_ok") if c.leaf.path == "str")
    data[found.offset + found.header_length : found.offset + found.length] = bytes(found.bitset_length)
    from sidecar.storage.source import BytesSource

    damaged = BytesSource(bytes(data))
    answers = probe_file(damaged, "str", "no such text")
    assert answers[chunk.row_group].might_contain is None
    assert "empty" in answers[chunk.row_group].reason
    assert read_footer(source).num_rows == read_footer(damaged).num_rows


def test_footers_that_are_none_say_so() -> None:
    from sidecar.storage.source import BytesSource

    for data in (b"", b"PAR1", b"PAR1" + b"\0" * 20, b"PAR1\xff\xff\xff\x7fPAR1", b"x" * 100):
        with pytest.raises(DamagedFileError):
            read_footer(BytesSource(data))
        assert len(verify_file(BytesSource(data))) == 1


def test_the_hash_is_the_one_of_the_specification() -> None:
    chunk, found = next((c, f) for c, f in filters("m01_ok") if c.leaf.path == "i32_req_asc")
    first = pq.ParquetFile(VARIANTS / "base.parquet").read_row_group(0, columns=["i32_req_asc"])[0]
    hashes = [xxhash.xxh64_intdigest(value.to_bytes(4, "little", signed=True)) for value in first.to_pylist()]
    assert chunk.row_group == 0
    assert found.filter.check(np.array(hashes, np.uint64)).all()


@pytest.mark.parametrize(("field_id", "what"), [(2, "algorithm"), (3, "hash"), (4, "compression")])
@pytest.mark.parametrize("members", [None, [], [2], [1, 2]])
def test_a_header_that_does_not_say_the_known_way_is_not_trusted(
    field_id: int, what: str, members: list[int] | None
) -> None:
    """The union is left out, has no member, an unknown one, or two."""
    header, _ = decode_struct(encode_header(1024))
    assert header_doubt(header) == ""
    header.fields.pop(field_id)
    if members is not None:
        header.fields[field_id] = (STRUCT, Struct({member: (STRUCT, Struct()) for member in members}))
    assert f"the header's {what} is unknown" in header_doubt(header)
