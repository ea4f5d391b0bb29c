"""``--dry-run`` of build and of embed for a table: what is printed, and that nothing is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.running import run
from tests.conversion.cases import indexed
from tests.dry_runs import unchanged
from tests.tables import configure, create_with_rows, new_catalog

FIRST = "dry run: nothing is written"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: data files, a Puffin file, and a catalog with tables."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        indexed(tmp_path, number, 300)
    (tmp_path / "parts").mkdir()
    for number in (1, 2):
        shutil.copy(f"plain-{number}.parquet", "parts")
    assert run("extract", "./part-1.parquet", "./one.puffin").exit_code == 0
    catalog = new_catalog(tmp_path, "dry")
    numbers = [pa.table({"k": list(range(start, start + 100))}) for start in (0, 100)]
    create_with_rows(catalog, "db.a", numbers)
    create_with_rows(catalog, "db.b", numbers, columns=["k"])
    create_with_rows(catalog, "db.other", [pa.table({"x": [1]})])
    catalog.create_table("db.empty", numbers[0].schema)
    configure(monkeypatch, catalog)
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        ["./plain-1.parquet", "./new.parquet", "--bloom", "k"],
        ["parts", "--into", "deep/new", "--bloom", "k"],
        ["./plain-1.parquet", "./new.parquet", "--from", "./one.puffin"],
    ],
)
def test_no_dry_run_writes_files(args: list[str], place: Path) -> None:
    with unchanged(place):
        result = run("embed", *args, "--dry-run")
    assert result.exit_code == 2
    assert "dry_run and refresh are for tables" in result.stderr


BUILD = ["build", "--columns", "k", "--engine", "local", "--catalog", "dry"]


def test_a_build_says_what_it_would_index(place: Path) -> None:
    with unchanged(place):
        drawn = run(*BUILD, "db.a", "--dry-run")
        data = json.loads(run(*BUILD, "db.a", "--dry-run", "--json").stdout)
    assert drawn.exit_code == 0
    assert drawn.stdout.startswith(f"{FIRST}\n")
    for text in ("2 of 2 to be indexed, 2 row groups", "local (as asked for)", "to be written in", "at most"):
        assert text in drawn.stdout
    assert data["dry_run"] is data["commits"] is True
    assert [file["path"] in drawn.stdout for file in data["files"]] == [True, True]
    assert run(*BUILD, "db.a").exit_code == 0
    after = run(*BUILD, "db.a", "--dry-run").stdout
    assert "0 of 2 to be indexed" in after
    assert "already indexed: nothing to do" in after


def test_many_tables_have_a_line_each(place: Path) -> None:
    with unchanged(place):
        drawn = run(*BUILD, "db.*", "--dry-run")
        data = json.loads(run(*BUILD, "db.*", "--dry-run", "--json").stdout)
    assert drawn.exit_code == 1
    assert drawn.stdout.startswith(f"{FIRST}\n")
    states = {line.split()[0]: line for line in drawn.stdout.splitlines() if line.strip().startswith("db.")}
    assert "to be built" in states["db.a"]
    assert "nothing to index: no snapshot yet" in states["db.empty"]
    assert "no column 'k'" in states["db.other"]
    assert data["dry_run"] is True
    assert data["summary"] == {"tables": 4, "failed": 1}
    assert [one.get("dry_run") for one in data["tables"]] == [True, True, True, None]


def test_a_table_with_a_sidecar_of_the_column(place: Path) -> None:
    drawn = run(*BUILD, "db.a", "db.b", "--kinds", "bloom", "--dry-run", code=0)
    states = {line.split()[0]: line for line in drawn.stdout.splitlines() if line.strip().startswith("db.")}
    assert "already indexed" in states["db.b"]


def test_embed_of_a_table_says_the_same(place: Path) -> None:
    with unchanged(place):
        drawn = run("embed", "db.a", "--bloom", "k", "--dry-run", "--catalog", "dry")
    assert drawn.exit_code == 0, drawn.output
    assert drawn.stdout.startswith(f"{FIRST}\n")
    assert "to be replaced" in drawn.stdout
