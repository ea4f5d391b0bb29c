"""Progress on stderr, drawn by rich."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Bar:
    """One line: the current step and how far it is."""

    def __init__(self, to: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(*columns, TimeElapsedColumn(), console=to, transient=True, redirect_stdout=False)
        self._task = self._bars.add_task("", total=None)
        self._current = ""
        self._bars.start()

    def show(self, what: str, done: int | None, total: int | None) -> None:
        """Draw that ``done`` of ``total`` steps are done."""
        if what != self._current:
            self._current = what
            self._bars.reset(self._task, description=what, total=total)
        self._bars.update(self._task, completed=done, total=total)

    def clear(self) -> None:
        """Remove the line."""
        self._bars.stop()
