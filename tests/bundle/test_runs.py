"""What a file says of its runs may be forged: whatever makes no sense is as if it were not there."""

from __future__ import annotations

import json

import pytest

from sidecar.bundle.runs import HISTORY_PROPERTY, STATE_PROPERTY, BuiltColumn, SidecarState, history_of, state_of


def read(fpp: str = '"auto"', left: str = "{}", snapshot: str = "7") -> SidecarState | None:
    """The state with one column, whose members are given as JSON."""
    column = f'{{"type":"long","kinds":["bloom"],"fpp":{fpp},"left":{left}}}'
    return state_of({STATE_PROPERTY: f'{{"snapshot":{snapshot},"mapping":"","columns":{{"1":{column}}}}}'})


def test_a_state_is_read() -> None:
    assert read() == SidecarState(7, "", {1: BuiltColumn("long", ("bloom",), "auto", {})})
    assert read("0.5", '{"bloom":3}') == SidecarState(7, "", {1: BuiltColumn("long", ("bloom",), 0.5, {"bloom": 3})})


@pytest.mark.parametrize("fpp", ["1e999", "NaN", "0", "1", "-1.0", "1" + "0" * 400, '"evil"', "null", "[]"])
def test_a_rate_that_makes_no_sense(fpp: str) -> None:
    assert read(fpp=fpp) is None


@pytest.mark.parametrize("number", ["1e999", "NaN", "-1", "null", "[]"])
def test_a_number_of_files_that_makes_no_sense(number: str) -> None:
    assert read(left=f'{{"bloom":{number}}}') is None


@pytest.mark.parametrize("snapshot", ["1e999", "NaN", "null", "{}"])
def test_a_snapshot_that_makes_no_sense(snapshot: str) -> None:
    assert read(snapshot=snapshot) is None


@pytest.mark.parametrize("seconds", ["1e999", "-1", "NaN", "1" + "0" * 400], ids=["infinite", "below 0", "NaN", "huge"])
def test_a_run_whose_seconds_make_no_sense(seconds: str) -> None:
    """JSON has neither NaN nor Infinity: others could not read a result with one."""
    numbers = '"snapshot_id":7,"files":1,"indexed":1,"carried":0,"left":0,"bytes_read":9,"bytes_carried":0'
    good, forged = (f'{{"at":"2024","what":"build","seconds":{text},{numbers}}}' for text in ("1.5", seconds))
    runs = history_of({HISTORY_PROPERTY: f"[{forged},{good}]"})
    assert [run.seconds for run in runs] == [1.5]
    json.dumps([run.to_dict() for run in runs], allow_nan=False)
