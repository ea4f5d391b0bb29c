"""What a table declares: saved by a build, followed by the next ones through renames, refused when damaged."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

import sidecar
from sidecar.errors import UsageError
from sidecar.indexing.declaration import DeclaredColumn, TableDeclaration, declaration_of
from tests.tables import create_with_rows

serial = itertools.count()


def rows(start: int) -> pa.Table:
    numbers = list(range(start, start + 50))
    return pa.table({"a": numbers, "b": [n * 2 for n in numbers], "c": [f"c{n}" for n in numbers]})


@pytest.fixture
def table(catalog: Any) -> Any:
    return create_with_rows(catalog, f"db.declared_{next(serial)}", [rows(0)])


def built(table: Any, *columns: str, **options: Any) -> dict[str, set[str]]:
    """Build, and return the kinds that each column has in all files."""
    sidecar.build(table, list(columns) or None, engine="local", **options)
    files = len(list(table.scan().plan_files()))
    coverage = sidecar.status(table).coverage
    return {name: {kind for kind, found in kinds.items() if found.files == files} for name, kinds in coverage.items()}


def declared(table: Any) -> dict[str, str]:
    return {name: text for name, text in table.properties.items() if name.startswith("sidecar.")}


def test_what_is_saved_is_read_back_by_a_build_without_options(table: Any) -> None:
    wanted = {"a": {"bloom", "page-index"}, "c": {"bloom", "page-index"}}
    assert built(table, "a", "c", kinds=["bloom", "page-index"], fpp=0.02, save=True) == wanted
    assert declared(table) == {
        "sidecar.columns": "a:1,c:3",
        "sidecar.kinds": "bloom,page-index",
        "sidecar.fpp": "0.02",
    }
    table.append(rows(100))
    assert built(table) == wanted
    segments = sidecar.open_sidecar(table).segments
    assert [segment.bundles[1].toc.fpp for segment in segments] == [0.02, 0.02]


def test_columns_whose_key_is_missing_stay_declared(table: Any) -> None:
    keys = sidecar.EncryptionKeys(sidecar.ExplicitKeys({b"m": bytes(16)}), bundle_keys={"c": b"m"})
    sidecar.build(table, ["a", "c"], engine="local", encryption_keys=keys, save=True)
    report = sidecar.build(table, engine="local", save=True)
    assert [column.name for column in report.columns] == ["a"]
    assert declared(table)["sidecar.columns"] == "a:1,c:3"


def test_kinds_and_rates_of_single_columns(table: Any) -> None:
    properties = {
        "sidecar.columns": "a:1,b:2,c:3",
        "sidecar.column.2.kinds": "theta",
        "sidecar.column.3.fpp": "0.001",
        "sidecar.column.3.kinds": "bloom,page-index",
    }
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    planned = sidecar.build(table, dry_run=True, engine="local")
    assert [column.kinds for column in planned.columns] == [["bloom", "theta"], ["theta"], ["bloom", "page-index"]]
    assert built(table) == {"a": {"bloom", "theta"}, "b": {"theta"}, "c": {"bloom", "page-index"}}
    (segment,) = sidecar.open_sidecar(table).segments
    assert (segment.bundles.keys(), segment.page_index_blobs.keys()) == ({1, 3}, {3})
    assert segment.bundles[3].toc.fpp == 0.001 < segment.bundles[1].toc.fpp
    assert sidecar.build(table, engine="local").units == 0
    built(table, save=True)
    assert declaration_of(table.properties) == TableDeclaration(
        columns=(DeclaredColumn("a", 1), DeclaredColumn("b", 2), DeclaredColumn("c", 3)),
        kinds=("bloom", "theta"),
        fpp="auto",
        own_kinds={2: ("theta",), 3: ("bloom", "page-index")},
        own_fpp={3: 0.001},
    )


def test_a_rename_is_followed_and_a_name_that_comes_back_inherits_nothing(table: Any) -> None:
    built(table, "a", "b", save=True)
    with table.update_schema() as update:
        update.rename_column("a", "renamed")
        update.delete_column("b")
    with table.update_schema() as update:
        update.add_column("b", LongType())
    table.append(rows(0).rename_columns(["renamed", "b", "c"]))
    report = sidecar.build(table, engine="local")
    assert [column.name for column in report.columns] == ["renamed"]
    assert any("'b' (field 2) is gone" in warning for warning in report.warnings)


def test_what_was_never_saved_is_taken_from_the_last_sidecar(table: Any) -> None:
    built(table, "a", kinds=["bloom"], fpp=0.02)
    built(table, "c", kinds=["theta"])
    table.append(rows(100))
    assert built(table) == {"a": {"bloom"}, "c": {"theta"}}
    first, last = sidecar.open_sidecar(table).segments
    assert first.bundles[1].toc.fpp == last.bundles[1].toc.fpp == 0.02
    assert declared(table) == {}


def test_a_table_without_any_declaration_is_told_what_to_do(table: Any) -> None:
    with pytest.raises(UsageError) as raised:
        sidecar.build(table)
    assert "--columns A,B --save" in str(raised.value.hint)


def test_an_option_wins_over_the_declaration(table: Any) -> None:
    built(table, "a", kinds=["bloom"], save=True)
    assert built(table, kinds=["theta"])["a"] == {"bloom", "theta"}
    assert built(table, "b") == {"a": {"bloom", "theta"}, "b": {"bloom"}}  # kinds as declared


def test_saving_again_removes_what_is_no_longer_declared(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "a,b", "sidecar.column.2.kinds": "theta", "other": "stays"})
    built(table, "a", kinds=["bloom"], save=True)
    assert declared(table) == {"sidecar.columns": "a:1", "sidecar.kinds": "bloom", "sidecar.fpp": "auto"}
    assert table.properties["other"] == "stays"


def test_a_dry_run_saves_nothing_and_an_empty_table_can_declare(table: Any, catalog: Any) -> None:
    sidecar.build(table, ["a"], save=True, dry_run=True)
    assert declared(table.refresh()) == {}
    empty = catalog.create_table("db.declared_empty", rows(0).schema)
    sidecar.build(empty, ["c"], save=True)
    assert declared(empty)["sidecar.columns"] == "c:3"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sidecar.columns", "a:one"),
        ("sidecar.columns", " , "),
        ("sidecar.columns", ":3"),
        ("sidecar.columns", "a:1,,c:3"),
        ("sidecar.columns", "a:1,c:1"),
        ("sidecar.columns", "nosuch"),
        ("sidecar.kinds", "bloom,blume"),
        ("sidecar.kinds", ""),
        ("sidecar.fpp", "1.5"),
        ("sidecar.fpp", "nan"),
        ("sidecar.column.3.fpp", "often"),
        ("sidecar.column.3.kinds", "filters"),
    ],
)
def test_a_damaged_property_is_named(table: Any, name: str, text: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "a:1", name: text})
    with pytest.raises(UsageError) as raised:
        sidecar.build(table)
    assert name in raised.value.what
    assert table.refresh().metadata.statistics == []


def test_a_name_that_a_field_never_had_is_a_note_and_ids_without_columns_are_a_warning(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "a:1,nonsense:3"})
    with table.update_schema() as update:
        update.rename_column("a", "renamed")
    warnings = sidecar.build(table, dry_run=True, engine="local").warnings
    (odd,) = [text for text in warnings if "nonsense" in text]
    assert odd == "the table property sidecar.columns names field 3 'nonsense', and it is 'c': the field id counts"
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "a:77"})
    assert any("'a' (field 77) is gone" in text for text in sidecar.status(table).warnings)


def test_names_with_signs_survive() -> None:
    declared = TableDeclaration(
        columns=(DeclaredColumn("a,b", 1), DeclaredColumn("50%:x", 2), DeclaredColumn("ü.ß", 3))
    )
    assert declaration_of(declared.to_properties()) == declared
