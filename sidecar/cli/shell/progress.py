"""Progress on stderr, drawn by rich, if stderr is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sidecar.cli.output import Progress, console


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A callback ``(what, done=None, total=None)`` that draws one line: the current step and how far it is."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True) as bars:
        shown = bars.add_task("", total=None)
        current = ""

        def update(what: str, done: int | None = None, total: int | None = None) -> None:
            nonlocal current
            if what != current:
                current = what
                bars.reset(shown, description=what, total=total)
            bars.update(shown, completed=done, total=total)

        yield update
