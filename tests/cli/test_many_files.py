"""inspect, verify, probe, extract, convert, embed and strip of folders and globs, with bad files among good ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sidecar
from tests.cli import running
from tests.conversion.cases import indexed

PUBLISHED = Path(__file__).resolve().parents[2] / "spec_vectors" / "published"
Run = Callable[..., Any]
GOOD = ["data/0.parquet", "data/day=1/a [b]*.parquet", "data/day=1/hash#.parquet", "data/é%20.orc"]
BAD = ["data/cut.parquet", "data/day=1/broken.parquet", "data/day=2/empty.orc"]
QUIET = ["data/_SUCCESS", "data/.x.parquet", "data/_temporary/t.parquet"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    made = [indexed(folder, number, 300) for number in range(3)]
    for path, name in zip([*made, PUBLISHED / "orc_java.orc"], GOOD, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
    for name in QUIET:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "data" / "notes.txt").write_text("left out")
    return folder


@pytest.fixture
def run(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    shutil.copytree(source / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)

    return running.run


@pytest.fixture
def damaged(run: Run) -> Run:
    Path(BAD[0]).write_bytes(Path(GOOD[0]).read_bytes()[:4000])
    os.symlink("nowhere", BAD[1])
    Path(BAD[2]).parent.mkdir()
    Path(BAD[2]).touch()
    return run


def document(result: Any) -> Any:
    return json.loads(result.stdout)


@pytest.mark.parametrize("paths", [["data"], ["data/"], ["data/**/*.parquet", "data/*.orc"], ["./data/day=1", "data"]])
def test_inspect_names_each_file_once(run: Run, paths: list[str]) -> None:
    result = run("inspect", *paths, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    data = document(result)
    assert sorted(os.path.normpath(file["file"]) for file in data["files"]) == GOOD
    assert len(data["files"]) == len(data["lines"]) == 4
    assert data["rows"] == 900 + sidecar.inspect(GOOD[3]).only.to_dict()["rows"]
    for file in data["files"]:
        alone = document(run("inspect", f"./{file['file']}", "--json"))
        assert alone["files"][0]["units"] == file["units"]


def test_inspect_narrows_what_it_shows_and_keeps_values_to_itself(run: Run) -> None:
    data = document(run("inspect", "data", "--columns", "k,s", "--json"))
    assert [column["column"] for column in data["columns"]] == ["k", "s"]
    assert {name for file in data["files"] for unit in file["units"] for name in unit["columns"]} == {
        "k",
        "s",
    }
    assert [line["columns_with_filter"] for line in data["lines"]] == [2, 2, 2, 2]
    missing = run("inspect", "data", "--columns", "k,nosuch")
    assert (missing.exit_code, "no file has a column 'nosuch'" in missing.stderr) == (2, True)
    indexes = [unit["columns"]["k"]["row_index"] for unit in data["files"][3]["units"]]
    assert all("min" not in index for index in indexes)
    asked = document(run("inspect", "data", "--statistics", "--json"))["files"][3]["units"]
    assert all("min" in unit["columns"]["k"]["row_index"] for unit in asked)


def test_inspect_draws_files_columns_and_totals(run: Run) -> None:
    text = run("inspect", "data").stdout
    assert "files in data/" in text
    for word in ("0.parquet", "day=1/a [b]*.parquet", "day=1/hash#.parquet", "é%20.orc", "tags.list.element"):
        assert word in text
    assert "left out, for their endings: 1 other file of" in text
    assert "_SUCCESS" not in text
    lines = [json.loads(line) for line in run("inspect", "data", "--format", "jsonl").stdout.splitlines()]
    assert [(line["command"], line["file"]) for line in lines] == [("inspect", name) for name in GOOD]
    assert lines == [
        {**one, **file} for one, file in zip(lines, document(run("inspect", "data", "--json"))["files"], strict=True)
    ]


@pytest.mark.parametrize(
    "line",
    [
        ["inspect", "data"],
        ["probe", "data", "k", "5"],
        ["extract", "data", "out.puffin"],
        ["strip", "data", "--into", "out"],
        ["embed", "data", "--into", "out", "--bloom", "k"],
    ],
    ids=lambda line: line[0],
)
def test_a_bad_file_ends_a_command_alone_and_is_listed_among_many(damaged: Run, line: list[str]) -> None:
    stopped = damaged(line[0], BAD[0], *line[2:], code=1)
    assert stopped.stderr.startswith("error: ")
    assert BAD[0] in stopped.stderr
    assert not Path("out.puffin").exists()
    shutil.rmtree("out", ignore_errors=True)
    went_on = damaged(*line, "--json", code=1)
    data = document(went_on)
    assert list(data["failed"]) == BAD
    assert [error["kind"] for error in data["failed"].values()] == ["damaged-file", "storage", "damaged-file"]
    assert len(data.get("files", data.get("sources"))) == 4
    shutil.rmtree("out", ignore_errors=True)
    Path("out.puffin").unlink(missing_ok=True)
    text = damaged(*line)
    assert (text.exit_code, text.stdout.count("failed: ")) == (1, 3)
    shutil.rmtree("out", ignore_errors=True)
    Path("out.puffin").unlink(missing_ok=True)
    rows = damaged(*line, "--format", "jsonl")
    named = [one["file"] for one in map(json.loads, rows.stdout.splitlines()) if "error" in one]
    assert (rows.exit_code, len(named) + rows.stderr.count("warning: failed: ")) == (1, 3)


def test_convert_goes_on_past_bad_files_and_names_them(damaged: Run) -> None:
    result = damaged("convert", "data", "out.puffin", "--json", code=1)
    data = document(result)
    assert {path: error["kind"] for path, error in data["failed"].items()} == dict(
        zip(BAD, ["damaged-file", "storage", "damaged-file"], strict=True)
    )
    assert len(data["sources"]) == 4
    text = damaged("convert", "data", "again.puffin")
    assert (text.exit_code, text.stdout.count("failed: ")) == (1, 3)
    for name in ("one.puffin", "two.puffin"):
        assert damaged("extract", GOOD[0], name).exit_code == 0
    Path("two.puffin").write_bytes(Path("two.puffin").read_bytes()[:-30])
    joined = damaged("convert", "one.puffin", "two.puffin", "both.puffin", "--json")
    assert (joined.exit_code, document(joined)["sources"], list(document(joined)["failed"])) == (
        1,
        ["one.puffin"],
        ["two.puffin"],
    )
    alone = damaged("convert", "two.puffin", "no.puffin")
    assert (alone.exit_code, alone.stderr[:7], Path("no.puffin").exists()) == (1, "error: ", False)


def test_verify_reports_damage_and_what_cannot_be_opened(damaged: Run) -> None:
    stopped = damaged("verify", BAD[1])
    assert (stopped.exit_code, BAD[1] in stopped.stderr) == (1, True)
    data = document(damaged("verify", "data", "--json"))
    assert list(data["failed"]) == BAD[1:2]
    assert {problem["file"] for problem in data["problems"]} == {BAD[0], BAD[2]}
    text = damaged("verify", "data").stdout
    assert "6 files checked, 2 with problems" in text
    assert text.count("problem: ") == 2


def test_verify_of_good_files_looks_values_up(run: Run) -> None:
    result = run("verify", "data", "--data", "--json", code=0)
    data = document(result)
    assert data["checked"] == 4
    alone = [document(run("verify", f"./{name}", "--data", "--json"))["looked_up"]["values"] for name in GOOD]
    assert data["looked_up"]["values"] == sum(alone) > 0
    assert "4 files checked" in run("verify", "data", "--data").stdout


def test_probe_keeps_the_file_that_has_the_value(run: Run) -> None:
    for name in GOOD[:3]:
        value = str(pq.read_table(name, columns=["k"])["k"][7].as_py())
        result = run("probe", "data/**/*.parquet", "k", value, "--json", code=0)
        may = {file["file"]: file["might_contain"] for file in document(result)["files"]}
        assert may[name] is True
        assert set(may) == set(GOOD[:3])
    text = run("probe", "data", "k", "-5").stdout
    assert "cannot hold it" in text
    assert "to read" in text


def test_extract_and_convert_take_folders(run: Run) -> None:
    plain = document(run("extract", *GOOD, "one.puffin", "--json"))
    folder = document(run("extract", "data/", "two.puffin", "--json"))
    assert [folder["files"], folder["units"]] == [plain["files"], plain["units"]]
    assert Path("one.puffin").stat().st_size == Path("two.puffin").stat().st_size
    assert run("convert", "data/**/*.parquet", "three.puffin").exit_code == 0
    assert run("convert", "one.p*", "tw*.puffin", "both.puffin").exit_code == 0


def test_strip_and_embed_write_one_file_for_each(run: Run) -> None:
    result = run("strip", "data", "--into", "bare", "--json", code=0)
    assert [file["target"] for file in document(result)["files"]] == [name.replace("data/", "bare/") for name in GOOD]
    for name in GOOD[:3]:
        new = name.replace("data/", "bare/")
        assert pq.read_table(new).equals(pq.read_table(name))
        assert os.path.getsize(new) < os.path.getsize(name)
    before = {path: path.read_bytes() for path in Path("bare").rglob("*") if path.is_file()}
    again = run("strip", "data", "--into", "bare")
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    assert {path: path.read_bytes() for path in Path("bare").rglob("*") if path.is_file()} == before
    embedded = run("embed", "bare/**/*.parquet", "--into", "new", "--bloom", "k,s", "--page-index", code=0)
    assert "written  3 files in new" in embedded.stdout
    assert run("verify", "new", "--data").exit_code == 0


def test_one_file_has_the_shape_of_many(run: Run) -> None:
    many = document(run("inspect", "data", "--json"))
    for path in (f"./{GOOD[1]}", GOOD[2], "data/day=1/*#*"):
        data = document(run("inspect", path, "--json"))
        assert [os.path.normpath(file["file"]) for file in data["files"]] == [GOOD[1] if "[" in path else GOOD[2]]
        assert data.keys() - {"path", "paths"} == many.keys() - {"path", "paths"}


def test_a_glob_without_a_match_does_nothing(run: Run) -> None:
    for line in (
        ["inspect", "data/*.nix"],
        ["extract", GOOD[0], "data/nix*", "x.puffin"],
        ["strip", "no*/", "--into", "o"],
    ):
        result = run(*line)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no file matches" in result.stderr
    assert not Path("x.puffin").exists()
    assert not Path("o").exists()


def test_progress_does_not_disturb_the_order(run: Run) -> None:
    first = run("inspect", "data", "--json").stdout
    names = [file["file"] for file in json.loads(first)["files"]]
    assert names == sorted(names)
