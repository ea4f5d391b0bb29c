"""Reads the bodies of plan requests.

A filter can be nested too deeply for a JSON parser of limited depth: Spark writes ``a OR b OR c ...`` as a chain. Such
a filter is left out, and the request is planned as one that keeps every file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError

UNREADABLE = "unreadable"
"""The type of the filter of a request whose filter is nested too deeply: a predicate that nobody knows, so every row
may match. Its member ``terms`` has the columns that the filter names."""
_INT64 = 1 << 63
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{},:]|[^\[\]{},:"\s]+', re.DOTALL)


@dataclass(frozen=True)
class PlanRequest:
    """What a client asks to be planned."""

    snapshot_id: int | None = None
    select: tuple[str, ...] | None = None
    """The columns that the client reads; ``None`` for all."""
    filter: Any = True
    """The filter as JSON; ``True`` if there is none."""
    case_sensitive: bool = True


DEEPEST = 900
"""The most levels of nesting of a request. Code that walks a request recursively needs a bound."""


def parse_json(text: str) -> Any:
    """Parse JSON with exact numbers: ``int``, or ``Decimal`` for those with a fraction, an exponent or many digits.

    Raises ``ValueError`` or ``RecursionError``.
    """
    return json.loads(text, parse_float=_decimal, parse_int=_integer)


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= 40 else _decimal(text)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError("a number of the request is out of range") from error


def parse_plan_request(body: bytes) -> PlanRequest:
    """Read the body of a plan request.

    Raises :class:`RefusedRequestError` for anything but a request to plan one snapshot.
    """
    document = _document(body)
    if document.get("start-snapshot-id") is not None or document.get("end-snapshot-id") is not None:
        if document.get("snapshot-id") is not None:
            raise RefusedRequestError("a request cannot have both snapshot-id and start-snapshot-id")
        raise RefusedRequestError(
            "incremental scans are not planned here: plan them in the client", ErrorType.UNSUPPORTED
        )
    snapshot_id = _integer_of(document, "snapshot-id")
    rows = _integer_of(document, "min-rows-requested")
    if rows is not None and rows < 0:
        raise RefusedRequestError("min-rows-requested must not be negative")
    _texts(document, "stats-fields")
    _flag(document, "use-snapshot-schema", False)
    asked = document.get("filter")
    if asked is not None and not isinstance(asked, dict | bool):
        raise RefusedRequestError("filter must be an expression")
    return PlanRequest(
        snapshot_id,
        _texts(document, "select"),
        True if asked is None else asked,
        _flag(document, "case-sensitive", True),
    )


def parse_tasks_request(body: bytes) -> str:
    """Read the body of a request for a page and return its plan task. Raises :class:`RefusedRequestError`."""
    task = _document(body).get("plan-task")
    if not isinstance(task, str):
        raise RefusedRequestError("plan-task must be a text")
    return task


def _document(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode()
        try:
            document = parse_json(text)
            if _is_deep(document):
                raise RecursionError
        except RecursionError:
            document = parse_json(without_filter(text))
    except (ValueError, RecursionError) as error:
        raise RefusedRequestError("the body is not a JSON document") from error
    if not isinstance(document, dict):
        raise RefusedRequestError("the body must be a JSON object")
    return document


def _is_deep(document: Any) -> bool:
    """Whether a document is nested deeper than :data:`DEEPEST`. Python refuses such JSON by itself up to 3.13."""
    level: list[Any] = [[document]]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def without_filter(text: str) -> str:
    """Return a JSON object with an :data:`UNREADABLE` one for its member ``filter``, however deep that is nested."""
    depth, start, before = 0, None, ("", "")
    names: dict[str, None] = {}
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if depth == 1 and start is not None and mark in ",}":
            document = f'{{"type":"{UNREADABLE}","terms":[{",".join(names)}]}}'
            return text[:start] + document + text[token.start() :]
        if depth == 1 and mark == ":" and before[1] == '"filter"':
            start = token.end()
        if start is not None and before == ('"term"', ":") and mark.startswith('"'):
            names[mark] = None
        depth += (mark in "[{") - (mark in "]}")
        before = before[1], mark
    return text


def _integer_of(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64):
        return value
    raise RefusedRequestError(f"{name} must be a whole number of 64 bits")


def _flag(document: dict[str, Any], name: str, otherwise: bool) -> bool:
    value = document.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise RefusedRequestError(f"{name} must be true or false")
    return value


def _texts(document: dict[str, Any], name: str) -> tuple[str, ...] | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise RefusedRequestError(f"{name} must be a list of names")
    return tuple(value)
