"""Files read ahead by threads, in order, and never more of them than agreed.

A thread reads one file and ends. So nothing lingers where a stream of rows is left half-way: Arrow does not tell the
generator behind a ``RecordBatchReader`` when the reader is closed, only when it is let go of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from itertools import islice
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def read_ahead(
    read: Callable[[Item], Result], items: Iterable[Item], at_once: int, stopped: Event
) -> Generator[Result, None, None]:
    """``read(item)`` of each item in order; at most ``at_once`` are being read, wait, or are in the caller's hands.

    Closing the iterator, or an error of ``read``, which is raised in its turn, sets ``stopped``, for ``read`` to cut
    itself short, and waits for the threads.
    """
    waiting, running = iter(items), deque[tuple[Future[Result], Thread]]()

    def start(most: int) -> None:
        for item in islice(waiting, most):
            future: Future[Result] = Future()
            thread = Thread(target=_run, args=(future, read, item), name="sidecar-scan")
            thread.start()
            running.append((future, thread))

    try:
        start(at_once)
        while running:
            future, thread = running[0]
            result = future.result()
            thread.join()
            running.popleft()
            del future
            yield result
            del result  # the caller is done with it, so there is room for one more
            start(1)
    finally:
        stopped.set()
        for _, thread in running:
            thread.join()


def _run(future: Future[Result], read: Callable[[Item], Result], item: Item) -> None:
    try:
        future.set_result(read(item))
    except BaseException as error:
        future.set_exception(error)
