"""A required field of an optional struct is NULL where the struct is: all ways give the rows of Spark and DuckDB."""

from __future__ import annotations

import json
import math
import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.expressions import And, BooleanExpression, IsNull, Not, NotNull, Or
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StructType

import sidecar
from sidecar.errors import UsageError
from sidecar.iceberg.struct_nulls import keeping_struct_nulls, with_struct_nulls
from sidecar.planning.whole_match import WholeMatch
from sidecar.reading import arrow_reader, table_files
from sidecar.reading.file_scanning import open_scan
from sidecar.serving.planning.scan_planner import ScanPlanner
from tests.cli.running import run
from tests.iceberg.cases import local
from tests.iceberg.mixed_tables import append_files, append_orc, orc_file
from tests.iceberg.table_cases import delete_by_position
from tests.serving.planning.asking import all_paths, ask

INNER = StructType(NestedField(6, "z", LongType(), required=True))
STRUCT = StructType(
    NestedField(3, "x", LongType(), required=True),
    NestedField(4, "o", DoubleType(), required=False),
    NestedField(5, "t", INNER, required=True),
)
SURE = StructType(NestedField(9, "y", LongType(), required=True))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "s", STRUCT, required=False),
    NestedField(7, "part", LongType(), required=False),
    NestedField(8, "r", SURE, required=True),
)
ROWS, FILES = 150, 3

Row = dict[str, Any]


def row(n: int) -> Row:
    """Most rows have a struct, but in every third file most have none."""
    there = (n % 7 == 0) if n // (ROWS // FILES) % 3 == 0 else (n % 7 != 0)
    inner = {"x": n * 31 % 100, "o": None if n % 3 == 0 else n / 4, "t": {"z": n % 5}}
    return {"id": n, "s": inner if there else None, "part": n % 2, "r": {"y": n}}


def value(of: Row, name: str) -> Any:
    found: Any = of
    for part in name.split("."):
        found = None if found is None else found[part]
    return found


def meets(of: Row, expression: BooleanExpression | str) -> bool:
    """Whether a row meets a predicate of NULL tests, or a text that is true for it as Python."""
    if isinstance(expression, And | Or):
        parts = meets(of, expression.left), meets(of, expression.right)
        return all(parts) if isinstance(expression, And) else any(parts)
    if isinstance(expression, Not):
        return not meets(of, expression.child)
    assert isinstance(expression, IsNull | NotNull)
    return (value(of, expression.term.name) is None) is isinstance(expression, IsNull)


NAMES = ("s", "s.x", "s.o", "s.t", "s.t.z", "r", "r.y", "part")


def random_predicate(rng: random.Random, depth: int = 2) -> BooleanExpression:
    if depth and rng.random() < 0.7:
        kind: Any = rng.choice([And, Or, Not])
        return kind(*(random_predicate(rng, depth - 1) for _ in range(1 if kind is Not else 2)))
    test: Any = rng.choice([IsNull, NotNull])
    return test(rng.choice(NAMES))  # type: ignore[no-any-return]


PREDICATES: list[BooleanExpression] = [
    *(test(name) for test in (IsNull, NotNull) for name in NAMES),  # type: ignore[call-arg]
    *(random_predicate(random.Random(seed)) for seed in range(16)),
]
TEXTS = {
    "s.x is null": lambda r: r["s"] is None,
    "not (s.x is not null)": lambda r: r["s"] is None,
    "s.x is null or id = 3": lambda r: r["s"] is None or r["id"] == 3,
    "s.x is not null and id < 40": lambda r: r["s"] is not None and r["id"] < 40,
    "s.x is null and part = 1": lambda r: r["s"] is None and r["part"] == 1,
    "s.t.z is null and s.x is not null": lambda r: False,
    "s.x = 31": lambda r: r["s"] is not None and r["s"]["x"] == 31,
    "not (s.x = 31)": lambda r: r["s"] is not None and r["s"]["x"] != 31,
    "s.x != 31 and s.x is not null": lambda r: r["s"] is not None and r["s"]["x"] != 31,
    "r.y is null": lambda r: False,
    "r.y is not null": lambda r: True,
}


@pytest.fixture(scope="module", params=["plain", "partitioned", "indexed", "deleted", "orc"])
def table(request: pytest.FixtureRequest, catalog: Any) -> tuple[Table, list[Row]]:
    """Tables of the same rows, of which one lacks some."""
    is_parted = request.param == "partitioned"
    fields = [PartitionField(7, 1000, IdentityTransform(), "part")] if is_parted else []
    made = catalog.create_table(
        f"db.struct_nulls_{request.param}",
        SCHEMA,
        partition_spec=PartitionSpec(*fields),
        properties={"write.parquet.row-group-limit": "20", "write.parquet.page-row-limit": "5", "format-version": "2"},
    )
    rows = [row(n) for n in range(ROWS)]
    for at in range(0, ROWS, ROWS // FILES):
        data = pa.Table.from_pylist(rows[at : at + ROWS // FILES], made.schema().as_arrow())
        if request.param == "orc":
            append_orc(made, data, row_index_stride=10)
        else:
            made.append(data)
    if request.param in ("indexed", "deleted", "orc"):
        columns = ["id", "s.x", "s.o", "s.t.z", "r.y"]
        sidecar.build(made, columns, kinds=["bloom", "page-index"], engine="local")
    if request.param == "deleted":
        path = next(iter(made.scan("id = 3").plan_files())).file.file_path
        delete_by_position(made, {path: [0, 3]})
        rows = [one for one in rows if one["id"] not in (0, 3)]
    return catalog.load_table(f"db.struct_nulls_{request.param}"), rows


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def test_null_tests_in_every_combination(table: tuple[Table, list[Row]]) -> None:
    made, rows = table
    for predicate in PREDICATES:
        expected = [one["id"] for one in rows if meets(one, predicate)]
        planned = sidecar.plan(made, predicate)
        assert planned.warnings == ()
        assert ids(planned.to_arrow()) == expected, predicate
        assert ids(planned.to_arrow_batch_reader(["id"]).read_all()) == expected, predicate


def test_null_tests_of_files_that_are_not_small(
    table: tuple[Table, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's scanner reads them, or their pages are read."""
    monkeypatch.setattr(arrow_reader, "SMALL", 0)
    monkeypatch.setattr(table_files, "SMALL", 0)
    made, rows = table
    for at, too_much in enumerate((table_files.TOO_MUCH, math.inf)):
        monkeypatch.setattr(table_files, "TOO_MUCH", too_much)
        for predicate in PREDICATES[at::2]:
            expected = [one["id"] for one in rows if meets(one, predicate)]
            assert ids(sidecar.scan(made, predicate, ["id"])) == expected, predicate


def test_rows_from_before_the_struct(catalog: Any) -> None:
    made = catalog.create_table("db.struct_nulls_added", pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1, 2]}))
    with made.update_schema() as update:
        update.add_column("s", StructType(NestedField(20, "x", LongType(), required=True)))
    made.append(pa.table({"id": [3, 4], "s": [{"x": 3}, None]}, made.schema().as_arrow()))
    for step in ("read", "built"):
        assert ids(sidecar.scan(made, "s.x is null")) == [1, 2, 4], step
        assert ids(sidecar.scan(made, "s.x is not null")) == [3], step
        assert ids(sidecar.scan(made, "not (s.x is null) or id = 1")) == [1, 3], step
        sidecar.build(made, ["id", "s.x"], kinds=["bloom", "page-index"], engine="local")


def test_texts_keys_and_types(table: tuple[Table, list[Row]]) -> None:
    made, rows = table
    for text, test in TEXTS.items():
        expected = [one["id"] for one in rows if test(one)]
        found = sidecar.scan(made, text)
        assert ids(found) == expected, text
        assert found.schema.equals(made.scan().to_arrow().schema)  # the field stays required in the result
        some = [*expected[::2], ROWS + 1]
        assert ids(sidecar.scan(made, text, keys={"id": some})) == expected[::2], text
        values = {r["s"]["x"] for r in rows if r["s"] is not None and r["id"] in some}
        with_keys = [r["id"] for r in rows if test(r) and r["s"] is not None and r["s"]["x"] in values]
        assert ids(sidecar.scan(made, text, keys={"s.x": sorted(values)})) == with_keys, text


def test_what_a_server_leaves_suffices_for_every_client(table: tuple[Table, list[Row]]) -> None:
    """Of Spark, and of pyiceberg, which finds rows of NULL structs for IS NOT NULL."""
    made, rows = table
    planner, file_of = ScanPlanner(), {}
    for task in made.scan().plan_files():
        read = pq.read_table if task.file.file_format == FileFormat.PARQUET else orc.read_table
        for key in read(local(task.file.file_path), columns=["id"])["id"].to_pylist():
            file_of[key] = task.file.file_path
    for kind in ("is-null", "not-null"):
        for name in ("s.x", "s.o", "s.t.z"):
            plain = {"type": kind, "term": name}
            for filter_, is_negated in ((plain, False), ({"type": "not", "child": plain}, True)):
                kept = set(all_paths(planner, made, ask(planner, made, filter_)))
                wants_null = (kind == "is-null") is not is_negated
                needed = {file_of[one["id"]] for one in rows if (value(one, name) is None) is wants_null}
                assert needed <= kept, filter_


def test_fields_inside_lists_cannot_be_named(catalog: Any) -> None:
    inside = StructType(NestedField(12, "x", LongType(), required=True))
    schema = Schema(NestedField(10, "l", ListType(11, inside, element_required=False), required=False))
    made = catalog.create_table("db.struct_nulls_list", schema)
    assert with_struct_nulls(made.schema()) is made.schema()
    with pytest.raises(UsageError, match="inside a list"):
        sidecar.plan(made, "l.element.x is null")


def test_not_all_rows_of_a_file_with_null_structs_match(catalog: Any) -> None:
    made = catalog.create_table("db.struct_nulls_whole", SCHEMA)
    made.append(pa.Table.from_pylist([row(n) for n in range(8, 20)], made.schema().as_arrow()))
    (task,) = made.scan().plan_files()
    for predicate, expected in (("s.x", False), ("r.y", True)):
        match = WholeMatch(made.metadata, NotNull(predicate))  # type: ignore[call-arg]
        assert match.holds(task.file, 0) is expected


def test_counts_of_a_manifest_that_leave_out_null_structs_keep_files(catalog: Any) -> None:
    """Iceberg's writer in Java counts no NULL in ORC files for fields of a NULL struct, whether required or not."""
    made = catalog.create_table("db.struct_nulls_counts", SCHEMA)
    rows = pa.Table.from_pylist([row(n) | {"s": None} for n in range(4)], made.schema().as_arrow())
    made.append(pa.Table.from_pylist([row(n) for n in range(10, 20)], made.schema().as_arrow()))
    (whole,) = made.scan().plan_files()
    names = [made.schema().find_field(name).field_id for name in ("s.x", "s.o", "s.t.z")]
    written = orc_file(made, rows)
    fields = {name: getattr(written, name) for name in ("content", "file_path", "file_format", "partition")}
    counts = {"value_counts": dict.fromkeys(names, 0), "null_value_counts": dict.fromkeys(names, 0)}
    sizes = {"record_count": 4, "file_size_in_bytes": written.file_size_in_bytes}
    append_files(made, [DataFile.from_args(**fields, **counts, **sizes)])
    for step in ("read", "built"):
        for name in ("s.x", "s.o", "s.t.z"):
            found = sidecar.scan(made, f"{name} is null and id < 4")
            assert ids(found) == [0, 1, 2, 3], (step, name)
            assert 0 not in ids(sidecar.scan(made, f"{name} is not null")), (step, name)
        sidecar.build(made, ["id"], engine="local")
    assert whole.file.file_path in sidecar.plan(made, "s.x is not null").kept_files


def test_predicates_are_bound_in_one_place() -> None:
    """By pyiceberg's own ``bind``, the NULLs of structs would be lost again."""
    package = Path(sidecar.__file__).parent
    imported = re.compile(r"^(from .* import .*\bbind\b|    bind,$)", re.MULTILINE)
    imports = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if imported.search(path.read_text("utf-8"))
    }
    assert imports == {"iceberg/struct_nulls.py"}


def test_a_filter_for_manifests_loses_only_its_null_tests() -> None:
    for text, expected in (("s.o", True), ("s.x", True), ("s", False), ("r.y", False), ("part", False)):
        kept = keeping_struct_nulls(IsNull(text), SCHEMA)  # type: ignore[call-arg]
        assert (kept != IsNull(text)) is expected, text  # type: ignore[call-arg]
        assert keeping_struct_nulls(NotNull(text), SCHEMA) == NotNull(text)  # type: ignore[call-arg]


@pytest.mark.parametrize("pages", [True, False])
def test_plain_files(tmp_path: Path, pages: bool) -> None:
    rows = [row(n) for n in range(ROWS)]
    kind = pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field(
                "s",
                pa.struct(
                    [
                        pa.field("x", pa.int64(), False),
                        pa.field("o", pa.float64()),
                        pa.field("t", pa.struct([pa.field("z", pa.int64(), False)]), False),
                    ]
                ),
            ),
            pa.field("part", pa.int64()),
            pa.field("r", pa.struct([pa.field("y", pa.int64(), False)]), False),
        ]
    )
    path = tmp_path / "structs.parquet"
    write = partial(pq.write_table, row_group_size=40, write_page_index=pages, max_rows_per_page=5)
    write(pa.Table.from_pylist(rows, kind), path)
    for predicate in PREDICATES:
        expected = [one["id"] for one in rows if meets(one, predicate)]
        assert ids(sidecar.scan(path, predicate)) == expected, predicate
        with open_scan(path, predicate, ["id"]) as scan:
            assert ids(scan.to_table()) == expected, predicate
    for text, test in TEXTS.items():
        assert ids(sidecar.scan(path, text)) == [one["id"] for one in rows if test(one)], text
        some = {"id": [1, 3, 8]}
        expected = [one["id"] for one in rows if test(one) and one["id"] in some["id"]]
        assert ids(sidecar.scan(path, text, keys=some)) == expected, text
    found = sidecar.scan(path, "s.x is null")
    assert found.schema == pq.read_schema(path)


def test_plain_orc_files(tmp_path: Path) -> None:
    rows, path = [row(n) for n in range(ROWS)], tmp_path / "structs.orc"
    orc.write_table(pa.Table.from_pylist(rows), path, row_index_stride=1000)
    for predicate in PREDICATES:
        expected = [one["id"] for one in rows if meets(one, predicate)]
        assert ids(sidecar.scan(path, predicate)) == expected, predicate


def test_three_rows_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "required_child.parquet"
    kind = pa.schema([("id", pa.int64()), ("s", pa.struct([pa.field("x", pa.int64(), False)]))])
    pq.write_table(pa.table({"id": [1, 2, 3], "s": [{"x": 1}, None, {"x": 3}]}, kind), path)
    for predicate, expected in (("s.x is null", [2]), ("s.x is not null", [1, 3]), ("not s.x is null", [1, 3])):
        assert ids(sidecar.scan(path, predicate)) == expected
        done = run("scan", str(path), predicate, "--json")
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == expected


def test_a_checkpoint_of_delta(tmp_path: Path) -> None:
    """Each row has one of several optional structs, all of whose fields are required."""
    action = pa.struct([pa.field("path", pa.string(), False)])
    rows = [{"add": {"path": "a"}, "txn": None}, {"add": None, "txn": {"path": "t"}}, {"add": None, "txn": None}]
    path = tmp_path / "checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([("add", action), ("txn", action)])), path)
    for predicate, count in (
        ("add.path is null", 2),
        ("add.path is not null", 1),
        ("add.path is null and txn.path is null", 1),
        ("add.path is not null or txn.path is not null", 2),
    ):
        assert sidecar.scan(path, predicate).num_rows == count, predicate
