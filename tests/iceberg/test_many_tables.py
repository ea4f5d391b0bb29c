"""Names and globs of tables, and the same work for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.errors import StorageError, UsageError
from sidecar.iceberg.many_tables import each_table, find_tables
from sidecar.reports.finding.evidence import FindOptions
from sidecar.reports.finding.many import find_in_tables
from tests.tables import new_catalog

SCHEMA = pa.schema([("k", pa.int64())])
TABLES = ["db.orders", "db.orders_2", "db.items", "db.deep.orders", "db.deep.er.x", "other.orders", "db.t[1]"]
SORTED = ["db.deep.er.x", "db.deep.orders", "db.items", "db.orders", "db.orders_2", "db.`t[1]`", "other.orders"]
"""The same tables by the parts of their names, as they are shown."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("many")
    catalog = new_catalog(folder, "many", "db", "db.deep", "db.deep.er", "other", "empty", type="sql")
    for name in TABLES:
        catalog.create_table(name, SCHEMA)
    return catalog.properties


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("db.*", ["db.items", "db.orders", "db.orders_2", "db.`t[1]`"]),
        ("db.orders*", ["db.orders", "db.orders_2"]),
        ("db.order?_[0-9]", ["db.orders_2"]),
        ("db.deep.*", ["db.deep.orders"]),
        ("*.orders", ["db.orders", "other.orders"]),
        ("*.deep.*", ["db.deep.orders"]),
        ("db.**", SORTED[:-1]),
        ("**.orders", ["db.deep.orders", "db.orders", "other.orders"]),
        ("**", SORTED),
        ("db.t[1]", ["db.`t[1]`"]),
        ('db."t[1]"', ["db.`t[1]`"]),
        ("db.`t*`", ["db.`t*`"]),
        ("db.`o`*", ["db.`o`*"]),
        (["other.orders", "db.deep.orders", "**.orders"], ["other.orders", "db.deep.orders", "db.orders"]),
        (["nosuch.table"], ["nosuch.table"]),
    ],
)
def test_globs_find_tables(lake: dict[str, str], pattern: Any, expected: list[str]) -> None:
    assert find_tables(pattern, "many", **lake) == expected


@pytest.mark.parametrize("pattern", ["nosuch.*", "db.nix*", "empty.*", "*", "*.nosuch.*"])
def test_a_glob_without_a_match_is_wrong_usage(lake: dict[str, str], pattern: str) -> None:
    with pytest.raises(UsageError, match="no table of the catalog 'many' matches"):
        find_tables(pattern, "many", **lake)


def test_no_name_is_wrong_usage_and_plain_names_need_no_catalog() -> None:
    with pytest.raises(UsageError, match="no table was named"):
        find_tables([])
    assert find_tables(["a.b", "a.b", "/x/00001-y.metadata.json"], "nosuch") == [
        "a.b",
        "/x/00001-y.metadata.json",
    ]


def test_an_error_in_one_table_is_its_outcome(lake: dict[str, str]) -> None:
    def work(table: Table) -> str:
        if table.name()[-1] == "orders_2":
            raise StorageError("the disk is full")
        return table.name()[-1]

    outcomes = list(each_table(["db.nosuch", "db.o*", "noname", "db.items"], work, "many", **lake))
    assert [(one.table, one.result) for one in outcomes] == [
        ("db.nosuch", None),
        ("db.orders", "orders"),
        ("db.orders_2", None),
        ("noname", None),
        ("db.items", "items"),
    ]
    assert [str(one.error) for one in outcomes if one.error] == [
        "the catalog 'many' has no table 'db.nosuch'",
        "the disk is full",
        "'noname' is not a table name. Write it as namespace.table, "
        "all tables of a namespace as 'noname.*', and a file as ./name.",
    ]


def test_a_foreign_error_is_an_outcome_too(lake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def work(table: Table) -> None:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        list(each_table("db.orders", work, "many", **lake))
    monkeypatch.setattr("sidecar.errors.reraise_foreign", False)
    (outcome,) = each_table("db.orders", work, "many", **lake)
    assert str(outcome.error) == "unexpected: ZeroDivisionError: division by zero"


def test_the_catalog_is_opened_once(lake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from sidecar.iceberg import many_tables

    opened: list[Any] = []

    def counted(*args: Any, **properties: Any) -> Any:
        opened.append(args)
        return sidecar.iceberg.catalog.open_catalog(*args, **properties)

    import sidecar.iceberg.catalog

    monkeypatch.setattr(many_tables, "open_catalog", counted)
    assert len(list(each_table("**", lambda table: None, "many", **lake))) == len(TABLES)
    assert len(opened) == 1


def test_a_catalog_that_fails_names_no_secret(tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/nosuch/secret-token.db",
        "warehouse": "file:/x",
    }
    with pytest.raises((StorageError, UsageError)) as caught:
        find_tables("db.*", "many", **properties)
    assert "secret-token" not in str(caught.value)


NOT_TABLES: list[Any] = ["db.t", b"db.t", ("db", "t"), None, 5]


@pytest.mark.parametrize("wrong", NOT_TABLES)
def test_a_name_instead_of_a_table_says_what_to_pass(wrong: Any) -> None:
    calls = [
        lambda: sidecar.plan(wrong, "k = 1"),
        lambda: sidecar.scan(wrong, "k = 1"),
        lambda: sidecar.scan_batches(wrong, "k = 1"),
        lambda: sidecar.build(wrong, ["k"]),
        lambda: sidecar.status(wrong),
        lambda: sidecar.repair(wrong),
        lambda: sidecar.open_sidecar(wrong),
        lambda: sidecar.spark_read(None, "t", wrong, "k = 1").__enter__(),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"the table is not open; .* Open it first: table = sidecar\.open_table"):
            call()


def test_a_text_instead_of_a_list_says_what_to_pass(lake: dict[str, str]) -> None:
    table = sidecar.open_table("db.orders", "many", **lake)
    calls: list[tuple[str, Any]] = [
        ("columns", lambda: sidecar.build(table, columns="user_id")),
        ("kinds", lambda: sidecar.build(table, ["k"], kinds="bloom")),
        ("columns", lambda: sidecar.scan(table, "k = 1", "user_id")),
        ("bloom", lambda: sidecar.embed(table, bloom="user_id")),
        ("bloom", lambda: sidecar.embed("a.parquet", into="b.parquet", bloom="user_id").only),
        ("columns", lambda: sidecar.extract(["a.parquet"], "b.puffin", columns="user_id")),
        ("columns", lambda: sidecar.scan("a.parquet", "k = 1", columns="user_id")),
        ("columns", lambda: sidecar.build(table, columns="k, user_id")),
    ]
    for name, call in calls:
        with pytest.raises(UsageError, match=rf"{name} is a list of texts, not one text\. Write {name}=\['"):
            call()
    with pytest.raises(UsageError, match=r"Write columns=\['k', 'user_id'\]"):
        call()


def test_a_table_without_a_snapshot_has_a_sensible_answer_everywhere(lake: dict[str, str]) -> None:
    table = sidecar.open_table("db.orders", "many", **lake)
    data = sidecar.status(table).to_dict()
    assert (data["snapshot_id"], data["files"], data["warnings"]) == (None, {"live": 0, "listed": 0}, [])
    assert sidecar.status(table).refs == []
    verified = sidecar.verify(table, data=True).to_dict()
    told = {"ok": True, "checked": 0, "problems": [], "scope": "the table has no snapshot yet"}
    assert verified == {"files": [], "failed": {}, "others": 0, **told}
    assert sidecar.plan(table, "k = 1").to_dict()["kept_files"] == []
    assert sidecar.scan(table, "k = 1").num_rows == 0
    with pytest.raises(UsageError, match="no snapshot 5"):
        sidecar.status(table, at=5)


class Metastore:
    """What is asked of Hive's metastore and of Glue: tables of all formats, of which pyiceberg lists one."""

    name = "metastore"

    def __init__(self, kind: str) -> None:
        self.properties: dict[str, str] = {}
        setattr(self, kind, self)

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        return [(*namespace, "iceberg")]

    def __enter__(self) -> Metastore:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is closed."""

    def get_all_tables(self, db_name: str) -> list[str]:
        return ["iceberg", "delta", "old_hive"]

    def get_paginator(self, operation: str) -> Metastore:
        assert operation == "get_tables"
        return self

    def paginate(self, **options: str) -> list[dict[str, list[dict[str, str]]]]:
        return [{"TableList": [{"Name": name}]} for name in self.get_all_tables(options["DatabaseName"])]


@pytest.mark.parametrize("kind", ["_client", "glue"])
def test_tables_of_other_formats_are_named(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sidecar.iceberg.many_tables.open_catalog", lambda *_, **__: Metastore(kind))
    assert find_tables("db.*") == ["db.iceberg"]
    left = [f"db.{name} is no Iceberg table, and is left out" for name in ("delta", "old_hive")]
    assert caplog.messages == left
    caplog.clear()
    assert find_tables("db.ice*") == ["db.iceberg"]
    assert caplog.messages == []

    found = find_in_tables(["db.*"], {"k": 1}, FindOptions(), "lake")
    reasons = {name: str(error) for name, error in found.failed.items()}
    assert all("is no Iceberg table" in reasons[f"db.{name}"] for name in ("delta", "old_hive"))
    assert found.answer == "not proven"

    def refuse(*_: str, **__: str) -> None:
        raise ValueError("access denied")

    monkeypatch.setattr("sidecar.errors.reraise_foreign", False)
    monkeypatch.setattr(Metastore, "get_all_tables", refuse)
    found = find_in_tables(["db.*"], {"k": 1}, FindOptions(), "lake")
    assert (found.answer, list(found.failed)) == ("not proven", ["db.iceberg", "db.*"])
    assert "did not list tables of other formats: ValueError: access denied" in str(found.failed["db.*"])
