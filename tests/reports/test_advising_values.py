"""The values of a sample: hashes that fit their values, examples in bounds' terms, and what few row groups tell."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sidecar.filters.array_hash import theta_hashes
from sidecar.filters.column_types import ColumnType
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import blocks_for
from sidecar.reports.advising.filters import expected_filter
from sidecar.reports.advising.presence import Presence, Shares
from sidecar.reports.advising.sizes import judged_sizes
from sidecar.reports.advising.values import EXAMPLES, ValueSampler, comparable, literal

DAY = dt.date(2024, 2, 29)
VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "int": (pa.int32(), [7, -3, 2**31 - 1], [7, -3, 2**31 - 1]),
    "long": (pa.int64(), [7, -3, 2**62], [7, -3, 2**62]),
    "double": (pa.float64(), [0.5, -1.0], [0.5, -1.0]),
    "string": (pa.string(), ["a", "ß", "long " * 9], [b"a", "ß".encode(), b"long " * 9]),
    "binary": (pa.binary(), [b"\x00", b"\xff\x01"], [b"\x00", b"\xff\x01"]),
    "fixed[2]": (pa.binary(2), [b"ab", b"\xff\x00"], [b"ab", b"\xff\x00"]),
    "decimal(9, 2)": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-0.01")], [125, -1]),
    "decimal(38, 4)": (pa.decimal128(38, 4), [Decimal(10**33 + 1), Decimal("-0.0001")], [(10**33 + 1) * 10**4, -1]),
    "date": (pa.date32(), [DAY], [(DAY - dt.date(1970, 1, 1)).days]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1970, 1, 2, 0, 0, 1)], [86_401_000_000]),
    "time": (pa.time64("us"), [dt.time(0, 0, 2)], [2_000_000]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_each_example_has_its_own_hash_and_value(kind: str) -> None:
    arrow, values, expected = VALUES[kind]
    sampler = ValueSampler(kind)
    sampler.add(0, pa.array([*values, None, *values], arrow), is_run_of_rows=True)
    sampled = sampler.finish()
    alone = [int(theta_hashes(pa.array([value], arrow), kind)[0]) for value in values]
    assert {example.hash: example.value for example in sampled.examples} == dict(zip(alone, expected, strict=True))
    assert sampled.slices == ((min(expected), max(expected)),)
    assert [(unit.values, unit.distinct) for unit in sampled.units] == [(2 * len(values), len(values))]
    assert sampled.distinct == len(values)
    if kind.startswith("decimal"):
        assert [literal(value, ColumnType.parse(kind)) for value in expected] == values
    assert comparable(pa.array(values, arrow), ColumnType.parse(kind)) == expected


def test_dictionaries_views_and_empty_texts() -> None:
    sampler = ValueSampler("string")
    sampler.add(0, pa.array(["a", "", "a", None]).dictionary_encode(), is_run_of_rows=False)
    sampler.add(0, pa.array(["b", ""], pa.string_view()), is_run_of_rows=False)
    sampled = sampler.finish()
    assert {example.value for example in sampled.examples} == {b"a", b"b"}
    assert (sampled.distinct, sampled.units[0].values) == (3, 5)


def test_a_row_group_knows_the_examples_of_others() -> None:
    first, second = ValueSampler("long"), ValueSampler("long")
    first.add(0, pa.array(np.arange(0, 40_000)), is_run_of_rows=False)
    second.add(0, pa.array(np.arange(20_000, 60_000)), is_run_of_rows=False)
    one, other = first.finish(), second.finish()
    assert len(one.examples) == EXAMPLES
    held, told = other.holds(one.hashes)
    assert told.all()
    assert [bool(answer) for answer in held] == [example.value >= 20_000 for example in one.examples]  # type: ignore[operator]
    assert not other.holds(np.array([2**62 + 2**61], np.uint64))[1].any()  # larger than what the sketch keeps


def presence(asked: int, found: int) -> Presence:
    return Presence(10, 10, asked, found, 0, 0, 0)


def test_values_that_are_everywhere_or_were_not_asked_for() -> None:
    assert Shares([presence(15, 15)] * 3).in_file(presence(15, 15), 20) == 1
    assert Shares([presence(0, 0)]).mean == 1
    neighbours_tell = Shares([Presence(9, 9, 0, 0, 4, 1, 0)])
    assert (neighbours_tell.mean, neighbours_tell.in_neighbour(2)) == (0.25, 1 - 0.75**2)


@pytest.mark.parametrize(("values", "fpp"), [(780, 0.01), (770, 0.01), (1_000, 0.01), (3_050, 0.05)])
def test_sizes_and_rates_of_filters_that_builds_make(values: int, fpp: float) -> None:
    """Near the target rate, bits decide by chance whether a filter is halved: at 780 values half of them are."""
    rng, sizes, rates = np.random.default_rng(4), [], []
    for _ in range(300):
        built = SplitBlockBloomFilter(np.zeros((blocks_for(values, fpp), 8), np.uint32))
        built.insert(rng.integers(0, 2**64, values, dtype=np.uint64))
        folded = built.fold_to(fpp)
        sizes.append(folded.num_bytes)
        rates.append(folded.estimated_fpp())
    expected = expected_filter(values, values, fpp, None)
    assert expected.size == pytest.approx(fmean(sizes), rel=0.1)
    assert expected.rate == pytest.approx(fmean(rates), rel=0.15)


def test_sizes_are_judged_by_the_advice_of_the_format() -> None:
    megabyte = 1 << 20
    small = judged_sizes([megabyte, 2 * megabyte], [8 << 10], 3 * megabyte)
    assert (small.row_group, small.page) == (megabyte, 8 << 10)
    assert "compacting" in small.remarks[0]
    usual = judged_sizes([128 * megabyte], [megabyte], 512 * megabyte)
    assert not any("compacting" in remark for remark in usual.remarks)
    assert "advises 8 kB" in usual.remarks[1]
    assert judged_sizes([], [], 0).remarks == []
