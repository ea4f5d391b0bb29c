"""Bodies of plan requests, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.serving.protocol import requests
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.protocol.requests import (
    UNREADABLE,
    parse_plan_request,
    parse_tasks_request,
    without_filter,
)


def test_a_request_of_spark() -> None:
    body = (
        b'{"snapshot-id":3223837650607489056,"select":["l_orderkey","l_partkey"],"case-sensitive":false,'
        b'"use-snapshot-schema":true,"filter":{"type":"eq","term":"l_shipdate","value":8599}}'
    )
    asked = parse_plan_request(body)
    assert asked.snapshot_id == 3223837650607489056
    assert asked.select == ("l_orderkey", "l_partkey")
    assert not asked.case_sensitive
    assert asked.filter == {"type": "eq", "term": "l_shipdate", "value": 8599}


def test_a_request_without_a_filter_asks_for_all() -> None:
    assert parse_plan_request(b"{}").filter is True
    assert parse_plan_request(b'{"filter":null}').filter is True
    assert parse_plan_request(b'{"filter":false}').filter is False


BAD: list[Any] = [
    [], 1, {"snapshot-id": "1"}, {"snapshot-id": True}, {"snapshot-id": 2**63}, {"select": "a"}, {"select": [1]},
    {"filter": "a = 1"}, {"filter": []}, {"case-sensitive": "no"}, {"min-rows-requested": -1}, {"stats-fields": 1},
    {"use-snapshot-schema": 0}, {"snapshot-id": 1, "start-snapshot-id": 1},
]  # fmt: skip


@pytest.mark.parametrize("document", BAD, ids=str)
def test_bad_requests(document: Any) -> None:
    with pytest.raises(RefusedRequestError) as caught:
        parse_plan_request(json.dumps(document).encode())
    assert caught.value.answer is ErrorType.BAD_REQUEST


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"snapshot-id":1e999999999999999999999}', b"[" * 100_000])
def test_no_json(body: bytes) -> None:
    with pytest.raises(RefusedRequestError):
        parse_plan_request(body)


def test_incremental_scans_are_refused() -> None:
    with pytest.raises(RefusedRequestError) as caught:
        parse_plan_request(b'{"start-snapshot-id":1,"end-snapshot-id":2}')
    assert caught.value.answer is ErrorType.UNSUPPORTED


@pytest.mark.parametrize(
    "start", [b'{"filter":', b'{"select":["}{\\"filter\\":"],"filter" : ', b'{"a":{"filter":1},"filter":']
)
def test_a_filter_that_is_too_deep_is_left_out(start: bytes) -> None:
    deep = b'{"type":"not","child":' * 20_000 + b"true" + b"}" * 20_000
    asked = parse_plan_request(start + deep + b',"snapshot-id":7}')
    assert asked.filter == {"type": UNREADABLE, "terms": []}
    assert asked.snapshot_id == 7
    assert parse_plan_request(start + deep + b"}").filter == asked.filter


def test_a_parser_that_reads_any_depth_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Python 3.14 does."""
    nested: Any = True
    for _ in range(1_000):
        nested = {"type": "not", "child": nested}
    read = requests.parse_json
    monkeypatch.setattr(requests, "parse_json", lambda text: {"filter": nested} if "deep" in text else read(text))
    assert parse_plan_request(b'{"filter":{"type":"not","child":"deep"}}').filter["type"] == UNREADABLE


def test_the_columns_of_a_filter_that_is_too_deep_are_known() -> None:
    leaf = '{"type":"eq","term":{"type":"transform","transform":"day","term":"a\\"b"},"value":"term"}'
    for _ in range(20_000):
        leaf = '{"type":"not","child":' + leaf + "}"
    deep = '{"type":"and","left":{"type":"eq", "term" : "c","value":":"},"right":' + leaf + "}"
    assert parse_plan_request(f'{{"filter":{deep}}}'.encode()).filter["terms"] == ["c", 'a"b']


JSON = st.none() | st.text(max_size=9) | st.integers() | st.dictionaries(st.text(max_size=3), st.text(max_size=3))


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=9), JSON, max_size=4), st.integers())
def test_only_the_filter_is_left_out(document: dict[str, Any], number: int) -> None:
    document = {**document, "filter": {"a": [number, '"}']}}
    left_out = {"type": UNREADABLE, "terms": []}
    assert json.loads(without_filter(json.dumps(document))) == {**document, "filter": left_out}


def test_hostile_texts_take_no_long_time() -> None:
    """An unterminated text with many quotes is looked at once."""
    text = '{"filter":"' + '\\"' * 400_000
    assert without_filter(text)


def test_requests_for_pages() -> None:
    assert parse_tasks_request(b'{"plan-task":"abc"}') == "abc"
    for body in (b"{}", b'{"plan-task":1}'):
        with pytest.raises(RefusedRequestError):
            parse_tasks_request(body)
