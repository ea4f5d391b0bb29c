"""Convert days before 1582-10-15 from the Julian calendar to the proleptic Gregorian calendar.

A date has different day numbers in the two calendars. Files say in which calendar they count days: the hybrid one
(Julian before 1582-10-15; also the default of files that do not say) or the proleptic one. Filters hash the number as
stored. ORC Java probes the filters of both kinds of files with the number in the proleptic calendar.

Count the years y from March, so that the leap day is the last day of a year. The number of a date is then a constant
plus 365 y + y // 4 days in the Julian calendar, and - y // 100 + y // 400 more in the Gregorian one. From March 200 to
February 300 both numbers are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidecar.filters.orc_values import GREGORIAN_DAY

_MARCH_0 = 719_470
"""Days from 0000-03-01 of the Julian calendar to 1970-01-01."""


def old_days_in_proleptic(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the proleptic numbers of those ``days`` (Julian, since 1970-01-01) that are before 1582-10-15."""
    old = days[days < GREGORIAN_DAY]
    years = (4 * (old + _MARCH_0) + 3) // 1461
    moved: NDArray[np.int64] = old + 2 - years // 100 + years // 400
    return moved
