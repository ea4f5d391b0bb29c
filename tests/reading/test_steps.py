"""Rows that are decoded in steps are those that are decoded at once: pyarrow's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from sidecar.orc import compound, decode
from sidecar.parquet.scan import page_reader, page_scan
from sidecar.parquet.scan.page_scan import FoundRows
from sidecar.reading import orc_stripe_reader
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource

pytestmark = pytest.mark.usefixtures("each_footer_decoded_once")

ROWS = 3000
PREDICATES: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    "true": lambda t: pc.is_valid(t["k"]),
    "k > 1234 and k < 2345": lambda t: pc.and_(pc.greater(t["k"], 1234), pc.less(t["k"], 2345)),
    "i = 7": lambda t: pc.equal(t["i"], 7),
    "s = 'text 3'": lambda t: pc.equal(t["s"], "text 3"),
    "s is null": lambda t: pc.is_null(t["s"]),
}


@cache
def table() -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "i": pa.array([None if n % 7 == 0 else n % 50 for n in range(ROWS)], pa.int32()),
            "s": [None if n % 5 == 0 else f"text {n % 9}" for n in range(ROWS)],
            "long": ["x" * 500 if n % 3 else "y" for n in range(ROWS)],
            "b": pa.array([None if n % 13 == 0 else n % 3 == 0 for n in range(ROWS)]),
            "l": pa.array([None if n % 11 == 0 else [n] * (n % 4) for n in range(ROWS)], pa.list_(pa.int32())),
            "st": pa.array(
                [None if n % 6 == 0 else {"a": n, "t": None if n % 4 == 0 else str(n)} for n in range(ROWS)],
                pa.struct([("a", pa.int64()), ("t", pa.string())]),
            ),
            "m": pa.array([[(str(n), n)] * (n % 3) for n in range(ROWS)], pa.map_(pa.string(), pa.int32())),
        }
    )


@cache
def matching_rows(predicate: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table().filter(PREDICATES[predicate](table())).to_pylist()
    return rows


def parquet(**options: Any) -> bytes:
    out = BytesIO()
    pq.write_table(table(), out, row_group_size=2000, store_schema=False, **options)
    return out.getvalue()


def orc_bytes(**options: Any) -> bytes:
    out = BytesIO()
    orc.write_table(table(), out, **options)
    return out.getvalue()


FILES = {
    "one page": parquet(),
    "small pages": parquet(max_rows_per_page=64, write_batch_size=32, write_page_index=True),
    "delta": parquet(use_dictionary=False, column_encoding={"k": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}),
    "orc": orc_bytes(compression="zlib", dictionary_key_size_threshold=1.0),
    "orc with row groups": orc_bytes(row_index_stride=1000, stripe_size=1 << 14),
}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (page_reader, page_scan):
        monkeypatch.setattr(module, "MAX_ROWS", 700)
    monkeypatch.setattr(page_reader, "BUDGET", 1 << 16)
    for reader in (decode, compound, orc_stripe_reader):
        monkeypatch.setattr(reader, "STEP", 300)


def found_in(data: bytes, predicate: str, **options: Any) -> list[FoundRows]:
    with open_scan(BytesSource(data, "a"), predicate, **options) as scan:
        return list(scan.found())


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda p: str(p)[:12])
def test_rows_in_steps_are_those_of_the_whole_file(name: str, predicate: str) -> None:
    expected = matching_rows(predicate)
    found = found_in(FILES[name], predicate)
    rows = pa.concat_tables([one.rows for one in found]).combine_chunks()
    assert rows.to_pylist() == expected
    assert [p for one in found for p in one.positions.tolist()] == [row["k"] for row in expected]
    assert max(len(one.positions) for one in found) <= 700
    if predicate == "true":
        assert len(found) > 3
    some = found_in(FILES[name], predicate, columns=["st.t", "m"], limit=5)
    assert sum(len(one.positions) for one in some) == min(5, len(expected))


@pytest.mark.parametrize("name", FILES)
def test_without_small_steps_a_row_group_or_stripe_comes_at_once(name: str) -> None:
    assert len(found_in(FILES[name], "true")) <= 4
