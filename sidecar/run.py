"""What calls of public functions have in common: progress, threads that report it too, the version that runs, and
memory that is not searched for cycles."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

COMPILING = "compiling kernels, once on this machine"


class Progress(Protocol):
    """Called as work goes on, from the thread that does it."""

    def __call__(self, what: str, done: int | None, total: int | None, /) -> object:
        """Take that ``done`` of ``total`` steps of ``what`` are done; ``None`` if a number is not known."""


@dataclass
class _Watcher:
    callback: Progress
    knows_of_compiling: bool = False


_watcher: ContextVar[_Watcher | None] = ContextVar("_watcher", default=None)
_is_step: ContextVar[bool] = ContextVar("_is_step", default=False)
_logged: list[str] = []


@contextmanager
def without_search_for_cycles(are_many: bool) -> Iterator[None]:
    """Do not let Python search for cycles while ``are_many`` objects are made: all of them stay, and none is in one.

    Otherwise it looks through the new objects again and again, which takes half of the time.
    """
    pauses = are_many and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


@cache
def package_version() -> str:
    """Return the version of the installed distribution; an empty text where the package runs from its source alone."""
    from importlib.metadata import PackageNotFoundError, version  # 10 ms, which few commands need

    try:
        return version("lakehouse-sidecar")
    except PackageNotFoundError:
        return ""


@contextmanager
def progress(callback: Progress) -> Iterator[None]:
    """Have ``callback(what, done, total)`` called as the work of the block goes on.

    ``callback``: gets a text and two numbers, of which each is ``None`` if it is not known. It may be called from
    other threads. An error that it raises ends the work. What it runs itself reports nothing, nor do threads that the
    program starts in the block.

        with sidecar.progress(lambda what, done, total: print(what, done, total)):
            sidecar.build(table, ["id"])
    """
    before = _watcher.set(_Watcher(callback))
    try:
        yield
    finally:
        _watcher.reset(before)


def report_progress(what: str, done: int | None = None, total: int | None = None) -> None:
    """Call the callback of :func:`progress`, if there is one."""
    watcher = _watcher.get()
    if watcher is not None and not _is_step.get():
        with one_step():
            watcher.callback(what, done, total)


@contextmanager
def one_step() -> Iterator[None]:
    """Report no progress in the block: it is one of many steps, which are reported when they are done."""
    before = _is_step.set(True)
    try:
        yield
    finally:
        _is_step.reset(before)


def announce_compiling() -> None:
    """Log :data:`COMPILING` once in this process, and report it once in each block of :func:`progress`."""
    if not _logged:
        _logged.append(COMPILING)
        logging.getLogger("sidecar.kernels").info(COMPILING)
    watcher = _watcher.get()
    if watcher is not None and not watcher.knows_of_compiling:
        watcher.knows_of_compiling = True
        watcher.callback(COMPILING, 0, 1)


class ReportingThreads(ThreadPoolExecutor):
    """Threads whose work reports to the callback of whoever submits it."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See :meth:`concurrent.futures.Executor.submit`."""
        return super().submit(copy_context().run, fn, *args, **kwargs)  # type: ignore[arg-type]
