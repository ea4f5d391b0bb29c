"""What engines answer differently for the same predicate on the same rows: the one list, for tests and the README.

Each door gives the rows of the engine behind it, so a sidecar must leave the rows of all of them.
"""

from __future__ import annotations

from typing import NamedTuple

ROWS: dict[int, tuple[float | None, float | None]] = {
    1: (1.0, 0.05),
    2: (float("nan"), None),
    3: (None, None),
    4: (0.0, None),
    5: (-0.0, None),
    6: (10.0, 0.1),
}
"""By id, ``x`` (double) and ``p`` (written as float, promoted to double since)."""


class Difference(NamedTuple):
    """The ids that match ``predicate`` in each engine."""

    predicate: str
    why: str
    pyiceberg: set[int]
    spark: set[int]
    duckdb: set[int]

    def line(self) -> str:
        """Its line in the README, with the rows that not all engines find."""
        everywhere = self.pyiceberg & self.spark & self.duckdb
        cells = ["yes" if found - everywhere else "no" for found in (self.pyiceberg, self.spark, self.duckdb)]
        return f"| `{self.predicate}` | {self.why} | {' | '.join(cells)} |"


DIFFERENCES = [
    Difference("x > 5", "NaN", {6}, {2, 6}, {2, 6}),
    Difference("not (x > 5)", "NaN", {1, 2, 4, 5}, {1, 4, 5}, {1, 4, 5}),
    Difference("x not in (1, 10)", "NULL", {2, 3, 4, 5}, {2, 4, 5}, {2, 4, 5}),
    Difference("x is not nan", "NULL", {1, 4, 5, 6}, {1, 3, 4, 5, 6}, {1, 4, 5, 6}),
    Difference("x in (0.0, 7)", "-0.0", {4}, {4, 5}, {4, 5}),
    Difference("p = 0.1", "0.1 written as float, the column a double by now", {6}, set(), {6}),
]
AGREED = {
    "x != 1": {2, 4, 5, 6},
    "x = 0": {4, 5},
    "x < 5": {1, 4, 5},
    "x is nan": {2},
    "x is null": {3},
}
"""Predicates on the same rows that all engines answer alike."""
