"""Runs work ahead in threads and hands results over in order, so that building and copying overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar

Result = TypeVar("Result")

LIMIT = 64 << 20
"""Bytes of results that may wait. The result that is next in order is made even beyond this limit."""


class Prefetch(Generic[Result]):
    """Iterates over the results of ``work(0)`` to ``work(count - 1)``, which ``threads`` threads compute.

    ``size`` returns the bytes that a result holds. An error of ``work`` is raised when its result is next. Close it to
    stop the threads.
    """

    def __init__(
        self,
        work: Callable[[int], Result],
        count: int,
        threads: int,
        size: Callable[[Result], int],
        limit: int = LIMIT,
    ) -> None:
        self._work = work
        self._count = count
        self._size = size
        self._limit = limit
        self._changed = threading.Condition()
        self._results: dict[int, Result | BaseException] = {}
        self._sizes: dict[int, int] = {}
        self._next = 0
        self._wanted = 0
        self._stopped = False
        self._threads = [
            threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)
            for _ in range(min(threads, count))
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Result]:
        for number in range(self._count):
            with self._changed:
                self._wanted = number
                self._changed.notify_all()
                self._changed.wait_for(partial(self._results.__contains__, number))
                result = self._results.pop(number)
                self._sizes.pop(number, None)
                self._wanted = number + 1
                self._changed.notify_all()
            if isinstance(result, BaseException):
                raise result
            yield result

    def close(self) -> None:
        """Let the threads finish their current work, then stop them."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (number := self._take()) is not None:
            try:
                result: Result | BaseException = self._work(number)
                size = self._size(result)  # type: ignore[arg-type]
            except BaseException as error:  # raised again when its result is next
                result, size = error, 0
            with self._changed:
                self._results[number] = result
                self._sizes[number] = size
                self._changed.notify_all()

    def _take(self) -> int | None:
        """Wait until there is room for a result, and return the next number; ``None`` if there is no more work."""
        with self._changed:
            # A consumer that waits for this result must get it, however small the limit is.
            self._changed.wait_for(
                lambda: self._stopped or self._next >= self._count or self._next <= self._wanted or self._has_room()
            )
            if self._stopped or self._next >= self._count:
                return None
            self._next += 1
            return self._next - 1

    def _has_room(self) -> bool:
        return sum(self._sizes.values()) < self._limit
