"""Counts the rows of many comparisons, for messages and for the figures at the end of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PROPERTY = "equivalence"
"""The name under which a test hands its figures to the process that prints them."""
SHOWN = 5


@dataclass
class Tally:
    """The counts of one door: ``lost`` rows are missing, ``foreign`` ones are too many, ``wrong`` ones differ."""

    door: str
    cases: int = 0
    lost: int = 0
    foreign: int = 0
    wrong: int = 0
    started: float = field(default_factory=time.perf_counter)
    failures: list[Any] = field(default_factory=list)

    def compare(self, found: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]], said: Any) -> None:
        """Rows with an ``id``: NaN equals NaN, 0.0 differs from -0.0, order does not matter."""
        here, there = (Counter((row["id"], repr(dict(row))) for row in rows) for rows in (found, wanted))
        missing, extra = there - here, here - there
        if not missing and not extra:
            return
        ids = [Counter(key for key, _ in rows.elements()) for rows in (missing, extra)]
        wrong = (ids[0] & ids[1]).total()
        self.wrong += wrong
        self.lost += missing.total() - wrong
        self.foreign += extra.total() - wrong
        self.failures.append((said, list(missing)[:SHOWN], list(extra)[:SHOWN]))

    def finish(self, record_property: Any) -> None:
        """Hand the figures over, and fail if a row was lost, foreign or wrong."""
        seconds = time.perf_counter() - self.started
        record_property(PROPERTY, [self.door, self.cases, self.lost, self.foreign, self.wrong, seconds])
        assert not self.failures, (len(self.failures), self.failures[:SHOWN])


def summary(properties: Iterable[tuple[str, Any]]) -> list[str]:
    """A line for each door, from what tests handed over."""
    doors: dict[str, list[float]] = {}
    for name, figures in properties:
        if name == PROPERTY:
            so_far = doors.setdefault(figures[0], [0] * 6)
            doors[figures[0]] = [a + b for a, b in zip(so_far, [1, *figures[1:]], strict=True)]
    return [
        f"{door}: {cases:.0f} cases on {tables:.0f} tables, {lost:.0f} rows lost, {foreign:.0f} foreign, "
        f"{wrong:.0f} wrong, {seconds:.0f} s"
        for door, (tables, cases, lost, foreign, wrong, seconds) in sorted(doors.items())
    ]
