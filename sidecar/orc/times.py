"""Converts times: instants to the wall clock of a time zone, and days of the Julian calendar to the Gregorian one.

**Time zones.** The rules are those of :mod:`zoneinfo`. Arrow is not asked: it knows only the changes that a zone's file
lists, which end in 2037 or earlier, and not the rule at the end of the file, which holds for all time after them.

A zone's offsets are looked up year by year, for the years that the instants are in, and kept. In a year they are looked
up at the start of each day: no zone changes its offset twice within a day. From 2100 on every zone follows one rule,
and rules repeat with the calendar, every 400 years.

One thing differs from :mod:`zoneinfo`. It has the local mean time of a city before the first change of its zone. No
reader of ORC uses that: C++ readers (pyarrow is one) use the first standard time of the zone, and so does this module.
ORC Java uses the standard time of today until 1900, which is often the same.

**Calendars.** A date before 1582-10-15 has different day numbers in the two calendars. Files say in which calendar they
count days: the hybrid one (Julian before 1582-10-15; also the default of files that do not say) or the proleptic one.
Filters hash the number as stored. ORC Java probes the filters of both kinds of files with the number in the proleptic
calendar.

Count the years y from March, so that the leap day is the last day of a year. The number of a date is then a constant
plus 365 y + y // 4 days in the Julian calendar, and - y // 100 + y // 400 more in the Gregorian one. From March 200 to
February 300 both numbers are the same.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.orc.values import GREGORIAN_DAY

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = 86_400
_MONTH = 28 * _DAY
_YEAR = 366 * _DAY
"""Seconds of a span whose offsets are looked up together."""
_FIRST = -8_520_336_000
"""1700-01-01: no zone has a change before."""
_LATEST_FIRST_CHANGE = 315_532_800
"""1980-01-01: every zone that ever changes its offset has done so before."""
_REPEATED = 4_102_444_800
"""2100-01-01: all later changes follow from the rule at the end of a zone's file."""
_CYCLE = 146_097 * _DAY
"""400 years, which have a whole number of weeks."""

_MARCH_0 = 719_470
"""Days from 0000-03-01 of the Julian calendar to 1970-01-01."""

Seconds = NDArray[np.int64]


def wall_clock(seconds: Seconds, zone: str) -> Seconds:
    """Return what the wall clock of ``zone`` shows at ``seconds`` since 1970 in UTC, in the same unit.

    Raises :class:`UnsupportedFeatureError` for an unknown zone.
    """
    _zone(zone)
    if not len(seconds):
        return seconds
    known = seconds
    if int(seconds.min()) < _FIRST or int(seconds.max()) >= _REPEATED:
        known = np.where(seconds < _REPEATED, np.maximum(seconds, _FIRST), _REPEATED + (seconds - _REPEATED) % _CYCLE)
    starts, offsets = _changes(known // _YEAR, zone)
    if int(seconds.min()) < _LATEST_FIRST_CHANGE:
        change, standard = _first_change(zone)
        offsets = np.where(starts < change, standard, offsets)
    shown: Seconds = seconds + offsets[np.searchsorted(starts, known, side="right") - 1]
    return shown


def instant_of(wall: datetime, zone: str) -> int:
    """Return when the wall clock of ``zone`` shows ``wall``, in seconds since 1970 in UTC.

    Raises as :func:`wall_clock`.
    """
    return int(wall.replace(tzinfo=_zone(zone)).timestamp())


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except Exception:  # the class of the error of an invalid name depends on the platform
        raise UnsupportedFeatureError("unknown time zone", found=name) from None


def _changes(spans: Seconds, zone: str) -> tuple[Seconds, Seconds]:
    """Return the starts of the periods of one offset in these ``spans`` of a year, in order, and the offsets."""
    first = int(spans.min())
    asked = np.flatnonzero(np.bincount(spans - first)) + first
    parts = [_changes_of_span(zone, number) for number in asked.tolist()]
    starts = np.concatenate([part[0] for part in parts])
    offsets = np.concatenate([part[1] for part in parts])
    changed = np.append(True, offsets[1:] != offsets[:-1])
    return starts[changed], offsets[changed]


@lru_cache(maxsize=8192)
def _changes_of_span(zone: str, number: int) -> tuple[Seconds, Seconds]:
    """Return the starts of the periods of one offset in a span, the first of them its own start, and the offsets."""
    info, first = _zone(zone), number * _YEAR
    starts, offsets = [first], [_offset(info, first)]
    for day in range(first + _DAY, first + _YEAR + 1, _DAY):
        offset = _offset(info, day)
        if offset != offsets[-1]:
            known = offsets[-1]
            seconds = range(day - _DAY, day)
            starts.append(seconds[0] + bisect_left(seconds, True, key=lambda it: _offset(info, it) != known))
            offsets.append(offset)
    return np.array(starts, np.int64), np.array(offsets, np.int64)


@lru_cache(maxsize=64)
def _first_change(zone: str) -> tuple[int, int]:
    """Return when a zone changes its clock, or the clock's name, for the first time, and its first standard time."""
    info = _zone(zone)
    before = _local_time(info, _FIRST)

    def is_changed(second: int) -> bool:
        then = _local_time(info, second)
        return (then.utcoffset(), then.tzname()) != (before.utcoffset(), before.tzname())

    month = next((m for m in range(_FIRST, _LATEST_FIRST_CHANGE, _MONTH) if is_changed(m + _MONTH)), None)
    if month is None:
        return _FIRST, _offset(info, _FIRST)
    first = month + bisect_left(range(month, month + _MONTH), True, key=is_changed)
    later = (_local_time(info, second) for second in range(first, first + 10 * _YEAR, _DAY))
    standard = next((moment for moment in later if not moment.dst()), _local_time(info, first))
    return first, _seconds(standard.utcoffset())


def _offset(info: ZoneInfo, second: int) -> int:
    return _seconds(_local_time(info, second).utcoffset())


def _local_time(info: ZoneInfo, second: int) -> datetime:
    return (_EPOCH + timedelta(seconds=second)).astimezone(info)


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // timedelta(seconds=1)


def old_days_in_proleptic(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the proleptic numbers of those ``days`` (Julian, since 1970-01-01) that are before 1582-10-15."""
    old = days[days < GREGORIAN_DAY]
    years = (4 * (old + _MARCH_0) + 3) // 1461
    moved: NDArray[np.int64] = old + 2 - years // 100 + years // 400
    return moved
