"""Results as values: rows with targets, times of sides, curves. They go to JSON and come back from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from scripts.benchmarks.harness.fits import Fit, power_law


@dataclass(frozen=True)
class Target:
    """A bound that a figure is to keep."""

    sign: Literal["<=", ">="]
    value: float

    def met(self, figure: float) -> bool:
        """Return whether a figure keeps it."""
        return figure <= self.value if self.sign == "<=" else figure >= self.value

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


def at_most(value: float) -> Target:
    """Return an upper bound."""
    return Target("<=", value)


def at_least(value: float) -> Target:
    """Return a lower bound."""
    return Target(">=", value)


@dataclass(frozen=True)
class Row:
    """One figure."""

    what: str
    """What was measured."""
    against: str
    """Whom it is compared with; empty for a figure of its own."""
    figure: float | None
    """The figure; ``None`` if it could not be measured, and ``note`` says why."""
    unit: str
    """``x`` for a ratio, else its unit."""
    spread: float = 0.0
    """The distance between the quartiles, as a share of the figure; 0 for what is the same in each run."""
    target: Target | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, ``not measured``, or nothing without a target."""
        if self.figure is None:
            return "not measured"
        return "" if self.target is None else "met" if self.target.met(self.figure) else "missed"


@dataclass(frozen=True)
class SideTimes:
    """The medians of one side in seconds, with their spreads."""

    name: str
    wall: float
    cpu: float
    wall_spread: float
    cpu_spread: float


@dataclass(frozen=True)
class Comparison:
    """The times of sides that took turns."""

    what: str
    sides: tuple[SideTimes, ...]


@dataclass(frozen=True)
class Curve:
    """How something grows."""

    what: str
    x: str
    """What grows, as ``files``."""
    y: str
    """The unit of the values, as ``seconds``."""
    points: tuple[tuple[float, float], ...]

    @property
    def law(self) -> Fit:
        """The power law through all points."""
        return power_law(self.points)

    @property
    def last_law(self) -> Fit:
        """The power law through the points of the last decade: where a curve bends, it differs from :attr:`law`."""
        largest = self.points[-1][0]
        return power_law([point for point in self.points if point[0] >= largest / 10.01])


@dataclass
class BenchmarkResult:
    """What one benchmark found."""

    name: str
    title: str
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    failure: str = ""
    """Why the benchmark ended early; empty if it did not."""


def to_json(results: Sequence[BenchmarkResult]) -> str:
    """Return results as JSON, with verdicts and exponents for whoever reads it."""
    return json.dumps({"benchmarks": [_plain(result) for result in results]}, indent=1) + "\n"


def _plain(result: BenchmarkResult) -> dict[str, Any]:
    plain = asdict(result)
    for row, own in zip(result.rows, plain["rows"], strict=True):
        own["verdict"] = row.verdict
    for curve, own in zip(result.curves, plain["curves"], strict=True):
        own["exponent"], own["exponent_of_last_decade"] = curve.law.exponent, curve.last_law.exponent
    return plain


def read_results(path: Path) -> dict[str, BenchmarkResult]:
    """Return the results in a file, by the names of the benchmarks. Raises ``OSError`` and ``ValueError``."""
    return {one["name"]: _result(one) for one in json.loads(path.read_text("utf-8"))["benchmarks"]}


def _result(plain: Mapping[str, Any]) -> BenchmarkResult:
    return BenchmarkResult(
        plain["name"],
        plain["title"],
        dict(plain["machine"]),
        plain["seconds"],
        [_row(row) for row in plain["rows"]],
        [Comparison(one["what"], tuple(SideTimes(**side) for side in one["sides"])) for one in plain["comparisons"]],
        [Curve(one["what"], one["x"], one["y"], tuple((x, y) for x, y in one["points"])) for one in plain["curves"]],
        plain["failure"],
    )


def _row(plain: Mapping[str, Any]) -> Row:
    target = plain["target"]
    values = {name: value for name, value in plain.items() if name not in ("target", "verdict")}
    return Row(**values, target=None if target is None else Target(**target))
