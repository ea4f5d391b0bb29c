"""Names of columns in sidecars of tables: renames, refreshes, merges, nested fields, and columns that are encrypted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

import sidecar
from sidecar.bundle.model import StoredColumn
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.iceberg.statistics_files.find_sidecar import open_sidecar
from sidecar.storage.opening import open_source
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import SECRET, add_encrypted, bundle_keys, encrypted_table, file_keys, rows

ODD = 'größe, "x" \N{DROPLET}'


def sidecar_path(table: Any) -> str:
    return str(table.refresh().metadata.statistics[-1].statistics_path)


def names_of(table: Any) -> dict[int, tuple[str | None, str | None]]:
    """The names and types that the newest sidecar file shows without its table."""
    found = sidecar.inspect(sidecar_path(table)).only
    return {column.id: (column.name, column.type) for column in found.columns}


def made(own_catalog: Any) -> Any:
    data = pa.table({"a": [1, 2], "s": pa.array([{"b.c": "x"}, {"b.c": "y"}]), ODD: [1.5, 2.5]})
    table = own_catalog.create_table("db.t", data.schema)
    table.append(data)
    return table


def build(table: Any, columns: list[str], **options: Any) -> None:
    sidecar.build(table, columns, kinds=["bloom", "theta", "page-index"], engine="local", **options)


def test_nested_and_odd_names_with_their_types(own_catalog: Any) -> None:
    table = made(own_catalog)
    build(table, ["a", "s.b.c", ODD])
    assert names_of(table) == {1: ("a", "long"), 4: ("s.b.c", "string"), 3: (ODD, "double")}
    (segment,) = SidecarFile.open(open_source(sidecar_path(table))).segments
    assert segment.columns[4] == StoredColumn(("s", "b.c"), "string")
    for column, value in (("s.b.c", "x"), (ODD, "2.5"), ("1", "1"), (1, 1)):
        assert [unit.might_contain for unit in sidecar.probe(sidecar_path(table), column, value).only.units] == [True]


def test_the_newest_name_is_shown_after_a_rename_and_after_merging(own_catalog: Any) -> None:
    table = made(own_catalog)
    build(table, ["a", ODD])
    with table.update_schema() as change:
        change.rename_column("a", "b")
    table.append(pa.table({"b": [3], "s": pa.array([{"b.c": "z"}]), ODD: [3.5]}))
    sidecar.refresh(table, engine="local")
    assert names_of(table) == {1: ("b", "long"), 3: (ODD, "double")}
    with table.update_schema() as change:
        change.rename_column("b", "c")
    with table.update_schema() as change:
        change.add_column("b", StringType())
    table.append(pa.table({"c": [4], "s": pa.array([{"b.c": "z"}]), ODD: [3.5], "b": ["t"]}))
    sidecar.refresh(table, engine="local")
    build(table, ["b"])
    assert names_of(table) == {1: ("c", "long"), 3: (ODD, "double"), 5: ("b", "string")}
    assert sidecar.probe(sidecar_path(table), "b", "t").only.fields == [5]
    assert sidecar.probe(sidecar_path(table), "c", "4").only.fields == [1]


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_the_name_of_an_encrypted_column_is_nowhere_in_the_file(own_catalog: Any, plaintext_footer: bool) -> None:
    table = encrypted_table(own_catalog, "db.t", plaintext_footer=plaintext_footer)
    build(table, ["ssn", "id"], encryption_keys=bundle_keys())
    _assert_withheld(table)
    add_encrypted(own_catalog.load_table("db.t"), range(4, 6), plaintext_footer=plaintext_footer)
    sidecar.refresh(table, engine="local", encryption_keys=bundle_keys())
    _assert_withheld(table)
    keys = bundle_keys()
    assert sidecar.probe(sidecar_path(table), 2, SECRET.format(1), encryption_keys=keys).only.fields == [2]


def test_plaintext_by_permission_has_no_name_either_and_stays_so(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.t", plaintext_footer=True)
    build(table, ["ssn", "id"], encryption_keys=file_keys(), allow_plaintext=True)
    _assert_withheld(table)
    table.append(rows(6))  # a file in which nothing is encrypted
    sidecar.refresh(table, engine="local", encryption_keys=file_keys(), allow_plaintext=True)
    _assert_withheld(table)
    assert open_sidecar(table.refresh()) is not None


def _assert_withheld(table: Any) -> None:
    data = local(sidecar_path(table)).read_bytes()
    assert b"ssn" not in data
    assert names_of(table) == {1: ("id", "long"), 2: (None, None)}
