"""Rebuilding: the order of the ways, when each is closed, and no false negative by any of them."""

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

from sidecar.conversion.parquet_evidence import ParquetEvidence, filter_of
from sidecar.conversion.rebuild import DomainLimits, Rebuilt, false_extras, rebuild
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import read_footer
from sidecar.parquet.thrift import BINARY, Struct
from sidecar.source import BytesSource
from tests.conversion.rebuild_cases import evidence_of, found_filter, parquet_of, statistics_of, with_footer

LONGS = Encoding.parse("int64")
FORMS = [SplitBlockBloomFilter, HistoricalBloomFilter]


def run(
    file: bytes,
    encoding: Encoding,
    old: Any = None,
    form: type[BlockFilter] = SplitBlockBloomFilter,
    **options: Any,
) -> Rebuilt[BlockFilter]:
    evidence, _ = evidence_of(file, old)
    return rebuild(evidence, filter_of(form, encoding, 0.01), **options)


def holds(found: BlockFilter, values: pa.Array, encoding: Encoding) -> bool:
    return bool(found.check(hash_arrow(values, encoding, function=found.function)).all())


VALUES = pa.array(np.random.default_rng(4).choice(20_000, 400, replace=False), pa.int64())
FILE = parquet_of(VALUES)


# --- the ways -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_dictionary_pages_come_first(form: type[BlockFilter]) -> None:
    file = parquet_of(VALUES, use_dictionary=True)
    made = run(file, LONGS, found_filter(VALUES, LONGS), form)
    assert (made.way, made.closed) == ("dictionary", {})
    assert type(made.filter) is form
    assert holds(made.filter, VALUES, LONGS)


def test_a_bounded_domain_comes_second() -> None:
    old = found_filter(VALUES, LONGS)
    made = run(FILE, LONGS, old, rate_before=old.filter.estimated_fpp())
    assert made.way == "domain"
    assert list(made.closed) == ["dictionary"]
    assert holds(made.filter, VALUES, LONGS)
    low, high = min(VALUES.to_pylist()), max(VALUES.to_pylist())
    assert made.domain_size == high - low + 1
    assert made.admitted is not None
    assert made.admitted >= 400
    assert made.expected_false_extras == pytest.approx(made.admitted - 400, abs=12 + 0.2 * (made.admitted - 400))
    assert made.rate_before == old.filter.estimated_fpp()
    assert made.rate_after <= 0.01


def test_values_come_last_and_each_closed_way_says_why() -> None:
    made = run(FILE, LONGS)
    assert made.way == "values"
    assert set(made.closed) == {"dictionary", "domain"}
    assert made.closed["domain"] == "there is no old filter of this column"
    assert holds(made.filter, VALUES, LONGS)
    assert made.domain_size is None


def test_where_no_way_is_open_each_reason_is_named() -> None:
    class Nothing:
        def dictionary(self) -> str:
            return "no pages"

        def domain(self) -> str:
            return "no bounds"

        def values(self) -> str:
            return "no data file"

    with pytest.raises(UnsupportedFeatureError, match="dictionary: no pages; domain: no bounds; values: no data file"):
        rebuild(Nothing(), filter_of(SplitBlockBloomFilter, LONGS, 0.01))


def test_a_mixed_chunk_is_not_rebuilt_from_its_dictionary() -> None:
    values = pa.array(np.arange(50_000), pa.int64())
    file = parquet_of(values, use_dictionary=True, dictionary_pagesize_limit=4096)
    made = run(file, LONGS)
    assert made.way == "values"
    assert "not every page" in made.closed["dictionary"]
    assert holds(made.filter, values, LONGS)


def test_several_row_groups_are_one_filter() -> None:
    old = found_filter(VALUES, LONGS)
    for dictionary, way in ((True, "dictionary"), (False, "domain")):
        file = parquet_of(VALUES, row_group_size=90, use_dictionary=dictionary)
        made = run(file, LONGS, old)
        assert made.way == way
        assert holds(made.filter, VALUES, LONGS)


def test_a_damaged_dictionary_leaves_the_other_ways_open() -> None:
    file = bytearray(parquet_of(VALUES, use_dictionary=True))
    page = read_footer(BytesSource(bytes(file))).row_groups[0].columns[0].start
    file[page : page + 8] = b"\xff" * 8
    made = run(bytes(file), LONGS, found_filter(VALUES, LONGS))
    assert made.way == "domain"
    assert made.closed["dictionary"]
    with pytest.raises(DamagedFileError):
        run(bytes(file), LONGS)


def test_an_empty_column_gives_an_empty_filter() -> None:
    made = run(parquet_of(pa.array([], pa.int64())), LONGS)
    assert made.filter.fill() == 0


# --- when a domain is not enumerated ------------------------------------------------------------------------


def closed_domain(file: bytes, old: Any, **options: Any) -> str:
    made = run(file, LONGS, old, **options)
    assert made.way == "values"
    assert holds(made.filter, VALUES, LONGS)
    return made.closed["domain"]


def changed(change: Any) -> bytes:
    return with_footer(FILE, lambda tree: change(statistics_of(tree)))


def test_bounds_that_are_absent_or_not_exact_are_not_enumerated() -> None:
    old = found_filter(VALUES, LONGS)
    assert "no bounds" in closed_domain(changed(lambda s: s.fields.pop(5)), old)
    assert "no bounds" in closed_domain(changed(lambda s: s.fields.pop(6)), old)

    def inexact(field_id: int) -> Any:
        def change(statistics: Struct) -> None:
            kind, _ = statistics.fields[7]
            statistics.fields[field_id] = (kind, False)

        return change

    assert "not exact" in closed_domain(changed(inexact(7)), old)
    assert "not exact" in closed_domain(changed(inexact(8)), old)


def test_the_older_bounds_alone_are_not_enough() -> None:
    def only_old(statistics: Struct) -> None:
        statistics.fields[1], statistics.fields[2] = statistics.fields.pop(5), statistics.fields.pop(6)

    assert "no bounds" in closed_domain(changed(only_old), found_filter(VALUES, LONGS))


def test_an_unknown_column_order_is_not_enumerated() -> None:
    old = found_filter(VALUES, LONGS)
    assert "column orders" in closed_domain(with_footer(FILE, lambda tree: tree.fields.pop(7)), old)

    def ninth(tree: Struct) -> None:
        order = tree.structs(7)[0]  # type: ignore[index]
        order.fields[9] = order.fields.pop(1)

    assert "column order 9" in closed_domain(with_footer(FILE, ninth), old)


def test_bounds_the_wrong_way_round_are_not_enumerated() -> None:
    def swap(statistics: Struct) -> None:
        statistics.fields[5], statistics.fields[6] = statistics.fields[6], statistics.fields[5]
        for older in (1, 2):
            statistics.fields.pop(older)  # they would contradict these

    assert "greater" in closed_domain(changed(swap), found_filter(VALUES, LONGS))


def test_bounds_that_the_filter_denies_are_believed_no_more_than_the_filter() -> None:
    """Either of the two is wrong: statistics that leave values out would make the new filter deny them."""

    def tighter(statistics: Struct) -> None:
        high = int.from_bytes(statistics.fields[5][1], "little")
        statistics.fields[5] = (BINARY, (high - 1).to_bytes(8, "little"))
        statistics.fields.pop(1)  # the older maximum, which would contradict it

    assert "denies a bound" in closed_domain(changed(tighter), found_filter(VALUES, LONGS, z=4096))
    others = pa.array(np.arange(100) * 7 - 10**9, pa.int64())
    assert "denies a bound" in closed_domain(FILE, found_filter(others, LONGS))


def test_a_defective_filter_is_not_asked() -> None:
    old = found_filter(VALUES, LONGS)
    defective = type(old)(old.filter, 0, old.length, 12, "its lengths contradict each other")
    assert "defective" in closed_domain(FILE, defective)


def test_a_large_domain_is_not_enumerated() -> None:
    old = found_filter(VALUES, LONGS)
    assert "more than 100" in closed_domain(FILE, old, limits=DomainLimits(numbers=100))
    wide = pa.array([-(1 << 63), 0, (1 << 63) - 1], pa.int64())
    made = run(parquet_of(wide), LONGS, found_filter(wide, LONGS))
    assert made.way == "values"
    assert "18,446,744,073,709,551,616 integers" in made.closed["domain"]


def test_too_many_false_extras_are_not_taken() -> None:
    assert "false extras are expected" in closed_domain(FILE, found_filter(VALUES, LONGS, z=4))
    few = pa.array([0, 30_000] * 5000, pa.int64())  # many rows, two values: most of what is admitted is not there
    old = found_filter(pa.array(np.r_[np.arange(200) * -7, 0, 30_000], pa.int64()), LONGS, z=16)
    made = run(parquet_of(few), LONGS, old)
    assert made.way == "values"
    assert "admitted integers are false extras" in made.closed["domain"]


@pytest.mark.parametrize("values", [pa.array(["a", "b"]), pa.array([1.5, 2.5]), pa.array([b"ab"], pa.binary(2))])
def test_what_is_no_bounded_integer_is_not_enumerated(values: pa.Array) -> None:
    file = parquet_of(values)
    encoding = read_footer(BytesSource(file)).columns[0].encoding
    made = run(file, encoding, found_filter(values, encoding))
    assert made.way == "values"
    assert "not bounded integers" in made.closed["domain"]
    assert holds(made.filter, values, encoding)


def test_only_nulls_have_no_domain() -> None:
    made = run(parquet_of(pa.array([None, None], pa.int64())), LONGS, found_filter(VALUES, LONGS))
    assert (made.way, made.filter.fill()) == ("values", 0)


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


@settings(deadline=None, max_examples=120)
@given(columns(), st.sampled_from(FORMS), st.sampled_from(FORMS), st.booleans(), st.integers(0, 7))
def test_no_way_ever_loses_a_value(
    values: pa.Array, before: type[BlockFilter], after: type[BlockFilter], dictionary: bool, size: int
) -> None:
    file = parquet_of(values, use_dictionary=dictionary, store_decimal_as_integer=True, row_group_size=50)
    encoding = read_footer(BytesSource(file)).columns[0].encoding
    stored = pq.read_table(pa.BufferReader(file))["x"]
    old = found_filter(stored, encoding, before, 1 << size)
    made = run(file, encoding, old, after)
    assert type(made.filter) is after
    assert holds(made.filter, stored, encoding)
    if dictionary:
        assert made.way == "dictionary"
    if made.way == "domain":
        assert made.domain_size is not None
        assert made.admitted is not None
        assert len(stored.unique().drop_null()) <= made.admitted <= made.domain_size


def test_the_domain_way_is_really_taken_for_every_integer_type() -> None:
    """The property test above would pass if all columns went by their values."""
    ways = {}
    for kind, _ in TYPES:
        numbers = pa.array(range(10, 300, 7), pa.int64() if kind.bit_width == 64 else pa.int32())
        is_decimal = pa.types.is_decimal(kind)
        values = (
            pa.array([Decimal(n).scaleb(-kind.scale) for n in range(10, 300, 7)], kind)
            if is_decimal
            else (pa.array(range(10, 120, 3), kind) if pa.types.is_integer(kind) else numbers.cast(kind))
        )
        file = parquet_of(values, store_decimal_as_integer=True)
        encoding = read_footer(BytesSource(file)).columns[0].encoding
        stored = pq.read_table(pa.BufferReader(file))["x"]
        made = run(file, encoding, found_filter(stored, encoding))
        assert holds(made.filter, stored, encoding)
        ways[str(kind), encoding.name] = made.way
    assert set(ways.values()) == {"domain"}, ways


def test_numbers_beyond_63_bits_are_left_to_the_values() -> None:
    values = pa.array([2**63 + 5, 2**63 + 9], pa.uint64())
    encoding = Encoding.parse("uint64")
    made = run(parquet_of(values), encoding, found_filter(values, encoding))
    assert made.way == "values"
    assert "do not fit" in made.closed["domain"]
    assert holds(made.filter, values, encoding)


# --- rates --------------------------------------------------------------------------------------------------


def test_the_new_filter_meets_its_rate_and_is_no_better_than_the_old_inside_the_domain() -> None:
    old = found_filter(VALUES, LONGS, z=32)
    made = run(FILE, LONGS, old, rate_before=old.filter.estimated_fpp())
    assert made.way == "domain"
    inside = np.setdiff1d(np.arange(20_000), VALUES.to_numpy())
    outside = np.arange(10**9, 10**9 + 50_000)
    rates = [made.filter.check(hash_arrow(pa.array(numbers), LONGS)).mean() for numbers in (inside, outside)]
    old_rate = old.filter.check(hash_arrow(pa.array(inside), LONGS, function=old.filter.function)).mean()
    assert old_rate <= rates[0] <= old_rate + 0.02
    assert rates[1] <= 0.015


def test_false_extras_solve_the_equation() -> None:
    from sidecar.conversion.rebuild import Domain

    def domain(size: int, rate: float) -> Domain:
        return Domain(1, size, lambda n: n > 0, lambda n: pa.array(n), rate, 10)

    assert false_extras(domain(1000, 0.1), 190) == pytest.approx(90)  # 100 values, a tenth of 900 others
    assert false_extras(domain(1000, 0.0), 77) == 0
    assert false_extras(domain(1000, 1.0), 1000) == 1000
    assert false_extras(domain(1000, 0.5), 10) == 10  # never more than were admitted


def test_values_are_streamed() -> None:
    """The builder is handed an iterator, not a list."""
    evidence, _ = evidence_of(FILE)
    seen: list[bool] = []

    def build(arrays: Any, distinct: int) -> BlockFilter:
        seen.append(isinstance(arrays, Iterator))
        return filter_of(SplitBlockBloomFilter, LONGS, 0.01)(arrays, distinct)

    assert rebuild(evidence, build).way == "values"
    assert seen == [True]


def test_evidence_of_a_real_file_by_another_writer() -> None:
    """parquet-java's own filters of int columns are rebuilt in the historical form by way of the domain or values."""
    from sidecar.parquet.bloom import read_bloom_filter

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
            evidence = ParquetEvidence(source, footer, [chunk], read_bloom_filter(source, chunk))
            made = rebuild(evidence, filter_of(HistoricalBloomFilter, leaf.encoding, 0.01))
            values = table.read_row_group(group.ordinal, columns=[name])[name]
            assert holds(made.filter, values, leaf.encoding), (name, group.ordinal)
            seen.add(made.way)
    assert seen
