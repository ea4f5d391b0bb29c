"""What ``verify`` finds wrong with a Parquet file."""

from __future__ import annotations

from typing import TypedDict

from sidecar.errors import SidecarError
from sidecar.parquet.inspect import reason_of


class Problem(TypedDict):
    """One defect; ``unit`` is the row group, ``None`` for the whole file."""

    file: str
    unit: int | None
    column: str | None
    problem: str


def place_and_reason(error: SidecarError) -> str:
    """What was wrong with pages, and at which byte: the same words whichever check met it."""
    return reason_of(error) if error.offset is None else f"{reason_of(error)} (offset {error.offset})"
