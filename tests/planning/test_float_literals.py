"""Literals that a 32-bit float cannot hold lose no file in which an engine finds a row.

Each file has one value, so that its bounds are that value. DuckDB is the oracle, asked in both ways in which engines
compare: the literal rounded to FLOAT, and the column widened to DOUBLE. Rows are held against pyiceberg's own reader,
given every file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, LessThan
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType

import sidecar
from sidecar.filters.float32 import LIMIT, float32_neighbours
from sidecar.iceberg.predicates.predicate import as_expression, parse_predicate
from sidecar.orc.inspect import probe_file
from sidecar.planning.files import cheapest
from sidecar.planning.files.choose import FileChooser
from sidecar.planning.plan import Plan
from sidecar.storage.locations import local_path
from sidecar.storage.opening import open_source
from tests.iceberg.cases import file_in_manifest
from tests.iceberg.mixed_tables import append_files, orc_file

TENTH = float(np.float32(0.1))
BIGGEST = float(np.finfo(np.float32).max)
VALUES = [
    TENTH,
    float(np.nextafter(np.float32(TENTH), np.float32(0))),
    float(np.nextafter(np.float32(TENTH), np.float32(1))),
    float(np.float32(0.7)),  # which lies below 0.7
    0.0,
    -0.0,
    1.401298464324817e-45,
    -1.401298464324817e-45,
    BIGGEST,
    -BIGGEST,
    math.inf,
    -math.inf,
    math.nan,
    16777216.0,
    16777218.0,
    None,
]
LITERALS = ["0.1", "0.7", "1e-46", "-1e-46", "3.4028235e38", "-3.4028235e38", "1e39", "-1e39", "16777217"]
EXACT = ["0.5", "0.10000000149011612", "16777218", "0"]
TEMPLATES = [
    *(f"F {sign} #{literal}#" for literal in (*LITERALS, *EXACT) for sign in ("=", "!=", "<", "<=", ">", ">=")),
    *(f"not (F {sign} #0.1#)" for sign in ("=", "!=", "<", "<=", ">", ">=")),
    "F in (#0.1#, #0.7#)",
    "F not in (#0.1#, #0.7#)",
    "F in (#1e39#, #0.1#)",
    "F in (#1e39#, #-1e39#)",
    "F not in (#1e39#, #0.1#)",
    "F not in (#1e39#, #-1e39#)",
    "not (F in (#0.1#, #16777217#) or F < #-1#)",
    "F between #0.1# and #0.7#",
    "#0.1# <= F and #0.7# >= F",
]
"""Predicates with F for the column, and literals between two #."""
SCHEMA = pa.schema([("id", pa.int64()), ("f", pa.float32())])


def one(key: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table([[key], [VALUES[key]]], schema=schema)


def append_nan_partition(table: Table, key: int) -> None:
    """A file that was imported without metrics; pyiceberg itself writes no partition of NaN."""
    path = f"{table.location()}/data/nan.parquet"
    Path(local_path(path)).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(one(key).cast(table.schema().as_arrow()), local_path(path))
    file = file_in_manifest(path, 1, Path(local_path(path)).stat().st_size, partition=Record(math.nan))
    file.spec_id = table.spec().spec_id
    append_files(table, [file])


def files_of(table: Table, key: int, kind: str) -> list[DataFile]:
    """One file, as pyiceberg writes it, or in ORC."""
    if kind == "orc":
        return [orc_file(table, one(key))]
    return list(_dataframe_to_data_files(table.metadata, one(key), table.io))


def made(catalog: Any, kind: str) -> Table:
    table: Table = catalog.create_table(f"db.float_literals_{kind}", SCHEMA)
    if kind == "partitioned":
        with table.update_spec() as spec:
            spec.add_identity("f")
    if kind == "partitioned":
        for key, value in enumerate(VALUES):
            append_nan_partition(table, key) if value != value else table.append(one(key))
    else:
        append_files(table, [file for key in range(len(VALUES)) for file in files_of(table, key, kind)])
    if kind == "promoted":
        with table.update_schema() as update:
            update.update_column("f", DoubleType())
    sidecar.build(table, ["f"], kinds=["bloom", "page-index"], engine="local")
    return catalog.load_table(table.name())  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["float", "promoted", "partitioned", "orc"])
def table(request: Any, catalog: Any) -> Table:
    return made(catalog, request.param)


def text_of(template: str) -> str:
    """The predicate as sidecar reads it."""
    return template.replace("F ", "f ").replace(" F", " f").replace("#", "")


@cache
def found_by_engines() -> dict[str, set[int]]:
    """By template, ids of the rows that a comparison in 32 or in 64 bits finds: DuckDB is asked for all at once."""
    asked = [
        (template, re.sub("#([^#]+)#", rf"'\1'::{kind}", re.sub(r"\bF\b", f"f::{kind}", template)))
        for kind in ("FLOAT", "DOUBLE")
        for template in TEMPLATES
        if kind == "DOUBLE" or "1e39" not in template  # DuckDB casts no such number to FLOAT
    ]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", pa.table({"id": range(len(VALUES)), "f": pa.array(VALUES, pa.float32())}))
        query = f"select id, {', '.join(where for _, where in asked)} from rows"
        rows = connection.execute(query).fetchall()
    found: dict[str, set[int]] = {template: set() for template in TEMPLATES}
    for key, *answers in rows:
        for (template, _), answer in zip(asked, answers, strict=True):
            found[template] |= {key} if answer else set()
    return found


PLANNED: dict[str, list[FileScanTask]] = {}


def tasks_of(table: Table) -> list[FileScanTask]:
    """Tasks of all files of a table, which pyiceberg plans once for each version of its metadata."""
    if table.metadata_location not in PLANNED:
        PLANNED[table.metadata_location] = list(table.scan().plan_files())
    return PLANNED[table.metadata_location]


def pyiceberg_rows(table: Table, expression: BooleanExpression) -> set[int]:
    """Ids of the rows that pyiceberg's reader finds in all files of a table: none is dropped before it is read."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), expression)
    return {*scan.to_table(tasks_of(table))["id"].to_pylist()}


@contextmanager
def ways_of_planning(way: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if way == "listed":
            patch.setattr(cheapest, "FEW", 0)
            patch.setattr(cheapest, "BROAD", 0)
            patch.setattr(cheapest, "columns_are_cheaper", lambda *_: True)
        elif way == "opened":
            patch.setattr(FileChooser, "_listed", lambda self, index, lines, manifests: [])
        yield


def ids_by_path(table: Table) -> dict[str, int]:
    """The id that each file has: files are read without any filter."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return {task.file.file_path: scan.to_table([task])["id"][0].as_py() for task in tasks_of(table)}


def kept_ids(table: Table, planned: Plan) -> set[int]:
    ids = ids_by_path(table)
    return {ids[path] for path in planned.kept_files}


@pytest.mark.parametrize("way", ["opened", "records", "listed"])
def test_no_file_with_a_row_of_any_engine_is_dropped(table: Table, way: str) -> None:
    ids = ids_by_path(table)
    with ways_of_planning(way):
        for template in TEMPLATES:
            planned = sidecar.plan(table, text_of(template))
            assert planned.warnings == ()
            lost = found_by_engines()[template] & {*ids.values()} - {ids[path] for path in planned.kept_files}
            assert not lost, template


def test_rows_are_those_of_pyicebergs_reader(table: Table) -> None:
    """But for literals beyond 32 bits and a promoted column, for which pyiceberg takes every row of a file, or none."""
    for template in TEMPLATES[:: 1 if table.name()[-1] == "float_literals_promoted" else 4]:
        expression = parse_predicate(text_of(template), table.schema())
        found = {*sidecar.scan(table, text_of(template))["id"].to_pylist()}
        theirs = pyiceberg_rows(table, expression)
        lost = (theirs - found) & found_by_engines()[template]
        if ">" in template and "1e39" in template:
            lost -= {VALUES.index(math.nan)}  # which DuckDB takes as more than every number
        assert lost == set(), template
        assert found - theirs <= found_by_engines()[template], template
        if "e38" not in template and "e39" not in template:
            assert found == theirs, template


def test_an_equality_keeps_the_two_neighbours_and_no_more(catalog: Any) -> None:
    table = catalog.load_table("db.float_literals_float")
    for literal in ("0.1", "0.7", "16777217", "3.4028235e38"):
        planned = sidecar.plan(table, f"f = {literal}")
        near = float32_neighbours(float(literal))
        expected = {key for key, value in enumerate(VALUES) if value in near or value != value}
        assert kept_ids(table, planned) <= expected


def test_residuals_are_those_of_the_predicate_itself(catalog: Any) -> None:
    """What is widened says that rows may match, never that they do."""
    table = catalog.load_table("db.float_literals_partitioned")
    tasks = {task.file.file_path: task for task in sidecar.plan(table, "f <= 0.1").tasks}
    theirs = {task.file.file_path: task for task in table.scan("f <= 0.1").plan_files()}
    assert theirs.keys() < tasks.keys()
    for path, task in theirs.items():
        assert repr(tasks[path].residual) == repr(task.residual)
    for path in tasks.keys() - theirs.keys():
        assert tasks[path].residual != AlwaysTrue()


@pytest.mark.parametrize(("predicate", "wanted"), [("f < 1e39", 13), ("f >= -1e39", 13), ("f != 1e39", 15)])
def test_numbers_beyond_32_bits_are_compared_and_null_is_not(catalog: Any, predicate: str, wanted: int) -> None:
    table = catalog.load_table("db.float_literals_float")
    found = {*sidecar.scan(table, predicate)["id"].to_pylist()}
    assert len(found) == wanted
    assert VALUES.index(None) not in found
    negated = {*sidecar.scan(table, f"not ({predicate})")["id"].to_pylist()}
    assert VALUES.index(None) not in negated
    assert not found & negated


def test_expressions_of_pyiceberg_mean_the_same(catalog: Any) -> None:
    schema = catalog.load_table("db.float_literals_float").schema()
    for expression, text in ((LessThan("f", 1e39), "f < 1e39"), (EqualTo("f", 2**24 + 1), "f = 16777217")):
        assert as_expression(expression, schema) == parse_predicate(text, schema)
        again = as_expression(as_expression(expression, schema), schema)
        assert again == parse_predicate(text, schema)
        bind(schema, again, True)


def test_keys_of_a_promoted_column_lose_no_file_of_floats(catalog: Any) -> None:
    """Where an engine pushes a key down to a file of 32-bit floats, it rounds it."""
    table = catalog.load_table("db.float_literals_promoted")
    planned = sidecar.plan(table, "true", keys={"f": pa.array([0.1], pa.float64())})
    assert VALUES.index(TENTH) in kept_ids(table, planned)
    planned = sidecar.plan(table, "true", keys={"f": pa.array([0.2, 7.0], pa.float64())})
    assert planned.files_kept <= 2


@pytest.mark.parametrize("literal", ["0.1", "0.7", "3.4028235e38"])
def test_statistics_of_an_orc_file_do_not_exclude_what_a_float_is_rounded_to(catalog: Any, literal: str) -> None:
    table = catalog.load_table("db.float_literals_orc")
    held = float(np.float32(literal))
    (key,) = (at for at, value in enumerate(VALUES) if value == held)
    (path,) = (path for path, own in ids_by_path(table).items() if own == key)
    with closing(open_source(path, table.io)) as source:
        assert all(unit.might_contain is not False for unit in probe_file(source, "f", literal))
        far = probe_file(source, "f", "0.3")
    assert all(unit.might_contain is False for unit in far)


def test_neighbours_are_those_of_numpy() -> None:
    rng = np.random.default_rng(11)
    bits = np.frombuffer(rng.bytes(8 * 4000), np.float64)
    near = rng.normal(0, 1, 1000).tolist()
    edges = [LIMIT, -LIMIT, float(np.nextafter(LIMIT, 0)), 5e-324, -5e-324, 0.0, -0.0]
    for value in [*bits[np.isfinite(bits)].tolist(), *near, *np.float32(near).tolist(), *edges]:
        low, high = float32_neighbours(value)
        assert low <= value <= high
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.float32(value)
            assert float(rounded) in (low, high)
            assert np.float32(low) == low or math.isinf(low)
            assert np.float32(high) == high or math.isinf(high)
            if low != high:
                assert np.nextafter(np.float32(low), np.float32(np.inf)) == high
