"""The line about the time of a run counts each test once, in one share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.ci_time import LIMITS, MOST, shares_line


def report(nodeid: str, duration: float, *markers: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, duration=duration, keywords=dict.fromkeys(markers, 1))


def test_work_is_divided_among_workers_and_shares() -> None:
    reports = [
        report("tests/orc/test_tail.py::test_a", 30.0),
        report("tests/orc/test_tail.py::test_a", 10.0, "jvm"),  # its set-up
        report("tests/faults/test_killed.py::test_b", 20.0),
        report("tests/life/test_lives.py::test_c", 4.0),
        report("tests/test_fuzzing_detection.py::test_d", 6.0),
        report("tests/faults/test_failing_s3.py::test_e", 8.0, "services"),
        SimpleNamespace(message="a warning"),
    ]
    assert shares_line(reports, 2) == (
        "seconds of each of 2 workers: suite 20 of 450, services 4 of 240, "
        "kill, storage and life 15 of 270, in all 39 of 1,200"
    )
    assert shares_line([], 2) is None


def test_shares_fit_into_the_whole() -> None:
    assert sum(LIMITS.values()) < MOST
