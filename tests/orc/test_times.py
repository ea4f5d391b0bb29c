"""A TIMESTAMP is the wall clock of its writer's zone, in any year: after the last change that a zone's file lists too.

Oracles: :mod:`zoneinfo`, asked value by value, and ORC's C++ reader (PyORC).
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from io import BytesIO
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyorc
import pytest

from sidecar.errors import UnsupportedFeatureError
from sidecar.orc.times import instant_of, wall_clock
from sidecar.orc.verify.verify import verify_file
from sidecar.reading.scanning import scan
from sidecar.storage.source import BytesSource
from tests.orc.decode_cases import orc_file
from tests.orc.lies import Statements

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
ZONES = {
    "America/Los_Angeles": "daylight saving by a rule at the end of the file",
    "America/Santiago": "summer in the south",
    "Europe/Dublin": "a winter time that is less than the standard time",
    "Africa/Casablanca": "changes listed until 2087, by the moon",
    "Asia/Gaza": "changes listed until 2086, and then a rule",
    "Asia/Jerusalem": "a rule with an hour beyond 24",
    "Australia/Lord_Howe": "half an hour of daylight saving",
    "Antarctica/Troll": "two hours of daylight saving",
    "Pacific/Apia": "a day that was left out",
    "Europe/Moscow": "standard times that changed, no rule",
    "Asia/Shanghai": "no rule, a first change after 1900",
    "Etc/GMT+8": "no change at all",
}


def shown(second: int, zone: ZoneInfo) -> int:
    offset = (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return second + int(offset.total_seconds())


def changes(zone: ZoneInfo, first: int, years: int) -> list[int]:
    """The seconds at which a zone changes its offset, found one by one."""
    found: list[int] = []
    for start in range(first, first + years * 31_556_952, 86_400):
        low, high = start, start + 86_400
        if shown(low, zone) - low == shown(high, zone) - high:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            is_later = shown(middle, zone) - middle == shown(high, zone) - high
            low, high = (low, middle) if is_later else (middle, high)
        found.append(high)
    return found


@pytest.mark.parametrize("name", ZONES)
def test_the_wall_clock_is_that_of_the_zone(name: str) -> None:
    """At changes of the clock too, from which on an hour is left out or shown twice."""
    rng, zone = random.Random(name), ZoneInfo(name)
    near = [2_145_000_000, 4_000_000_000, 4_102_000_000, rng.randrange(5 * 10**9, 2 * 10**11)]
    edges = [edge for first in near for edge in changes(zone, first, 2)]
    seconds = [edge + step for edge in edges for step in (-3601, -1, 0, 1, 3600)]
    seconds += [rng.randrange(-1_400_000_000, 2_000_000_000) for _ in range(300)]
    seconds += [rng.randrange(2_000_000_000, 250_000_000_000) for _ in range(300)]
    rng.shuffle(seconds)
    assert wall_clock(np.array(seconds), name).tolist() == [shown(second, zone) for second in seconds]


def test_years_beyond_the_calendar_of_python() -> None:
    cycle = 146_097 * 86_400
    seconds = np.array([4_120_000_000, 4_130_000_000, 4_140_000_000])
    for cycles in (25, 700):
        moved = wall_clock(seconds + cycles * cycle, "Europe/Paris")
        assert (moved - cycles * cycle).tolist() == wall_clock(seconds, "Europe/Paris").tolist()


def test_no_instants_and_unknown_zones() -> None:
    nothing = np.empty(0, np.int64)
    assert len(wall_clock(nothing, "Europe/Paris")) == 0
    for zone in ("Nowhere/Land", "../zone", ""):
        with pytest.raises(UnsupportedFeatureError, match="unknown time zone"):
            wall_clock(nothing, zone)
        with pytest.raises(UnsupportedFeatureError, match="unknown time zone"):
            instant_of(datetime(2015, 1, 1), zone)


def written(zone: str, instants: list[datetime], stride: int = 100) -> bytes:
    """A file of these instants in UTC, whose writer is in ``zone``: ORC's C++ writer, by PyORC."""
    out = BytesIO()
    with pyorc.Writer(
        out, "struct<n:bigint,t:timestamp>", timezone=ZoneInfo(zone), row_index_stride=stride, batch_size=stride
    ) as writer:
        writer.writerows(enumerate(instants))
    return out.getvalue()


@pytest.mark.parametrize("name", ZONES)
def test_files_are_read_as_by_the_c_reader(name: str) -> None:
    """Before the first change of a zone, around 1970 with fractions of a second, and centuries ahead."""
    rng = random.Random(name)
    eras = [(-10_000_000_000, -2_000_000_000), (-2_000_000_000, 0), (-3, 3), (0, 2**31), (2**31, 9_000_000_000)]
    instants = [
        (EPOCH + timedelta(seconds=rng.randrange(*era), microseconds=rng.choice([0, 1, 999, 1_000, 500_000, 999_999])))
        for era in eras
        for _ in range(100)
    ]
    data = written(name, instants)
    wanted = [row[1].replace(tzinfo=None) for row in pyorc.Reader(BytesIO(data))]
    file = orc_file(data)
    (stripe,) = file.tail.stripes
    for found in (
        file.groups(stripe, file.tail.columns[2]),
        [file.group(stripe, i, file.tail.columns[2]) for i in range(5)],
    ):
        assert pa.concat_arrays([one.cast(pa.timestamp("us")) for one in found]).to_pylist() == wanted


def test_a_scan_finds_timestamps_after_2037() -> None:
    """By the wall clock that was written; its hour of summer time was lost."""
    years = (2030, 2036, 2037, 2038, 2050, 2200)
    noons = [datetime(year, 7, 1, 12, tzinfo=ZoneInfo("America/Los_Angeles")) for year in years]
    source = BytesSource(written("America/Los_Angeles", [noon.astimezone(timezone.utc) for noon in noons]))
    for number, noon in enumerate(noons):
        wall = noon.replace(tzinfo=None)
        found: Any = scan(source, f"t = '{wall.isoformat()}'")
        assert found.to_pylist() == [{"n": number, "t": wall}]


def test_without_a_zone_a_timestamp_is_what_is_stored() -> None:
    """Hive 0.11 and Presto name none. Bounds and filters of such times are not believed."""
    times = pa.array([datetime(2020, 1, 1) + timedelta(days=n, microseconds=7) for n in range(300)], pa.timestamp("ns"))
    sink = BytesIO()
    pyarrow.orc.write_table(pa.table({"t": times}), sink, bloom_filter_columns=[0], row_index_stride=1000)
    statements = Statements(sink.getvalue())
    for stripe in statements.stripes:
        stripe.footer.fields[:] = [field for field in stripe.footer.fields if field[0] != 3]
    data = BytesSource(statements.file())
    assert scan(data, "true")["t"].equals(pa.chunked_array([times]))
    found = scan(data, "t >= '2020-10-20' or t = '2020-01-02T00:00:00.000007'")
    assert found["t"].to_pylist() == [times[1].as_py(), *times[293:].to_pylist()]
    assert verify_file(data) == []
