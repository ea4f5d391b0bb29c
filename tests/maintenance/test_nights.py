"""``care`` alone keeps tables for some nights, with a writer between: ``scripts/torture nights`` takes ten."""

from __future__ import annotations

from pathlib import Path

from scripts.torturing.nights import run_nights


def test_two_nights_over_two_tables(tmp_path: Path) -> None:
    found = run_nights(tmp_path, tables=2, nights=2, seed=3)
    assert found.wrong == []
    assert (len(found.seconds), found.compared) == (2, 16)
    assert found.writes > 6
