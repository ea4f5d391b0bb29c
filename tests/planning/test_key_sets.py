"""Plans and scans for a join's keys: the rows of a semi-join, and which columns and keys fit."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

import sidecar
from sidecar.errors import UsageError
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.planning.keys.key_sets import key_set
from tests.iceberg.cases import INDEXED, append, comparable, create, predicate
from tests.iceberg.table_cases import delete_by_position, with_a_past
from tests.planning.key_set_cases import semi_join, value_of
from tests.tables import create_with_rows

TYPES = {"u": pa.binary(16)}


@pytest.fixture(scope="module")
def types(catalog: Any) -> Table:
    """All types: four files that are indexed, two that are not, some rows deleted by position."""
    made = create(catalog, "db.keys_types", files=4, partitioned=False)
    sidecar.build(made, INDEXED, kinds=["bloom", "page-index"], engine="local")
    made = catalog.load_table("db.keys_types")
    append(made, 160, 40)
    append(made, 200, 40)
    first = next(iter(made.scan().plan_files())).file.file_path
    delete_by_position(made, {first: [0, 3, 17]})
    return catalog.load_table("db.keys_types")


@pytest.fixture(scope="module")
def past(catalog: Any) -> Table:
    """Columns promoted, renamed, dropped and added again, other partitions; the index is older than half of it."""
    made = with_a_past(catalog, "db.keys_past")
    columns = ["i", "renamed", "f", "d", "dec9", "s", "b", "day", "ts", "st.x", "st.y"]
    sidecar.build(made, columns, kinds=["bloom"], engine="local")
    made = catalog.load_table("db.keys_past")
    append(made, 350, 70)
    return catalog.load_table("db.keys_past")


def type_of(table: Table, column: str) -> pa.DataType:
    kind: Any = table.schema().as_arrow()
    for part in column.split("."):
        kind = kind.field(part).type
    return TYPES.get(column, kind)


def some_keys(rng: random.Random, rows: list[dict[str, Any]], column: str, kind: pa.DataType) -> pa.Array:
    """Values of a few rows, close together or from anywhere, with nulls and repeats."""
    count = rng.choice([0, 1, 2, 5, 30, 90])
    start = rng.randrange(len(rows))
    chosen = rows[start : start + count] if rng.random() < 0.5 else [rng.choice(rows) for _ in range(count)]
    values = [None if (v := value_of(row, column)) is None else (math.nan if v == "NaN" else v) for row in chosen]
    return pa.array([*values, None, *values[:2]], kind)


@pytest.mark.parametrize("which", ["types", "past"])
def test_rows_are_those_of_a_semi_join(request: pytest.FixtureRequest, which: str) -> None:
    table: Table = request.getfixturevalue(which)
    everything = table.scan().to_arrow().to_pylist()
    columns = INDEXED if which == "types" else ["i", "renamed", "f", "d", "dec9", "s", "b", "day", "ts", "st.x"]
    rng, dropped = random.Random(which), 0
    for number in range(20):
        column = columns[number % len(columns)]
        keys = some_keys(rng, everything, column, type_of(table, column))
        asked = [name for name in ("i", "d", "s", "day") if rng.random() < 0.5]
        text: Any = predicate(rng, asked, 240) if asked else AlwaysTrue()
        found = sidecar.plan(table, text, keys={column: keys})
        alone = table.scan(row_filter=as_expression(text, table.schema())).to_arrow()
        assert comparable(found.to_arrow()) == semi_join(alone, column, keys), (column, keys, text)
        assert found.warnings == ()
        dropped += found.funnel.dropped_by_filter
    assert dropped > 0


def test_zeros_are_equal_nan_is_nan_and_null_is_nothing(types: Table) -> None:
    rows = types.scan().to_arrow()
    for column, kind in (("f", pa.float32()), ("d", pa.float64())):
        for values in ([0.0], [-0.0], [math.nan], [None], [math.nan, 0.0, None], [math.inf]):
            keys = pa.array(values, kind)
            found = sidecar.scan(types, AlwaysTrue(), keys={column: keys})
            assert comparable(found) == semi_join(rows, column, keys)
            assert (found.num_rows > 0) == (values != [None])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=["float", "double"])
def test_nan_is_found_beside_a_key_that_the_filters_deny(catalog: Any, kind: pa.DataType) -> None:
    """The other key is within the bounds of every file and in none; the predicate has the sidecar opened."""
    name = f"db.keys_nan_{kind}"
    files = ([1.0, 2.0, math.nan], [1.0, 2.0, 3.0], [math.nan, 1.0, 4.0])
    parts = [pa.table({"k": pa.array(values, kind), "v": ["x"] * 3}) for values in files]
    table = create_with_rows(catalog, name, parts, columns=["k", "v"])
    denied = pa.array([1.5], kind)
    assert sidecar.plan(table, "v = 'x'", keys={"k": denied}).funnel.dropped_by_filter == 3
    keys = pa.array([math.nan, 1.5], kind)
    found = sidecar.plan(table, "v = 'x'", keys={"k": keys})
    assert comparable(found.to_arrow()) == semi_join(table.scan().to_arrow(), "k", keys)
    assert found.to_arrow().num_rows == 2


def test_plain_lists_are_keys_as_arrays_are(types: Table) -> None:
    everything = types.scan().to_arrow()
    columns = ["i", "l", "f", "d", "dec9", "dec38", "s", "b", "fx", "day", "t", "ts", "tz", "u", "bo", "st.y"]
    for column in columns:
        values = [value_of(row, column) for row in everything.to_pylist()[:60]]
        keys = [math.nan if value == "NaN" else value for value in [*values, None]]
        if column == "u":
            keys = [None if value is None else uuid.UUID(bytes=value) for value in keys]
        assert any(value is not None for value in keys)
        found = sidecar.scan(types, AlwaysTrue(), keys={column: keys})
        plain = pa.array(values, type_of(types, column)) if "NaN" not in values else pa.array(keys[:-1])
        assert comparable(found) == semi_join(everything, column, plain), column
        assert comparable(found) == comparable(sidecar.scan(types, AlwaysTrue(), keys={column: tuple(keys)}))


def test_a_null_struct_stays_null_where_the_keys_are_of_another_column(types: Table) -> None:
    """The keys' column is read along and taken out again: structs are put together anew."""
    everything = types.scan().to_arrow()
    ids = everything["id"]
    for columns in (["st"], ["st.y"]):
        found = sidecar.scan(types, AlwaysTrue(), columns=columns, keys={"id": ids})
        theirs = types.scan(selected_fields=tuple(columns)).to_arrow()
        assert None in theirs["st"].to_pylist()
        assert found["st"].to_pylist() == theirs["st"].to_pylist()


def test_columns_and_limits(types: Table) -> None:
    keys = pa.array([0, 3, 6, -1500, 300, 600, 900], pa.int64())
    whole = sidecar.scan(types, AlwaysTrue(), keys={"st.x": keys})
    held = sidecar.scan(types, AlwaysTrue(), columns=["id", "st.y"], keys={"st.x": keys})
    assert held.schema.names == ["id", "st"]
    assert held.schema.field("st").type.num_fields == 1
    assert sorted(held["id"].to_pylist()) == sorted(whole["id"].to_pylist())
    ids = pa.array(range(0, 240, 5))
    assert sidecar.scan(types, AlwaysTrue(), columns=["s"], keys={"id": ids}).schema.names == ["s"]
    assert sidecar.scan(types, AlwaysTrue(), limit=7, keys={"id": ids}).num_rows == 7


@pytest.mark.parametrize(
    ("column", "keys", "problem"),
    [
        ("i", pa.array([2**31]), "do not fit"),
        ("l", pa.array([2**63], pa.uint64()), "do not fit"),
        ("l", pa.array([1.0]), "do not have the type"),
        ("d", pa.array([1.0], pa.float32()), "do not have the type"),
        ("dec9", pa.array([Decimal("1.000")]), "do not have the type"),
        ("dec9", pa.array([Decimal("12345678.00")], pa.decimal128(12, 2)), "do not fit"),
        ("s", pa.array([b"a"]), "do not have the type"),
        ("fx", pa.array([b"abc"], pa.binary(3)), "do not have the type"),
        ("ts", pa.array([0], pa.timestamp("us", "UTC")), "do not have the type"),
        ("ts", pa.array([0], pa.timestamp("ms")), "do not have the type"),
        ("day", pa.array(["2024-01-01"]), "do not have the type"),
        ("st", pa.array([1]), "struct"),
        ("nope", pa.array([1]), "nope"),
        ("i", {1, 2}, "Arrow array or a list"),
        ("i", [1, 1.5], "not a value of its column"),
        ("i", [True], "not a value of its column"),
        ("i", [2**31], "do not fit"),
        ("f", [0.1], "not a value of its column"),
        ("d", [2**53 + 1], "not a value of its column"),
        ("dec9", [Decimal("1.005")], "do not fit"),
        ("dec9", [1.5], "not a value of its column"),
        ("s", [b"a"], "not a value of its column"),
        ("fx", [b"abc"], "do not fit"),
        ("ts", [dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)], "not a value of its column"),
        ("tz", [dt.datetime(2024, 1, 1)], "not a value of its column"),
        ("ts", [pd.Timestamp("2024-01-01T00:00:00.000000001")], "not a value of its column"),
        ("day", [dt.datetime(2024, 1, 1)], "not a value of its column"),
        ("u", ["f79c3e09-677c-4bbd-a479-3f349cb785e7"], "not a value of its column"),
    ],
)
def test_keys_that_do_not_fit_are_refused(types: Table, column: str, keys: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        sidecar.plan(types, AlwaysTrue(), keys={column: keys})


def test_keys_are_of_one_column(types: Table) -> None:
    for keys in ({}, {"i": pa.array([1]), "l": pa.array([1])}, pa.array([1])):
        with pytest.raises(UsageError, match="one column"):
            sidecar.plan(types, AlwaysTrue(), keys=keys)  # type: ignore[arg-type]


def test_types_of_keys_that_fit(types: Table) -> None:
    schema = types.schema()
    for column, keys, expected in [
        ("i", pa.array([3, 1, 3, None], pa.uint8()), [1, 3]),
        ("l", pa.chunked_array([[3], [1]], pa.int16()), [1, 3]),
        ("i", pa.array([5]).dictionary_encode(), [5]),
        ("s", pa.array(["b", "a"], pa.large_string()), [b"a", b"b"]),
        ("s", pa.array(["b", "a"], pa.string_view()), [b"a", b"b"]),
        ("s", pa.array(["b", None, "a" * 40], pa.string_view()), [b"a" * 40, b"b"]),
        ("b", pa.array([b"b", None, b"a" * 40], pa.binary_view()), [b"a" * 40, b"b"]),
        ("s", pa.chunked_array([pa.array([None, "a"], pa.string_view())]), [b"a"]),
        ("dec9", pa.array([Decimal("-1.50"), Decimal("0.01")], pa.decimal128(30, 2)), [-150, 1]),
        ("dec38", pa.array([Decimal("-1.5"), Decimal(10) ** 30], pa.decimal128(38, 4)), [-15000, 10**34]),
        ("u", pa.array([uuid.UUID(int=7).bytes], pa.binary(16)), [uuid.UUID(int=7).bytes]),
        ("day", pa.array([dt.date(1970, 1, 3)]), [2]),
        ("tz", pa.array([5], pa.timestamp("us", "Europe/Paris")), [5]),
        ("bo", pa.array([True, False, None]), [0, 1]),
        ("i", pa.nulls(3), []),
    ]:
        assert key_set({column: keys}, schema).sorted.tolist() == expected


def test_keys_beyond_what_older_files_can_hold(past: Table) -> None:
    rows = past.scan().to_arrow()
    for column, keys in [
        ("i", pa.array([2**40, -(2**40), 2**31 - 1, *rows["i"].to_pylist()[:9]])),
        (
            "dec9",
            pa.array([Decimal(10) ** 15, Decimal("-1E15"), *rows["dec9"].to_pylist()[:9]], pa.decimal128(20, 2)),
        ),
        ("d", pa.array([1e300, 0.1, *rows["f"].to_pylist()[:9]])),
        ("f", pa.array([1e300, 0.1, *rows["f"].to_pylist()[:9]])),
    ]:
        found = sidecar.scan(past, AlwaysTrue(), keys={column: keys})
        assert found.num_rows > 5
        assert comparable(found) == semi_join(rows, column, keys)


def test_an_older_snapshot_in_which_the_column_has_another_name_and_type(past: Table) -> None:
    first = past.metadata.snapshots[0].snapshot_id
    rows = past.scan(snapshot_id=first).to_arrow()
    wide = pa.array([v for v in rows["i"].to_pylist() if v is not None][:9], pa.int64())
    found = sidecar.scan(past, AlwaysTrue(), at=first, keys={"i": wide})
    assert comparable(found) == semi_join(rows, "i", wide)
    with pytest.raises(UsageError, match="do not fit"):  # a LONG today, but an INT then
        sidecar.scan(past, AlwaysTrue(), at=first, keys={"i": pa.array([2**40], pa.int64())})
    zeros = pa.array([0.0, math.nan, 0.25], pa.float32())
    found = sidecar.scan(past, AlwaysTrue(), at=first, columns=["id"], keys={"f": zeros})
    assert found.schema.names == ["id"]
    assert found.num_rows == len(semi_join(rows, "f", zeros)) > 0
