"""Files read ahead: in order, counted, and no thread that outlives its reason."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from itertools import islice

import pytest

from sidecar.reading.read_ahead import read_ahead
from tests.waiting import wait_until


class Rows:
    """What a file gives."""

    def __init__(self, number: int) -> None:
        self.number = number


class Reader:
    """Reads slowly, and knows how many results are being made or held anywhere."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds = seconds
        self.held = 0
        self.most = 0
        self.started: list[int] = []
        self.lock = threading.Lock()

    def __call__(self, number: int) -> Rows:
        with self.lock:
            self.started.append(number)
            self.held += 1
            self.most = max(self.most, self.held)
        time.sleep(self.seconds(number))
        rows = Rows(number)
        weakref.finalize(rows, self.let_go)
        return rows

    def let_go(self) -> None:
        with self.lock:
            self.held -= 1


def scanners() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sidecar-scan"]


@pytest.mark.parametrize("at_once", [1, 2, 5, 40])
def test_results_come_in_order_and_no_more_than_agreed_are_held(at_once: int) -> None:
    read = Reader(lambda number: 0.004 * (number % 3))
    found = []
    for rows in read_ahead(read, range(20), at_once, threading.Event()):
        found.append(rows.number)
        time.sleep(0.002)
        del rows
    assert found == list(range(20))
    assert read.most == min(at_once, 20), "as many as agreed, so that reading is parallel, and no more"
    assert read.held == 0
    assert scanners() == []


def test_one_at_a_time_needs_no_thread() -> None:
    stopped = threading.Event()
    with closing(read_ahead(lambda _: threading.current_thread(), range(3), 1, stopped)) as results:
        assert next(results) is threading.current_thread()
        assert not stopped.is_set()
    assert stopped.is_set()


def test_a_slow_caller_is_not_run_away_from() -> None:
    read = Reader(lambda _: 0)
    with closing(read_ahead(read, range(100), 3, threading.Event())) as results:
        assert [rows.number for rows in islice(results, 2)] == [0, 1]
        wait_until(lambda: len(read.started) >= 4 and not scanners())
        time.sleep(0.05)
        assert sorted(read.started) == [0, 1, 2, 3]
        assert scanners() == [], "threads end with their file, even if nobody closes"


def test_nothing_starts_before_it_is_asked_for() -> None:
    read = Reader(lambda _: 0)
    results = read_ahead(read, range(100), 3, threading.Event())
    time.sleep(0.02)
    assert read.started == []
    results.close()
    assert read.started == []


def test_closing_tells_the_readers_and_waits_for_them() -> None:
    stopped, cut = threading.Event(), []

    def read(number: int) -> int:
        if number and stopped.wait(20):
            cut.append(number)
        return number

    results = read_ahead(read, range(100), 4, stopped)
    assert next(results) == 0
    results.close()
    assert sorted(cut) == [1, 2, 3]
    assert scanners() == []


def test_an_error_is_raised_in_its_turn_and_ends_it_all() -> None:
    stopped, started = threading.Event(), []

    def read(number: int) -> int:
        started.append(number)
        if number == 3:
            raise KeyError("three")
        return number

    results = read_ahead(read, range(100), 2, stopped)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="three"):
        next(results)
    assert stopped.is_set()
    assert max(started) <= 7
    assert scanners() == []
