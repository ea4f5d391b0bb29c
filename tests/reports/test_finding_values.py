"""Which values and columns a search means: types, spellings, promotions, renamed and dropped columns."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

import sidecar
from sidecar.errors import UsageError
from sidecar.puffin.types import THETA
from sidecar.reports.finding.find import find
from sidecar.reports.finding.given_values import conditions_from
from sidecar.reports.finding.sidecars import _hashes, _sketches
from tests.iceberg.cases import local
from tests.iceberg.mixed_tables import append_files, append_orc, orc_file
from tests.reports.find_cases import asked_once
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("n int, f float, d double, dec decimal(9, 2), day date, u uuid, s string")
UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    made: Table = catalog.create_table("db.find_values", SCHEMA)
    made.append(
        pa.table(
            {
                "n": [1, 2, 3, 4, 5],
                "f": [0.1, -0.0, math.nan, math.inf, 1.5],
                "d": [0.1, 0.0, math.nan, -math.inf, 1.5],
                "dec": [Decimal("1.50"), Decimal("-2.00"), None, Decimal("0.00"), Decimal("9999999.99")],
                "day": [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None, None, None],
                "u": [bytes.fromhex(UUID.replace("-", "")), *[None] * 4],
                "s": ["", "null", "1", None, "a=b"],
            },
            schema=made.schema().as_arrow(),
        )
    )
    return made


@pytest.mark.parametrize("read_all", [False, True])
@pytest.mark.parametrize(
    ("column", "value", "rows"),
    [
        ("n", "3", 1), ("n", 3, 1), ("n", "03.0", 1), ("f", "0.1", 1), ("f", "0.0", 1), ("f", "-0.0", 1),
        ("f", "NaN", 1), ("f", "inf", 1), ("d", "0.1", 1), ("d", "-0.0", 1), ("d", math.nan, 1), ("d", "-inf", 1),
        ("dec", "1.5", 1), ("dec", Decimal(-2), 1), ("dec", "-0", 1), ("dec", "9999999.99", 1),
        ("day", "1969-12-31", 1), ("day", dt.date(2024, 2, 29), 1), ("u", UUID, 1),
        ("s", "", 1), ("s", "null", 1), ("s", "a=b", 1), ("s", "absent", 0), ("n", "-1", 0),
    ],
)  # fmt: skip
def test_values_of_all_types(table: Table, column: str, value: object, rows: int, read_all: bool) -> None:
    (answer,) = find(table, {column: value}, read_all=read_all).conditions
    assert (answer.rows, answer.answer) == (rows, "found" if rows else "absent")


def test_two_spellings_of_a_value_are_two_conditions(table: Table) -> None:
    found = find(table, {"d": ["0.0", "-0.0", "nan", "NaN"], "n": ["1", "01"]})
    assert [one.rows for one in found.conditions] == [1] * 6


def test_a_zero_in_a_list_finds_the_other_zero(table: Table) -> None:
    assert [one.rows for one in find(table, {"f": ["0.0", "1.5"]}).conditions] == [1, 1]


@pytest.mark.parametrize(
    ("column", "value"), [("n", "3000000000"), ("n", "1.5"), ("dec", "1.505"), ("dec", "123456789"), ("f", "1e39")]
)
def test_a_number_that_the_type_does_not_have_is_absent(table: Table, column: str, value: str) -> None:
    report = find(table, {column: value})
    assert report.answer == "absent"
    assert report.files_read == []
    assert report.conditions[0].impossible


@pytest.mark.parametrize(
    ("column", "value"), [("n", "abc"), ("day", "yesterday"), ("u", "1"), ("no such", "1"), ("n", [])]
)
def test_a_value_or_column_that_makes_no_sense_is_refused(table: Table, column: str, value: object) -> None:
    with pytest.raises(UsageError):
        find(table, {column: value})


def test_promoted_columns_are_compared_in_their_wider_type(catalog: Any) -> None:
    table: Table = catalog.create_table("db.find_promoted", SCHEMA)
    narrow = table.schema().as_arrow()
    row = {"n": [2**31 - 1], "f": [0.1], "dec": [Decimal("1.50")]}
    nulls = {name: [None] for name in narrow.names if name not in row}
    table.append(pa.table({**row, **nulls}).select(narrow.names).cast(narrow))
    infinite = {**row, "f": [math.inf]}
    table.append(pa.table({**infinite, **nulls}).select(narrow.names).cast(narrow))
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("f", DoubleType())
        update.update_column("dec", DecimalType(20, 2))
    wide = str(float(np.float32(0.1)))
    asked = {"n": ["2147483647", "2147483648"], "f": ["0.1", wide, "inf"], "dec": ["1.5", "123456789012345678.00"]}
    report = find(table, asked)
    found = {(one.column, one.value): one.rows for one in report.conditions}
    assert found == {
        ("n", "2147483647"): 2, ("n", "2147483648"): 0,
        ("f", "0.1"): 0, ("f", wide): 1, ("f", "inf"): 1,
        ("dec", "1.5"): 2, ("dec", "123456789012345678.00"): 0,
    }  # fmt: skip


@pytest.mark.parametrize(("value", "kinds"), [(-(2**31), 2), (2**31 - 1, 2), (-(2**31) - 1, 1), (2**31, 1)])
def test_a_number_of_a_long_is_looked_for_in_sketches_of_ints_too(value: int, kinds: int) -> None:
    """The column may have been an int when its values were counted."""
    question: Any = SimpleNamespace(column=SimpleNamespace(type=LongType()))
    assert len(_hashes(value, question)) == kinds


def test_a_sketch_of_several_columns_says_nothing_of_one_of_them() -> None:
    """It is not even read: nobody knows how others have hashed pairs."""
    question: Any = SimpleNamespace(field_id=1, literals={})
    for fields, read in (((1, 2), 0), ((2,), 0), ((1,), 1)):
        blobs = [SimpleNamespace(type=THETA, fields=fields)]
        puffin = SimpleNamespace(metadata=SimpleNamespace(blobs=blobs), read_blob=lambda blob: b"no sketch")
        sketches: Any = SimpleNamespace(puffin=puffin, source=SimpleNamespace(name="x.stats"))
        assert [len(part) for part in _sketches(sketches, question)] == [0, read], fields


def test_a_file_of_snapshots_before_and_after_a_promotion_counts_once(catalog: Any) -> None:
    """Snapshots before the promotion have the narrow type: the file is asked for both."""
    table: Table = catalog.create_table("db.find_promoted_once", pa.schema([("n", pa.int32())]))
    for numbers in ([5, 6], [7, 8]):
        table.append(pa.table({"n": pa.array(numbers, pa.int32())}))
    sidecar.build(table, ["n"], engine="local")
    table.refresh()
    with table.update_schema() as update:
        update.update_column("n", LongType())
    table.append(pa.table({"n": pa.array([9, 9])}))
    report = find(table, {"n": "5"}, all_snapshots=True)
    assert asked_once(report)
    (condition,), (file,), (asked,) = report.conditions, report.files, report.sidecars
    assert (condition.files, condition.rows, file.rows) == (1, 1, 1)
    assert [one.snapshot_id for one in file.snapshots] == [one.snapshot_id for one in report.snapshots]
    assert sum(report.ruled_out_by.values()) == 2
    assert asked.admits == [file.file]


def test_nan_is_found_beside_one_other_value(catalog: Any) -> None:
    """Statistics have no NaN: Arrow takes a row group whose lowest value is the highest too for one of equal values."""
    table: Table = catalog.create_table("db.find_nan", pa.schema([("f", pa.float32())]))
    table.append(pa.table({"f": pa.array([0.5, math.nan], pa.float32())}))
    assert find(table, {"f": "nan"}).conditions[0].rows == 1
    with table.update_schema() as update:
        update.update_column("f", DoubleType())
    assert find(table, {"f": "nan"}).conditions[0].rows == 1


def test_values_that_the_type_in_the_file_seems_not_to_have(catalog: Any, tmp_path: Any) -> None:
    """pyiceberg takes an unsigned column for one of 32 bits with a sign, and compares nanoseconds with microseconds."""
    schema = iceberg_schema("n long, ts timestamp")
    properties = {"write.metadata.metrics.default": "none"}
    table: Table = catalog.create_table("db.find_foreign", schema, properties=properties)
    table.append(pa.table({"n": [1], "ts": pa.array([1], pa.timestamp("us"))}))
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
    (task,) = table.scan().plan_files()
    foreign = pa.table({"n": pa.array([4_000_000_000], pa.uint32()), "ts": pa.array([1_500], pa.timestamp("ns"))})
    pq.write_table(foreign, local(task.file.file_path), version="2.6")
    found = find(table, {"n": "4000000000", "ts": "1970-01-01T00:00:00.000001"})
    assert [one.rows for one in found.conditions] == [1, 1]


def test_a_name_means_every_column_that_has_had_it(catalog: Any) -> None:
    schema = iceberg_schema("id long, mail string")
    table: Table = catalog.create_table("db.find_names", schema)
    table.append(pa.table({"id": [1], "mail": ["ann"]}))
    with table.update_schema() as update:
        update.rename_column("mail", "email")
    table.append(pa.table({"id": [2], "email": ["ben"]}))
    for name in ("mail", "email"):
        assert [one.rows for one in find(table, {name: ["ann", "ben"]}).conditions] == [1, 1]
    with table.update_schema() as update:
        update.delete_column("email")
    with table.update_schema() as update:
        update.add_column("mail", StringType())
    table.append(pa.table({"id": [3], "mail": ["cid"]}))
    report = find(table, {"mail": ["ann", "ben", "cid"]})
    assert report.conditions[0].field_ids == [2, 3]
    assert [one.rows for one in report.conditions] == [1, 1, 1]
    assert {(one.value, one.field_id) for one in report.files} == {("ann", 2), ("ben", 2), ("cid", 3)}
    assert find(table, {"email": "ben"}).answer == "found"


def test_files_without_field_ids_are_read_by_the_name_mapping(catalog: Any, tmp_path: Any) -> None:
    table: Table = catalog.create_table("db.find_mapped", iceberg_schema("mail string"))
    pq.write_table(pa.table({"mail": ["ann"]}), tmp_path / "part.parquet")
    table.add_files([f"file:{tmp_path}/part.parquet"])
    with table.update_schema() as update:
        update.rename_column("mail", "email")
    assert find(table, {"email": "ann"}).conditions[0].rows == 1
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    assert find(table, {"email": "ann"}).answer == "not proven"


def test_times_that_orc_readers_do_not_agree_on_are_not_proven(catalog: Any) -> None:
    table: Table = catalog.create_table("db.find_times", iceberg_schema("at timestamp"))
    append_orc(table, pa.table({"at": pa.array([-500_000, 2_500_000, -3_000_000], pa.timestamp("us"))}))
    answers = {
        text: find(table, {"at": text}).answer
        for text in ("1969-12-31 23:59:59.5", "1970-01-01 00:00:02.5", "1969-12-31 23:59:57", "1971-01-01 00:00:00")
    }
    assert list(answers.values()) == ["not proven", "found", "found", "absent"]


def test_blanks_that_orc_readers_do_not_agree_on_are_not_proven(catalog: Any) -> None:
    """Java's readers cut the blanks of a CHAR(8), pyarrow's does not: what it has not found, Spark may find."""
    foreign = Path(__file__).parents[1] / "data/orc/java_zlib_utf8.orc"
    types = {"c_bool": BooleanType(), "c_tiny": IntegerType(), "c_small": IntegerType(), "c_int": IntegerType()}
    types |= {"c_big": LongType(), "c_float": FloatType(), "c_double": DoubleType(), "c_sdict": StringType()}
    types |= {"c_sdir": StringType(), "c_char": StringType(), "c_vchar": StringType(), "c_bin": BinaryType()}
    types |= {"c_date": DateType(), "c_ts": TimestampType(), "c_tsi": TimestamptzType(), "c_dec10": DecimalType(10, 2)}
    types |= {"c_dec18": DecimalType(18, 6), "c_dec38": DecimalType(38, 18), "c_null": IntegerType()}
    schema = Schema(*(NestedField(n, name, kind) for n, (name, kind) in enumerate(types.items(), start=1)))
    table: Table = catalog.create_table("db.find_char", schema)
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
    file = orc_file(table, schema.as_arrow().empty_table())
    shutil.copy(foreign, local(file.file_path))
    size = foreign.stat().st_size
    known = {"content": DataFileContent.DATA, "file_format": FileFormat.ORC, "partition": Record()}
    append_files(
        table,
        [DataFile.from_args(**known, file_path=file.file_path, record_count=2300, file_size_in_bytes=size)],
    )
    answers = {
        (name, value): find(table, {name: value}).answer
        for name, value in (
            ("c_char", "c6iw    "),
            ("c_char", "c6iw"),
            ("c_vchar", "no such"),
            ("c_date", "0001-02-03"),
        )
    }
    assert list(answers.values()) == ["found", "not proven", "absent", "not proven"]


def test_a_partition_value_is_found_whatever_the_file_stores(catalog: Any) -> None:
    """Spark and Trino read the partition's value of an identity partition, pyiceberg reads the file's."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "mail"))
    schema = iceberg_schema("mail string, id long")
    table: Table = catalog.create_table("db.find_both", schema, partition_spec=spec)
    table.append(pa.table({"mail": ["ann", "ann"], "id": [1, 2]}))
    (task,) = table.scan().plan_files()
    path = local(task.file.file_path)
    stored = pq.read_table(path, partitioning=None)
    kind = stored.schema.field(0)
    pq.write_table(stored.set_column(0, kind, pa.array(["bob", "eve"], kind.type)), path)
    for read_all in (False, True):
        assert find(table, {"mail": "ann"}, read_all=read_all).conditions[0].rows == 2
    assert find(table, {"mail": "bob"}, read_all=True).conditions[0].rows == 1


def test_texts_of_conditions(tmp_path: Any) -> None:
    assert conditions_from(["a=1", "b==", "a=2"]) == {"a": ["1", "2"], "b": ["="]}
    file = tmp_path / "values.txt"
    file.write_bytes("\ufeffann\r\nbén\u2028x\n\n".encode())
    assert conditions_from(["mail"], str(file)) == {"mail": ["ann", "bén\u2028x"]}
    for texts, name in ((["mail"], None), (["=1"], None), (["a", "b"], str(file)), (["a"], str(tmp_path / "no"))):
        with pytest.raises(UsageError):
            conditions_from(texts, name)
    file.write_bytes(b'mail,id\r\n"a\r\nb",1\r\n')
    assert conditions_from([], str(file)) == {"mail": ["a\r\nb"], "id": ["1"]}
    for line in ('"Ann" Lee', '"Ann', "x" * 200_000):  # one value of all lines would be proven to be absent
        file.write_text(f"mail\n{line}\nben\n")
        with pytest.raises(UsageError, match="is no CSV"):
            conditions_from([], str(file))
    file.write_bytes(b"mail, id\n ann , 1\n")
    assert conditions_from([], str(file)) == {"mail": [" ann "], "id": [" 1"]}, "blanks belong to a value"
    file.write_bytes(b'mail,id\nann, "1"\n')
    with pytest.raises(UsageError, match=r"line 2 has a blank before a quote"):
        conditions_from([], str(file))


def test_digits_of_other_scripts_are_no_number_that_is_impossible(catalog: Any) -> None:
    table = catalog.create_table("db.digits", pa.schema([("id", pa.int32())]))
    for text in ("\uff14\uff12", "4_2"):
        with pytest.raises(UsageError, match="not a number"):
            sidecar.find(table, {"id": text})


def test_values_that_are_no_mapping_are_wrong_usage(catalog: Any) -> None:
    table = catalog.create_table("db.no_mapping", pa.schema([("id", pa.int64())]))
    no_mappings: list[Any] = ["text", ["id"], 5]
    for values in no_mappings:
        with pytest.raises(UsageError, match="mapping"):
            sidecar.find(table, values)
