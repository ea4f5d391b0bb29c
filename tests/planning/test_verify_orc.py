"""verify looks values of ORC data files of tables up too, and calls nothing fine that it did not look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as po
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, NestedField, StringType

import sidecar
from sidecar.cli.verify import _success_line
from sidecar.orc.tail import read_tail
from sidecar.storage.local import LocalSource
from tests.iceberg.cases import INDEXED, local
from tests.iceberg.mixed_tables import READABLE, UNREADABLE, append_orc, create_mixed
from tests.orc_cases import write_orc
from tests.tables import iceberg_schema

NARROW = iceberg_schema("k long, s string")
COLUMNS = [name for name in INDEXED if name not in UNREADABLE]
KINDS = ["bloom", "page-index"]
NOTHING = "no value was looked up"


def create_narrow(catalog: Any, name: str, files: int = 2) -> Table:
    """ORC files alone, in row groups of 50; strings of one length, so that files of other values are as long."""
    table: Table = catalog.create_table(name, NARROW)
    for number in range(files):
        append_narrow(table, number)
    return table


def narrow_rows(number: int, letter: str = "a") -> pa.Table:
    values = range(number * 120, (number + 1) * 120)
    return pa.table({"k": pa.array(values, pa.int64()), "s": [f"{letter}{n:05}" for n in values]})


def append_narrow(table: Table, number: int) -> Path:
    return append_orc(table, narrow_rows(number), row_index_stride=50, compression="uncompressed")


@pytest.mark.parametrize("form", ["parquet", "orc", "auto"])
def test_every_value_of_orc_files_is_looked_up(form: str, catalog: Any) -> None:
    """Both kinds of filters, in files of every type; the number of values is pyarrow's."""
    table = create_mixed(catalog, f"db.verify_orc_{form}", files=2)
    columns = [name for name in COLUMNS if "." not in name]
    sidecar.build(table, columns, kinds=KINDS, engine="local", as_=form)
    table.refresh()
    found = sidecar.verify(table, data=True)
    assert found.problems == []
    assert (found.looked_up.units, found.looked_up.units_total) == (2, 2)
    coverage = sidecar.status(table).coverage
    orc, parquet = (
        [t.file.file_path for t in table.scan().plan_files() if t.file.file_format.value == kind]
        for kind in ("ORC", "PARQUET")
    )
    assert (len(orc), len(parquet)) == (1, 1)
    read = po.read_table(local(orc[0]))
    indexed = [name for name in columns if coverage[name]["bloom"].files == 2]
    assert len(indexed) >= 8
    values = sum(len(read[name]) - read[name].null_count for name in indexed)
    assert found.looked_up.values >= values
    assert found.looked_up.indexes >= 3 * len(columns)  # row groups of 20 of 60 rows, and Parquet's


def test_orc_alone_is_looked_at_value_by_value(catalog: Any) -> None:
    table = create_narrow(catalog, "db.verify_orc_alone")
    sidecar.build(table, ["k", "s"], kinds=KINDS, engine="local")
    table.refresh()
    found = sidecar.verify(table, data=True)
    assert found.to_dict() == {
        **{"files": [], "failed": {}, "others": 0, "ok": True},
        "checked": 3,
        "problems": [],
        "looked_up": {
            "units": 2,
            "units_total": 2,
            "values": 2 * 2 * 120,
            "indexes": 2 * 2 * 3,
            "files_not_indexed": 0,
        },
        "engine": "local",
        "engine_reason": "at most 4 GiB of data files are to be read",
    }
    append_narrow(table, 2)
    assert sidecar.verify(table, data=True).looked_up.files_not_indexed == 1
    sample = sidecar.verify(table, sample=0.5).looked_up
    assert (sample.units, sample.values) == (1, 2 * 120)


def test_row_indexes_of_every_stripe_are_those_of_their_own_row_groups(catalog: Any) -> None:
    table = create_narrow(catalog, "db.verify_orc_stripes", files=0)
    options = {"batch_size": 60, "stripe_size": 1, "row_index_stride": 30, "compression": "uncompressed"}
    path = append_orc(table, narrow_rows(0), **options)
    tail = read_tail(LocalSource(str(path)))
    assert [stripe.num_row_groups for stripe in tail.stripes] == [2, 2]
    sidecar.build(table, ["k", "s"], kinds=KINDS, engine="local")
    table.refresh()
    found = sidecar.verify(table, data=True)
    assert found.problems == []
    assert (found.looked_up.values, found.looked_up.indexes) == (2 * 120, 2 * 4)


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_other_values_under_an_indexed_path_are_named(form: str, catalog: Any) -> None:
    """A file of the same size, rows and row groups is put in the place of an indexed one."""
    table = create_narrow(catalog, f"db.verify_orc_replaced_{form}", files=1)
    sidecar.build(table, ["k", "s"], kinds=KINDS, engine="local", as_=form)
    table.refresh()
    (task,) = table.scan().plan_files()
    path = local(task.file.file_path)
    before = path.read_bytes()
    path.unlink()
    write_orc(path, narrow_rows(0, "b"), table.schema(), row_index_stride=50, compression="uncompressed")
    assert len(before) == path.stat().st_size, "the file could be told by its size"
    problems = sidecar.verify(table, data=True).problems
    assert {(local(p.file), p.column) for p in problems} == {(path, "s")}
    texts = [p.problem for p in problems]
    assert "sidecar: row index: it differs from the file's" in texts
    assert any(text.startswith("sidecar: row index: statistics:") for text in texts)
    assert any(text.startswith("sidecar: Bloom filter: denies ") for text in texts)
    assert {p.unit for p in problems} == {0, 1, 2}


def test_elements_that_are_found_by_name_are_looked_up(catalog: Any) -> None:
    """The file has no ids: the sidecar names the element of the list as Parquet files do."""
    schema = Schema(NestedField(1, "l", ListType(2, StringType())))
    mapping = {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
    table = catalog.create_table("db.verify_orc_elements", schema, properties=mapping)
    lists = [pa.table({"l": [[f"{letter}{n:05}"] for n in range(120)]}) for letter in "ab"]
    path = append_orc(table, lists[0], ids=False, row_index_stride=50, compression="uncompressed")
    sidecar.build(table, ["l.element"], kinds=KINDS, engine="local")
    table.refresh()
    found = sidecar.verify(table, data=True)
    assert (found.problems, found.looked_up.values, found.looked_up.indexes) == ([], 120, 3)
    size = path.stat().st_size
    path.unlink()
    write_orc(path, lists[1], schema, False, row_index_stride=50, compression="uncompressed")
    assert size == path.stat().st_size
    denied = [p for p in sidecar.verify(table, data=True).problems if "Bloom filter: denies" in p.problem]
    assert [(p.column, p.unit) for p in denied] == [("l.element", unit) for unit in range(3)]


def test_a_damaged_orc_file_is_a_problem(catalog: Any) -> None:
    table = create_narrow(catalog, "db.verify_orc_damaged")
    sidecar.build(table, ["k"], kinds=KINDS, engine="local")
    table.refresh()
    path = local(next(iter(table.scan().plan_files())).file.file_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + bytes(8))
    problems = sidecar.verify(table, data=True).problems
    assert [local(p.file) for p in problems] == [path]


@pytest.mark.parametrize("orc", [False, True], ids=["parquet", "orc"])
def test_nothing_looked_up_is_not_fine(orc: bool, catalog: Any) -> None:
    """All files that were indexed have left the table; the sidecar of the ancestor has nothing of the new ones."""
    table = catalog.create_table(f"db.verify_nothing_{orc}", NARROW)
    table.append(narrow_rows(0))
    sidecar.build(table, ["k"], engine="local")
    table.refresh()
    table.delete()
    if orc:
        append_narrow(table, 1)
    else:
        table.append(narrow_rows(1))
    found = sidecar.verify(table, data=True)
    assert found.looked_up.values == 0
    (problem,) = found.problems
    assert problem.problem.startswith(NOTHING)
    assert problem.file == table.metadata.statistics[0].statistics_path
    assert sidecar.verify(table).problems == []


@pytest.mark.parametrize(
    ("column", "kinds", "scope"),
    [("s", ["theta"], "sketches are not looked up"), ("k", ["bloom"], None), ("k", ["bloom", "theta"], None)],
)
def test_a_sidecar_with_nothing_to_look_up_is_fine(
    column: str, kinds: list[str], scope: str | None, catalog: Any
) -> None:
    """Sketches drop no file, and a column without a value has none to deny."""
    table = catalog.create_table(f"db.verify_without_values_{column}_{len(kinds)}", NARROW)
    table.append(pa.table({"k": pa.array([None, None], pa.int64()), "s": ["a", "b"]}))
    sidecar.build(table, [column], kinds=kinds, engine="local")
    found = sidecar.verify(table.refresh(), data=True)
    assert (found.problems, found.scope, found.looked_up.units, found.looked_up.values) == ([], scope, 1, 0)
    why = scope or "no value with a filter, and no index"
    assert _success_line(found, "checked") == f"structure fine: 2 checked; nothing was there to look up: {why}"


def test_readable_columns_are_those_of_the_mixed_tables() -> None:
    assert {field.name for field in READABLE.fields} >= {name for name in COLUMNS if "." not in name}
