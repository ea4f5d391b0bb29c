"""The console that draws text: it never breaks or cuts a path, however narrow the terminal is.

Names and values come out of files. What a terminal would obey in them is shown as escapes, here and nowhere else, so
no result need be copied for it and none can be forgotten. A line break is an escape too: each printed text is one line.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sidecar.errors import visible


class VisibleTable(Table):
    """A table whose cells show control characters as escapes."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row; see the class."""
        super().add_row(*map(_visible, cells), **options)


def _visible(item: object) -> Any:
    return visible(item) if isinstance(item, str) else item


class PathConsole(Console):
    """A console that leaves paths and names as they are.

    A table is as wide as its columns that must not be wrapped ask for. A line with a word that is longer than the
    terminal is left to the terminal.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print the objects; see the class."""
        objects = tuple(map(_visible, objects))
        terminal = self.width
        texts = [item for item in objects if isinstance(item, str)]
        if any(len(word) > terminal for text in texts for word in text.split()):
            options["soft_wrap"] = True
        needed = max((self._needed(item) for item in objects if isinstance(item, Table)), default=0)
        if needed <= terminal:
            super().print(*objects, **options)
            return
        self.width = needed
        try:
            super().print(*objects, **{**options, "crop": False})
        finally:
            self.width = terminal

    def _needed(self, table: Table) -> int:
        """The columns of text that a table needs so that its unwrapped columns are whole; 0 if it has none."""
        if not any(column.no_wrap for column in table.columns):
            return 0
        widths = []
        for column in table.columns:
            cells = [_plain_text(cell) for cell in (column.header, *column.cells)]
            if column.no_wrap:
                column.min_width = max(map(cell_len, cells))
                widths.append(column.min_width)
            else:
                words = (word for cell in cells for word in cell.split())
                widths.append(min(max(map(cell_len, words), default=0), FOLDED_WIDTH))
        return sum(widths) + BORDER * len(widths)


FOLDED_WIDTH = 24
"""The most columns of text that a column gets for a long word, if it may be folded."""
BORDER = 3
"""Columns of text between two columns of a table."""


def _plain_text(cell: object) -> str:
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


def new_console(*, stderr: bool, pipe_width: int) -> PathConsole:
    """A console that is as wide as the terminal, or ``pipe_width`` if the stream is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else pipe_width
    return PathConsole(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False)
