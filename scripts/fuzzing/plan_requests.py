"""Requests of the server: filters in JSON, page tokens, paths, names and headers, through the whole application."""

from __future__ import annotations

import json
import logging
import random
import tempfile
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa

from scripts.fuzzing.cases import Case, Change, Fuzzer, WrongAnswerError
from scripts.fuzzing.mutation import bytes_like, damaged, text_like
from scripts.fuzzing.trees import DEEP, json_changed, json_extended
from sidecar.errors import UsageError
from sidecar.serving import application
from sidecar.serving.operations import observed
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.protocol.errors import place_of
from sidecar.serving.settings import ServeSettings
from tests.serving.asgi import Answer, ask
from tests.tables import create_with_rows, new_catalog

TABLE = "/v1/namespaces/db/tables/fuzzed"
PLAN, TASKS = f"{TABLE}/plan", f"{TABLE}/tasks"
FILES, ROWS = 4, 6
COLUMNS = ("n", "s", "d", "f", "b", "day")
STATUSES = {200, 204, 304, 400, 403, 404, 405, 406, 413, 421}
"""What the server may answer. 500 is an error that nobody thought of."""


def rows(file: int) -> pa.Table:
    """Rows without null and NaN, so that each meets a filter or its negation."""
    numbers = [file * ROWS + row for row in range(ROWS)]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": [f"text {n}" for n in numbers],
            "d": pa.array([n / 4 for n in numbers], pa.float64()),
            "f": pa.array([n / 2 for n in numbers], pa.float32()),
            "b": pa.array([n.to_bytes(2, "big") for n in numbers], pa.binary()),
            "day": pa.array(numbers, pa.date32()),
        }
    )


LITERALS: dict[str, list[Any]] = {
    "n": [7, -1, 1 << 70, 7.5, "7", None, True],
    "s": ["text 7", "", "\ud800", 7],
    "d": [1.75, 7, "Infinity", 1e400, "NaN"],
    "f": [3.5, 0.1, 16777217],
    "b": ["0007", "zz", ""],
    "day": [7, "1970-01-08", "2024-13-01", 1 << 40],
}


def a_filter(rng: random.Random, depth: int = 0) -> Any:
    """A filter that the protocol allows, or nearly."""
    way = rng.random()
    if depth < 4 and way < 0.35:
        left, right = a_filter(rng, depth + 1), a_filter(rng, depth + 1)
        return {"type": rng.choice(("and", "or")), "left": left, "right": right}
    if depth < 4 and way < 0.45:
        return {"type": "not", "child": a_filter(rng, depth + 1)}
    column = rng.choice(COLUMNS)
    if way < 0.55:
        return {"type": rng.choice(("is-null", "not-null", "is-nan", "not-nan")), "term": column}
    if way < 0.7:
        values = [rng.choice(LITERALS[column]) for _ in range(rng.choice((1, 3, 300)))]
        return {"type": rng.choice(("in", "not-in")), "term": column, "values": values}
    kinds = ("eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq", "starts-with", "not-starts-with")
    return {"type": rng.choice(kinds), "term": column, "value": rng.choice(LITERALS[column])}


class PlanRequests(Fuzzer):
    """A seed is JSON: method, target, headers and body of a request."""

    name = "plan-request"
    what = "plan requests of the server: filters, page tokens, headers"
    TOKEN_KEY: ClassVar[bytes] = b"key of the pages"

    def make_seeds(self) -> list[bytes]:
        self.folder = tempfile.TemporaryDirectory()
        place = self.folder.name
        catalog = new_catalog(place, "fuzzed")
        create_with_rows(catalog, "db.fuzzed", [rows(file) for file in range(FILES)], columns=["n", "s"])
        planner = ScanPlanner(self.TOKEN_KEY, page_files=2, shares_manifests=True)
        with patch.object(application, "open_catalog", lambda name: catalog):
            self.app = application.application_with(ServeSettings(), planner)
        for log in (observed.log, application.log):
            log.setLevel(logging.CRITICAL)
        whole = ask(self.app, "POST", PLAN.encode(), pieces=[b"{}"]).document
        some = {"type": "eq", "term": "n", "value": 7}
        requests = [
            ("POST", PLAN, {"filter": some}),
            ("POST", PLAN, {"filter": {"type": "or", "left": some, "right": some}, "select": ["n", "s"]}),
            ("POST", PLAN, {"case-sensitive": False, "use-snapshot-schema": True, "stats-fields": ["n"]}),
            ("POST", TASKS, {"plan-task": whole["plan-tasks"][0]}),
            ("GET", TABLE, None),
            ("GET", "/v1/config?warehouse=w", None),
            ("GET", "/v1/namespaces/db/tables?pageToken=", None),
        ]
        return [self._seed(method, target, body) for method, target, body in requests]

    @staticmethod
    def _seed(method: str, target: str, body: Any) -> bytes:
        text = "" if body is None else json.dumps(body)
        request = {"method": method, "target": target, "headers": [["host", "localhost:8181"]], "body": text}
        return json.dumps(request).encode()

    def changed(self, rng: random.Random, seed: int) -> bytes:
        request = json.loads(self.seeds[seed])
        way = rng.random()
        if request["body"] and way < 0.7:
            body = json.loads(request["body"])
            if seed < 3 and rng.random() < 0.7:
                body["filter"] = a_filter(rng)
            if rng.random() < 0.6:
                body = json_changed(rng, body)
            request["body"] = json.dumps(body)
            if rng.random() < 0.02:
                request["body"] = '{"filter":' + '{"type":"not","child":' * DEEP + "true" + "}" * DEEP + "}"
        elif way < 0.85:
            request["target"] = text_like(rng, request["target"]).encode("utf-8", "replace").decode("latin-1")
        else:
            request = self._with_header(rng, request)
        return json.dumps(request).encode()

    @staticmethod
    def _with_header(rng: random.Random, request: dict[str, Any]) -> dict[str, Any]:
        names = ("host", "content-length", "if-none-match", "authorization", "accept-encoding", "content-type")
        name = rng.choice((*names, "x-iceberg-access-delegation", "user-agent"))
        values = ("", "localhost", "evil.example", "99999999999999", "-1", "*", '"a"', "Bearer x", "\xff\xfe", "gzip")
        request["headers"].append([name, rng.choice(values)])
        if rng.random() < 0.3:
            request["headers"].pop(0)
        return request

    def blind(self, rng: random.Random, seed: int) -> bytes:
        """Other bytes of the body, also inside a page token."""
        request = json.loads(self.seeds[seed])
        if request["target"] == TASKS:
            token = json.loads(request["body"])["plan-task"]
            changed = urlsafe_b64encode(bytes_like(rng, urlsafe_b64decode(token))).decode()
            request["body"] = json.dumps({"plan-task": rng.choice((changed, text_like(rng, token)))})
        else:
            request["body"] = damaged(rng, request["body"].encode()).decode("latin-1")
        return json.dumps(request).encode()

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        """A member that the protocol does not have, beside those of the request."""
        request = json.loads(self.seeds[seed])
        if not request["body"]:
            return None
        body = json.loads(request["body"]) | {"later": json_extended(rng, {"a": 1})}
        request["body"] = json.dumps(body)
        return json.dumps(request).encode()

    def read(self, case: Case) -> None:
        request = json.loads(case.data)
        answer = self._answer(request)
        if case.change is Change.NEUTRAL and self._paths(answer) != self._paths(
            self._answer(json.loads(self.seeds[case.seed]))
        ):
            raise WrongAnswerError("a member that nobody knows changes the plan")
        is_page = case.change is Change.BLIND and request["target"] == TASKS and answer.status == 200
        if is_page and self._paths(answer) != self._paths(self._answer(json.loads(self.seeds[case.seed]))):
            raise WrongAnswerError("a changed page token is another page")
        if answer.status == 200 and request["method"] == "POST" and request["target"] == PLAN:
            self._check_other_filters(request, answer)
        if answer.status >= 400:
            raise UsageError("the request is refused")

    def _answer(self, request: dict[str, Any]) -> Answer:
        target = request["target"].encode("latin-1", "replace")
        headers = [(name.encode(), value.encode("latin-1")) for name, value in request["headers"]]
        pieces = [request["body"].encode("utf-8", "surrogatepass")]
        try:
            answer = ask(self.app, request["method"], target, headers, pieces)
        except Exception as error:
            raise WrongAnswerError(f"no answer: {place_of(error)}") from error
        if answer.status not in STATUSES:
            raise WrongAnswerError(f"status {answer.status}: {answer.body[:200]!r}")
        if answer.status >= 400:
            assert answer.error
        return answer

    def _paths(self, answer: Answer) -> set[str] | int:
        """The files of a plan and of all of its pages; the status if there is no plan."""
        if answer.status != 200 or b"file-scan-tasks" not in answer.body:
            return answer.status
        document = answer.document
        found = {one["data-file"]["file-path"] for one in document["file-scan-tasks"]}
        for token in document.get("plan-tasks", ()):
            body = json.dumps({"plan-task": token})
            further = self._paths(
                self._answer({"method": "POST", "target": TASKS, "headers": [["host", "localhost"]], "body": body})
            )
            if isinstance(further, int):
                raise WrongAnswerError(f"a page of a plan is answered with {further}")
            found |= further
        return found

    def _check_other_filters(self, request: dict[str, Any], answer: Answer) -> None:
        """Compare the plan with those of two other filters.

        Each row meets the filter or its negation, so that the two plans have all files. A predicate that nobody knows
        may mean anything, so whatever the filter keeps is kept if one takes the place of a predicate.
        """
        try:
            document = json.loads(request["body"])
        except RecursionError:  # the server leaves out filters that are nested too deeply
            return
        given = document.get("filter", True)
        files = self._paths(answer)
        others = self._plan_of(request, document | {"filter": {"type": "not", "child": given}})
        if isinstance(files, set) and isinstance(others, set) and len(files | others) < FILES:
            raise WrongAnswerError("files are neither in the plan of a filter nor in that of its negation")
        others = self._plan_of(request, document | {"filter": _with_unknown(given)})
        # The server adds a file to plans that have none, or only files that match wholly.
        if isinstance(files, set) and isinstance(others, set) and len(files - others) > 1:
            raise WrongAnswerError("a predicate that nobody knows drops files")

    def _plan_of(self, request: dict[str, Any], document: Any) -> set[str] | int:
        return self._paths(self._answer(request | {"body": json.dumps(document)}))


def _with_unknown(node: Any) -> Any:
    """The filter with a predicate that nobody knows in the place of its first one."""
    if not isinstance(node, dict):
        return node
    for name in ("child", "left"):
        if name in node:
            return node | {name: _with_unknown(node[name])}
    return {"type": "later", "term": "n"}
