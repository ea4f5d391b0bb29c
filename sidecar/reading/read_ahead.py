"""Reads files ahead in threads, in order, with a limit on how many results exist at once.

Each file gets a thread of its own, which ends with the file. So nothing keeps running when a consumer abandons a
stream: Arrow does not notify the generator behind a ``RecordBatchReader`` when the reader is closed, only when it is
freed.
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
    """Yield ``read(item)`` of each item, in order. At most ``at_once`` results are being read, waiting or in use.

    An error of ``read`` is raised in its turn. After an error, or when the iterator is closed, ``stopped`` is set, so
    that ``read`` can end early, and the threads are joined. With ``at_once`` 1 there are no threads.
    """
    if at_once == 1:  # a thread costs as much as planning a point lookup, and has nothing to read ahead
        try:
            for item in items:
                yield read(item)
        finally:
            stopped.set()
        return
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
            del result  # the caller has dropped it, so one more file fits into memory
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
