"""Plans for a join's keys open as few files and row groups as bounds and filters allow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

import sidecar
from sidecar.bundle.filters.key_lookup import KeyRuns
from sidecar.errors import UsageError
from sidecar.planning.files.by_filters import FilePlace
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.keys import key_pruning
from sidecar.planning.keys.key_pruning import KeyAnswer, KeyPruner
from sidecar.planning.keys.key_sets import KeySet
from tests.iceberg.cases import comparable, local, replaced
from tests.planning.key_set_cases import semi_join
from tests.planning.plan_cases import LONGS
from tests.tables import create_with_rows


def longs(keys: Any, name: str = "") -> pa.Table:
    return pa.table({"k": keys, "v": [f"{name}{n}" for n in range(len(keys))]}, schema=LONGS)


def create_longs(catalog: Any, name: str, files: list[Any]) -> Table:
    parts = [longs(keys, f"{number}-") for number, keys in enumerate(files)]
    return create_with_rows(catalog, name, parts, LONGS, ["k"])


def test_clustered_keys_are_cut_to_bounds(catalog: Any) -> None:
    table = create_longs(catalog, "db.keys_clustered", [np.arange(n * 1000, n * 1000 + 1000) for n in range(6)])
    keys = pa.array([*range(2100, 2200), *range(4500, 4600)])
    found = sidecar.plan(table, AlwaysTrue(), keys={"k": keys})
    assert (found.funnel.dropped_by_metadata, found.funnel.dropped_by_filter, found.files_kept) == (4, 0, 2)
    assert found.to_arrow().num_rows == 200
    # Far more keys than filters can be asked for: but no file has so many of them, or none, within its bounds.
    many = pa.array([*range(10_000, 500_000), *range(3_000, 4_000, 500)])
    found = sidecar.plan(table, AlwaysTrue(), keys={"k": many})
    assert found.files_kept == 1
    assert found.notes == ()
    assert "dropped by partition or bounds" in found.explain()


@pytest.mark.parametrize("kind", ["long", "double", "string"])
def test_keys_at_the_very_bounds_of_files_are_within_them(catalog: Any, kind: str) -> None:
    arrow = {"long": pa.int64(), "double": pa.float64(), "string": pa.string()}[kind]
    table: Table = catalog.create_table(f"db.keys_at_bounds_{kind}", pa.schema([("k", arrow)]))
    files = [[100, 150, 199], [200, 250, 299], [300, 350, 399]]
    for numbers in files:
        table.append(pa.table({"k": pa.array(numbers).cast(arrow)}))
    for keys, kept in (
        ([200], 1),
        ([299], 1),
        ([200, 299], 1),
        ([199, 200], 2),
        ([100, 399], 2),
        ([100, 200, 300], 3),
        ([201, 298], 1),
        ([0, 99], 0),
    ):
        array = pa.array(keys).cast(arrow)
        found = sidecar.plan(table, AlwaysTrue(), keys={"k": array})
        there = {number for numbers in files for number in numbers} & set(keys)
        assert found.to_arrow().num_rows == len(there), keys
        if there:
            assert found.files_kept == kept, keys


def test_bounds_that_contradict_each_other_rule_out_no_key() -> None:
    def within(lower: int, upper: int) -> tuple[int, int]:
        low, high = (number.to_bytes(8, "little") for number in (lower, upper))
        file = DataFile.from_args(record_count=9, lower_bounds={1: low}, upper_bounds={1: high})
        pruner = KeyPruner(KeySet(1, "k", "long", np.array([5, 15, 25])), {})
        found = pruner.by_bounds([file])
        return int(found.first[0]), int(found.end[0])

    assert within(10, 20) == (1, 2)
    assert within(20, 10) == (0, 3)


def test_float_keys_are_cut_to_bounds_of_row_groups(catalog: Any) -> None:
    """Rising values, indexed by pages alone: of row groups outside of the keys' range, that with NaN is kept."""
    schema = pa.schema([("k", pa.float64()), ("g", pa.float32())])
    settings = {"write.parquet.row-group-limit": "100"}
    table = catalog.create_table("db.keys_floats", schema, properties=settings)
    values = [math.nan, -0.0, -math.inf, *np.arange(1, 1000, dtype=float) / 8, math.inf]
    table.append(pa.table({"k": values, "g": pa.array(values, pa.float32())}, schema=schema))
    sidecar.build(table, ["k", "g"], kinds=["page-index"], engine="local")
    table = catalog.load_table("db.keys_floats")
    rows = table.scan().to_arrow()
    for column, kind in (("k", pa.float64()), ("g", pa.float32())):
        for keys, groups in (
            ([50.0, 50.125, 50.01], 2),
            ([0.0, 12.0], 1),
            ([110.0, math.inf], 4),
            ([-math.inf, 12.0], 1),
            ([math.inf], None),
            ([math.nan, 3.0], None),
        ):
            array = pa.array(keys, kind)
            found = sidecar.plan(table, AlwaysTrue(), keys={column: array})
            assert comparable(found.to_arrow()) == semi_join(rows, column, array)
            if groups is not None:
                assert found.funnel.row_groups_kept <= groups, keys


def test_filters_drop_files_and_row_groups_that_hold_no_key(catalog: Any) -> None:
    random_keys = [np.random.default_rng(n).integers(-(2**60), 2**60, 500) * 2 for n in range(5)]
    table = create_longs(catalog, "db.keys_random", random_keys)
    held = pa.array([int(random_keys[3][7]), int(random_keys[3][9]), 1, 3, 5])
    found = sidecar.plan(table, AlwaysTrue(), keys={"k": held})
    assert (found.files_kept, found.funnel.dropped_by_filter, found.funnel.indexed) == (1, 4, 5)
    assert found.funnel.kept_because == {"may match": 1}
    assert found.to_arrow().num_rows == 2
    assert sidecar.plan(table, "v = '3-7'", keys={"k": held}).to_arrow().num_rows == 1
    assert sidecar.plan(table, f"k = {random_keys[1][0]}", keys={"k": held}).files_kept == 0
    table.append(longs([1, 2, 3]))
    found = sidecar.plan(table, AlwaysTrue(), keys={"k": held})
    assert found.funnel.kept_because == {"may match": 1, KeptFilesBecause.NOT_LISTED.text: 1}
    assert found.to_arrow().num_rows == 4
    assert sidecar.plan(table, AlwaysTrue(), keys={"v": pa.array(["3-7"])}).funnel.kept_because == {
        "not indexed: v: no filters were built": 1
    }


def test_too_many_keys_are_not_asked_and_it_is_said(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random_keys = [np.random.default_rng(n).integers(-(2**60), 2**60, 500) * 2 for n in range(3)]
    table = create_longs(catalog, "db.keys_many", random_keys)
    absent = np.random.default_rng(9).integers(-(2**59), 2**59, 100_000) * 2 + 1
    found = sidecar.plan(table, AlwaysTrue(), keys={"k": pa.array(absent)})
    assert found.funnel.kept_because == {KeptFilesBecause.TOO_MANY.text: 3}
    assert found.index_reads == 0
    assert len(found.notes) == 1
    assert "are not asked" in found.notes[0]
    assert found.to_arrow().num_rows == 0
    monkeypatch.setattr(key_pruning, "rate_of", lambda bundle: 0.01)
    some = sidecar.plan(table, keys={"k": pa.array(absent[:99])})
    more = sidecar.plan(table, AlwaysTrue(), keys={"k": pa.array(absent[:101])})
    assert (some.files_kept, some.notes) == (0, ())
    assert more.funnel.kept_because == {KeptFilesBecause.TOO_MANY.text: 3}
    assert "one lookup in 100 is a false positive. Filters of build --for-keys 101 (a rate of 1e-04)" in more.notes[0]
    monkeypatch.setattr(key_pruning, "MAX_BYTES", 1000)
    costly = sidecar.plan(table, AlwaysTrue(), keys={"k": pa.array(absent[:99])})
    assert costly.files_kept == 3
    assert "bytes would be read" in costly.notes[0]


def test_a_build_for_many_keys_has_filters_that_are_asked(catalog: Any) -> None:
    table = create_longs(
        catalog, "db.keys_built_for", [np.random.default_rng(n).integers(-(2**60), 2**60, 500) * 2 for n in range(3)]
    )
    absent = pa.array(np.random.default_rng(9).integers(-(2**59), 2**59, 1000) * 2 + 1)
    before = sidecar.plan(table, keys={"k": absent})
    assert (before.files_kept, "build --for-keys" in "".join(before.notes)) == (3, True)
    report = sidecar.build(table, ["k"], for_keys=1000, engine="local")
    assert (report.fpp, report.files_indexed) == (1e-4, 3)
    assert sidecar.plan(table, keys={"k": absent}).notes == ()
    assert sidecar.plan(table, keys={"k": absent}).files_kept < 3
    with pytest.raises(UsageError, match="fpp and for_keys both choose the rate"):
        sidecar.build(table, ["k"], for_keys=1000, fpp=0.01)
    with pytest.raises(UsageError, match="one key or more"):
        sidecar.build(table, ["k"], for_keys=0)


def test_few_lookups_are_left_for_the_files_with_the_fewest_keys(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [np.arange(n * 1000, n * 1000 + 1000, 2) for n in range(3)]
    table = create_longs(catalog, "db.keys_few", files)
    absent = pa.array([*range(1, 999, 2), *range(1001, 1999, 20), *range(2001, 2999, 100)])
    monkeypatch.setattr(key_pruning, "MAX_LOOKUPS", 100)
    monkeypatch.setattr(key_pruning, "rate_of", lambda bundle: 1e-6)
    found = sidecar.plan(table, AlwaysTrue(), keys={"k": absent})
    assert found.funnel.kept_because == {KeptFilesBecause.TOO_MANY.text: 1}
    assert found.funnel.dropped_by_filter == 2
    assert "499 keys" in found.notes[0]


def test_a_damaged_index_keeps_the_files(catalog: Any) -> None:
    random_keys = [np.random.default_rng(n).integers(-(2**60), 2**60, 500) * 2 for n in range(3)]
    table = create_longs(catalog, "db.keys_damaged", random_keys)
    path = local(table.metadata.statistics[-1].statistics_path)
    keys = {"k": pa.array([1, 3, int(random_keys[1][0])])}
    whole = path.read_bytes()
    assert sidecar.plan(table, AlwaysTrue(), keys=keys).files_kept == 1
    reasons = set()
    for at in range(8, len(whole), len(whole) // 15):
        damaged = bytearray(whole)
        damaged[at : at + 200] = bytes(b ^ 0x5A for b in damaged[at : at + 200])
        with replaced(path, bytes(damaged)):
            found = sidecar.plan(table, AlwaysTrue(), keys=keys)
            assert found.to_arrow().num_rows == 1
            reasons |= set(found.funnel.kept_because)
    assert KeptFilesBecause.DAMAGED.text in reasons
    with replaced(path, None):
        found = sidecar.plan(table, AlwaysTrue(), keys=keys)
        assert found.files_kept == 3
        assert found.warnings


@pytest.mark.parametrize(
    ("alive", "keep"),
    [
        ([], True),  # no segment lists it
        ([[]], True),  # one that could not index it does
        ([[False, True], []], True),
        ([[], [False, True]], True),
        ([[False, False], []], False),
        ([[True, False], [False, False]], False),  # neither may deny all of it
        ([[True, False], [False, True]], True),  # row groups are told apart elsewhere
    ],
)
def test_a_file_is_left_if_no_segment_that_indexed_it_denies_all_of_it(alive: Any, keep: bool) -> None:
    places = [FilePlace(0, 0, np.array(flags, np.bool_)) for flags in alive]
    assert KeyAnswer(places, "").keep is keep


def test_runs_cover_what_their_union_does() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        first = rng.integers(0, 60, 8)
        runs = KeyRuns(first, first + rng.integers(-1, 12, 8))
        union = sorted({k for a, b in zip(runs.first, runs.end, strict=True) for k in range(a, b)})
        assert runs.covered().tolist() == union
        assert runs.count_covered() == len(union)
