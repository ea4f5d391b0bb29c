"""Comparisons of literals that lie between two storable values with bounds: pyarrow says which rows match.

A page has a few neighbouring values, or one alone; its bounds are the least and the greatest. No page with a row may be
ruled out, and a page that is said to match as a whole must.
"""

from __future__ import annotations

import itertools
from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sidecar.bundle.indexes.page_indexes import PageIndexKind, leaf_of
from sidecar.parquet.thrift import I64, Struct, decode_struct, encode_struct
from sidecar.questions.bounds import Bounds
from sidecar.questions.conditions import Compares, HasNull, HoldsAny, Operator
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource

OPERATORS: dict[Operator, Any] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
TENTH = np.float32(0.1)
FLOATS = [np.nextafter(TENTH, np.float32(0)), TENTH, np.nextafter(TENTH, np.float32(1)), np.float32(0.7)]
STORED: dict[str, tuple[str, str, list[Any], pa.DataType]] = {
    "milliseconds": ("int64/timestamp-ms", "timestamp", [-2, -1, 0, 1, 2, 3], pa.timestamp("ms")),
    "milliseconds of a day": ("int32/time-ms", "time", [0, 1, 2, 3], pa.time32("ms")),
    "nanoseconds": (
        "int64/timestamp-ns",
        "timestamp_ns",
        [-1001, -1000, 999, 1000, 1001],
        pa.timestamp("ns"),
    ),
    "float": ("float", "float", sorted(map(float, FLOATS)), pa.float32()),
    "promoted float": ("float", "double", sorted(map(float, FLOATS)), pa.float32()),
    "decimal": ("int32/decimal:2", "decimal(9, 2)", [-151, -150, 150, 151], pa.decimal128(9, 2)),
}
"""Encoding, type of the column, stored numbers (rising, as bounds are decoded), and their Arrow type."""
LITERALS: dict[str, list[Any]] = {
    "milliseconds": [-2000, -1500, -1, 0, 1, 999, 1000, 1001, 1500, 2999, 3000, 3001],
    "milliseconds of a day": [0, 1, 999, 1000, 1500, 2000, 3001],
    "nanoseconds": [-2000, -1001, -1000, 0, 999, 1000, 2000],
    "float": [0.1, 0.7, 0.09999999, float(TENTH), 0.5],
    "promoted float": [0.1, 0.7, float(TENTH), 0.5],
    "decimal": [Decimal("-1.505"), Decimal("-1.50"), Decimal("1.50"), Decimal("1.505"), Decimal("1.51")],
}


def pages(values: list[Any]) -> list[list[Any]]:
    """Runs of neighbours, pages of one value among them."""
    return [values[a:b] for a, b in itertools.combinations(range(len(values) + 1), 2)]


def stored_column(values: list[Any], kind: Any) -> Any:
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(value).scaleb(-2) for value in values], kind)
    return pa.array(values, kind)


def literals_of(value: Any, kind: Any) -> list[Any]:
    """The literal as engines compare it: as it is, and rounded to 32 bits."""
    if pa.types.is_floating(kind):
        return [pa.scalar(value, pa.float64()), pa.scalar(np.float32(value), pa.float32())]
    if pa.types.is_timestamp(kind):
        return [pa.scalar(value, kind if kind.unit == "ns" else pa.timestamp("us"))]
    if pa.types.is_time(kind):
        return [pa.scalar(value, pa.time64("us"))]
    return [pa.scalar(value)]


def matches(compare: Any, values: list[Any], kind: Any, value: Any) -> list[list[bool]]:
    """Which values match, in each way of comparing."""
    stored = stored_column(values, kind)
    if pa.types.is_time(kind):
        stored = stored.cast(pa.time64("us"))
    return [compare(stored, literal).to_pylist() for literal in literals_of(value, kind)]


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_page_with_a_matching_row_is_never_ruled_out(name: str, operator: Operator) -> None:
    encoding, iceberg_type, stored, kind = STORED[name]
    column = leaf_of(PageIndexKind(encoding, ""), 1, iceberg_type).compared
    ruled_out = 0
    for values, value in itertools.product(pages(stored), LITERALS[name]):
        bounds = Bounds([values[0]], [values[-1]], [False], [0], [False])
        condition = Compares(column, operator, value)
        found = matches(OPERATORS[operator], values, kind, value)
        may_match = condition.may_match(bounds, 0)
        ruled_out += not may_match
        assert may_match or not any(map(any, found)), (values, value)
        assert not condition.always_matches(bounds, 0) or all(map(all, found)), (values, value)
    assert ruled_out


@pytest.mark.parametrize("name", STORED)
def test_a_page_that_holds_the_value_is_never_ruled_out(name: str) -> None:
    encoding, iceberg_type, stored, kind = STORED[name]
    column = leaf_of(PageIndexKind(encoding, ""), 1, iceberg_type).compared
    for values, value in itertools.product(pages(stored), LITERALS[name]):
        bounds = Bounds([values[0]], [values[-1]], [False], [0], [False])
        condition = HoldsAny(column, (value,))
        found = matches(pc.equal, values, kind, value)
        assert condition.may_match(bounds, 0) or not any(map(any, found)), (values, value)


def test_a_page_with_a_null_or_nan_is_never_ruled_out_for_is_null() -> None:
    """Some engines take NaN for NULL: pyarrow says which rows match where they do."""
    column = leaf_of(PageIndexKind("double", ""), 1, "double").compared
    for values in itertools.product([0.5, 2.5, float("nan"), None], repeat=2):
        numbers = sorted(value for value in values if value is not None and value == value)
        lower, upper = (numbers[0], numbers[-1]) if numbers else (None, None)
        nulls, all_null = values.count(None), values == (None, None)
        has_nan = any(value is not None and value != value for value in values)
        bounds = Bounds([lower], [upper], [all_null], [nulls], [has_nan])
        expected = pc.is_null(pa.array(values, pa.float64()), nan_is_null=True).to_pylist()
        assert HasNull(column).may_match(bounds, 0) == any(expected), values


def test_scans_find_rows_on_both_sides_of_a_literal_between_two_values() -> None:
    """Pages of one value each, in a file that pyarrow wrote."""
    ms = pa.array(np.repeat(np.arange(1, 9), 64), pa.timestamp("ms"))
    sink = BytesIO()
    pq.write_table(
        pa.table({"t": ms}),
        sink,
        use_dictionary=False,
        write_page_index=True,
        data_page_size=64,
        write_batch_size=64,
    )
    for operator, compare in OPERATORS.items():
        with open_scan(BytesSource(sink.getvalue()), f"t {operator} '1970-01-01 00:00:00.0045'", None) as scan:
            found = sorted(row for rows in scan.found() for row in rows.rows["t"].to_pylist())
            assert scan.report.data_pages <= 5
        expected = compare(ms, pa.scalar(4500, pa.timestamp("us")))
        assert found == ms.filter(expected).to_pylist()


def with_nan_counts_of_chunks(data: bytes) -> bytes:
    """The file with ``nan_count = 0`` in the statistics of every chunk, as the newer specification has it."""
    length = int.from_bytes(data[-8:-4], "little")
    tree, _ = decode_struct(data[-8 - length : -8])
    for group in tree.structs(4) or []:
        for chunk in group.structs(1) or []:
            meta = chunk.struct(3)
            statistics = None if meta is None else meta.struct(12)
            assert isinstance(statistics, Struct)
            statistics.fields[9] = (I64, 0)
    footer = encode_struct(tree)
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_chunk_without_nan_has_no_page_with_nan() -> None:
    """pyarrow's column index has no counts of NaN: without those of the chunk every page may have some."""
    sink = BytesIO()
    table = pa.table({"x": np.repeat(np.arange(8.0), 64)})
    pq.write_table(table, sink, use_dictionary=False, write_page_index=True, data_page_size=64, write_batch_size=64)
    read = []
    for data in (sink.getvalue(), with_nan_counts_of_chunks(sink.getvalue())):
        with open_scan(BytesSource(data), "x > 6", None) as scan:
            assert [row for rows in scan.found() for row in rows.rows["x"].to_pylist()] == [7.0] * 64
            read.append(scan.report.data_pages)
    assert read == [8, 1]
