"""Results in all forms: every command and form reads back to the same values, also with hostile texts."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.cli.shell.choices import OutputFormat
from sidecar.cli.shell.forms import ResultRows, cell_text, lines_of
from sidecar.errors import visible
from tests.cli.running import run
from tests.tables import configure, create_with_rows, new_catalog

FORMS = [OutputFormat.jsonl, OutputFormat.csv, OutputFormat.markdown]
VARYING = {"seconds", "target"}
HOSTILE = [
    "a|b",
    "line\nbreak",
    "crlf\r\nend",
    'say "hi"',
    "comma, cell",
    "\x1b[31mred",
    "back\\slash",
    "a\\|b",
]
HOSTILE += [
    "<b>bold</b>",
    "`code` *x* [l](u)",
    "<br>",
    " edge ",
    "",
    "null",
    "ünïcödé 🚗",
    "{}",
    "\\n",
    "\\",
    "\u202e",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data files, a sidecar of them, and a table ``db.t`` with a sidecar."""
    folder = tmp_path_factory.mktemp("forms")
    rows = pa.table({"k": list(range(40)), "t|x": [HOSTILE[n % len(HOSTILE)] for n in range(40)]})
    pq.write_table(rows, folder / "a.parquet", row_group_size=20)
    catalog = new_catalog(folder, "forms")
    create_with_rows(catalog, "db.t", [rows, rows.slice(0, 5)])
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, catalog)
        patch.setenv("SIDECAR_CATALOG", "forms")
        patch.chdir(folder)
        for words in ("embed a.parquet --into b.parquet --bloom k --page-index", "extract b.parquet c.puffin"):
            assert run(*words.split()).exit_code == 0
        assert run("build", "db.t", "-c", "k", "--engine", "local").exit_code == 0
        yield folder


COMMANDS = [
    ["build", "db.t", "-c", "k", "--engine", "local", "--full"],
    ["status", "db.t"],
    ["verify", "db.t"],
    ["verify", "./b.parquet", "--data"],
    ["care", "db.t", "--dry-run"],
    ["plan", "db.t", "k = 3"],
    ["scan", "db.t", "k < 30"],
    ["scan", "db.t", "k = 3", "--explain"],
    ["scan", "./b.parquet", "k >= 0"],
    ["scan", "./b.parquet", "k = 3", "--explain"],
    ["scan", "./b.parquet", "k = 3", "--output", "rows.csv"],
    ["probe", "./b.parquet", "k", "3"],
    ["advise", "db.t"],
    ["inspect", "./b.parquet"],
    ["inspect", "./c.puffin"],
    ["embed", "db.t", "--bloom", "k", "--dry-run"],
    ["embed", "./a.parquet", "--into", "{new}.parquet", "--bloom", "k"],
    ["embed", "--from", "./c.puffin", "--into", "{new}"],
    ["strip", "./b.parquet", "--into", "{new}.parquet"],
    ["extract", "./b.parquet", "{new}.puffin"],
    ["convert", "./b.parquet", "{new}.puffin"],
    ["guide"],
    ["guide", "orc"],
]


def answer(lake: Path, command: list[str], form: str) -> str:
    new = f"{form}-{len(list(lake.iterdir()))}"
    result = run(*(word.format(new=new) for word in command), "--format", form, code=0)
    return str(result.stdout_bytes.decode())  # the stdout of the runner has no CR


ROWS = [["scan", "db.t", "k < 30"], ["scan", "./b.parquet", "k >= 0"]]


@pytest.mark.parametrize("command", ROWS, ids=" ".join)
def test_every_form_reads_back_to_the_same_values(command: list[str], lake: Path) -> None:
    expected = [json.loads(line) for line in answer(lake, command, "jsonl").splitlines()]
    names, cells = parsed_csv(answer(lake, command, "csv"))
    marked, marked_cells = parsed_markdown(answer(lake, command, "markdown"))
    assert marked == names
    assert len(cells) == len(marked_cells) == len(expected)
    for row, found, drawn in zip(expected, cells, marked_cells, strict=True):
        assert list(row) == names
        for name, value, text, mark in zip(names, row.values(), found, drawn, strict=True):
            if name not in VARYING:
                assert text == ("" if value is None else cell_text(value))
                assert mark == markdown_text(text)


@pytest.mark.parametrize("form", ["csv", "markdown"])
@pytest.mark.parametrize(
    "line", [["status", "db.t"], ["inspect", "./b.parquet"], ["guide"], ["scan", "db.t", "k = 3", "--explain"]]
)
def test_only_rows_have_the_forms_of_rows(line: list[str], form: str, lake: Path) -> None:
    result = run(*line, "--format", form)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--format {form} is for " in result.stderr


def test_the_conditions_of_find_are_rows(lake: Path) -> None:
    names, rows = parsed_csv(run("find", "db.t", "k=3", "--format", "csv").stdout_bytes.decode())
    assert dict(zip(names, rows[0], strict=True))["answer"] == "found"


def is_stream(command: list[str]) -> bool:
    """Whether the result is the rows of a scan: each is a document of its own."""
    return command[0] == "scan" and len(command) == 3


@pytest.mark.parametrize("command", [c for c in COMMANDS if not is_stream(c)], ids=" ".join)
def test_a_document_says_which_run_it_is_of(command: list[str], lake: Path) -> None:
    (line,) = answer(lake, command, "json").splitlines()
    found = json.loads(line)
    assert (found["command"], found["exit"]) == (command[0], 0)
    assert datetime.fromisoformat(found["at"].replace("Z", "+00:00")).tzinfo is not None
    assert found["seconds"] >= 0
    (target,) = command[1:2] or [""]
    if target.startswith("db."):
        assert found["table"] == "db.t"
    elif target.startswith("./"):
        assert found.get("path", found.get("paths", [None])[0]) == target


def parsed_csv(text: str) -> tuple[list[str], list[list[str]]]:
    assert text.endswith("\r\n")
    names, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    return names, rows


def parsed_markdown(text: str) -> tuple[list[str], list[list[str]]]:
    head, rule, *lines = [cells_of(line) for line in text.splitlines()]
    assert set(rule) == {"---"}
    return head, lines


def cells_of(line: str) -> list[str]:
    """The cells of a row of a GitHub table, as a reader of the page sees them."""
    assert line.startswith("| ")
    assert line.endswith(" |")
    raw = protect(line[2:-2]).split(" | ")
    return [shown(cell) for cell in raw]


def protect(line: str) -> str:
    """The line with escaped characters in a private range, so that no later step takes them for signs."""
    return re.sub(r"\\([\\|<>`*\[\]])", lambda match: chr(0xE000 + ord(match[1])), line)


def shown(cell: str) -> str:
    assert not re.search(r"[|<`*\[\]]", cell.replace("<br>", "")), cell
    text = cell.replace("<br>", "\n")
    return "".join(chr(ord(c) - 0xE000) if 0xE000 <= ord(c) < 0xE080 else c for c in text)


def markdown_text(text: str) -> str:
    """How Markdown shows a text: line breaks are all one, other control characters are visible."""
    return "\n".join(visible(line) for line in re.split(r"\r\n|\r|\n", text))


VALUES = [*HOSTILE, None, 1, -1.5, 1e300, True, b"\x00\xff", ["a|b", 1, None], {"x": '"'}, float("nan")]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_hostile_values_read_back(value: Any, form: OutputFormat) -> None:
    found = ResultRows(["first|\n", "v"], [["x", value], ["y", value]])
    text = "".join(lines_of(form, found, escape=False))
    expected = "" if value is None else cell_text(value)
    if form is OutputFormat.jsonl:
        assert "\x1b" not in text
        assert [json.loads(line)["v"] for line in text.splitlines()] == [json_value(value)] * 2
    elif form is OutputFormat.csv:
        assert parsed_csv(text) == (["first|\n", "v"], [["x", expected], ["y", expected]])
    else:
        assert "\x1b" not in text
        shown_value = markdown_text(expected)
        assert parsed_markdown(text) == (["first|\n", "v"], [["x", shown_value], ["y", shown_value]])


def json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return "nan" if isinstance(value, float) and value != value else value


def test_null_and_the_empty_text_differ_in_csv() -> None:
    lines = lines_of(OutputFormat.csv, ResultRows(["a", "b"], [[None, ""]]), escape=False)
    assert list(lines) == ["a,b\r\n", ',""\r\n']


def test_a_terminal_gets_no_control_characters_of_csv() -> None:
    lines = lines_of(OutputFormat.csv, ResultRows(["a"], [["\x1b[31m"]]), escape=True)
    assert "".join(lines) == "a\r\n\\x1b[31m\r\n"


def test_an_option_beats_its_variable_before_and_after_the_command(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_FORMAT", "jsonl")
    assert json.loads(run("plan", "db.t", "k = 3").stdout)["command"] == "plan"
    found = [json.loads(line) for line in run("--format", "json", "scan", "db.t", "k = 3").stdout.splitlines()]
    assert found == [{"k": 3, "t|x": HOSTILE[3]}] * 2
    monkeypatch.setenv("SIDECAR_CATALOG", "nowhere")
    assert "the catalog 'nowhere' is not configured" in run("status", "db.t").stderr
    assert run("--catalog", "forms", "status", "db.t").exit_code == 0
    assert run("inspect", "./b.parquet").exit_code == 0


@pytest.mark.parametrize("variable", ["SIDECAR_FORMAT", "SIDECAR_LOG_LEVEL"])
def test_an_unknown_value_of_a_variable_is_wrong_usage(
    variable: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "loud")
    result = run("status", "db.t")
    assert (result.exit_code, "found loud" in result.stderr, variable in result.stderr) == (2, True, True)


def test_json_twice_is_wrong_usage(lake: Path) -> None:
    assert run("status", "db.t", "--json", "--format", "json").exit_code == 0
    result = run("status", "db.t", "--json", "--format", "csv", code=2)
    assert "--json is --format json" in result.stderr


def test_options_before_the_command_are_those_after_it(lake: Path) -> None:
    before = run("--format", "csv", "--catalog", "forms", "-q", "scan", "db.t", "k < 30")
    after = run("scan", "db.t", "k < 30", "--format", "csv", "--catalog", "forms", "-q")
    assert before.exit_code == after.exit_code == 0
    assert before.stdout == after.stdout
    assert run("--format", "csv", "status", "db.t", "--format", "jsonl").stdout.startswith("{")
    wrong = run("--catalog", "nowhere", "status", "db.t", code=2)
    assert "the catalog 'nowhere'" in wrong.stderr


def test_a_catalog_for_a_command_without_tables_is_wrong_usage() -> None:
    for args in (["--catalog", "x", "guide"], ["--catalog", "x", "inspect", "./a.parquet"]):
        result = run(*args, code=2)
        assert "--catalog" in result.stderr
