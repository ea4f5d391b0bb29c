"""A word in the right direction: wrong targets, missing quotes, swapped arguments, missing folders, empty tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli import running
from tests.tables import configure, create_with_rows, new_catalog

FILES = Path(__file__).resolve().parents[1] / "data"
DATA = FILES / "parquet" / "j118_v1_none.parquet"
ORC = FILES / "orc" / "apache_orc_index_int_string.orc"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hints")
    catalog = new_catalog(folder, "default")
    create_with_rows(catalog, "db.t", [pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]})])
    create_with_rows(catalog, "db.stats", [pa.table({"a": [1]})])
    catalog.create_table("db.empty", pa.schema([("a", pa.int64())]))
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, catalog)
        yield folder


@pytest.fixture
def run(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DATA, tmp_path / "f.parquet")
    (tmp_path / "sub" / "folder").mkdir(parents=True)
    shutil.copy(ORC, tmp_path / "sub" / "o.orc")
    (tmp_path / "cut.parquet").write_bytes(DATA.read_bytes()[:-300])
    (tmp_path / "cut.orc").write_bytes(ORC.read_bytes()[:-300])

    return running.run


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        (["inspect", "nix.parquet"], 1, "cannot open the file: No such file or directory; file nix.parquet"),
        (["verify", "NIX.ORC"], 1, "no such file; file NIX.ORC. If it is a table, name its catalog"),
        (["probe", "x.puffin", "a", "5"], 1, "No such file or directory; file x.puffin"),
        (["scan", "nix.parquet", "a = 5"], 1, "no such file; file nix.parquet"),
        (
            ["inspect", "./nix.parquet"],
            1,
            "cannot open the file: No such file or directory; file ./nix.parquet",
        ),
        (["build", "x.parquet", "--columns", "a"], 2, "For a file, use inspect, verify, probe or scan."),
        (["plan", "db.t", "a", "=", "5"], 2, 'Write it in quotes: sidecar plan db.t "a = 5"'),
        (["scan", "f.parquet", "a", "=", "-5"], 2, 'Write it in quotes: sidecar scan f.parquet "a = -5"'),
        (["plan", "db.t", "a"], 2, "'a' is not a predicate. Write all of it in quotes, such as \"a > 5\""),
        (["scan", "f.parquet", "a"], 2, "without quotes a shell takes > and what follows for a file"),
        (["plan", "db.t"], 2, 'no predicate was given. Write it in quotes: sidecar plan db.t "a = 5"'),
        (["plan", "a = 5", "db.t"], 2, 'the predicate. Write: sidecar plan db.t "a = 5"'),
        (["scan", "a is null", "f.parquet"], 2, 'the predicate. Write: sidecar scan f.parquet "a is null"'),
        (["probe", "a", "f.parquet", "5"], 2, "Write: sidecar probe f.parquet a 5"),
        (["probe", "a", "5", "./f.parquet"], 2, "Write: sidecar probe ./f.parquet a 5"),
        (["probe", "a", "db.t", "5"], 2, "Write: sidecar probe db.t a 5"),
        (
            ["inspect", "https://u:pw@host/x.parquet?sig=1"],
            2,
            "no file can be read or written over https://; file https://host/x.pa",
        ),
        (["strip", "f.parquet", "--into", "nosuch/x.parquet"], 1, "The folder nosuch does not exist: make it first."),
        (
            ["embed", "f.parquet", "--into", "no/x.parquet", "--page-index"],
            1,
            "The folder no does not exist: make it first.",
        ),
        (["extract", "f.parquet", "no/x.puffin"], 1, "The folder no does not exist: make it first."),
        (["scan", "db.t", "a = 5", "-o", "no/x.csv"], 2, "Make it first: mkdir -p no"),
        (["scan", "db.t", "a = 5", "-o", "s3://b/x.csv"], 2, "Rows go to local files only: name one."),
        (["report", "db.t", "-o", "https://host/x.html"], 2, "written over https://; file https://host/x.html. Use"),
        (
            ["verify", "f.parquet", "db.t"],
            2,
            "found the file f.parquet and the table db.t. Write ./db.t if it is",
        ),
        (["verify", "part-*"], 2, "db.** also those of the namespaces in it; ./part-* are files."),
        (["inspect", "./part-*"], 2, "no file matches; file ./part-*"),
        (
            ["embed", "f.parquet", "g.parquet", "h.parquet", "--page-index"],
            2,
            "into names the new file, or the folder of several",
        ),
        (["strip", "f.parquet"], 2, "strip needs --into: the new file"),
        (["status", "db.t", "--at", "dev"], 2, "no branch or tag 'dev'"),
        (["status", "sub/*.parquet"], 2, "for tables, and files were given; found sub/*.parquet. Commands"),
        (["status", "cut.parquet"], 2, "for tables, and files were given; found cut.parquet. Commands for files: scan"),
        (["inspect", "db.t"], 2, "inspect is for files; found db.t. For the sidecar of a table: sidecar status db.t"),
        (["probe", "db.t", "a", "5"], 2, "For a table: sidecar plan db.t 'a = 5'"),
        (
            ["build", "db"],
            2,
            "'db' is not a table name. Write it as namespace.table, all tables of a namespace as 'db.*'",
        ),
        (["status", "sub/folder"], 2, "by its metadata file: sub/folder/metadata/<version>.metadata.json."),
        (["plan", "db.t", "lower(s) = 'x'"], 2, "a predicate cannot call a function: lower(...). It compares columns"),
        (["care", "db.t", "--older-than", "1h"], 2, "expected at least 24 hours; found 1 hours. If no build of"),
        (["--catalog", "hlake", "status", "db.t"], 2, "of Spark's configuration are opened by --spark-catalog NAME"),
        (
            ["inspect", "cut.parquet"],
            1,
            "Parquet file and does not end as one: it was cut, or its writer did not finish",
        ),
        (["embed", "sub", "--into", "new", "--page-index"], 2, "Name only the Parquet files, such as 'sub/*.parquet'."),
        (["build", "x.*", "--columns", "a"], 2, "matches 'x.*'; found the namespaces db. db.* are the tables of"),
        (["scan", "f.parquet", "a = 5", "--at", "main"], 2, "but a path was given; found f.parquet. Leave the option"),
        (["--catalog", "default", "verify", "f.parquet"], 2, "local path was given; found f.parquet. Leave the option"),
        (["inspect", "cut.orc"], 1, "does not end as one: it was cut, or its writer did not finish it; file cut.orc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_gets_a_hint_in_one_line(run: Run, line: list[str], code: int, sentence: str) -> None:
    result = run(*line)
    assert sentence in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert (result.exit_code, result.stdout) == (code, "")
    assert "pw" not in result.stderr


def test_a_table_whose_name_ends_like_a_file_can_be_named(run: Run) -> None:
    result = run("verify", "db.stats")
    assert (result.exit_code, "no such file" in result.stderr) == (1, True)
    for line in (["verify", "db.stats", "--catalog", "default"], ["verify", "db.`stats`"]):
        assert "nor another one has a sidecar" in run(*line).stdout
    assert run("status", "db.stats").exit_code == 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["build", "db.empty", "--columns", "a"], "there is nothing to index"),
        (["status", "db.empty"], "db.empty: no snapshot yet"),
        (["verify", "db.empty", "--data"], "there was nothing to check (the table has no snapshot yet)"),
        (["plan", "db.empty", "a = 5"], "kept"),
        (["scan", "db.empty", "a = 5"], "0 rows"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_an_empty_table_is_no_error(run: Run, line: list[str], text: str, form: str) -> None:
    result = run(*line, "--format", form)
    assert (result.exit_code, result.stderr) == (0, "")
    if form == "table":
        assert text in result.stdout


def test_a_wrong_column_of_an_empty_table_is_still_wrong(run: Run) -> None:
    assert run("build", "db.empty", "--columns", "nosuch").exit_code == 2


@pytest.mark.parametrize(
    "predicate", ["a = 5", "TRUE", "false", "s = 'a is b'", "a in (1, 2)", "a is not null", "not a = 1"]
)
def test_what_is_a_predicate_passes(run: Run, predicate: str) -> None:
    result = run("plan", "db.t", predicate)
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_error_that_several_tables_have_is_said_once(run: Run) -> None:
    result = run("build", "db.t", "db.empty", code=2)
    assert "db.t, db.empty: no column of the table 'TABLE' is to be indexed." in result.stdout
    assert "sidecar build TABLE --columns A,B --save" in result.stdout


def test_an_option_with_a_slip_is_named_with_the_one_that_is_near(run: Run) -> None:
    result = run("status", "db.t", "--min-coverge", "3", code=2)
    assert "No such option: --min-coverge. Did you mean --min-coverage?" in result.stderr
