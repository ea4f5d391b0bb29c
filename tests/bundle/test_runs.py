"""What a file says about its runs is read or ignored, whatever numbers its JSON has."""

from __future__ import annotations

import json

import pytest

from sidecar.bundle.runs import HISTORY_PROPERTY, STATE_PROPERTY, history_of, state_of

STATE = '{"snapshot":7,"mapping":"","columns":{"1":{"type":"long","kinds":["bloom"],"fpp":0.01,"left":{"bloom":2}}}}'
RUN = (
    '{"at":"2024","seconds":1.5,"what":"build","snapshot_id":7,"files":1,"indexed":1,"carried":0,"left":0,'
    '"bytes_read":9,"bytes_carried":0}'
)


def test_a_state_and_a_run_are_read() -> None:
    state = state_of({STATE_PROPERTY: STATE})
    assert state is not None
    assert state.snapshot_id == 7
    assert state.columns[1].left == {"bloom": 2}
    assert [run.seconds for run in history_of({HISTORY_PROPERTY: f"[{RUN}]"})] == [1.5]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN"])
@pytest.mark.parametrize("place", ['"snapshot":7', '"bloom":2'])
def test_a_state_with_a_count_that_no_integer_holds_is_ignored(place: str, number: str) -> None:
    text = STATE.replace(place, f"{place.rpartition(':')[0]}:{number}")
    assert text != STATE
    assert state_of({STATE_PROPERTY: text}) is None


def test_a_state_with_a_rate_that_no_float_holds_is_ignored() -> None:
    assert state_of({STATE_PROPERTY: STATE.replace("0.01", "1" + "0" * 400)}) is None


@pytest.mark.parametrize("number", ["1e999", "-1", "NaN", "1" + "0" * 400])
def test_a_run_whose_seconds_are_no_duration_is_left_out(number: str) -> None:
    """JSON has neither NaN nor Infinity, so a result with one is not readable for others."""
    runs = history_of({HISTORY_PROPERTY: f"[{RUN.replace('1.5', number)},{RUN}]"})
    assert [run.seconds for run in runs] == [1.5]
    json.dumps([run.to_dict() for run in runs], allow_nan=False)
