"""What a benchmark is given: sizes, turns, and a place for its rows. Each row is printed when it is found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scripts.benchmarks.harness.results import BenchmarkResult, Comparison, Curve, Row, SideTimes, Target
from scripts.benchmarks.harness.timing import PATIENCE, Clock, ClockName, Side, Times, figure, take_turns
from scripts.benchmarks.harness.wording import row_line, shown

Size = TypeVar("Size")
QUICK_TURNS = 2


@dataclass(frozen=True)
class Bench:
    """One run of one benchmark."""

    result: BenchmarkResult
    scale: str = "normal"
    """``quick`` to see that it runs, ``normal``, or ``large``."""

    def size(self, normal: Size, *, quick: Size, large: Size | None = None) -> Size:
        """Return the size for this run."""
        if self.scale == "large" and large is not None:
            return large
        return quick if self.scale == "quick" else normal

    def say(self, text: str) -> None:
        """Tell whoever waits what is done now."""
        print(f"  .. {text}", file=sys.stderr, flush=True)

    def compare(
        self,
        what: str,
        sides: Mapping[str, Side | Callable[[], Any]],
        turns: int = 5,
        *,
        warm_ups: int = 1,
        clock: Clock | None = None,
    ) -> Times:
        """Let sides take turns, so many or more; keep their medians for the report and the picture."""
        self.say(what)
        all_sides = {name: side if isinstance(side, Side) else Side(side) for name, side in sides.items()}
        patience = PATIENCE
        if self.scale == "quick":
            turns, patience = min(turns, QUICK_TURNS), 0.0
        times = take_turns(all_sides, turns, warm_ups=warm_ups, clock=clock, patience=patience)
        medians = []
        for name in all_sides:
            wall, cpu = times.of(name), times.of(name, "cpu")
            medians.append(SideTimes(name, wall.median, cpu.median, wall.spread, cpu.spread))
        self.result.comparisons.append(Comparison(what, tuple(medians)))
        return times

    def ratio(
        self,
        what: str,
        times: Times,
        ours: str,
        peers: str | Sequence[str],
        target: Target | None = None,
        *,
        clock: ClockName = "wall",
    ) -> None:
        """Keep how many times as long ``ours`` takes as ``peers``, whose times are added up."""
        names = [peers] if isinstance(peers, str) else list(peers)
        found = times.ratio([ours], names, clock)
        self.row(_of_clock(what, clock), found.median, "x", target, against=" + ".join(names), spread=found.spread)

    def faster(
        self,
        what: str,
        times: Times,
        ours: str,
        peer: str,
        target: Target | None = None,
        *,
        clock: ClockName = "wall",
    ) -> None:
        """Keep how many times as long ``peer`` takes as ``ours``."""
        found = times.ratio([peer], [ours], clock)
        self.row(_of_clock(what, clock), found.median, "x faster", target, against=peer, spread=found.spread)

    def values(
        self, what: str, values: Sequence[float], unit: str, target: Target | None = None, *, against: str = ""
    ) -> None:
        """Keep the median of measured values."""
        found = figure(values)
        self.row(what, found.median, unit, target, against=against, spread=found.spread)

    def row(
        self,
        what: str,
        value: float | None,
        unit: str,
        target: Target | None = None,
        *,
        against: str = "",
        spread: float = 0.0,
        note: str = "",
    ) -> None:
        """Keep one figure. Small data has no targets."""
        target = None if self.scale == "quick" else target
        row = Row(what, against, value, unit, spread, target, note)
        self.result.rows.append(row)
        print(row_line(row), flush=True)

    def absent(self, what: str, why: object, *, against: str = "") -> None:
        """Keep that a figure could not be measured, and why."""
        self.row(what, None, "", against=against, note=str(why).splitlines()[0] if str(why) else type(why).__name__)

    def curve(
        self, what: str, x: str, y: str, points: Sequence[tuple[float, float]], *, goes_on_to: float | None = None
    ) -> None:
        """Keep how something grows, with its exponent as a row, and its value at ``goes_on_to`` by the last decade."""
        curve = Curve(what, x, y, tuple(points))
        self.result.curves.append(curve)
        law, last = curve.law, curve.last_law
        first, most = points[0], points[-1]
        span = f"{shown(first[1])} to {shown(most[1])} {y} for {first[0]:,.0f} to {most[0]:,.0f} {x}"
        self.row(f"{what}: exponent", law.exponent, "", note=f"{span}; R² {law.fit:.3f}")
        self.row(f"{what}: exponent of the last decade", last.exponent, "")
        if goes_on_to is not None:
            self.row(f"{what}: at {goes_on_to:,.0f} {x}, if it goes on as in the last decade", last.at(goes_on_to), y)


def _of_clock(what: str, clock: ClockName) -> str:
    return f"{what} (CPU)" if clock == "cpu" else what
