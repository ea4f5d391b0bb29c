"""Named steps of long operations, for those who watch them: tests stop a run at each step, and count steps.

An operation calls :func:`hit` at the points where its state outside of the process has changed, or is about to.
Nobody watches outside of tests; a call then costs a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Observer = Callable[[str], object]
"""Gets the name of each step that a run reaches."""

_observers: list[Observer] = []


def hit(step: str) -> None:
    """Tell all observers that the run is at ``step``, in the thread that reaches it."""
    for observer in _observers:
        observer(step)


@contextmanager
def observe(callback: Observer) -> Iterator[None]:
    """Have ``callback`` called at each step of all threads, while the block runs."""
    _observers.append(callback)
    try:
        yield
    finally:
        _observers.remove(callback)
