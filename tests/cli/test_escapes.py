"""Control characters out of files are shown as escapes, in text, JSON, errors and warnings."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.cli.output import Output, console, escaped, facts, table, to_json
from sidecar.errors import DamagedFileError, visible
from tests.cli.running import run

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
NASTY = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2028\r\n\tb"
SHOWN = r"a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2028\r\n\tb"


def hidden(text: str) -> list[str]:
    """The characters that a terminal would obey, besides the line breaks of our own layout."""
    return [c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2028")]


def test_what_is_escaped_and_what_stays() -> None:
    assert visible(NASTY) == SHOWN
    kept = "Grüße, 数据, 👩\u200d🔬, a\u00a0b, café"
    assert visible(kept) == kept
    assert str(DamagedFileError("bad", column=NASTY, found="x\x00")) == rf"bad; column {SHOWN}; found x\x00"


def test_json_says_the_same_in_escapes() -> None:
    text = to_json({NASTY: [NASTY, "\U000e0041"]}, indent=2)
    assert hidden(text) == []
    assert "\U000e0041" not in text
    assert json.loads(text) == {NASTY: [NASTY, "\U000e0041"]}


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("nasty") / "nasty.parquet")
    table = pa.table({NASTY: [NASTY, "plain"], "k": [1, 2]})
    pq.write_table(table, path, store_schema=False, write_page_index=True)
    return path


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    "command", ["inspect", "verify", "verify --data", "probe", "scan", "embed", "extract", "no column"]
)
def test_no_command_hands_them_on(command: str, as_json: list[str], nasty: str, tmp_path: Path) -> None:
    arguments = {
        "inspect": ["inspect", nasty],
        "verify": ["verify", nasty],
        "verify --data": ["verify", nasty, "--data"],
        "probe": ["probe", nasty, NASTY, NASTY],
        "scan": ["scan", nasty, "k > 0"],
        "embed": ["embed", nasty, "--into", str(tmp_path / "out.parquet"), "--bloom", "k", "--page-index"],
        "extract": ["extract", nasty, str(tmp_path / "out.puffin")],
        "no column": ["scan", nasty, "k > 0", "--columns", "z"],
    }[command]
    result = run(*arguments, *(as_json if command != "no column" else []))
    assert result.exit_code in (0, 1, 2)
    assert hidden(result.output) == []


@pytest.mark.parametrize(
    "command",
    [
        "inspect PATH",
        "verify PATH",
        "probe PATH k 1",
        "scan PATH k>0",
        "embed PATH --into OUT --bloom k",
        "strip PATH --into OUT",
        "extract PATH OUT",
        "embed FILE --into PATH --bloom k",
        "extract FILE PATH",
    ],
)
def test_no_command_opens_a_file_whose_name_has_them(command: str, nasty: str, tmp_path: Path) -> None:
    """Some parsers of URLs drop them, so that another file is opened."""
    words = {"PATH": f"file:{tmp_path}/.\t./b", "OUT": str(tmp_path / "out"), "FILE": nasty}
    result = run(*(words.get(word, word) for word in command.split()), code=1)
    assert "control characters" in result.output
    assert hidden(result.output) == []


@pytest.mark.parametrize("name", ["parquet_created_by_escape.parquet", "parquet_column_name_escape.parquet"])
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_metadata_of_hostile_files_is_escaped(name: str, as_json: list[str]) -> None:
    result = run("inspect", str(HOSTILE / name), *as_json, code=0)
    assert hidden(result.output) == []
    assert r"\x1b" in result.output or r"\u001b" in result.output


def test_all_that_is_drawn_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a command draws: the console does it, so that no command can forget it."""
    to, drawn = console(), table("column")
    drawn.add_row(escaped(NASTY))
    to.print(drawn)
    to.print(facts([("file", escaped(NASTY))]))
    to.print(NASTY, markup=False)
    text = capsys.readouterr().out
    assert hidden(text) == []
    assert text.count(SHOWN) == 3


def test_warnings_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Output().warn([NASTY])
    assert capsys.readouterr().err == f"warning: {SHOWN}\n"
