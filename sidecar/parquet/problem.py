"""What ``verify`` finds wrong with a Parquet file."""

from __future__ import annotations

from typing import TypedDict


class Problem(TypedDict):
    """One defect; ``unit`` is the row group, ``None`` for the whole file."""

    file: str
    unit: int | None
    column: str | None
    problem: str
