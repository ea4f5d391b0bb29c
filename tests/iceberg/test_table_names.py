"""Names of tables as text: what is printed is typed again, and reaches that table and no other one."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

import sidecar
from sidecar.cli.options import is_path
from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.catalog import command_for
from sidecar.iceberg.many_tables import each_table
from sidecar.iceberg.table_names import (
    is_match,
    is_quoted_name,
    is_table_glob,
    name_of,
    name_of_text,
    parts_of,
    shown_name,
)
from tests.cli import running
from tests.tables import configure, new_catalog

DOTTED, NESTED = ("dn", "dot.ted"), ("dn", "dot", "ted")
NAMES = [
    DOTTED, NESTED, ("dn", "a b"), ("dn", 'q`u"ote'), ("dn", "`tick"), ("dn", '"double"'), ("dn", "t[1]"), ("dn", "t1"),
    ("dn", "*"), ("dn", "parquet"), ("dn", "Stats"), ("dn", "x.metadata.json"), ("dn", "metadata", "json"),
    ("dn", "a/b"), ("dn", "ünï ☃"), ("-x", "t"), ("dn", "%_"), ("dn", "'single'"), ("dn", "$(x)"), ("dn", "**"),
]  # fmt: skip
"""No two of them are alike, but for dots and glob characters."""


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def make(catalog: SqlCatalog, name: tuple[str, ...], folder: Path, key: int) -> Table:
    """A table of one row."""
    for level in range(1, len(name)):
        catalog.create_namespace_if_not_exists(name[:level])
    table = catalog.create_table(name, rows().schema, location=f"file:{folder}/{key}")
    table.append(rows(key))
    return table


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SqlCatalog:
    """A table for each of :data:`NAMES`; its number is its only row."""
    folder = tmp_path_factory.mktemp("names")
    catalog = new_catalog(folder, "names", warehouse=f"file:{folder}")
    for number, name in enumerate(NAMES):
        make(catalog, name, folder, number)
    return catalog


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Types a command line, in a shell whose catalog is that of the first argument."""

    def typed(catalog: SqlCatalog, line: str, code: int | None = None) -> Any:
        configure(monkeypatch, catalog)
        monkeypatch.setenv("SIDECAR_CATALOG", catalog.name)
        return running.run(*shlex.split(line)[1:], code=code)

    return typed


def test_a_name_is_read_from_its_text() -> None:
    assert name_of_text("db.orders") == ("db", "orders")
    assert name_of_text("dn.`dot.ted`") == name_of_text('dn."dot.ted"') == DOTTED
    assert name_of_text('`a``b`."c""d".e`f"g') == ("a`b", 'c"d', 'e`f"g')
    for wrong in ("t", "db.", ".t", "db..t", "", "db.`t", 'db."t', "db.`a`b", "`a`", "db.`a``"):
        with pytest.raises(UsageError, match="is not a table name"):
            name_of_text(wrong)
    assert [shown_name(name) for name in (("db", "t_1-x"), DOTTED, NESTED)] == [
        "db.t_1-x",
        "dn.`dot.ted`",
        "dn.dot.ted",
    ]


@pytest.fixture
def _no_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line without ``--catalog``."""
    chosen = SimpleNamespace(choices=SimpleNamespace(catalog=None, spark_catalog=None))
    monkeypatch.setattr("sidecar.cli.options.output", lambda: chosen)


@pytest.mark.usefixtures("_no_catalog")
def test_what_is_shown_is_read_again() -> None:
    """Whatever characters the parts have, the text is no glob, no path and no option."""
    rng = random.Random(5)
    signs = "ab.`\"*?[/-' $ü\n\\~%"
    names = [
        tuple("".join(rng.choices(signs, k=rng.randint(0, 5))) for _ in range(rng.randint(2, 4))) for _ in range(3000)
    ]
    for name in [*NAMES, *names]:
        text = shown_name(name)
        assert name_of_text(text) == name
        assert not is_table_glob(text)
        assert not is_path(text) or Path(text).exists()
        assert not text.startswith("-")
        assert is_match(name, parts_of(text))


def test_globs_match_part_by_part() -> None:
    pattern = {text: [name for name in NAMES if is_match(name, parts_of(text))] for text in ("dn.*", "dn.dot.*", "**")}
    assert pattern["dn.dot.*"] == [NESTED]
    assert pattern["**"] == NAMES
    assert set(NAMES) - set(pattern["dn.*"]) == {NESTED, ("dn", "metadata", "json"), ("-x", "t")}
    assert [is_match(name, parts_of("dn.`*`")) for name in NAMES].count(True) == 1
    assert not is_match(("dn", "sub", "x"), parts_of("dn.**.y"))
    assert is_match(("dn", "sub", "sub", "y"), parts_of("dn.**.y"))


@pytest.mark.usefixtures("_no_catalog")
def test_a_path_is_no_quoted_name() -> None:
    for path in ("./`a`.b", "a/`b`.c", 's3://`a`."b"', "`a`", "`a.parquet"):
        assert not is_quoted_name(path)
    assert is_path("a/`b`.parquet")
    assert not is_path("db.`b.parquet`")


@pytest.mark.parametrize("number", range(len(NAMES)), ids=lambda number: ascii(shown_name(NAMES[number])))
def test_a_printed_name_reaches_its_table(lake: SqlCatalog, run: Any, number: int) -> None:
    shown = shown_name(NAMES[number])
    opened = sidecar.open_table(shown, lake.name, **lake.properties)
    assert opened.name() == NAMES[number]
    assert name_of(opened) == shown
    line = command_for(opened, "scan", "k >= 0", "--json")
    done = run(lake, line)
    assert [json.loads(text) for text in done.stdout.splitlines()] == [{"k": number}], done.stderr
    report = json.loads(run(lake, f"sidecar status {shlex.quote(shown)} --json").stdout)
    assert report["table"] == shown
    steps = [step["command"] for step in report["to_do"]]
    assert steps
    for step in steps:
        assert shlex.split(step)[2] == shown
    (one,) = each_table([shown], lambda table: table.name(), lake.name, **lake.properties)
    assert (one.table, one.result) == (shown, NAMES[number])


def test_statements_for_spark_quote_each_part(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, "dots", warehouse=f"file:{tmp_path}")
    table = make(catalog, DOTTED, tmp_path, 0)
    keys = random.Random(3).sample(range(10**15), 40_000)
    for part in range(4):
        table.append(rows(*keys[part::4]))
    advice = sidecar.advise(table)
    assert advice.alter_table is not None
    assert advice.alter_table.startswith("ALTER TABLE dn.`dot.ted` SET ")
    assert advice.table == "dn.`dot.ted`"
    for command in advice.commands:
        assert shlex.split(command)[2] == "dn.`dot.ted`"


def test_found_tables_are_opened_one_by_one(lake: SqlCatalog) -> None:
    found = sidecar.find_tables("**", lake.name, **lake.properties)
    opened = [sidecar.open_table(name, lake.name, **lake.properties).name() for name in found]
    assert sorted(opened) == opened
    assert set(opened) == set(NAMES)
    here = sidecar.find_tables(["dn.dot.*", 'dn."dot.ted"', "dn.`dot.ted`"], lake.name, **lake.properties)
    assert here == ["dn.dot.ted", "dn.`dot.ted`"]


def versions(catalog: SqlCatalog, *names: tuple[str, ...]) -> list[str]:
    return [catalog.load_table(name).metadata_location for name in names]


def tables_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a document about many tables, or about one."""
    return document.get("tables", [document])


def test_a_glob_works_on_the_tables_that_it_matches_and_on_no_other(tmp_path: Path, run: Any) -> None:
    """In ``dn`` is a table ``dot.ted``, and in ``dn.dot`` is ``ted``."""
    catalog = new_catalog(tmp_path, "dots", warehouse=f"file:{tmp_path}")
    dotted, nested = (make(catalog, name, tmp_path, number) for number, name in enumerate((DOTTED, NESTED)))
    for glob, mine, other in (("dn.*", dotted, nested), ("dn.dot.*", nested, dotted), ("dn.d?t.ted", nested, dotted)):
        shown = shown_name(mine.name())
        for line in (
            f"build '{glob}' --columns k --save --engine local",
            f"refresh '{glob}' --engine local",
            f"status '{glob}'",
            f"care '{glob}' --engine local",
            f"verify '{glob}'",
        ):
            mine.append(rows(7))
            before = versions(catalog, other.name())
            done = run(catalog, f"sidecar {line} --json")
            tables = [one for text in done.stdout.splitlines() for one in tables_in(json.loads(text))]
            assert [one["table"] for one in tables] == [shown], done.stderr
            assert done.exit_code == 0, (line, done.stdout, done.stderr)
            assert versions(catalog, other.name()) == before
            mine.refresh()
        sidecar.expire(mine, older_than=timedelta(0))
        assert len(mine.metadata.statistics) == 1
    for name in (DOTTED, NESTED):
        done = run(catalog, f"sidecar build {shlex.quote(shown_name(name))} --columns k --full --json --engine local")
        assert json.loads(done.stdout)["snapshot_id"] == catalog.load_table(name).current_snapshot().snapshot_id  # type: ignore[union-attr]


def test_a_report_has_each_table_under_its_own_name(lake: SqlCatalog, run: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(lake, f"sidecar report 'dn.*' dn.dot.ted --output {page} --no-advice --json", code=0)
    shown = [shown_name(name) for name in NAMES if len(name) == 2 and name[0] == "dn"]
    assert {one["table"] for one in json.loads(done.stdout)["tables"]} == {*shown, "dn.dot.ted"}
    text = page.read_text()
    assert "dn.`dot.ted`" in text
    assert "dn.dot.ted" in text


def test_a_missing_table_is_named_as_it_is_typed(lake: SqlCatalog) -> None:
    for typed, said in (
        ("dn.`dot.teddy`", "has no table 'dn.`dot.teddy`'. Did you mean dn.`dot.ted`?"),
        ("dn.dot.tedd", "has no table 'dn.dot.tedd'. Did you mean dn.dot.ted?"),
        ("no.`where.t`", "has no namespace 'no'"),
    ):
        with pytest.raises(UsageError) as caught:
            sidecar.open_table(typed, lake.name, **lake.properties)
        assert said in str(caught.value)
    catalog = SqlCatalog("names", **lake.properties)
    gone = catalog.load_table(DOTTED)
    gone.catalog = SqlCatalog("other", **lake.properties)
    with pytest.raises(SidecarError, match=r"the table 'dn\.`dot\.ted`' no longer exists"):
        sidecar.gc(gone)


def test_a_metadata_file_has_the_name_that_opens_it(lake: SqlCatalog) -> None:
    location = lake.load_table(DOTTED).metadata_location
    opened = sidecar.open_table(location)
    assert isinstance(opened, StaticTable)
    assert sidecar.status(opened).table == location
    assert sidecar.find_tables(location) == [location]
