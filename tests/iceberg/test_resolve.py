"""Names to columns, and columns to leaves of files: what engines read differently is never resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    update_mapping,
)
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from sidecar.bundle.model import UnitState
from sidecar.cli.options import names as cli_names
from sidecar.errors import UsageError
from sidecar.iceberg.predicates.literals import find_column
from sidecar.iceberg.resolve import (
    IDENTITY_NOT_STORED,
    IDENTITY_UNPROVEN,
    NO_IDS_NO_MAPPING,
    ColumnsInFile,
    FoundColumn,
    TableColumn,
    encoded_name,
    listed_names,
    resolution_holds,
    resolve_columns,
)
from sidecar.questions.bounds import Unknown


@dataclass(frozen=True)
class Leaf:
    path: str
    field_id: int | None = None


POINT = StructType(NestedField(8, "x", LongType()), NestedField(9, "y", LongType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "code", FixedType(16)),
    NestedField(4, "tags", ListType(5, StringType())),
    NestedField(6, "attributes", MapType(7, StringType(), 10, IntegerType())),
    NestedField(11, "at", POINT),
    NestedField(12, "path", ListType(13, StructType(NestedField(14, "x", LongType())))),
)
MAPPING = create_mapping_from_schema(SCHEMA)


def resolve(leaves: list[Leaf], field_id: int, mapping: NameMapping | None = MAPPING, **identity: bool) -> Any:
    found = ColumnsInFile(leaves, SCHEMA, mapping, {int(k[1:]): v for k, v in identity.items()}).find(field_id)
    return (found.leaf.path, found.resolution) if isinstance(found, FoundColumn) else found.reason


def test_names_resolve_to_ids_types_and_paths() -> None:
    names = ["price", "code", "tags.element", "attributes.key", "at.x", "path.element.x", "price"]
    assert resolve_columns(SCHEMA, names) == [
        TableColumn(2, "decimal(9, 2)", "price"),
        TableColumn(3, "fixed[16]", "code"),
        TableColumn(5, "string", "tags.element"),
        TableColumn(7, "string", "attributes.key"),
        TableColumn(8, "long", "at.x"),
        TableColumn(14, "long", "path.element.x"),
    ]
    assert resolve_columns(SCHEMA, ["PRICE"], case_sensitive=False) == [TableColumn(2, "decimal(9, 2)", "price")]


TWICE = Schema(
    NestedField(1, "K", LongType()),
    NestedField(2, "k", StringType()),
    NestedField(3, "St", StructType(NestedField(4, "x", LongType()))),
    NestedField(5, "st", StructType(NestedField(6, "X", LongType()), NestedField(7, "y", LongType()))),
)


@pytest.mark.parametrize(("name", "both"), [("k", "'K' and 'k'"), ("K", "'K' and 'k'"), ("ST.x", "'St.x' and 'st.X'")])
def test_a_name_of_two_columns_is_refused_if_case_does_not_matter(name: str, both: str) -> None:
    for find in (find_column, lambda *given: resolve_columns(given[0], [given[1]], given[2])):
        with pytest.raises(UsageError, match="more than one column") as caught:
            find(TWICE, name, False)
        assert caught.value.found == both
    assert find_column(TWICE, "k", True).field_id == 2
    assert find_column(TWICE, "K", True).field_id == 1
    assert find_column(TWICE, "sT.Y", False).field_id == 7


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Price", "the table has no column 'Price'. Did you mean price?"),
        ("prise", "the table has no column 'prise'. Did you mean price?"),
        ("zzz", "the table has no column 'zzz'. It has: id, price, code"),
        ("at", "the column 'at' is a struct. Name one of its columns: at.x, at.y."),
        ("tags", "the column 'tags' is a list. Name one of its columns: tags.element."),
        ("attributes", "is a map. Name one of its columns: attributes.key, attributes.value."),
    ],
)
def test_a_wrong_name_is_answered_with_what_is_meant(name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_columns(SCHEMA, [name])
    assert sentence in str(caught.value)


def test_naming_no_column_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no column was given"):
        resolve_columns(SCHEMA, [])


def test_a_leaf_is_found_by_its_field_id_whatever_its_name() -> None:
    leaves = [Leaf("renamed", 1), Leaf("id", 2)]
    assert resolve(leaves, 1) == ("renamed", "id")
    assert resolve(leaves, 1, None) == ("renamed", "id")
    assert resolve(leaves, 3) == UnitState.ABSENT


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        ([Leaf("id", 1), Leaf("price")], "only some columns of the file have field ids"),
        ([Leaf("id", 1), Leaf("price", -1)], "only some columns of the file have field ids"),
        ([Leaf("id", 1), Leaf("again", 1)], "several columns of the file have this field id"),
    ],
)
def test_ids_that_engines_read_differently_are_not_resolved(leaves: list[Leaf], reason: str) -> None:
    assert resolve(leaves, 1) == reason


def test_without_ids_the_name_mapping_decides_never_the_schema() -> None:
    leaves = [Leaf("id"), Leaf("price")]
    assert resolve(leaves, 1) == ("id", "name:id")
    assert resolve(leaves, 1, None) == NO_IDS_NO_MAPPING
    assert resolve(leaves, 1, NameMapping([MappedField(field_id=1, names=["other"])])) == UnitState.ABSENT
    assert resolve(leaves, 1, NameMapping([])) == ("name mapping does not name the column, or is ambiguous")


@pytest.mark.parametrize(
    ("path", "field_id"),
    [
        ("tags.list.element", 5),
        ("tags.bag.array_element", 5),
        ("tags.list.item", 5),
        ("attributes.key_value.key", 7),
        ("attributes.map.value", 10),
        ("at.x", 8),
        ("path.list.element.x", 14),
    ],
)
def test_nested_names_resolve_through_the_groups_of_parquet(path: str, field_id: int) -> None:
    assert resolve([Leaf("id"), Leaf(path)], field_id) == (path, f"name:{path}")


@pytest.mark.parametrize(
    ("path", "field_id"),
    [("tags.array", 5), ("tags", 5), ("path.array.x", 14), ("attributes.key", 7), ("at", 8), ("at.x.z", 8)],
)
def test_nesting_that_the_mapping_does_not_describe_is_not_resolved(path: str, field_id: int) -> None:
    reason = resolve([Leaf("id"), Leaf(path)], field_id)
    assert reason == "nesting of the column in the file differs from the name mapping"


def test_two_columns_under_names_of_one_field_are_not_resolved() -> None:
    mapping = NameMapping([MappedField(field_id=1, names=["id", "key"])])
    leaves = [Leaf("id"), Leaf("key")]
    assert resolve(leaves, 1, mapping) == "several columns of the file have this mapped name"


def test_an_identity_partition_column_is_resolved_only_where_its_values_are_proven() -> None:
    assert resolve([Leaf("price", 2)], 1, _1=False) == IDENTITY_NOT_STORED
    assert resolve([Leaf("price", 2)], 1, _1=True) == IDENTITY_NOT_STORED
    assert resolve([Leaf("id", 1)], 1, _1=False) == IDENTITY_UNPROVEN
    assert resolve([Leaf("id", 1)], 1, _1=True) == ("id", "id")
    assert resolve([Leaf("id")], 1, _1=False) == IDENTITY_UNPROVEN


def test_a_resolution_by_id_holds_while_the_field_lives() -> None:
    assert resolution_holds("id", 1, None, SCHEMA)
    assert not resolution_holds("id", 99, None, SCHEMA)
    assert not resolution_holds("position", 1, MAPPING, SCHEMA)


def test_a_resolution_by_name_ends_with_the_mapping() -> None:
    assert resolution_holds("name:id", 1, MAPPING, SCHEMA)
    assert resolution_holds("name:tags.list.element", 5, MAPPING, SCHEMA)
    assert not resolution_holds("name:id", 2, MAPPING, SCHEMA)
    assert not resolution_holds("name:id", 1, None, SCHEMA)


def test_dropping_a_column_and_adding_its_name_ends_the_resolution() -> None:
    schema = Schema(NestedField(2, "price", DecimalType(9, 2)), NestedField(15, "id", LongType()))
    mapping = update_mapping(MAPPING, {}, {-1: [NestedField(15, "id", LongType())]})
    assert not resolution_holds("name:id", 1, mapping, schema)
    assert not resolution_holds("name:id", 15, MAPPING, schema)
    # the old file's data now shows under the new field: resolved anew, it would be found there
    found = ColumnsInFile([Leaf("id")], schema, mapping, {}).find(15)
    assert found == FoundColumn(Leaf("id"), "name:id")


def test_a_new_name_for_the_field_ends_the_resolution_since_the_file_may_have_it_too() -> None:
    renamed = update_mapping(create_mapping_from_schema(SCHEMA), {1: NestedField(1, "key", LongType())}, {})
    assert not resolution_holds("name:id", 1, renamed, SCHEMA)
    again = ColumnsInFile([Leaf("id")], SCHEMA, renamed, {}).find(1)
    assert again == FoundColumn(Leaf("id"), "name:id|key")
    assert resolution_holds("name:id|key", 1, renamed, SCHEMA)
    assert resolution_holds("name:id|key", 1, MAPPING, SCHEMA)


@pytest.mark.parametrize("name", ["a.b", "a|b"])
def test_names_that_no_resolution_can_hold_are_not_resolved(name: str) -> None:
    mapping = NameMapping([MappedField(field_id=1, names=[name, "id"])])
    assert isinstance(ColumnsInFile([Leaf("id")], SCHEMA, mapping, {}).find(1), Unknown)
    assert not resolution_holds("name:id", 1, mapping, SCHEMA)


@given(st.lists(st.sampled_from(["id", "key", "price", "at.x", "at.y", "tags.list.element", "z"]), unique=True))
def test_what_is_resolved_by_name_holds_at_once(paths: list[str]) -> None:
    mapping = update_mapping(create_mapping_from_schema(SCHEMA), {1: NestedField(1, "key", LongType())}, {})
    for field_id in SCHEMA.field_ids:
        found = ColumnsInFile([Leaf(path) for path in paths], SCHEMA, mapping, {}).find(field_id)
        if isinstance(found, FoundColumn):
            assert resolution_holds(found.resolution, field_id, mapping, SCHEMA)


def test_leaves_are_those_that_pyiceberg_reads_by_name_mapping(catalog: Any, tmp_path: Any) -> None:
    """Oracle: a file without ids, imported by add_files; we resolve the columns that pyiceberg reads."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "at": [{"x": 5, "y": 6}] * 2, "tags": [["a"], ["b", "c"]]})
    path = f"{tmp_path}/imported.parquet"
    pq.write_table(rows, path)
    table = catalog.create_table("db.resolve_imported", rows.schema)
    table.add_files([path])
    leaves = [Leaf(column.path) for column in pq.ParquetFile(path).schema]
    schema, mapping = table.schema(), table.metadata.name_mapping()
    for column in resolve_columns(schema, ["id", "at.x", "at.y", "tags.element"]):
        found = ColumnsInFile(leaves, schema, mapping, {}).find(column.field_id)
        assert isinstance(found, FoundColumn)
        assert found.leaf.path.replace(".list", "") == column.path
    assert table.scan().to_arrow().to_pylist() == rows.to_pylist()


def test_names_with_commas_are_written_in_lists() -> None:
    names = ["a,b", "50%", "x:y", "100%25", "plain", "ü.ß"]
    assert listed_names(" , ".join(map(encoded_name, names))) == names
    assert listed_names("a%20b,50%,a%2cb,") == ["a%20b", "50%", "a,b"]  # as somebody types them
    assert cli_names("a%2Cb,c,a%2Cb") == ["a,b", "c"]


class CountedLeaf(Leaf):
    """A leaf that counts how often its path and its id are looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("path", "field_id"):
            CountedLeaf.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("with_ids", [True, False])
def test_the_cost_of_wide_files_grows_as_their_columns_do(with_ids: bool) -> None:
    schema = Schema(*(NestedField(n, f"c{n}", LongType()) for n in range(1, 301)))
    leaves = [CountedLeaf(f"c{n}", n if with_ids else None) for n in range(1, 301)]
    CountedLeaf.looks = 0
    columns = ColumnsInFile(leaves, schema, create_mapping_from_schema(schema), {})
    found = [columns.find(n) for n in range(1, 301)]
    assert [column.leaf.path for column in found if isinstance(column, FoundColumn)] == [f"c{n}" for n in range(1, 301)]
    assert CountedLeaf.looks <= 6 * len(leaves)
