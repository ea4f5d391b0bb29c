"""Finds the 32-bit floats that are next to a double.

Engines compare a FLOAT column with a double in two ways: they round the double to 32 bits first, or they widen the
column's values. A number that is not a float32 gets other rows in each of them. Between its two neighbours there is no
other float32, so whatever an engine does, it draws the line at one of the two.
"""

from __future__ import annotations

import math
import struct

import numpy as np

LIMIT = (2.0 - 2.0**-24) * 2.0**127
"""The least magnitude that becomes infinite in 32 bits. Between the largest float32 and this, it is rounded down."""


def nearest_float32(value: float) -> float:
    """``value`` rounded to 32 bits; infinite from :data:`LIMIT` on, NaN for NaN."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def float32_neighbours(value: float) -> tuple[float, float]:
    """The nearest float32 values at or below and at or above ``value``: the same number twice if it is one.

    ``value`` is not NaN. Beyond the largest float32 lies infinity.
    """
    nearest = nearest_float32(value)
    if nearest == value:
        return value, value
    towards = -math.inf if nearest > value else math.inf
    with np.errstate(over="ignore", under="ignore"):
        other = float(np.nextafter(np.float32(nearest), np.float32(towards)))
    return (other, nearest) if nearest > value else (nearest, other)
