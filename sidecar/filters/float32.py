"""Finds the 32-bit floats next to a double.

Engines compare a FLOAT column with a double in two ways: they round the double to 32 bits first, or they widen the
column's values. For a number that is not a float32 the two ways may select different rows. Between its two neighbours
there is no other float32, so every engine draws the line at one of the two.
"""

from __future__ import annotations

import math
import struct

import numpy as np

LIMIT = (2.0 - 2.0**-24) * 2.0**127
"""The least magnitude that rounds to infinity in 32 bits; smaller ones round to the largest float32 at most."""


def nearest_float32(value: float) -> float:
    """Return ``value`` rounded to 32 bits; infinite from :data:`LIMIT` on, NaN for NaN."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def float32_neighbours(value: float) -> tuple[float, float]:
    """Return the nearest float32 values at or below and at or above ``value``: the same number twice if it is one.

    ``value`` is not NaN. The neighbour above the largest float32 is infinity.
    """
    nearest = nearest_float32(value)
    if nearest == value:
        return value, value
    towards = -math.inf if nearest > value else math.inf
    with np.errstate(over="ignore", under="ignore"):
        other = float(np.nextafter(np.float32(nearest), np.float32(towards)))
    return (other, nearest) if nearest > value else (nearest, other)
