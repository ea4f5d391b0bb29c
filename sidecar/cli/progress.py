"""Progress on stderr, drawn by rich; only where a person watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sidecar.cli.output import Progress, console


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A callback ``(what, done=None, total=None)`` that draws one line for each ``what``."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True) as bars:
        tasks = {}

        def update(what: str, done: int | None = None, total: int | None = None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield update
