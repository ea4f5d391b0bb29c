"""The command line of ``scripts/torture``: what would run nothing is refused, and says so to people and to shells."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from scripts.torturing.__main__ import RUNS, main
from scripts.torturing.arguments import minutes, some_of
from scripts.torturing.mutants import ROOT
from scripts.torturing.planted_lines import BUGS, Bug


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_a_run_without_a_duration_is_refused(text: str) -> None:
    assert minutes("0.5") == 0.5
    with pytest.raises(ArgumentTypeError, match=f"{text} is not a number of minutes above 0"):
        minutes(text)


def test_unknown_names_are_refused() -> None:
    names = some_of(["build", "embed TABLE"])
    assert names("embed TABLE,build") == ["embed TABLE", "build"]
    with pytest.raises(ArgumentTypeError, match="bild: choose from build, embed TABLE"):
        names("bild,build")


def test_help_and_list_are_answers_and_all_else_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == main(["--list"]) == 0
    shown = capsys.readouterr()
    assert all(f"\n{name}" in f"\n{shown.out}" for name in RUNS)
    assert not shown.err
    for wrong in ([], ["nope"], ["--list", "kill"]):
        assert main(wrong) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith("usage: ")
        assert not shown.out


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_line_of_a_planted_bug_is_in_the_code_once(bug: Bug) -> None:
    assert bug.change.new != bug.change.old
    assert bug.change.changed(bug.change.path.read_text("utf-8"))
    assert all((ROOT / test).exists() for test in bug.tests)
