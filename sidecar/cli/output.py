"""The one module that prints: a result in the form that the user chose on stdout, everything else on stderr.

A command takes its :class:`Output` from :func:`output` and gives its result to :meth:`Output.result`, with a function
that draws it as text. In JSON, numbers are numbers, times and decimals are text, and bytes are hexadecimal digits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from sidecar.cli.shell.choices import OutputFormat, SharedChoices
from sidecar.cli.shell.forms import ResultRows, lines_of
from sidecar.cli.shell.json_text import to_json
from sidecar.errors import SidecarError, visible
from sidecar.results.base import PlainResult, plain_data

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sidecar.cli.shell.progress import Bar


R = TypeVar("R", bound="PlainResult | Mapping[str, object]")

SHOWN = 20
"""How many files, row groups, values or rows the text of a result names; JSON and files have all."""
PIPE_WIDTH = 200
"""Columns of text that goes to a pipe or file, where no terminal sets the width."""


class Output:
    """Where a command's result, warnings and progress go."""

    def __init__(
        self,
        form: OutputFormat = OutputFormat.table,
        choices: SharedChoices | None = None,
        command: str | None = None,
        subject: Mapping[str, Any] | None = None,
    ) -> None:
        """``subject`` has the key ``path``, ``table``, ``paths`` or ``tables``: what the command is about."""
        self.form = form
        self.choices = choices or SharedChoices()
        self.quiet = self.choices.quiet
        self._command = command
        self._subject = subject or {}
        self._started = time.perf_counter()
        self._warned: set[str] = set()
        self._holder: tuple[str, list[tuple[str, str]]] | None = None
        self._bar: Bar | None = None

    @property
    def is_json(self) -> bool:
        """Whether who reads stdout expects JSON, of errors too."""
        return self.form in (OutputFormat.json, OutputFormat.jsonl)

    def result(
        self,
        found: R,
        draw: Callable[[Console, R], None],
        *,
        each: str | None = None,
        exits: Sequence[int] = (),
        rows: ResultRows | None = None,
        failed: bool | int = False,
    ) -> None:
        """Print what a command ``found``: drawn by ``draw``, as one JSON document, as lines of JSON, or its ``rows``.

        ``each`` is the key of the list whose items get a line: the files or tables of the command. So do files that
        failed. ``exits`` are the exit codes of the items, by default that of the command. Only commands that
        have ``rows`` are started with a form that shows nothing else. The exit code is 1 if the command has ``failed``,
        or the number that is given.
        """
        self.clear_progress()
        if self.form is OutputFormat.table:
            draw(console(), found)
        elif self.form is OutputFormat.json:
            self.document(plain_data(found), int(failed))
        elif rows is not None:
            self.rows(rows)
        else:
            self._lines(plain_data(found), each, exits, int(failed))
        if failed:
            raise typer.Exit(int(failed))

    def document(self, data: Mapping[str, Any], exit_code: int) -> None:
        """Print one JSON document: ``data``, and what is true of each run of a command."""
        self.clear_progress()
        wide = self.form is OutputFormat.json and sys.stdout.isatty()
        print(to_json(self._with_run(self._subject, data, exit_code), indent=2 if wide else None))

    def _lines(self, data: Mapping[str, Any], each: str | None, exits: Sequence[int], exit_code: int) -> None:
        if each is None:
            print(to_json(self._with_run(self._subject, data, exit_code)))
            return
        for number, one in enumerate(data[each]):
            self.document_of_table(one, exits[number] if exits else exit_code)
        for file, error in data.get("failed", {}).items():
            self.document_of_table({"file": file, "error": error}, exit_code)

    def document_of_table(self, data: Mapping[str, Any], exit_code: int) -> None:
        """Print a JSON document in one line: the ``data`` of one of the command's tables or files."""
        self.clear_progress()
        print(to_json(self._with_run({}, data, exit_code)), flush=True)

    def _with_run(self, subject: Mapping[str, Any], data: Mapping[str, Any], exit_code: int) -> dict[str, Any]:
        run: dict[str, Any] = {
            "command": self._command,
            **subject,
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "seconds": time.perf_counter() - self._started,
            "exit": exit_code,
            **data,
        }
        run["seconds"] = round(run["seconds"], 6)
        return run

    def rows(self, found: ResultRows) -> None:
        """Print rows in the chosen form."""
        for line in lines_of(self.form, found, escape=sys.stdout.isatty()):
            self.clear_progress()
            sys.stdout.write(line)

    def warn(self, texts: Iterable[str]) -> None:
        """Print each text once on stderr."""
        if self._holder is not None:
            name, held = self._holder
            held += ((name, text) for text in texts)
            return
        for text in () if self.quiet else texts:
            if text not in self._warned:
                self._warned.add(text)
                print(f"warning: {visible(text)}", file=sys.stderr)

    @contextmanager
    def holding_warnings(self, table: str, held: list[tuple[str, str]]) -> Iterator[None]:
        """Add the warnings of the work in the block to ``held``, with the name of its table, and print none."""
        self._holder = table, held
        try:
            yield
        finally:
            self._holder = None

    def show_progress(self, what: str, done: int | None, total: int | None) -> None:
        """Draw how far the work is, if stderr is a terminal."""
        if self.quiet or not sys.stderr.isatty():
            return
        if self._bar is None:
            from sidecar.cli.shell.progress import Bar

            self._bar = Bar(console(stderr=True))
        self._bar.show(what, done, total)

    def clear_progress(self) -> None:
        """Remove what :meth:`show_progress` has drawn."""
        if self._bar is not None:
            self._bar.clear()
            self._bar = None


_current: ContextVar[Output] = ContextVar("output")


def output() -> Output:
    """The output of the command that runs."""
    return _current.get()


def start_output(chosen: Output) -> None:
    """Make ``chosen`` what :func:`output` gives."""
    _current.set(chosen)


def console(*, stderr: bool = False) -> Console:
    """A rich console that is as wide as the terminal, or :data:`PIPE_WIDTH`.

    It leaves paths and names as they are, and shows control characters as escapes.
    """
    from sidecar.cli.shell.console import new_console

    return new_console(stderr=stderr, pipe_width=PIPE_WIDTH)


def table(*headings: str, title: str | None = None, right: Sequence[int] = ()) -> Table:
    """A table without borders; the columns at positions ``right`` have numbers. Numbers and files are not wrapped."""
    from rich import box

    from sidecar.cli.shell.console import VisibleTable

    drawn = VisibleTable(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, heading in enumerate(headings):
        number = position in right
        side: Any = "right" if number else "left"
        drawn.add_column(heading, justify=side, overflow="fold", no_wrap=number or heading == "file")
    return drawn


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Two columns of names and values, without lines. Values may have paths, so only the terminal wraps them."""
    from sidecar.cli.shell.console import VisibleTable

    grid = VisibleTable.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    for name, value in pairs:
        grid.add_row(name, value)
    return grid


def announce_dry_run(to: Console, dry_run: bool) -> None:
    """Say at the top of a text that nothing is written, if the result is that of a dry run."""
    if dry_run:
        to.print("dry run: nothing is written")


def error_text(error: SidecarError, *parts: str, hint: bool = False) -> str:
    """The message of an error, with those of its ``parts`` that are known, and with its ``hint`` if that is wanted."""
    known = error.to_dict()
    text = "; ".join([error.what, *(f"{part} {known[part]}" for part in parts if part in known)])
    return f"{text}. {error.hint}" if hint and error.hint else text


def without_folder(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The folder that all paths share, with its slash, and the rest of each path."""
    common = os.path.commonprefix(paths)  # noqa: RUF071  (URLs are not paths; the cut is at a slash)
    prefix = common[: common.rfind("/") + 1]
    return prefix, [path[len(prefix) :] for path in paths]


def escaped(text: str) -> str:
    """Text from outside (paths, names), so that rich does not read markup in it."""
    from rich.markup import escape

    return escape(text)
