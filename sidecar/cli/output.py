"""The one module that prints: a result as text or JSON on stdout, everything else on stderr.

A command makes one :class:`Output` and gives its result to :meth:`Output.result`: plain data, and a function
that draws it. In JSON, numbers are numbers, times and decimals are text, and bytes are hexadecimal digits.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from sidecar.errors import SidecarError, is_hidden, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Progress = Callable[..., None]
PIPE_WIDTH = 200
"""Columns of text that goes to a pipe or file, where no terminal sets the width."""


class Output:
    """Where a command's result, warnings and progress go."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._warned: set[str] = set()
        warnings.showwarning = self._show_python_warning
        logging.lastResort = _LogHandler(self)

    def result(self, data: Mapping[str, Any], draw: Callable[[Console, Any], None]) -> None:
        """Print ``data`` as one JSON document, or have ``draw`` print it as text."""
        if self.as_json:
            print(to_json(data, indent=2))
        else:
            draw(console(), shown(data))

    def lines(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Print one JSON document a line."""
        for row in rows:
            print(to_json(row))

    def warn(self, texts: Iterable[str]) -> None:
        """Print each text once on stderr."""
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                print(f"warning: {visible(text)}", file=sys.stderr)

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """A callback ``(what, done=None, total=None)``; ``None`` if stderr is not a terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from sidecar.cli.progress import shown_progress

        with shown_progress() as callback:
            yield callback

    def _show_python_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Print a library's warning as ours: one line, without the place in its source."""
        if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | ResourceWarning):
            self.warn([next(iter(str(message).splitlines()), category.__name__)])


class _LogHandler(logging.Handler):
    """Prints what a library logs as a warning or an error as a warning of ours."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Print the first line of a record."""
        self._output.warn([next(iter(record.getMessage().splitlines()), record.name)])


def console(*, stderr: bool = False) -> Console:
    """A rich console that is as wide as the terminal, or :data:`PIPE_WIDTH`; it leaves paths and names as they are."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False)


def table(*headings: str, title: str | None = None, right: Sequence[int] = ()) -> Table:
    """A table without borders; the columns at positions ``right`` have numbers."""
    from rich import box
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if position in right else "left", overflow="fold")
    return drawn


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Two columns of names and values, without lines."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, value)
    return grid


def without_folder(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The folder that all paths share, with its slash, and the rest of each path."""
    common = os.path.commonprefix(paths)  # noqa: RUF071  (URLs are not paths; the cut is at a slash)
    prefix = common[: common.rfind("/") + 1]
    return prefix, [path[len(prefix) :] for path in paths]


def escaped(text: str) -> str:
    """Text from outside (paths, names), so that rich does not read markup in it."""
    from rich.markup import escape

    return escape(text)


def to_json(data: object, indent: int | None = None) -> str:
    """``data`` as JSON; values that JSON does not know become text."""
    text = json.dumps(_plain(data), indent=indent, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else "".join(map(_json_escape, text))


def _json_escape(character: str) -> str:
    """A hidden character as a JSON escape. Other characters stay, and so do the line breaks of the layout."""
    if character == "\n" or not is_hidden(character):
        return character
    return json.dumps(character)[1:-1]


def shown(data: Any) -> Any:
    """``data`` with the control characters of all its texts as escapes, see :func:`visible`."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, Mapping):
        return {shown(key): shown(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [shown(value) for value in data]
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):  # a NumPy scalar
        return _plain(value.item())
    if isinstance(value, SidecarError):
        return str(value)
    return str(value)
