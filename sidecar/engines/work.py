"""The same work for each of many items: the promises of an engine, and the engine of this process.

The work is a function of one item. It may run more than once for an item, in another process and at the same time,
because Spark tries again what it loses. So whatever it writes has a new name or the same bytes, and is published last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

from sidecar.access import Access
from sidecar.errors import SidecarError, StorageError
from sidecar.results.choices import EngineKind
from sidecar.run import in_turn, one_step, report_progress

T = TypeVar("T")
R = TypeVar("R")


SIZES_LOOKED_AT = 64
"""The sizes of at most this many files are looked at, to estimate that of all."""


class WorkEngine(Protocol):
    """Does the same work for each of many items."""

    name: EngineKind
    reason: str
    """Why this engine was chosen."""

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R | SidecarError]:
        """Yield ``work(item)`` for each item, in the order of ``items``.

        A :class:`SidecarError` that ``work`` raises is yielded in the place of its result. Progress is reported
        after each item. For other processes ``work``, items and results are pickled; only ``work`` may hold secrets.
        """


class LocalWork:
    """Works in this process, on ``threads`` items at the same time."""

    name: EngineKind = "local"

    def __init__(self, threads: int = 1, reason: str = "") -> None:
        self.reason = reason
        self._threads = threads

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R | SidecarError]:
        """See :meth:`WorkEngine.run`. Threads work at most twice their number of items ahead."""

        def answer(item: T) -> R | SidecarError:
            try:
                with one_step():
                    return work(item)
            except SidecarError as error:
                return error

        for done, result in enumerate(in_turn(answer, items, self._threads), 1):
            report_progress("files", done, len(items))
            yield result


def estimated_size(files: Sequence[str], access: Access) -> int:
    """Return about how many bytes ``files`` have together, by the first of them. One that cannot be opened counts 0."""
    first = files[:SIZES_LOOKED_AT]

    def size(file: str) -> int:
        try:
            source = access.open(file)
        except StorageError:
            return 0
        try:
            return source.size
        except StorageError:
            return 0
        finally:
            source.close()

    return sum(in_turn(size, first, 8)) * len(files) // max(len(first), 1)
