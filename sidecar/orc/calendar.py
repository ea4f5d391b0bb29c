"""Days before 1582-10-15: the same date has other numbers in the Julian and in the proleptic Gregorian calendar.

Files say which calendar their days were counted in: the hybrid one (Julian before 1582-10-15, which is what files that
say nothing have too) or the proleptic one. Filters hold the number as stored. ORC Java asks a filter of either kind of
file for the number that a date has in the proleptic calendar.

Count the years y from March: then the leap day is the last of a year, and a date's number is 365 y + y // 4 days in
the Julian calendar, - y // 100 + y // 400 more in the Gregorian one, beside a constant; from March 200 to
February 300 both are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidecar.filters.orc_values import GREGORIAN_DAY

_MARCH_0 = 719_470
"""Days from 0000-03-01 of the Julian calendar to 1970-01-01."""


def old_days_in_proleptic(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each of ``days`` since 1970-01-01 before 1582-10-15 the number of its Julian date in the other calendar."""
    old = days[days < GREGORIAN_DAY]
    years = (4 * (old + _MARCH_0) + 3) // 1461
    moved: NDArray[np.int64] = old + 2 - years // 100 + years // 400
    return moved
