"""``inspect`` shows only the columns that are asked for, and no values of ORC files unless told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sidecar
from tests.cli.running import run

DATA = Path(__file__).resolve().parents[1] / "data"
PARQUET = str(DATA / "parquet" / "j118_v1_none.parquet")
BARE_FILTER = str(DATA / "parquet" / "apache_bloom_filter.bin")
ORC = str(sorted((DATA / "orc").rglob("*.orc"))[0])


def test_columns_narrow_a_data_file_in_each_form() -> None:
    (file,) = json.loads(run("inspect", PARQUET, "-c", "i64_opt,bool_opt", "--json").stdout)["files"]
    units = file["units"]
    assert [list(unit["columns"]) for unit in units] == [["i64_opt", "bool_opt"]] * len(units)
    assert sidecar.inspect(PARQUET, columns=["i64_opt", "bool_opt"]).only.to_dict() == file
    for form in ("table", "jsonl"):
        text = run("inspect", PARQUET, "--columns", "i64_opt", "--format", form).stdout
        assert "i64_opt" in text.replace("\\", "")
        assert "bool" not in text


def test_columns_and_statistics_of_many_files() -> None:
    found = json.loads(run("inspect", PARQUET, ORC, "-c", "i64_opt,id", "--json").stdout)
    assert [one["column"] for one in found["columns"]] == ["i64_opt", "id"]
    for file in found["files"]:
        assert {name for unit in file["units"] for name in unit["columns"]} <= {"i64_opt", "id"}
    assert "min" not in found["files"][1]["units"][0]["columns"]["id"]["row_index"]
    given = json.loads(run("inspect", PARQUET, ORC, "--statistics", "--json").stdout)
    assert "min" in given["files"][1]["units"][0]["columns"]["id"]["row_index"]
    assert run("inspect", PARQUET, ORC, "-c", "nosuch").exit_code == 2


def test_an_unknown_column_is_wrong_usage_with_the_names() -> None:
    result = run("inspect", PARQUET, "--columns", "i46_opt", code=2)
    assert "no file has a column 'i46_opt'. The columns are bool_opt, " in result.stderr


def test_columns_of_a_puffin_file_are_narrowed(tmp_path: Path) -> None:
    puffin = str(tmp_path / "a.puffin")
    assert run("extract", PARQUET, puffin, "--columns", "i64_opt,bool_opt").exit_code == 0
    (found,) = json.loads(run("inspect", puffin, "--columns", "i64_opt", "--json").stdout)["files"]
    assert [column["name"] for column in found["columns"]] == ["i64_opt"]


def test_columns_of_a_file_that_has_none_are_wrong_usage() -> None:
    result = run("inspect", BARE_FILTER, "--columns", "i64_opt", code=2)
    assert "no file has a column 'i64_opt'. The columns are not known" in result.stderr


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_statistics_of_an_orc_file_are_shown_on_demand(form: str) -> None:
    without = run("inspect", ORC, "--format", form).stdout
    given = run("inspect", ORC, "--statistics", "--format", form).stdout
    if form == "json":  # totals have bytes of the smallest and the largest filter
        without, given = (json.dumps(json.loads(text)["files"]) for text in (without, given))
    words = ("minimum", "maximum") if form == "table" else ('"min":', '"max":')
    for word in words:
        assert word not in without
        assert word in given


def test_what_is_left_of_a_row_index_says_where_it_is() -> None:
    (unit, *_) = json.loads(run("inspect", ORC, "--json").stdout)["files"][0]["units"]
    found = [column["row_index"] for column in unit["columns"].values() if column["row_index"]]
    assert found
    assert all(set(index) == {"offset", "length", "positions", "reason"} for index in found)
