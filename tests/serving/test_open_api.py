"""Requests that the protocol's published description allows, and many that it does not, are answered in its form.

Schemathesis makes the requests. Half of them are about a table that is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance
from starlette.applications import Starlette

from sidecar.serving.catalog_routes import catalog_routes
from sidecar.serving.guards import Guard
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.server import running
from sidecar.serving.settings import ServeSettings
from tests.tables import create_with_rows

SPECIFICATION = Path(__file__).parents[1] / "data" / "iceberg-rest" / "rest-catalog-open-api.yaml"
NAMESPACE, TABLE = "open_api", "t"
OPERATIONS = [
    ("GET", "/v1/config"),
    ("GET", "/v1/namespaces"),
    ("GET", "/v1/namespaces/{namespace}"),
    ("GET", "/v1/namespaces/{namespace}/tables"),
    ("GET", "/v1/namespaces/{namespace}/tables/{table}"),
    ("POST", "/v1/namespaces/{namespace}/tables/{table}/plan"),
    ("POST", "/v1/namespaces/{namespace}/tables/{table}/tasks"),
    ("GET", "/v1/namespaces/{namespace}/tables/{table}/plan/{plan-id}"),
    ("POST", "/v1/namespaces/{namespace}/tables/{table}"),
    ("DELETE", "/v1/namespaces/{namespace}/tables/{table}"),
    ("POST", "/v1/transactions/commit"),
]
EXAMPLES = 12


def described() -> dict[str, Any]:
    """The description for a server without a prefix in its paths and without authentication, with two corrections.

    A text is a value of several types, so it cannot be a value of exactly one. And complete plans need no id: a client
    would send a request to cancel each plan that has one.
    """
    found: dict[str, Any] = yaml.load(SPECIFICATION.read_text("utf-8"), yaml.CSafeLoader)
    schemas = found["components"]["schemas"]
    schemas["PrimitiveTypeValue"]["anyOf"] = schemas["PrimitiveTypeValue"].pop("oneOf")
    del schemas["CompletedPlanningWithIDResult"]["allOf"][1]["required"]
    paths = {}
    for path, item in found["paths"].items():
        prefix = {"$ref": "#/components/parameters/prefix"}
        item["parameters"] = [one for one in item.get("parameters", []) if one != prefix]
        paths[path.replace("{prefix}/", "")] = item
    return {**found, "paths": paths, "security": []}


@pytest.fixture(scope="module")
def address(catalog: Any) -> Iterator[str]:
    catalog.create_namespace(NAMESPACE)
    rows = [pa.table({"k": [part], "s": [f"s{part}"]}) for part in range(2)]
    create_with_rows(catalog, f"{NAMESPACE}.{TABLE}", rows, columns=["k"])
    chosen = ServeSettings(port=0).checked()
    app = Starlette(routes=catalog_routes(catalog, ScanPlanner(shares_manifests=True)))
    with running(chosen, Guard(app, chosen)) as url:
        yield url


@pytest.fixture(scope="module")
def description() -> Any:
    return schemathesis.openapi.from_dict(described())


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part.rpartition("/")[2])
def test_requests_are_answered_in_the_form_of_the_protocol(
    description: Any, address: str, method: str, path: str
) -> None:
    session = requests.Session()

    @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck)
    @given(case=description[path][method].as_strategy())
    def check(case: Any) -> None:
        for name, value in (("namespace", NAMESPACE), ("table", TABLE)):
            if name in case.path_parameters and len(str(case.path_parameters[name])) % 2:
                case.path_parameters[name] = value
        response = case.call(base_url=address, session=session)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            error = json.loads(response.content)["error"]
            assert error["code"] == response.status_code
            assert {type(error[name]) for name in ("message", "type")} == {str}
        elif response.content:
            case.validate_response(response, checks=[response_schema_conformance])

    check()
