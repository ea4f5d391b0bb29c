"""The context of a run: progress, threads that report it too, the version of the package, memory that is not searched
for cycles."""

from __future__ import annotations

import gc
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, ParamSpec, Protocol, TypeVar, cast

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

    At most twice as many items as threads are worked on before their results are taken. With ``room``, so many bytes of
    results wait, by their ``size``, and even a single thread works ahead. The first error ends it: items that no thread
    has begun are left out.
    """
    if room is None and min(threads, len(items)) < 2:
        for item in items:
            yield work(item)
        return
    pool, held = ReportingThreads(threads, "sidecar-work"), _Held(threads, room)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work if room is None else partial(held.make, work), item))
            while waiting and held.is_full(len(waiting)):
                yield held.taken(waiting.popleft().result())
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass
class _Held:
    """The number and bytes of results that wait. With a ``room``, threads make them by :meth:`make`."""

    threads: int
    room: int | None
    made: int = 0
    bytes: int = 0
    new: deque[int] = field(default_factory=deque)
    """The sizes of results that are not counted yet."""

    def make(self, work: Callable[[T], Any], item: T) -> Any:
        """Do the work in a thread, and note the size of its result."""
        result = work(item)
        self.new.append(result.size)
        return result

    def taken(self, result: R) -> R:
        """Return a result that waits no more."""
        if self.room is not None:
            self.made, self.bytes = self.made - 1, self.bytes - cast("Any", result).size
        return result

    def is_full(self, waiting: int) -> bool:
        """Return whether results would have more bytes than there is room for if a thread began more.

        Those that no thread has begun count as much as others on average.
        """
        if self.room is None:
            return waiting > 2 * self.threads
        while self.new:  # each is counted once: there may be many small ones
            self.made, self.bytes = self.made + 1, self.bytes + self.new.popleft()
        queued = waiting - self.made - self.threads
        if not self.made:
            return queued >= 0
        return queued >= self.threads or self.bytes + max(queued, 0) * self.bytes // self.made >= self.room
