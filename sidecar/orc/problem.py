"""What ``verify`` finds wrong with an ORC file."""

from __future__ import annotations

from typing import TypedDict


class Problem(TypedDict):
    """One defect; ``unit`` is the row group, counted over the whole file, ``None`` for more than one of them."""

    file: str
    unit: int | None
    column: str | None
    problem: str
