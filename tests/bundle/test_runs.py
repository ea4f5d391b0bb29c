"""What a file says of its runs may be forged: whatever makes no sense is as if it were not there."""

from __future__ import annotations

import pytest

from sidecar.bundle.runs import STATE_PROPERTY, BuiltColumn, state_of

COLUMN = '"type":"long","kinds":["bloom"]'


def state(columns: str, snapshot: str = "7") -> dict[str, str]:
    return {STATE_PROPERTY: f'{{"snapshot":{snapshot},"mapping":"","columns":{columns}}}'}


def test_a_state_is_read() -> None:
    found = state_of(state(f'{{"1":{{{COLUMN},"fpp":"auto","left":0}},"2":{{{COLUMN},"fpp":0.5,"left":3}}}}'))
    assert found is not None
    assert found.columns == {1: BuiltColumn("long", ("bloom",), "auto", 0), 2: BuiltColumn("long", ("bloom",), 0.5, 3)}


@pytest.mark.parametrize("fpp", ["1e999", "NaN", "0", "1", "-1.0", "1" + "0" * 400, '"evil"', "null", "[]"])
def test_a_rate_that_makes_no_sense(fpp: str) -> None:
    assert state_of(state(f'{{"1":{{{COLUMN},"fpp":{fpp},"left":0}}}}')) is None


@pytest.mark.parametrize("number", ["1e999", "NaN", "-1", "null", "[]"])
def test_a_number_of_files_that_makes_no_sense(number: str) -> None:
    assert state_of(state(f'{{"1":{{{COLUMN},"fpp":"auto","left":{number}}}}}')) is None


@pytest.mark.parametrize("snapshot", ["1e999", "NaN", "null", "{}"])
def test_a_snapshot_that_makes_no_sense(snapshot: str) -> None:
    assert state_of(state("{}", snapshot)) is None
