"""The rows of many small frames in one job: each job of Spark costs more than such frames do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any


def collected(frames: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """The rows of each frame, in order; all frames have the first one's columns."""
    found: list[list[dict[str, Any]]] = [[] for _ in frames]
    numbered = [frame.selectExpr(f"{number} number", "*") for number, frame in enumerate(frames)]
    for row in reduce(lambda a, b: a.unionAll(b), numbered).collect():
        values = row.asDict()
        found[values.pop("number")].append(values)
    return found
