"""Progress: who is told what, from which thread. Work in threads: in order, within its room, errors in their turn."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import sidecar
from sidecar.engines.work import LocalWork
from sidecar.puffin.writer import _created_by
from sidecar.run import COMPILING, ReportingThreads, announce_compiling, in_turn, package_version, report_progress
from sidecar.serving.proxy.etags import EntityTags
from sidecar.serving.settings import ServeSettings
from tests.waiting import wait_until

PACKAGE = Path(__file__).resolve().parents[1] / "sidecar"


@pytest.fixture
def told() -> list[tuple[Any, ...]]:
    return []


def test_only_the_block_is_told(told: list[tuple[Any, ...]]) -> None:
    with sidecar.progress(lambda *step: told.append(step)):
        report_progress("listing")
        with sidecar.progress(lambda *step: None):
            report_progress("unheard")
        report_progress("files", 1, 2)
    report_progress("late")
    assert told == [("listing", None, None), ("files", 1, 2)]


def test_threads_of_the_package_report(told: list[tuple[Any, ...]]) -> None:
    with (
        sidecar.progress(lambda *step: told.append((*step, threading.current_thread().name))),
        ReportingThreads(1, "worker") as pool,
    ):
        pool.submit(report_progress, "files", 1, 2).result()
        assert list(pool.map(report_progress, ["more"])) == [None]
    assert [(what, thread.startswith("worker")) for what, *_, thread in told] == [("files", True), ("more", True)]


@pytest.mark.parametrize("threads", [1, 3])
def test_steps_of_one_of_many_files_are_not_reported(threads: int, told: list[tuple[Any, ...]]) -> None:
    def work(item: int) -> int:
        report_progress("row groups", item, 9)
        return item

    with sidecar.progress(lambda *step: told.append(step)):
        assert list(LocalWork(threads).run(work, [5, 6, 7])) == [5, 6, 7]
    assert told == [("files", number, 3) for number in (1, 2, 3)]


def test_what_a_callback_runs_is_not_reported(told: list[tuple[Any, ...]]) -> None:
    def callback(*step: object) -> None:
        told.append(step)
        report_progress("again")

    with sidecar.progress(callback):
        report_progress("files", 1, 1)
    assert told == [("files", 1, 1)]


def test_compiling_is_told_once_also_from_a_thread_that_works_on_one_file(told: list[tuple[Any, ...]]) -> None:
    def work(_: int) -> None:
        announce_compiling()

    with sidecar.progress(lambda *step: told.append(step)):
        list(LocalWork(2).run(work, [1, 2]))
        announce_compiling()
    assert [step for step in told if step[0] == COMPILING] == [(COMPILING, 0, 1)]


def test_an_error_of_a_callback_ends_the_work() -> None:
    def callback(*step: object) -> None:
        raise RuntimeError("stop")

    with sidecar.progress(callback), pytest.raises(RuntimeError, match="stop"):
        list(LocalWork(1).run(str, [1, 2]))
    report_progress("nobody is told")


def test_all_pools_of_threads_report() -> None:
    own = {path.name for path in PACKAGE.rglob("*.py") if re.search(r"\bThreadPoolExecutor\b", path.read_text())}
    assert own == {"run.py"}


def test_a_package_without_a_distribution_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from an archive: files name their writer, and the server makes its tags, all the same."""
    monkeypatch.setattr("importlib.metadata.version", Mock(side_effect=PackageNotFoundError("lakehouse-sidecar")))
    monkeypatch.setattr("sidecar.puffin.writer.package_version", package_version.__wrapped__)
    monkeypatch.setattr("sidecar.serving.proxy.etags.package_version", package_version.__wrapped__)
    assert _created_by() == "sidecar, run from its source"
    tags = EntityTags(ServeSettings(tables=("db.*",)))
    assert tags.upstreams(tags.ours(b'"x"')) == [b'"x"']


@dataclass
class Made:
    """A result of ``size`` bytes."""

    number: int
    size: int = 1


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_results_come_in_order(threads: int, count: int) -> None:
    def work(number: int) -> Made:
        time.sleep(0.001 * (number % 3))
        return Made(number * number)

    for room in (None, 3, 1 << 20):
        with closing(in_turn(work, range(count), threads, room)) as results:
            assert [made.number for made in results] == [number * number for number in range(count)]


def test_work_ahead_begins_at_once_and_no_more_waits_than_there_is_room_for() -> None:
    begun: list[int] = []

    def work(number: int) -> Made:
        begun.append(number)
        return Made(number, 100)

    with closing(in_turn(work, range(100), 2, 450)) as results:
        wait_until(lambda: len(begun) >= 4)
        time.sleep(0.05)
        assert 4 <= len(begun) <= 7
        next(results)
        time.sleep(0.05)
        assert len(begun) <= 8
        assert len(list(results)) == 99


def test_a_result_larger_than_the_room_is_made_in_its_turn() -> None:
    with closing(in_turn(lambda number: Made(number, 1000), range(20), 3, 1)) as results:
        assert len(list(results)) == 20


def test_many_small_results_are_counted_once() -> None:
    asked: list[int] = []

    class Small:
        @property
        def size(self) -> int:
            asked.append(1)
            return 1

    with closing(in_turn(lambda _: Small(), range(3_000), 2, 1 << 20)) as results:
        assert len(list(results)) == 3_000
    assert len(asked) <= 2 * 3_000


@pytest.mark.parametrize("room", [None, 10])
def test_an_error_is_raised_in_its_turn(room: int | None) -> None:
    def work(number: int) -> Made:
        if number == 3:
            raise KeyError("three")
        return Made(number)

    taken: list[Made] = []
    with closing(in_turn(work, range(10), 2, room)) as results, pytest.raises(KeyError, match="three"):
        taken.extend(results)
    results = in_turn(work, range(10), 2, room)
    assert [next(results).number for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("threads", [1, 2])
def test_work_that_raises_stop_iteration_does_not_end_the_results(threads: int) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(in_turn(lambda number: next(iter([1][number:])), range(3), threads))


def test_closing_ends_the_threads() -> None:
    before = threading.active_count()
    begun: list[int] = []

    def work(number: int) -> Made:
        begun.append(number)
        return Made(number)

    results = in_turn(work, range(10_000), 4, 10)
    next(results)
    results.close()
    assert threading.active_count() == before
    assert len(begun) < 100


def test_closing_lets_threads_that_wait_for_room_end_without_work() -> None:
    begun: list[int] = []

    def work(number: int) -> Made:
        begun.append(number)
        return Made(number)

    results = in_turn(work, range(10), 3, 1)
    wait_until(lambda: 0 in begun)
    time.sleep(0.05)
    count = len(begun)
    results.close()
    assert len(begun) == count <= 3


def test_one_thread_works_ahead_only_if_there_is_room() -> None:
    names: list[str] = []

    def work(number: int) -> Made:
        names.append(threading.current_thread().name)
        return Made(number)

    for room, name in ((None, threading.current_thread().name), (10, "sidecar-work_0")):
        with closing(in_turn(work, range(3), 1, room)) as results:
            next(results)
        assert names.pop(0) == name
        names.clear()
