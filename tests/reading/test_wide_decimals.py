"""Decimals in more bytes than their precision needs: pyarrow refuses them, DuckDB reads them, and so does sidecar."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue

import sidecar
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.parquet.thrift import I32, Struct
from sidecar.storage.source import BytesSource
from tests.parquet.false_statements import restated

NUMBERS = [0, 1, -1, 127, -128, 10**20 - 1, 1 - 10**20, 10**37, -(10**37), None, 42, 0]
ROWS = [NUMBERS[n % len(NUMBERS)] for n in range(600)]
LISTS: list[Any] = [None if n % 11 == 5 else [ROWS[n], ROWS[(n * 7) % 600]][: n % 3] for n in range(600)]


def stored(number: int | None, width: int) -> bytes | None:
    return None if number is None else number.to_bytes(width, "big", signed=True)


def shortest(number: int | None) -> bytes | None:
    """In 1 to 20 bytes, mostly more than needed."""
    return (
        None
        if number is None
        else number.to_bytes(max((number.bit_length() + 8) // 8, number % 21), "big", signed=True)
    )


def annotated(data: bytes, precision: int, scale: int) -> bytes:
    """The file with every leaf of bytes annotated as a decimal."""

    def change(metadata: Struct) -> None:
        for element in metadata.structs(2) or []:
            if element.integer(1) in (6, 7):
                element.fields |= {6: (I32, 5), 7: (I32, scale), 8: (I32, precision)}
                element.fields = dict(sorted(element.fields.items()))

    return restated(data, change)


def table(width: int | None) -> pa.Table:
    kind = pa.binary() if width is None else pa.binary(width)
    as_bytes = shortest if width is None else (lambda number: stored(number, width))
    values = [as_bytes(n) for n in ROWS]
    structs = [None if n % 9 == 4 else {"x": value, "n": n} for n, value in enumerate(values)]
    lists = [None if cell is None else [as_bytes(n) for n in cell] for cell in LISTS]
    return pa.table(
        {
            "id": pa.array(range(600), pa.int64()),
            "d": pa.array(values, kind),
            "s": pa.array(structs, pa.struct([("x", kind), ("n", pa.int64())])),
            "l": pa.array(lists, pa.list_(kind)),
            "m": pa.array([[(n, v)] if n % 4 else None for n, v in enumerate(values)], pa.map_(pa.int64(), kind)),
        }
    )


def written(width: int | None, precision: int = 38, scale: int = 2, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(width), sink, row_group_size=250, store_schema=False, write_statistics=["id"], **options)
    return annotated(sink.getvalue(), precision, scale)


def as_decimal(number: int | None) -> Decimal | None:
    return None if number is None else Decimal(number).scaleb(-2)


PLACES = [
    {"use_dictionary": True},
    {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
    {"use_dictionary": False, "column_encoding": {"d": "DELTA_BYTE_ARRAY"}},
]


@pytest.mark.parametrize("options", PLACES, ids=["dictionary", "plain v2", "delta"])
@pytest.mark.parametrize("width", [None, 17, 20, 33])
def test_rows_of_wide_decimals(tmp_path: Path, width: int | None, options: dict[str, Any]) -> None:
    path = tmp_path / "wide.parquet"
    path.write_bytes(written(width, write_page_index=True, data_page_size=500, **options))
    found = sidecar.scan(path, AlwaysTrue())
    expected = [as_decimal(n) for n in ROWS]
    assert found.schema.field("d").type == pa.decimal128(38, 2)
    assert found["d"].to_pylist() == expected
    assert found["s"].to_pylist() == [None if n % 9 == 4 else {"x": d, "n": n} for n, d in enumerate(expected)]
    assert found["l"].to_pylist() == [None if c is None else [as_decimal(n) for n in c] for c in LISTS]
    assert found["m"].to_pylist() == [[(n, d)] if n % 4 else None for n, d in enumerate(expected)]
    found.validate(full=True)
    rows = duckdb.sql(f"SELECT d, s.x, l FROM '{path}'").fetchall()
    assert rows == list(
        zip(expected, [s and s["x"] for s in found["s"].to_pylist()], found["l"].to_pylist(), strict=True)
    )
    some = sidecar.scan(path, "d = 0.42 or d = -100000000000000000000000000000000000.00", ["id"])
    assert some["id"].to_pylist() == [n for n in range(600) if ROWS[n] in (42, -(10**37))]


@pytest.mark.parametrize(("precision", "width"), [(60, 40), (76, 33)])
def test_decimals_of_more_than_38_digits(precision: int, width: int) -> None:
    found = sidecar.scan(BytesSource(written(width, precision)), AlwaysTrue())
    assert found["d"].type == pa.decimal256(precision, 2)
    assert found["d"].to_pylist() == [as_decimal(n) for n in ROWS]


def test_what_decimals_cannot_hold_is_not_damaged() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"d": pa.array([b"12345678901234567890"], pa.binary(20))}), sink, store_schema=False)
    with pytest.raises(UnsupportedFeatureError, match="too large for its precision"):
        sidecar.scan(BytesSource(annotated(sink.getvalue(), 20, 2)), AlwaysTrue())


def test_a_decimal_without_bytes_is_damaged() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"d": pa.array([b"1", b""], pa.binary())}), sink, store_schema=False)
    with pytest.raises(DamagedFileError, match="has no bytes"):
        sidecar.scan(BytesSource(annotated(sink.getvalue(), 20, 2)), AlwaysTrue())


def test_more_digits_than_arrow_has_are_unsupported() -> None:
    with pytest.raises(SidecarError) as caught:
        sidecar.scan(BytesSource(written(40, 77)), AlwaysTrue())
    assert isinstance(caught.value, UnsupportedFeatureError)
