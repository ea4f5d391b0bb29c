"""Times sides that take turns: one run of each, then the next of each, so that a slow minute hits all of them.

A ratio is taken within each turn. Its figure is the median of these ratios, and its spread the distance between their
quartiles as a share of the median. Sides whose ratios are far apart get more turns, for some seconds.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scripts.benchmarks.harness.processes import cpu_of_tree

ClockName = Literal["wall", "cpu"]
CLOCKS: tuple[ClockName, ...] = ("wall", "cpu")
SURE = 0.02
"""The standard error of a ratio, as a share of it, which ends the turns: two runs then agree within 10 %."""
PATIENCE = 8.0
"""Seconds of turns after which no more are taken, sure or not."""


@dataclass(frozen=True)
class Taken:
    """Seconds of one run: on the clock, and of CPU in all threads and processes that worked."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Side:
    """One of those that are compared."""

    run: Callable[[], Any]
    """What is timed. If it returns :class:`Taken`, it has measured itself."""
    before: Callable[[], Any] | None = None
    """What is done before each run, and not timed."""
    repeat: int = 1
    """Runs in each turn, for what is quick; their median counts."""


@dataclass(frozen=True)
class Figure:
    """A median, and how far apart the quartiles are, as a share of it."""

    median: float
    spread: float

    def standard_error(self, count: int) -> float:
        """Return that of a median of so many values, as a share of it, as if they were normally distributed."""
        return 0.93 * self.spread / count**0.5


@dataclass(frozen=True)
class Moment:
    """What the clocks show."""

    wall: float
    cpu: float

    def since(self, start: Moment) -> Taken:
        """Return what passed since another moment."""
        return Taken(self.wall - start.wall, self.cpu - start.cpu)


class Clock:
    """Reads the wall clock and the CPU time of this process, its ended children, and other process trees."""

    def __init__(self, pids: Sequence[int] = ()) -> None:
        self._pids = pids

    def now(self) -> Moment:
        """Return this moment, by the wall clock and the CPU time of this process and its ended children."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Moment(time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime)

    def time(self, run: Callable[[], Any]) -> tuple[Taken, Any]:
        """Run a function; return its times, with those of the other processes, and what it returned."""
        before, start = self._others(), self.now()
        result = run()
        own = self.now().since(start)
        return Taken(own.wall, own.cpu + self._others() - before), result

    def _others(self) -> float:
        return sum(map(cpu_of_tree, self._pids))


class Times:
    """The times of all turns of some sides, and what each side returned last."""

    def __init__(self, names: Sequence[str]) -> None:
        self.taken: dict[str, list[Taken]] = {name: [] for name in names}
        self.results: dict[str, Any] = {}

    def of(self, name: str, clock: ClockName = "wall") -> Figure:
        """Return the seconds of a side."""
        return figure([getattr(taken, clock) for taken in self.taken[name]])

    def ratio(self, over: Sequence[str], under: Sequence[str], clock: ClockName = "wall") -> Figure:
        """Return how many times as long the sides ``over`` take together as the sides ``under``, turn by turn."""
        sums = [
            [
                sum(getattr(taken, clock) for taken in turn)
                for turn in zip(*map(self.taken.__getitem__, names), strict=True)
            ]
            for names in (over, under)
        ]
        return figure([a / b for a, b in zip(*sums, strict=True)])

    @property
    def are_sure(self) -> bool:
        """Whether more turns would hardly change the ratio of the first side to any other."""
        first, *others = self.taken
        turns = len(self.taken[first])
        figures = [self.of(first, clock) for clock in CLOCKS]
        if others and all(min(one.wall, one.cpu) > 0 for other in others for one in self.taken[other]):
            figures = [self.ratio([first], [other], clock) for other in others for clock in CLOCKS]
        return all(one.standard_error(turns) <= SURE for one in figures)


def take_turns(
    sides: Mapping[str, Side], turns: int, *, warm_ups: int = 1, clock: Clock | None = None, patience: float = 0.0
) -> Times:
    """Run each side once a turn. The first ``warm_ups`` turns compile and fill caches, and are not counted.

    While the ratios of the sides are not sure, more than ``turns`` are taken, until ``patience`` seconds have passed.
    """
    clock, times = clock or Clock(), Times(list(sides))
    started = time.perf_counter()
    for turn in itertools.count():
        if turn == warm_ups:
            started = time.perf_counter()
        if turn >= warm_ups + turns and (time.perf_counter() - started >= patience or times.are_sure):
            break
        for name, side in sides.items():
            runs = []
            for _ in range(side.repeat if turn >= warm_ups else 1):
                if side.before:
                    side.before()
                taken, result = clock.time(side.run)
                runs.append(result if isinstance(result, Taken) else taken)
                times.results[name] = result
            if turn >= warm_ups:
                times.taken[name].append(
                    Taken(statistics.median(one.wall for one in runs), statistics.median(one.cpu for one in runs))
                )
    return times


def figure(values: Sequence[float]) -> Figure:
    """Return the median and the spread of some values. The spread of a single value is 0."""
    median = statistics.median(values)
    if len(values) < 2 or not median:
        return Figure(median, 0.0)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(median, (high - low) / abs(median))
