"""``sidecar guide``, and the command reference, which must be what the help texts give now."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sidecar.cli.guide import draw_guide, guide_names
from sidecar.cli.reference import REFERENCE, reference
from tests.cli.running import run

GUIDES = sorted((Path(__file__).resolve().parents[2] / "sidecar" / "guide").glob("*.md"), key=lambda path: path.stem)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_command_reference_is_what_the_help_texts_give() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run scripts/commands"


def test_the_command_reference_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reference()
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "LANG": "C", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert reference() == expected


def test_the_list_has_a_line_with_the_title_of_each_guide() -> None:
    result = run("guide", code=0)
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    titles = [path.read_text(encoding="utf-8").split("\n")[0].removeprefix("# ") for path in GUIDES]
    assert [(name, title.rstrip()) for name, title in lines] == [
        (path.stem, title) for path, title in zip(GUIDES, titles, strict=True)
    ]
    assert guide_names() == [path.stem for path in GUIDES]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_pipe_gets_the_guide_as_it_is(path: Path) -> None:
    result = run("guide", path.stem, code=0)
    assert result.stdout == path.read_text(encoding="utf-8")


def test_a_terminal_gets_the_guide_drawn_and_not_too_wide() -> None:
    screen = Terminal()
    text = "# A title\n\n" + "many words " * 40 + "\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    draw_guide(Console(file=screen, width=300, color_system=None), text)
    lines = screen.getvalue().splitlines()
    assert any("A title" in line for line in lines)
    assert not any("# A title" in line or "---" in line for line in lines)
    assert 80 < max(map(len, lines)) <= 100


def test_a_guide_that_is_not_there_is_wrong_usage_and_the_names_are_listed() -> None:
    for name in ("nosuch", "../py"):
        result = run("guide", name, code=2)
        assert result.stderr.startswith(f"error: there is no guide '{name}'. The guides are ")
        assert "commands" in result.stderr
        assert result.stdout == ""


def test_a_misspelt_guide_is_wrong_usage_and_the_nearest_is_named() -> None:
    for name in ("command", "commands.md"):
        result = run("guide", name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"error: there is no guide '{name}'. Is it 'commands'?")


def test_guides_as_json() -> None:
    listed = json.loads(run("guide", "--json").stdout)["guides"]
    assert {"name": "commands", "title": "Look up a command and its options"} in listed
    shown = json.loads(run("guide", "commands", "--json").stdout)
    assert shown["text"] == reference()
