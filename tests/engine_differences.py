"""What engines answer differently for the same predicate on the same rows: the one list, for tests and the guide.

:mod:`tests.engine_tables` has tables of which some of them lose rows.

Each door gives the rows of the engine behind it, so a sidecar must leave the rows of all of them. Only where pyiceberg
loses rows of older files, finds NULL in them, or takes a field of a NULL struct for a value, does ``sidecar.scan`` give
those that Spark and DuckDB give.
"""

from __future__ import annotations

from typing import NamedTuple

ROWS: dict[int, tuple[float | None, float | None, float | None]] = {
    1: (1.0, 0.05, 0.05),
    2: (float("nan"), None, None),
    3: (None, None, None),
    4: (0.0, None, None),
    5: (-0.0, None, None),
    6: (10.0, 0.1, 0.1),
    7: (None, float("inf"), 0.7),
}
"""By id, ``x`` (double), ``p`` (written as float, promoted to double since) and ``f`` (float)."""
STRUCTS: dict[int, dict[str, int] | None] = {key: {"n": key} if key < 3 else None for key in ROWS}
"""By id, ``s``, an optional struct with the required field ``n``."""


class Difference(NamedTuple):
    """The ids that match ``predicate`` in each engine."""

    predicate: str
    why: str
    pyiceberg: set[int]
    spark: set[int]
    duckdb: set[int]
    scan: set[int] | None = None
    """Those of ``sidecar.scan``, if they are not pyiceberg's."""

    @property
    def scanned(self) -> set[int]:
        """The ids that ``sidecar.scan`` gives."""
        return self.pyiceberg if self.scan is None else self.scan

    def line(self) -> str:
        """Its line in the guide to Spark, with the rows that not all engines find."""
        everywhere = self.pyiceberg & self.spark & self.duckdb
        answers = (self.pyiceberg, self.scanned, self.spark, self.duckdb)
        cells = ["yes" if found - everywhere else "no" for found in answers]
        return f"| `{self.predicate}` | {self.why} | {' | '.join(cells)} |"


DIFFERENCES = [
    Difference("x > 5", "NaN", {6}, {2, 6}, {2, 6}),
    Difference("not (x > 5)", "NaN", {1, 2, 4, 5}, {1, 4, 5}, {1, 4, 5}),
    Difference("x not in (1, 10)", "NULL", {2, 3, 4, 5, 7}, {2, 4, 5}, {2, 4, 5}),
    Difference("x is not nan", "NULL", {1, 4, 5, 6}, {1, 3, 4, 5, 6, 7}, {1, 4, 5, 6}),
    Difference("x in (0.0, 7)", "-0.0", {4}, {4, 5}, {4, 5}),
    Difference("p = 0.1", "0.1 written as float, the column a double by now", {6}, set(), {6}),
    Difference("p <= 0.1", "the same", {1, 6}, {1}, {1, 6}),
    Difference("p > 0.1", "the same", {7}, {6, 7}, {7}),
    Difference("p = inf", "infinity written as float, the column a double by now", set(), {7}, {7}, {7}),
    Difference("p < 1e39", "NULL or infinity, likewise", {1, 2, 3, 4, 5, 6, 7}, {1, 6}, {1, 6}, {1, 6}),
    Difference("s.n is null", "a NULL struct whose field n is required", set(), *[{3, 4, 5, 6, 7}] * 3),
    Difference("s.n is not null", "the same", {1, 2, 3, 4, 5, 6, 7}, *[{1, 2}] * 3),
]
AGREED = {
    "x != 1": {2, 4, 5, 6},
    "x = 0": {4, 5},
    "x < 5": {1, 4, 5},
    "x is nan": {2},
    "x is null": {3, 7},
    "s is null": {3, 4, 5, 6, 7},
    "s.n != 1": {2},
    "f = 0.1": {6},
    "f > 0.1": {7},
    "f >= 0.1": {6, 7},
    "f < 0.7": {1, 6},
    "f in (0.1, 0.7)": {6, 7},
    "f < 1e39": {1, 6, 7},
    "f <= 3.4028235e38": {1, 6, 7},
    "f != 1e39": {1, 6, 7},
}
"""Predicates on the same rows that all engines answer alike."""
