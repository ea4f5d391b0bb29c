"""inspect, probe and verify of Puffin files on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sidecar
from tests.cli.running import run
from tests.conversion.cases import indexed, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("puffin")
    parts = [str(indexed(folder, number)) for number in range(6)]
    sidecar.extract(parts, str(folder / "x.puffin"))
    return folder


def test_inspect_draws_columns_and_the_first_files(folder: Path) -> None:
    text = run("inspect", folder / "x.puffin").stdout
    assert re.search(r"1 +k +bloom +18 ", text)
    assert "6 data files" in text
    assert "part-4.parquet" in text
    assert "and 1 more: --json names all" in text
    assert "by fill" not in text
    assert "by fill" in run("inspect", folder / "x.puffin", "--fill").stdout
    (data,) = json.loads(run("inspect", folder / "x.puffin", "--json").stdout)["files"]
    assert len(data["files"]) == 6


def test_probe_by_name_and_id(folder: Path) -> None:
    path, value = folder / "x.puffin", rows(0)["k"][0].as_py()
    for asked in (("k", value), ("1", value)):
        result = run("probe", path, *asked, code=0)
        assert "part-0.parquet" in result.stdout
    result = run("probe", path, "key", value, code=2)
    assert "the sidecar has no column 'key'" in result.stderr


def test_verify_against_files(folder: Path) -> None:
    result = run("verify", folder / "x.puffin", "--against", folder / "part-0.parquet", code=0)
    assert re.fullmatch(
        r"fine: 2 checked, [\d,]+ values of 1 of 1 data files looked up, 12 indexes compared; "
        r"5 listed files not given",
        result.stdout.strip(),
    )
    other = run("verify", folder / "x.puffin", "--against", folder / "plain-0.parquet", "--json")
    assert json.loads(other.stdout)["problems"] == []  # the same file without its indexes
    run("verify", folder / "x.puffin", "--against", folder / "nosuch.parquet", code=1)


def test_inspect_names_and_narrows_at_once(folder: Path) -> None:
    given = ("-c", "k", "-c", "2")
    (shown,) = json.loads(run("inspect", folder / "x.puffin", *given, "--json").stdout)["files"]
    assert [(column["id"], column["name"], column["type"]) for column in shown["columns"]] == [
        (1, "k", "long"),
        (2, "s", "string"),
    ]
    assert {field for blob in shown["blobs"] for field in blob["fields"]} == {1, 2}
    (segment,) = shown["segments"]
    assert {bundle["field"] for bundle in segment["bundles"]} == {1, 2}


def test_fill_is_for_puffin_files(folder: Path) -> None:
    assert run("inspect", folder / "part-0.parquet", "--fill").exit_code == 2


def test_puffin_files_among_many_files(folder: Path) -> None:
    puffin, data = folder / "x.puffin", folder / "part-0.parquet"
    value = rows(0)["k"][0].as_py()
    found = json.loads(run("inspect", folder, "--fill", "--json").stdout)
    (one,) = (file for file in found["files"] if file["format"] == "puffin")
    assert one["columns"][0]["name"] == "k"
    assert one["columns"][0]["kinds"]["bloom"]["fill"]["filters_read"] == 18
    narrow = json.loads(run("inspect", puffin, data, "-c", "k", "--json").stdout)
    assert [column["column"] for column in narrow["columns"]] == ["k"]
    assert [column["name"] for column in narrow["files"][0]["columns"]] == ["k"]
    assert {name for unit in narrow["files"][1]["units"] for name in unit["columns"]} == {"k"}
    assert run("verify", puffin, data, "--against", data).exit_code == 2
    probed = json.loads(run("probe", puffin, data, "k", value, "--json").stdout)
    assert [file["might_contain"] for file in probed["files"]] == [True, True]
    assert len(probed["files"][0]["units"]) == 18
    by_id = json.loads(run("probe", puffin, data, "1", value, "-v", "--json").stdout)
    assert [file["might_contain"] for file in by_id["files"]] == [True, None]


def test_verify_against_a_folder(folder: Path, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"part-{number}.parquet").write_bytes((folder / f"part-{number}.parquet").read_bytes())
    found = json.loads(run("verify", folder / "x.puffin", "--against", tmp_path, "--json").stdout)
    assert (found["problems"], found["checked"], found["looked_up"]["files_not_given"]) == ([], 3, 4)


@pytest.mark.parametrize(
    "args",
    [
        ("verify", "db.t", "--against", "a.parquet"),
    ],
)
def test_options_of_puffin_files_are_refused_with_tables(args: tuple[str, ...]) -> None:
    result = run(*args, code=2)
    assert "for a Puffin file, not for a table" in result.stderr
