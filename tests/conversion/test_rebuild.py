"""Rebuilding: the order of the ways, and no false negative by any of them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.conversion.outcome import Way
from sidecar.conversion.rebuild import ParquetEvidence, filter_of, rebuild
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import read_footer
from sidecar.storage.source import BytesSource
from tests.conversion.rebuild_cases import evidence_of, parquet_of

LONGS = Encoding.parse("int64")
FORMS = [SplitBlockBloomFilter, HistoricalBloomFilter]


def run(
    file: bytes, encoding: Encoding, form: type[BlockFilter] = SplitBlockBloomFilter
) -> tuple[BlockFilter, Way, ParquetEvidence]:
    evidence = evidence_of(file)
    return *rebuild(evidence, filter_of(form, encoding, 0.01)), evidence


def holds(found: BlockFilter, values: pa.Array, encoding: Encoding) -> bool:
    return bool(found.check(hash_arrow(values, encoding, function=found.function)).all())


VALUES = pa.array(np.random.default_rng(4).choice(20_000, 400, replace=False), pa.int64())
FILE = parquet_of(VALUES)


# --- the ways -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_dictionary_pages_come_first(form: type[BlockFilter]) -> None:
    made, way, _ = run(parquet_of(VALUES, use_dictionary=True), LONGS, form)
    assert way == "dictionary"
    assert type(made) is form
    assert holds(made, VALUES, LONGS)


def test_values_come_last() -> None:
    made, way, _ = run(FILE, LONGS)
    assert way == "values"
    assert holds(made, VALUES, LONGS)


def test_a_mixed_chunk_is_not_rebuilt_from_its_dictionary() -> None:
    values = pa.array(np.arange(50_000), pa.int64())
    made, way, evidence = run(parquet_of(values, use_dictionary=True, dictionary_pagesize_limit=4096), LONGS)
    assert way == "values"
    assert "not every page" in evidence.dictionary().reason
    assert holds(made, values, LONGS)


def test_several_row_groups_are_one_filter() -> None:
    for dictionary, expected in ((True, "dictionary"), (False, "values")):
        made, way, _ = run(parquet_of(VALUES, row_group_size=90, use_dictionary=dictionary), LONGS)
        assert way == expected
        assert holds(made, VALUES, LONGS)


def test_a_damaged_dictionary_leaves_the_values_open() -> None:
    file = bytearray(parquet_of(VALUES, use_dictionary=True))
    page = read_footer(BytesSource(bytes(file))).row_groups[0].columns[0].start
    file[page : page + 8] = b"\xff" * 8
    with pytest.raises(DamagedFileError):
        run(bytes(file), LONGS)


def test_an_empty_column_gives_an_empty_filter() -> None:
    made, _, _ = run(parquet_of(pa.array([], pa.int64())), LONGS)
    assert made.fill() == 0


def test_columns_without_filters_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="two values"):
        evidence_of(parquet_of(pa.array([True, False])))


# --- never a false negative ---------------------------------------------------------------------------------

TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-300, 300)),
    (pa.int32(), st.integers(-500, 500)),
    (pa.int64(), st.integers(10**12, 10**12 + 1000)),
    (pa.uint32(), st.integers(2**32 - 1000, 2**32 - 1)),
    (pa.uint64(), st.integers(2**63 - 500, 2**63 + 500)),
    (pa.uint64(), st.integers(2**62 - 500, 2**62 + 500)),
    (pa.date32(), st.integers(-400, 400)),
    (pa.time32("ms"), st.integers(0, 1000)),
    (pa.timestamp("us", "UTC"), st.integers(-500, 500)),
    (pa.timestamp("ms"), st.integers(-500, 500)),
    (pa.decimal128(7, 2), st.integers(-500, 500).map(lambda n: Decimal(n).scaleb(-2))),
    (pa.decimal128(15, 3), st.integers(-500, 500).map(lambda n: Decimal(n).scaleb(-3))),
]


def columns() -> st.SearchStrategy[pa.Array]:
    def of(kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pa.Array]:
        made = st.lists(st.one_of(st.none(), values), min_size=1, max_size=80)
        if pa.types.is_date32(kind) or pa.types.is_time32(kind) or pa.types.is_timestamp(kind):
            number = pa.int64() if kind.bit_width == 64 else pa.int32()
            return made.map(lambda rows: pa.array(rows, number).cast(kind))
        return made.map(lambda rows: pa.array(rows, kind))

    return st.one_of(*(of(kind, values) for kind, values in TYPES))


@settings(deadline=None, max_examples=60)
@given(columns(), st.sampled_from(FORMS), st.booleans())
def test_no_way_ever_loses_a_value(values: pa.Array, form: type[BlockFilter], dictionary: bool) -> None:
    file = parquet_of(values, use_dictionary=dictionary, store_decimal_as_integer=True, row_group_size=50)
    encoding = read_footer(BytesSource(file)).columns[0].encoding
    stored = pq.read_table(pa.BufferReader(file))["x"]
    made, way, _ = run(file, encoding, form)
    assert type(made) is form
    assert holds(made, stored, encoding)
    if dictionary:
        assert way == "dictionary"


def test_the_new_filter_meets_its_rate() -> None:
    made, _, _ = run(FILE, LONGS)
    outside = np.arange(10**9, 10**9 + 50_000)
    assert made.check(hash_arrow(pa.array(outside), LONGS)).mean() <= 0.015


def test_values_are_streamed() -> None:
    """The builder is handed an iterator, not a list."""
    evidence = evidence_of(FILE)
    seen: list[bool] = []

    def build(arrays: Any, distinct: int) -> BlockFilter:
        seen.append(isinstance(arrays, Iterator))
        return filter_of(SplitBlockBloomFilter, LONGS, 0.01)(arrays, distinct)

    assert rebuild(evidence, build)[1] == "values"
    assert seen == [True]


def test_evidence_of_a_real_file_by_another_writer() -> None:
    """parquet-java's own filters of int columns are rebuilt in the historical form."""
    path = Path(__file__).resolve().parents[1] / "data" / "parquet" / "j118_v1_none.parquet"
    source = BytesSource(path.read_bytes())
    footer = read_footer(source)
    table = pq.ParquetFile(path)
    seen = set()
    for name in ("i32_opt", "i64_opt", "str", "date"):
        leaf = footer.leaf(name)
        if leaf is None:
            continue
        for group in footer.row_groups:
            chunk = group.columns[leaf.index]
            evidence = ParquetEvidence(source, footer, [chunk])
            made, way = rebuild(evidence, filter_of(HistoricalBloomFilter, leaf.encoding, 0.01))
            values = table.read_row_group(group.ordinal, columns=[name])[name]
            assert holds(made, values, leaf.encoding), (name, group.ordinal)
            seen.add(way)
    assert seen
