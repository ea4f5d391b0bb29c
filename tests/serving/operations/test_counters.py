"""Counts of several workers add up, and are text that Prometheus reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.serving.operations.counters import SLOT, SLOTS, Counters
from sidecar.serving.operations.metrics import BUCKETS, METRICS, exposition, observe_seconds, sample


def test_each_worker_knows_the_counts_of_all(tmp_path: Path) -> None:
    first, second = Counters(str(tmp_path)), Counters(str(tmp_path))
    first.add("a")
    second.add("a", 2.5)
    second.add("b")
    assert first.totals() == second.totals() == {"a": 3.5, "b": 1.0}
    assert Counters(str(tmp_path)).totals() == {"a": 3.5, "b": 1.0}


def test_counts_of_one_process_need_no_folder() -> None:
    one, other = Counters(), Counters()
    one.add("a")
    assert (one.totals(), other.totals()) == ({"a": 1.0}, {})


def test_memory_is_bounded(tmp_path: Path) -> None:
    counters = Counters(str(tmp_path))
    counters.add("x" * SLOT)
    for number in range(SLOTS + 10):
        counters.add(f"n{number}")
    assert counters.totals() == {f"n{number}": 1.0 for number in range(SLOTS)}
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [SLOT * SLOTS]


def test_a_file_that_is_not_whole_yet_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    counters = Counters(str(tmp_path))
    counters.add("a")
    (tmp_path / "0.counts").write_bytes(b"")
    assert counters.totals() == {"a": 1.0}


def test_labels_are_words() -> None:
    assert sample("m", reason="no-sidecar") == 'm{reason="no-sidecar"}'
    for odd in ('x"} evil 1\n', "", "with space", "x" * 50):
        assert sample("m", reason=odd) == 'm{reason="other"}'


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.0011, 9.9, 11.0])
def test_buckets_hold_all_times_up_to_their_bounds(seconds: float) -> None:
    counters = Counters()
    observe_seconds(counters, "sidecar_plan_seconds", seconds)
    text = exposition(counters.totals())
    for bound in BUCKETS:
        assert f'sidecar_plan_seconds_bucket{{le="{bound:g}"}} {int(seconds <= bound)}\n' in text
    assert 'sidecar_plan_seconds_bucket{le="+Inf"} 1\n' in text
    assert "sidecar_plan_seconds_count 1\n" in text


def test_every_line_is_in_the_format_of_prometheus() -> None:
    counters = Counters()
    counters.add(sample("sidecar_plans_total", route="plan", result="ok"))
    lines = exposition(counters.totals()).splitlines()
    names = set()
    for line in lines:
        if line.startswith("# "):
            kind, name, *_ = line[2:].split(" ")
            assert kind in ("HELP", "TYPE")
            names.add(name)
            continue
        assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? [0-9.e+-]+', line), line
    assert names == set(METRICS)
