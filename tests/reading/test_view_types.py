"""Tables whose files Arrow has no functions for: views of strings, binaries and lists, and comparisons of UUIDs.

The oracle is DuckDB on the same files; for deletes, Python. A small file goes to pyiceberg whole; a larger one is read
page by page where the sidecar has page indexes.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.parquet.footer import read_footer
from sidecar.parquet.scan.usual_types import with_usual_types
from sidecar.parquet.thrift import BINARY, decode_struct, encode_struct
from sidecar.storage.locations import local_path
from sidecar.storage.source import BytesSource
from tests.iceberg.table_cases import delete_by_position

ROWS = 400
VIEWS: dict[str, Any] = {
    "s": pa.string_view(),
    "b": pa.binary_view(),
    "l": pa.list_view(pa.int64()),
    "n": pa.struct([("x", pa.string_view()), ("y", pa.int64())]),
}
USUAL: dict[str, Any] = {
    "s": pa.string(),
    "b": pa.binary(),
    "l": pa.list_(pa.int64()),
    "n": pa.struct([("x", pa.string()), ("y", pa.int64())]),
}


def rows_of(kinds: dict[str, Any]) -> pa.Table:
    """Strings of more than twelve bytes, which a view keeps elsewhere, and nulls."""
    cells: dict[str, list[Any]] = {
        "s": [None if k % 7 == 3 else f"text of row {k:06}" for k in range(ROWS)],
        "b": [None if k % 5 == 1 else k.to_bytes(4, "big") * (k % 5) for k in range(ROWS)],
        "l": [None if k % 11 == 2 else list(range(k % 4)) for k in range(ROWS)],
        "n": [None if k % 13 == 4 else {"x": f"nested {k // 2:07}", "y": k} for k in range(ROWS)],
        "u": [None if k % 9 == 8 else UUID(int=k << 64).bytes for k in range(ROWS)],
    }
    kinds = {"k": pa.int64(), **kinds, "u": pa.uuid()}
    return pa.table({"k": pa.array(range(ROWS)), **{n: pa.array(cells[n], t) for n, t in kinds.items() if n != "k"}})


@pytest.fixture(scope="module", params=["whole", "pages"])
def table(request: Any, catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One file of the usual types and one of views; the catalog lists both as pyiceberg wrote them."""
    usual = rows_of(USUAL)
    made: Table = catalog.create_table(f"db.views_{request.param}", usual.schema)
    small = {"write_page_index": True, "data_page_size": 256, "write_batch_size": 20, "use_dictionary": False}
    for name in ("usual", "views"):
        path = tmp_path_factory.mktemp("views") / f"{request.param}_{name}.parquet"
        pq.write_table(usual, path, **small)
        made.add_files([str(path)])
        if name == "views":
            with_arrow_schema(path, rows_of(VIEWS).schema)
    if request.param == "pages":
        sidecar.build(made, ["k", "s", "u"], kinds=["bloom", "page-index"], engine="local")
    return catalog.load_table(f"db.views_{request.param}")


def with_arrow_schema(path: Path, schema: pa.Schema) -> None:
    """The file as another writer would have left it: pyarrow cannot cut views into pages."""
    data = path.read_bytes()
    kept = base64.b64encode(schema.serialize().to_pybytes())
    length = int.from_bytes(data[-8:-4], "little")
    tree, _ = decode_struct(data[-8 - length : -8])
    (pair,) = (pair for pair in tree.structs(5) or [] if pair.text(1) == "ARROW:schema")
    pair.fields[2] = (BINARY, kept)
    footer = encode_struct(tree)
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert path.stat().st_size == len(data)
    assert pq.read_schema(path).types == schema.types


PREDICATES = {
    "true": "true",
    "k >= 100 and k < 120": "k >= 100 and k < 120",
    "s = 'text of row 000042'": "s = 'text of row 000042'",
    "s > 'text of row 000390'": "s > 'text of row 000390'",
    "s in ('text of row 000001', 'text of row 000399')": "s in ('text of row 000001', 'text of row 000399')",
    "s like 'text of row 0003%'": "starts_with(s, 'text of row 0003')",
    "s is null": "s is null",
    "b = 0x000000070000000700000007": "false",
    "b = 0x0000000700000007": "b = from_hex('0000000700000007')",
    "n.x = 'nested 0000012'": "n.x = 'nested 0000012'",
    f"u = '{UUID(int=42 << 64)}'": f"u = '{UUID(int=42 << 64)}'",
    f"u in ('{UUID(int=42 << 64)}', '{UUID(int=43 << 64)}')": (
        f"u in ('{UUID(int=42 << 64)}', '{UUID(int=43 << 64)}')"
    ),
    f"u = '{UUID(int=1)}'": "false",
    f"u != '{UUID(int=42 << 64)}' and k < 60": f"u <> '{UUID(int=42 << 64)}' and k < 60",
    f"not (u = '{UUID(int=42 << 64)}') and s > 'text of row 000380'": (
        f"u <> '{UUID(int=42 << 64)}' and s > 'text of row 000380'"
    ),
    "u is null and k < 30": "u is null and k < 30",
}


def oracle(table: Table, where: str) -> list[int]:
    paths = [local_path(task.file.file_path) for task in table.scan().plan_files()]
    found = duckdb.execute(f"select k from read_parquet({paths}) where {where} order by k").fetchall()
    return [k for (k,) in found]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_rows_are_those_that_duckdb_finds(table: Table, predicate: str) -> None:
    found = sidecar.scan(table, predicate)
    assert sorted(found["k"].to_pylist()) == oracle(table, PREDICATES[predicate])
    expected = rows_of(USUAL)
    places = pa.array(found["k"].to_pylist(), pa.int64())
    assert found.to_pylist() == expected.take(places).to_pylist()


def test_deleted_rows_stay_away(catalog: Any, table: Table) -> None:
    paths = [task.file.file_path for task in table.scan().plan_files()]
    gone = {path: [3, 42, 43, 100] for path in paths}
    for path, places in gone.items():
        delete_by_position(table, {path: places})
    deleted = catalog.load_table(table.name())
    for predicate, where in PREDICATES.items():
        expected = [k for k in oracle(table, where) if k not in (3, 42, 43, 100)]
        assert sorted(sidecar.scan(deleted, predicate)["k"].to_pylist()) == expected, predicate


def test_streams_have_one_type_for_both_files(table: Table) -> None:
    for predicate in ("true", "k >= 100 and k < 120"):
        batches = sidecar.scan_batches(table, predicate, columns=["s", "l", "n"])
        assert batches.read_all().schema.types == [
            pa.large_string(), pa.large_list(pa.int64()), pa.struct([("x", pa.large_string()), ("y", pa.int64())])
        ]  # fmt: skip


def test_a_file_without_views_is_itself_and_one_with_views_differs_in_the_footer_alone() -> None:
    files = {}
    for name, kinds in (("usual", USUAL), ("views", VIEWS)):
        sink = pa.BufferOutputStream()
        pq.write_table(rows_of(kinds), sink)
        files[name] = BytesSource(sink.getvalue().to_pybytes())
    assert with_usual_types(files["usual"]) is files["usual"]
    shown = with_usual_types(files["views"])
    data = shown.read(0, shown.size)
    assert pq.read_schema(pa.BufferReader(data)).types == rows_of(USUAL).schema.types
    assert pq.read_table(pa.BufferReader(data)).equals(rows_of(USUAL))
    end = read_footer(files["views"]).offset
    assert data[:end] == files["views"].read(0, end)
    for offset in range(end - 30, end + 30, 7):
        for length in (0, 1, 5, 29, 60):
            assert shown.read(offset, length) == data[offset : offset + length]
