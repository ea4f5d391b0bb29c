"""Scans of plain files give the rows of a full read under the same residual, NULL and NaN included."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow

from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.reading.scanning import scan
from tests.tables import iceberg_schema

ROWS, CASES = 20_000, 25
SCHEMA = iceberg_schema("a long, b long, s string, f double")
OPERATORS = ["=", "!=", "<", ">=", ">", "<=", "is null", "is not null", "in", "not in"]


@cache
def rows(seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    floats = draw.choice([0.0, -0.0, float("nan"), 1.5, -2.5, 1e9], ROWS)
    texts = [None if x < 0.1 else f"k{int(x * 1000):04}" for x in draw.random(ROWS)]
    return pa.table(
        {
            "a": np.sort(draw.integers(0, 5_000, ROWS)),
            "b": pa.array(draw.integers(-50, 50, ROWS), mask=draw.random(ROWS) < 0.2),
            "s": texts,
            "f": pa.array(floats, mask=draw.random(ROWS) < 0.1),
            "l": [[1, 2, None][: k % 4] if k % 7 else None for k in range(ROWS)],
        }
    )


def with_bits(table: pa.Table) -> pa.Table:
    """The table with the bits of its floats: NaN equals NaN, and 0.0 differs from -0.0."""
    at = table.schema.get_field_index("f")
    return table.set_column(at, "f", table["f"].combine_chunks().view(pa.int64()))


def leaf(draw: random.Random) -> str:
    column, operator = draw.choice("absf"), draw.choice(OPERATORS)

    def value() -> str:
        return {
            "a": str(draw.randrange(-10, 5_100)),
            "b": str(draw.randrange(-60, 60)),
            "s": f"'k{draw.randrange(1_100):04}'",
            "f": draw.choice(["0.0", "1.5", "-2.5", "3.0"]),
        }[column]

    if operator.startswith("is"):
        return f"{column} {operator}"
    return f"{column} {operator} ({value()}, {value()})" if "in" in operator else f"{column} {operator} {value()}"


def predicate(draw: random.Random) -> str:
    text = leaf(draw)
    for _ in range(draw.randrange(3)):
        text = f"({text}) {draw.choice(['and', 'or'])} {draw.choice(['', 'not '])}({leaf(draw)})"
    return text


@pytest.mark.parametrize(
    ("codec", "dictionary", "version"),  # each pair of two settings
    [("none", True, "1.0"), ("none", False, "2.0"), ("zstd", True, "2.0"), ("zstd", False, "1.0")],
)
def test_random_predicates_give_the_rows_of_a_full_read(
    tmp_path: Path, version: str, dictionary: bool, codec: str
) -> None:
    path = str(tmp_path / "x.parquet")
    options: dict[str, Any] = {
        "compression": codec,
        "use_dictionary": dictionary,
        "data_page_version": version,
    }
    pq.write_table(
        rows(1),
        path,
        row_group_size=7_000,
        data_page_size=2_000,
        write_batch_size=128,
        write_page_index=True,
        **options,
    )
    full = pq.read_table(path)
    # Arrow's is_in tells the zeros apart, which are equal: x + 0.0 turns -0.0 into 0.0
    numbered = full.set_column(3, "f", pc.add(full["f"], 0.0)).append_column("row", pa.array(range(ROWS)))
    draw = random.Random(f"{version} {dictionary} {codec}")
    for _ in range(CASES):
        text = predicate(draw)
        matching = expression_to_pyarrow(bind(SCHEMA, as_expression(text, SCHEMA, True), True), SCHEMA)
        wanted = full.take(numbered.filter(matching)["row"])
        assert with_bits(scan(path, text)).equals(with_bits(wanted)), text


def test_not_in_with_a_zero_keeps_nulls(tmp_path: Path) -> None:
    """A list with a zero becomes comparisons, since Arrow looks lists up by bits. NOT IN stays true of NULL."""
    values = [None, 0.0, -0.0, 1.0, 2.0]
    pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet")
    rows = {
        text: scan(str(tmp_path / "x.parquet"), text)["x"].to_pylist()
        for text in ("x not in (0.0, 1.0)", "x not in (7.0, 1.0)")
    }
    assert rows == {"x not in (0.0, 1.0)": [None, 2.0], "x not in (7.0, 1.0)": [None, 0.0, 0.0, 2.0]}
