"""The help texts: whole lines at 80 columns, a plain first sentence, examples that parse; shell completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from sidecar.cli.app import COMMANDS, app, name_of, summary
from tests.cli import running

ROOT = Path(__file__).resolve().parents[2]
PARSERS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def run(*args: str, **env: str) -> Any:
    return running.run(*args, **{"COLUMNS": "80", **env})


def examples(command: Any) -> list[str]:
    """The command lines under ``Examples:`` in a command's help."""
    return [line.strip() for line in str(command.help).partition("Examples:\n")[2].splitlines()]


def test_the_list_of_commands_is_grouped_by_task_with_one_whole_line_each() -> None:
    lines = run("--help").stdout.splitlines()
    for task, modules in COMMANDS.items():
        start = lines.index(f"{task}:") + 1
        names = [name_of(module) for module in modules]
        expected = [f"  {name:<7}  {summary(PARSERS[name])}" for name in names]
        assert lines[start : start + len(names)] == expected
    assert sorted(PARSERS) == sorted(name_of(module) for modules in COMMANDS.values() for module in modules)


def test_a_narrow_terminal_wraps_the_list_of_commands_and_cuts_nothing() -> None:
    listed = " ".join(run("--help", COLUMNS="50").stdout.split())
    for command in PARSERS.values():
        assert summary(command) in listed


@pytest.mark.parametrize("name", PARSERS)
def test_a_help_text_opens_with_one_sentence_and_fits_80_columns(name: str) -> None:
    sentence = summary(PARSERS[name])
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    if name not in ("guide", "repair", "warm-up"):
        assert re.search(r"\b(tables?|files?|sidecars?)\b", sentence), "it says what the command takes"
    shown = run(name, "--help").stdout
    assert shown.split("\n\n")[1] == f"  {sentence}"
    assert max(map(len, shown.splitlines())) <= 80
    assert "\b" not in shown


@pytest.mark.parametrize("name", PARSERS)
def test_each_command_has_examples_that_parse_and_that_the_help_shows_whole(name: str) -> None:
    assert examples(PARSERS[name])
    shown = run(name, "--help").stdout.splitlines()
    for example in examples(PARSERS[name]):
        assert f"    {example}" in shown
        program, command, *arguments = shlex.split(example)
        assert (program, command) == ("sidecar", name)
        PARSERS[name].make_context(name, arguments)  # parses, converts and checks; raises if it cannot


def test_the_help_documents_completion() -> None:
    shown = run("--help").stdout
    assert shown.count("--install-completion") == 2  # as an option, and in the notes
    assert shown.count("--show-completion") == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sidecar re", ["refresh", "report"]),
        ("sidecar build db.t --al", ["--allow-plaintext"]),
        ("sidecar build db.t --engine s", ["spark"]),
        ("sidecar build --nosuch --engine l", ["local"]),
        ("sidecar guide comm", ["commands"]),
    ],
)
def test_completion_knows_commands_options_values_and_guides(line: str, expected: list[str]) -> None:
    words = line.split()
    env = {"_SIDECAR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = run(**env)
    assert result.stdout.split() == expected
    assert result.stderr == ""


def test_completion_is_installed_and_completes_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "sidecar"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sidecar.cli "$@"\n')
    program.chmod(0o755)
    script = """sidecar --install-completion >&2
. ~/.bashrc
COMP_WORDS=(sidecar ins) COMP_CWORD=1
_sidecar_completion sidecar
echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["inspect"], done.stderr


def test_what_must_be_given_is_said_and_columns_have_one_short_option() -> None:
    assert "[OPTIONS] TABLE PREDICATE\n" in run("plan", "--help").stdout
    assert "overwritten. Required." in " ".join(run("strip", "--help").stdout.split())
    for command in ("extract", "convert", "inspect", "scan", "advise", "build"):
        lines = run(command, "--help").stdout
        assert "-c, --columns A,B" in lines
        assert "[all]. Repeat" not in " ".join(lines.split())
