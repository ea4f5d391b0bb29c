"""The Python data source: the rows of a predicate, from the files that a sidecar leaves over."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

import sidecar

pytest.importorskip("pyspark.sql.datasource", reason="the extra [spark] is not installed")

from pyspark import cloudpickle

from sidecar import errors
from sidecar.errors import SidecarError, UsageError
from sidecar.planning.plan import Plan
from sidecar.reading import table_files
from sidecar.spark.datasource import SidecarDataSource, SidecarReader
from sidecar.spark.partitions import OPENING, TARGET_BYTES, shares
from tests.iceberg.table_cases import delete_by_position
from tests.tables import create_with_rows

NAME, FILES, ROWS = "db.source", 6, 50
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("n", pa.decimal128(9, 2)),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("z", pa.timestamp("us", "UTC")),
        ("b", pa.binary()),
        ("l", pa.list_(pa.int64())),
    ]
)


def rows(part: int) -> pa.Table:
    numbers = [row * FILES + part for row in range(ROWS)]
    columns: dict[str, list[Any]] = {
        "k": numbers,
        "i": [None if n % 5 == 0 else n for n in numbers],
        "s": [f"text {n}" for n in numbers],
        "f": [float("nan") if n % 7 == 0 else n / 2 for n in numbers],
        "n": [Decimal(n) / 4 for n in numbers],
        "d": [date(2020, 1, 1) + timedelta(days=n) for n in numbers],
        "t": [datetime(1970, 1, 1) + timedelta(microseconds=n * 1_000_003) for n in numbers],
        "z": [n * 1_000_000 for n in numbers],
        "b": [n.to_bytes(3, "big") for n in numbers],
        "l": [[n] * (n % 3) for n in numbers],
    }
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names}, SCHEMA)


@pytest.fixture(scope="module")
def table(catalog: Any) -> Any:
    table = create_with_rows(catalog, NAME, map(rows, range(FILES)), SCHEMA)
    table.delete("k = 100")
    sidecar.build(table, [name for name in SCHEMA.names if name != "l"], engine="local", fpp=1e-4)
    return catalog.load_table(NAME)


@pytest.fixture(scope="module")
def source(spark: Any, table: Any, catalog: Any) -> Any:
    sidecar.register_spark(spark)

    def load(**options: str) -> Any:
        reader = spark.read.format("sidecar").option("table", NAME).option("catalog", "cat")
        for key in ("uri", "warehouse"):
            reader = reader.option(f"catalog.{key}", catalog.properties[key])
        return reader.option("catalog.type", "sql").options(**options).load()

    return load


def rows_of(planned: Plan, columns: list[str] | None = None, target: int = TARGET_BYTES) -> list[list[Any]]:
    """Rows by partition, each read by another process's copy of the reader."""
    names = [field.name for field in planned.table.schema().fields]
    reader = SidecarReader(planned, columns or names, target)
    copies = [pickle.loads(cloudpickle.dumps((reader, part))) for part in reader.partitions()]
    return [[row for batch in copy.read(part) for row in batch.to_pylist()] for copy, part in copies]


PREDICATES = ["s = 'text 77'", "f = 39.0", "k > 290 or i is null", "not (f < 100)", "n = 19.25", "true"]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_rows_are_those_of_pyiceberg_from_surviving_files(table: Any, predicate: str) -> None:
    planned = sidecar.plan(table, predicate)
    wanted = sorted(table.scan(row_filter=planned.row_filter).to_arrow()["k"].to_pylist())
    for target, partitions in ((1, planned.files_kept), (2 * OPENING + 100_000, -(-planned.files_kept // 2))):
        found = rows_of(planned, target=target)
        assert len(found) == partitions
        assert sorted(row["k"] for part in found for row in part) == wanted


def test_a_predicate_speaks_of_columns_that_are_not_read(table: Any) -> None:
    assert rows_of(sidecar.plan(table, "s = 'text 77'"), ["k"]) == [[{"k": 77}]]


def test_small_files_share_a_partition(table: Any) -> None:
    assert len(shares(sidecar.plan(table, "true"))) == 1
    assert len(rows_of(sidecar.plan(table, "true"), target=3 * OPENING)) == FILES // 2


@pytest.fixture(scope="module")
def large(catalog: Any) -> Any:
    """Two files of ten row groups each; rows of one of them deleted by position."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    settings = {"write.parquet.row-group-limit": "100", "write.parquet.page-row-limit": "20"}
    made = catalog.create_table("db.source_large", schema, properties=settings)
    for start in (0, 1000):
        numbers = range(start, start + 1000)
        made.append(pa.table({"k": numbers, "v": [n % 7 for n in numbers], "s": [f"{n}" for n in numbers]}, schema))
    sidecar.build(made, ["k", "v", "s"], kinds=["bloom", "page-index"], engine="local")
    made = catalog.load_table("db.source_large")
    delete_by_position(made, {made.scan().plan_files()[0].file.file_path: [0, 99, 100, 554, 998]})
    return catalog.load_table("db.source_large")


@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize(
    "predicate",
    ["v = 3 and k >= 150", "k < 1850 and v != 3", "s in ('170', '1999', '555')", "v in (2, 4) and k < 500"],
)
def test_a_file_is_cut_between_its_row_groups(
    large: Any, predicate: str, doubt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row in one partition, also where a worker has to give its part to pyiceberg."""
    planned = sidecar.plan(large, predicate)
    wanted = sorted(large.scan(row_filter=planned.row_filter).to_arrow()["k"].to_pylist())
    if doubt:
        monkeypatch.setattr(errors, "reraise_foreign", False)
        monkeypatch.setattr(table_files, "read_footer", lambda source: 1 // 0)
    monkeypatch.setattr("sidecar.spark.partitions.OPENING", 0)
    cut = shares(planned, 1)
    known = [planned.row_groups.get(path) for path in planned.kept_files]
    assert len(cut) == sum(1 if kept is None else len(kept.kept) for kept in known)
    found = rows_of(planned, target=1)
    assert sorted(row["k"] for part in found for row in part) == wanted
    assert len(shares(planned, 1 << 20)) == 1


def test_keys_reach_the_workers(large: Any) -> None:
    keys = {"s": pa.array(["170", "1999", "555", "no"])}
    planned = sidecar.plan(large, "true", keys=keys)
    assert sorted(row["k"] for part in rows_of(planned, ["k"]) for row in part) == [170, 555, 1999]


def test_another_snapshot_is_read_in_its_own_schema(large: Any) -> None:
    first = large.metadata.snapshots[0].snapshot_id
    planned = sidecar.plan(large, "k in (5, 1005)", snapshot_id=first)
    assert rows_of(planned) == [[{"k": 5, "v": 5, "s": "5"}]]


@pytest.mark.jvm
def test_spark_reads_the_rows(spark: Any, source: Any) -> None:
    options = {"predicate": "s = 'text 79' or k in (100, 102)", "target-bytes": "1"}
    ours, theirs = source(**options), spark.table(f"cat.{NAME}")
    assert ours.columns == theirs.columns
    assert ours.rdd.getNumPartitions() == 2
    wanted = theirs.where("s = 'text 79' or k in (100, 102)").orderBy("k").collect()
    assert ours.orderBy("k").collect() == wanted
    assert [row["k"] for row in wanted] == [79, 102]


@pytest.mark.jvm
def test_a_frame_can_be_asked_again(source: Any) -> None:
    """With filters pushed down, Spark would answer the second count from the first one's partitions."""
    frame = source(columns="k,s")
    assert frame.where("s = 'text 77'").count() == 1
    assert frame.count() == FILES * ROWS - 1


@pytest.mark.jvm
def test_columns_and_snapshots(source: Any, table: Any) -> None:
    frame = source(columns="s,l", predicate="s = 'text 77'")
    assert frame.columns == ["s", "l"]
    assert frame.collect() == [("text 77", [77, 77])]
    first = table.metadata.snapshots[0].snapshot_id
    assert source(**{"snapshot-id": str(first)}).count() == ROWS
    assert source(ref="main").count() == FILES * ROWS - 1


def test_wrong_options_are_one_sentence(table: Any, catalog: Any) -> None:
    known = {"table": NAME, "catalog": "cat", "catalog.type": "sql"}
    known |= {f"catalog.{key}": catalog.properties[key] for key in ("uri", "warehouse")}
    for option, value, said in (
        ("table", "db.nowhere", "db.nowhere"),
        ("columns", "nothing", "the table has no column 'nothing'"),
        ("snapshot-id", "x", "snapshot-id is not a number"),
        ("table", "", "the option table is missing"),
        ("target-bytes", "0", "target-bytes is not a positive whole number"),
        ("ref", "nowhere", "no branch or tag"),
        ("predicate", "nothing = 1", "nothing"),
    ):
        opened = SidecarDataSource({**known, option: value})
        with pytest.raises(UsageError, match=said):
            opened.reader(SidecarDataSource(known).schema())


def test_workers_read_encrypted_files_with_keys_of_their_own(
    catalog: Any, catalog_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are named by a place, so that none is sent; without them the files are refused."""
    schema = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    made = catalog.create_table("db.source_sealed", Schema(NestedField(1, "k", LongType(), required=False)))
    path = f"{catalog_dir}/sealed.parquet"
    properties = pe.create_encryption_properties(b"planted-key-0123")
    pq.write_table(pa.table({"k": range(100)}, schema), path, row_group_size=25, encryption_properties=properties)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=100,
        file_size_in_bytes=Path(path).stat().st_size,
    )
    file.spec_id = 0
    with made.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    monkeypatch.setenv("SEALED", json.dumps({"footer_key": "hex:" + b"planted-key-0123".hex()}))
    options = {
        "table": "db.source_sealed",
        "catalog": "cat",
        "catalog.type": "sql",
        "predicate": "k in (3, 77)",
    }
    options |= {f"catalog.{key}": catalog.properties[key] for key in ("uri", "warehouse")}
    source = SidecarDataSource({**options, "encryption-keys": "env:SEALED"})
    reader = source.reader(source.schema())
    sent = cloudpickle.dumps([(reader, part) for part in reader.partitions()])
    assert b"planted-key" not in sent
    assert b"planted-key-0123".hex().encode() not in sent
    found = [row["k"] for one, part in pickle.loads(sent) for batch in one.read(part) for row in batch.to_pylist()]
    assert found == [3, 77]
    locked = SidecarDataSource(options)
    with pytest.raises(SidecarError):
        [list(r.read(part)) for r in [locked.reader(locked.schema())] for part in r.partitions()]


def test_columns_swapped_since_the_frame_was_made(spark: Any, source: Any, catalog: Any) -> None:
    """Spark takes the columns of a batch by position."""
    table = catalog.create_table("db.source_swapped", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.append(pa.table({"a": [1], "b": [100]}))
    moved, swapped, renamed = (source(table="db.source_swapped", predicate="true") for _ in range(3))
    with table.update_schema() as update:
        update.move_first("b")
    assert [row.asDict() for row in moved.collect()] == [{"a": 1, "b": 100}]
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    assert [row.asDict() for row in swapped.collect()] == [{"a": 100, "b": 1}]
    with table.update_schema() as update:
        update.rename_column("a", "d")
    with pytest.raises(Exception, match="columns of the table have changed since the frame was made"):
        renamed.collect()
