"""How cost grows: a line through points in log-log, whose slope is the exponent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """The power law ``factor * x ** exponent`` that fits points best."""

    exponent: float
    factor: float
    fit: float
    """R squared of the logarithms: 1 if all points are on the line."""

    def at(self, x: float) -> float:
        """Return the law's value at ``x``."""
        return float(self.factor * x**self.exponent)


def power_law(points: Sequence[tuple[float, float]]) -> Fit:
    """Fit a power law by least squares of the logarithms.

    Raises ``ValueError`` for fewer than two different x, and for values that are not above zero.
    """
    if any(value <= 0 for point in points for value in point):
        raise ValueError("a power law has values above zero alone")
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    if len(set(xs)) < 2:
        raise ValueError("a power law needs two different sizes")
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    total = sum((y - mean_y) ** 2 for y in ys)
    left = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return Fit(slope, math.exp(mean_y - slope * mean_x), 1 - left / total if total else 1.0)
