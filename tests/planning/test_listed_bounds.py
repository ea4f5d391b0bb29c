"""Columns of bounds rule out the files that pyiceberg's evaluator rules out, and no more."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, bind
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from sidecar.bundle.model import FieldBounds
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.bound_columns import asks_bounds_alone, may_match
from sidecar.planning.file_bounds import UNKNOWN, FileBounds
from tests.tables import iceberg_schema

KINDS: dict[str, tuple[Any, list[Any]]] = {
    "i": (IntegerType(), [-5, 0, 3, 2**31 - 1]),
    "l": (LongType(), [-(2**63), -5, 0, 3, 2**40]),
    "f": (FloatType(), [-1.5, 0.0, 0.1, float("inf"), float("nan")]),
    "d": (DoubleType(), [-1.5, -0.0, 0.1, 3.0, float("nan")]),
    "s": (StringType(), ["", "a", "ab", "abc", "abż", "b", "ż"]),
    "day": (DateType(), [-3, 0, 19000]),
    "ts": (TimestampType(), [-1, 0, 1_700_000_000_000_000]),
}
SPELT = {"day": lambda v: f"'{np.datetime64(v, 'D')}'", "ts": lambda v: f"'{np.datetime64(v, 'us')}'"}


def test_columns_of_bounds_rule_out_what_pyicebergs_evaluator_does_and_no_more() -> None:
    """Bounds of every kind, cut, absent, contradicting, NaN, of promoted columns; random predicates over them."""
    from pyiceberg.conversions import to_bytes

    rng = random.Random(53)
    schema = Schema(*(NestedField(n, name, kind) for n, (name, (kind, _)) in enumerate(KINDS.items(), 1)))
    narrow = {"l": IntegerType(), "d": FloatType()}

    def serialized(name: str) -> bytes | None:
        if rng.random() < 0.15:
            return None
        kind, values = KINDS[name]
        value = rng.choice(values)
        fits = name != "l" or abs(value) < 2**31
        return to_bytes(narrow[name] if name in narrow and fits and rng.random() < 0.3 else kind, value)

    def count(most: int) -> int | None:
        return rng.choice([None, 0, most])

    files: list[dict[int, FieldBounds]] = []
    for _ in range(200):
        files.append(
            {
                n: FieldBounds(serialized(name), serialized(name), count(5), count(5), count(5))
                for n, name in enumerate(KINDS, 1)
            }
        )

    def column(field_id: int) -> pa.Table:
        rows = [file[field_id] for file in files]
        types = [pa.binary()] * 2 + [pa.int64()] * 3
        columns = zip(*rows, strict=True)
        return pa.table(
            {
                name: pa.array(values, kind)
                for name, values, kind in zip(FieldBounds._fields, columns, types, strict=True)
            }
        )

    def data_file(file: dict[int, FieldBounds]) -> DataFile:
        def known(name: str) -> dict[int, Any]:
            return {i: getattr(b, name) for i, b in file.items() if getattr(b, name) is not None}

        return DataFile.from_args(
            record_count=5,
            value_counts=known("value_count"),
            null_value_counts=known("null_count"),
            nan_value_counts=known("nan_count"),
            lower_bounds=known("lower"),
            upper_bounds=known("upper"),
        )

    own = [data_file(file) for file in files]
    forms = ["{c} = {a}", "{c} < {a}", "{c} <= {a}", "{c} > {a}", "{c} >= {a}", "{c} in ({a}, {b})", "{c} != {a}",
             "{c} is null", "{c} is not null", "not ({c} >= {a})"]  # fmt: skip
    ruled_out = theirs_out = 0
    for _ in range(100):
        parts = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            name = rng.choice(list(KINDS))
            spell = SPELT.get(name, lambda v: f"'{v}'" if isinstance(v, str) or np.isinf(v) else repr(v))
            values = [v for v in KINDS[name][1] if v == v]
            form = rng.choice([*forms, "{c} like 'ab%'", "{c} like 'ż%'"] if name == "s" else forms)
            parts.append(form.format(c=name, a=spell(rng.choice(values)), b=spell(rng.choice(values))))
        text = f" {rng.choice(['and', 'or'])} ".join(parts)
        expression = parse_predicate(text, schema)
        evaluator = _InclusiveMetricsEvaluator(schema, expression)
        theirs = np.array([evaluator.eval(file) for file in own])
        ours = may_match(bind(schema, expression, True), column, len(files))
        assert not (theirs & ~ours).any(), text
        ruled_out += int((~ours).sum())
        theirs_out += int((~theirs).sum())
    assert ruled_out > 0.9 * theirs_out > 500
    for name, (_, values) in KINDS.items():  # bounds decide nothing of these, so nothing more needs to be asked
        spell = SPELT.get(name, lambda v: f"'{v}'" if isinstance(v, str) or np.isinf(v) else repr(v))
        one, other = (spell(value) for value in rng.sample([value for value in values if value == value], 2))
        for text in (f"{name} != {one}", f"{name} not in ({one}, {other})"):
            expression = parse_predicate(text, schema)
            assert all(map(_InclusiveMetricsEvaluator(schema, expression).eval, own)), text
            assert asks_bounds_alone(bind(schema, expression, True))


def test_bounds_of_dates_prove_nothing_of_timestamps() -> None:
    """Format version 3 promotes dates to timestamps; bounds keep the type that the file was written with."""
    schema = iceberg_schema("ts timestamp")
    day = np.int32(19723).tobytes()  # 2024-01-01
    types = {"lower": pa.binary(), "upper": pa.binary(), **dict.fromkeys(FieldBounds._fields[2:], pa.int64())}
    bounds = pa.table({n: pa.array([v], types[n]) for n, v in zip(types, (day, day, 5, 0, None), strict=True)})
    file = DataFile.from_args(record_count=5, lower_bounds={1: day}, upper_bounds={1: day})
    found = FileBounds({1: "timestamp"}).of(file, 1)
    assert (found.lower, found.upper) == (UNKNOWN.lower, UNKNOWN.upper)
    for test in (
        "= '2024-01-01T00:00:00'",
        "> '2023-01-01T00:00:00'",
        "in ('2024-01-01T00:00:00', '2024-01-02T00:00:00')",
    ):
        text = f"ts {test}"
        assert may_match(bind(schema, parse_predicate(text, schema), True), lambda _: bounds, 1).all()
