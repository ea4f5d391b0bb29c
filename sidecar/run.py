"""The context of a run: progress, threads that report it too, the version of the package, memory that is not searched
for cycles."""

from __future__ import annotations

import gc
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cache
from threading import Condition
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from sidecar.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

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


def threads_of(threads: int | None, most: int, more: int = 0) -> int:
    """Return ``threads``, by default one a processor and ``more``, at most ``most``; below 1 a :class:`UsageError`."""
    if threads is None:
        return min((os.cpu_count() or 1) + more, most)
    if threads < 1:
        raise UsageError("the number of threads must be at least 1", found=threads)
    return threads


def in_turn(
    work: Callable[[T], R], items: Collection[T], threads: int, room: int | None = None
) -> Generator[R, None, None]:
    """Yield ``work(item)`` in the order of ``items``, from ``threads`` threads that report progress.

    At most twice as many items as threads are worked on before their results are taken. With ``room``, about so many
    bytes of results wait, by their ``size``; threads begin at once then, and even a single one works ahead: close what
    is returned, or they wait for ever. The first error ends it: items that no thread has begun are left out.
    """
    if room is None:
        return _in_turn(work, items, threads)
    results = _ahead(items, threads, _WorkAhead(work, room))
    next(results)
    return results


def _in_turn(work: Callable[[T], R], items: Collection[T], threads: int) -> Generator[R, None, None]:
    if min(threads, len(items)) < 2:
        for item in items:
            yield work(item)
        return
    pool = ReportingThreads(threads, "sidecar-work")
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(items: Collection[T], threads: int, work: _WorkAhead[T, R]) -> Generator[R, None, None]:
    """Begin the threads and yield ``None``, so that ``close()`` ends them whatever follows. Then yield the results."""
    pool = ReportingThreads(threads, "sidecar-work")
    try:
        waiting = deque(pool.submit(work.make, item, number) for number, item in enumerate(items))
        yield cast("R", None)
        while waiting:
            yield work.take(waiting.popleft().result())
    finally:
        work.close()
        pool.shutdown(cancel_futures=True)


@dataclass
class _WorkAhead(Generic[T, R]):
    """Work of threads that begin no item while the results that wait to be taken fill ``room``, in bytes."""

    work: Callable[[T], R]
    room: int
    bytes: int = 0
    taken: int = 0
    is_closed: bool = False
    changed: Condition = field(default_factory=Condition)

    def make(self, item: T, number: int) -> R:
        """Do the work in a thread when there is room. The item that is taken next needs none."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_closed or self.bytes < self.room or number == self.taken)
            if self.is_closed:
                raise CancelledError
        result = self.work(item)
        with self.changed:
            self.bytes += cast("Any", result).size
        return result

    def take(self, result: R) -> R:
        """Return a result that waits no more."""
        with self.changed:
            self.bytes, self.taken = self.bytes - cast("Any", result).size, self.taken + 1
            self.changed.notify_all()
        return result

    def close(self) -> None:
        """Let threads that wait for room end."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
