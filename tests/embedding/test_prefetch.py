"""Work done ahead: in order, within its room, errors in their turn."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from sidecar.embedding.prefetch import Prefetch
from tests.waiting import wait_until


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_results_come_in_order(threads: int, count: int) -> None:
    def work(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number * number

    with closing(Prefetch(work, count, threads, lambda _: 1)) as ahead:
        assert list(ahead) == [number * number for number in range(count)]


def test_no_more_waits_than_there_is_room_for() -> None:
    made: list[int] = []

    def work(number: int) -> bytes:
        made.append(number)
        return bytes(100)

    with closing(Prefetch(work, 100, 2, len, limit=450)) as ahead:
        results = iter(ahead)
        wait_until(lambda: len(made) >= 4)
        time.sleep(0.05)
        assert 4 <= len(made) <= 7
        next(results)
        time.sleep(0.05)
        assert len(made) <= 8
        assert len(list(results)) == 99


def test_a_result_larger_than_the_room_is_made_in_its_turn() -> None:
    with closing(Prefetch(lambda number: bytes(1000), 20, 3, len, limit=1)) as ahead:
        assert len(list(ahead)) == 20


def test_an_error_is_raised_in_its_turn() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise KeyError("three")
        return number

    taken = []
    with closing(Prefetch(work, 10, 2, lambda _: 1)) as ahead, pytest.raises(KeyError, match="three"):
        taken.extend(ahead)
    results = iter(Prefetch(work, 10, 2, lambda _: 1))
    assert [next(results) for _ in range(3)] == [0, 1, 2]


def test_closing_ends_the_threads() -> None:
    before = threading.active_count()
    begun: list[int] = []
    ahead = Prefetch(begun.append, 10_000, 4, lambda _: 1, limit=10)  # type: ignore[func-returns-value]
    next(iter(ahead))
    ahead.close()
    assert threading.active_count() == before
    assert len(begun) < 100
