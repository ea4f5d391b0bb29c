"""Reads the examples of README.md and of the guides, and runs them in this process.

A block of ``python`` runs with the names of the blocks before it on the same page. A statement that is only an
expression and ends with a comment that is a Python literal has that value. A block of ``text`` right after it is what
it prints. A block of ``console`` has commands (``$ sidecar ...``, ``$ export NAME=value``, ``$ cd FOLDER``) and their
output; every other command line is one of bash, and runs in a process of its own. In output ``...`` is any text, a line
``...`` any lines, and amounts that differ from machine to machine are not compared. A block whose info string goes on
with ``file NAME`` becomes that file in the current folder. A block with another second word is not run here: ``spark``
needs a JVM, ``server`` and ``services`` servers, ``quoted`` what the tests do not have.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import subprocess
import tokenize
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from sidecar.cli.app import app
from tests.warm_programs import programs

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "sidecar" / "guide"
GENERATED = {"commands"}
PAGES = [ROOT / "README.md", *sorted(path for path in GUIDE.glob("*.md") if path.stem not in GENERATED)]

_VARYING = [
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\b\d{15,19}\b", "SNAPSHOT"),
    (r"\b\d[\d.,]* (µs|ms|s)\b|\b\d+ min \d+ s\b", "TIME"),
    (r"\b[\d.,]+ (B|kB|MB)\b", "SIZE"),
    (r"\b[\d.]+(e-\d+)? %", "RATE"),
    (r"─+", "─"),
    (r"\s+", " "),
]

SHELL_SYNTAX = re.compile(r"[|&;<>$`]")
"""What makes a line of a command one that only a shell understands, outside of quotes."""


class Example(NamedTuple):
    """A fenced block: the line of its fence, its language, the other words of its info string, and its text."""

    page: Path
    line: int
    language: str
    needs: str
    text: str

    @property
    def name(self) -> str:
        """Where the example is."""
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the block becomes."""
        return self.needs.removeprefix("file ") if self.needs.startswith("file ") else None


def examples(page: Path) -> list[Example]:
    """All fenced blocks of a page, in order."""
    found = []
    text = page.read_text("utf-8")
    for block in re.finditer(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start()) + 1
        found.append(Example(page, line, *block.groups()))
    return found


class Session:
    """Runs the examples of one page in the current folder."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, Any] = {"__name__": "example"}
        self._patch = patch

    def run(self, blocks: list[Example]) -> None:
        """Run the blocks in order and compare what they print."""
        for number, block in enumerate(blocks):
            if block.file is not None:
                self.write(block.file, block.text)
            elif block.needs:
                continue
            elif block.language == "python":
                printed = self.python(block)
                after = blocks[number + 1] if number + 1 < len(blocks) else None
                if after is not None and after.language == "text" and not after.needs:
                    assert_like(after.text, printed, after.name)
            elif block.language == "console":
                for command, expected in commands(block):
                    assert_like(expected, self.command(command), f"{block.name}: {command}")

    def python(self, block: Example) -> str:
        """Run a block of Python, check the values in its comments, and return what it prints."""
        tree = ast.parse(block.text)
        values = _literal_comments(block.text)
        with redirect_stdout(io.StringIO()) as printed:
            for node in tree.body:
                is_value, line = isinstance(node, ast.Expr), node.end_lineno
                code = ast.Expression(node.value) if isinstance(node, ast.Expr) else ast.Module([node], [])
                value = eval(compile(code, block.name, "eval" if is_value else "exec"), self.names)
                if is_value and line in values and value != values[line]:
                    assert value == pytest.approx(values[line], rel=0.01), f"{block.name}: line {line}"
        return printed.getvalue()

    def command(self, command: str) -> str:
        """Run one command line and return what it prints, errors and warnings first."""
        words = shlex.split(command)
        if words[0] == "export":
            self.export(words[1])
            return ""
        if words[0] == "cd":
            self._patch.chdir(words[1])
            return ""
        if words[0] != "sidecar" or SHELL_SYNTAX.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", command)):
            return self.shell(command)
        # paths of the tests' folders are longer than those of a reader, and lines must not break for that
        self._patch.setattr("sidecar.cli.output.PIPE_WIDTH", 1000)
        result = CliRunner().invoke(app, words[1:], prog_name="sidecar")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stderr + result.stdout

    def shell(self, line: str) -> str:
        """Run a line in bash and return what it prints. ``sidecar`` and ``python`` are those of the tests."""
        path = f"{programs()}{os.pathsep}{os.environ['PATH']}"
        found = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        return found.stdout

    def write(self, name: str, text: str) -> None:
        """Write a file into the current folder; bash may run a script."""
        Path(name).write_text(text, encoding="utf-8")
        Path(name).chmod(0o755 if text.startswith("#!") else 0o644)
        self._read_catalogs()

    def export(self, assignment: str) -> None:
        """Set a variable."""
        name, _, value = assignment.partition("=")
        self._patch.setenv(name, value)
        self._read_catalogs()

    def _read_catalogs(self) -> None:
        """Let pyiceberg read its configuration again, which it does only once, when it is imported."""
        from pyiceberg.utils.config import Config

        self._patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def commands(block: Example) -> Iterator[tuple[str, str]]:
    """Each command of a console block and the output that the page shows for it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.replace("\\\n", " ").split("\n")
        yield lines[0], "\n".join(lines[1:])


def assert_like(expected: str, found: str, where: str) -> None:
    """Compare output line by line; blank lines and what differs from machine to machine do not count."""
    lines = [_pattern(line) for line in expected.splitlines() if line.strip()]
    if not lines:
        return
    pattern = "".join(f"(?:{line}\n)" if line != "..." else "(?:.*\n)*?" for line in lines)
    text = "".join(f"{_usual(line)}\n" for line in found.splitlines() if line.strip())
    assert re.fullmatch(pattern, text), f"{where} prints\n{found}"


def _pattern(line: str) -> str:
    usual = _usual(line)
    return usual if usual == "..." else re.escape(usual).replace(r"\.\.\.", ".*").replace("…", ".*")


def _usual(line: str) -> str:
    for pattern, replacement in _VARYING:
        line = re.sub(pattern, replacement, line)
    return line.strip()


def values_that_nobody_checks(block: Example) -> list[int]:
    """The lines with an expression and a comment that is no value, so that no test compares the two."""
    commented = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(block.text).readline)
        if token.type == tokenize.COMMENT and not token.line.strip().startswith("#")
    }
    shown = {
        node.end_lineno
        for node in ast.parse(block.text).body
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call)
    }
    return sorted((commented & shown) - _literal_comments(block.text).keys())


def _literal_comments(text: str) -> dict[int, Any]:
    """The values that comments name, by their line."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line.strip().startswith("#"):
            try:
                found[token.start[0]] = ast.literal_eval(token.string[1:].strip())
            except (ValueError, SyntaxError):
                continue
    return found
