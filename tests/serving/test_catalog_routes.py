"""Routes of the read-only catalog: what is answered, what is refused, and the form of errors."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sidecar.serving.catalog_routes import catalog_routes
from sidecar.serving.planning.scan_planner import ScanPlanner
from tests.iceberg.cases import local, replaced
from tests.tables import create_with_rows

ROWS = pa.table({"n": [1, 2], "s": ["a", "b"]})
TABLE = "/v1/namespaces/db/tables/served_routes"


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return create_with_rows(catalog, "db.served_routes", [ROWS], columns=["s"])


@pytest.fixture(scope="module")
def client(catalog: Any, table: Table) -> Iterator[TestClient]:
    with client_of(catalog) as found:
        yield found


def client_of(catalog: Any, **options: Any) -> TestClient:
    return TestClient(Starlette(routes=catalog_routes(catalog, ScanPlanner(**options))))


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status
    found: dict[str, Any] = answer.json()["error"]
    assert found["code"] == status
    return found


def test_config_lists_nothing_that_writes(client: TestClient) -> None:
    found = client.get("/v1/config?warehouse=x").json()
    assert found["defaults"] == {"scan-planning-mode": "server"}  # a client's own setting overrules a default
    assert found["overrides"] == {}
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan" in found["endpoints"]
    writing = [one for one in found["endpoints"] if not one.startswith(("GET ", "HEAD "))]
    assert {one.rpartition("/")[2] for one in writing} == {"plan", "tasks", "{plan-id}"}


def test_namespaces_and_tables(client: TestClient) -> None:
    assert ["db"] in client.get("/v1/namespaces").json()["namespaces"]
    assert client.get("/v1/namespaces/db").json()["namespace"] == ["db"]
    assert {"namespace": ["db"], "name": "served_routes"} in client.get("/v1/namespaces/db/tables").json()[
        "identifiers"
    ]
    assert client.head("/v1/namespaces/db").status_code == 204
    assert client.head(TABLE).status_code == 204
    assert client.head("/v1/namespaces/db/tables/nope").status_code == 404
    assert client.get("/v1/namespaces/db/views").json() == {"identifiers": []}


MISSING = [
    ("GET", "/v1/namespaces/nope", "NoSuchNamespaceException"),
    ("GET", "/v1/namespaces/db/tables/nope", "NoSuchTableException"),
    ("POST", "/v1/namespaces/db/tables/nope/plan", "NoSuchTableException"),
    ("GET", "/v1/namespaces/db/views/v", "NoSuchViewException"),
    ("GET", f"{TABLE}/plan/7", "NoSuchPlanIdException"),
    ("GET", f"{TABLE}/nope", "NotFoundException"),
    ("GET", "/v1/", "NotFoundException"),
    ("POST", "/v1/nope", "NotFoundException"),
]


@pytest.mark.parametrize(("method", "path", "kind"), MISSING)
def test_what_is_not_there(client: TestClient, method: str, path: str, kind: str) -> None:
    assert error_of(client.request(method, path, content=b"{}" if method == "POST" else None), 404)["type"] == kind


WRITES = [
    ("POST", "/v1/namespaces"), ("DELETE", "/v1/namespaces/db"), ("POST", "/v1/namespaces/db/properties"),
    ("POST", "/v1/namespaces/db/tables"), ("POST", TABLE), ("DELETE", TABLE), ("POST", "/v1/tables/rename"),
    ("POST", "/v1/namespaces/db/register"), ("POST", "/v1/transactions/commit"), ("POST", "/v1/namespaces/db/views"),
    ("PUT", TABLE), ("PATCH", TABLE),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_writes_are_forbidden(client: TestClient, method: str, path: str) -> None:
    """Clients repeat commits that are answered with 409 or 5xx."""
    error = error_of(client.request(method, path, content=b"{}" if method == "POST" else None), 403)
    assert error["type"] == "ForbiddenException"
    assert "read-only" in error["message"]


def test_plans_need_not_be_cancelled(client: TestClient) -> None:
    assert client.delete(f"{TABLE}/plan/7").status_code == 204


def test_bad_requests(client: TestClient) -> None:
    assert error_of(client.post(f"{TABLE}/plan", content=b"no JSON"), 400)["type"] == "BadRequestException"
    assert error_of(client.post(f"{TABLE}/tasks", json={"plan-task": "x"}), 404)["type"] == "NoSuchPlanTaskException"
    error_of(client.post(f"{TABLE}/plan", json={"snapshot-id": 1}), 400)
    error_of(client.post(f"{TABLE}/plan", json={"start-snapshot-id": 1, "end-snapshot-id": 2}), 406)
    error_of(client.get("/v1/namespaces/%ff"), 400)
    error_of(client.get("/v1/namespaces/a%1F"), 400)


def test_a_plan(client: TestClient) -> None:
    answer = client.post(f"{TABLE}/plan", json={"filter": {"type": "eq", "term": "s", "value": "a"}})
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert len(answer.json()["file-scan-tasks"]) == 1


def test_a_table_is_loaded_as_it_is_written(catalog: Any, client: TestClient, table: Table) -> None:
    """pyiceberg's model leaves out what it does not know."""
    found = client.get(TABLE).json()
    assert found["metadata-location"] == table.metadata_location
    assert found["metadata"] == json.loads(local(table.metadata_location).read_text())
    assert found["config"] == {}  # only "client" is ever said: a client that plans by itself is not overruled


def test_a_compressed_metadata_file(catalog: Any, client: TestClient, table: Table) -> None:
    packed = table.metadata_location.replace(".metadata.json", ".gz.metadata.json")
    local(packed).write_bytes(gzip.compress(local(table.metadata_location).read_bytes()))
    catalog.register_table("db.served_routes_packed", packed)
    assert client.get("/v1/namespaces/db/tables/served_routes_packed").json()["metadata"]["table-uuid"]


def test_an_unchanged_table_is_not_sent_again(catalog: Any, client: TestClient) -> None:
    table = create_with_rows(catalog, "db.served_routes_tag", [ROWS])
    path = "/v1/namespaces/db/tables/served_routes_tag"
    tag = client.get(path).headers["etag"]
    again = client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.serve": "true"})
    changed = client.get(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_each_version_of_a_table_is_parsed_once(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_with_rows(catalog, "db.served_routes_kept", [ROWS])
    loads: list[Any] = []
    real = catalog.load_table
    monkeypatch.setattr(catalog, "load_table", lambda name: (loads.append(name), real(name))[1])
    path, client = "/v1/namespaces/db/tables/served_routes_kept", client_of(catalog)

    def files() -> int:
        return len(client.post(f"{path}/plan", json={}).json()["file-scan-tasks"])

    assert [files(), files()] == [1, 1]
    assert len(loads) == 1
    table.append(ROWS)
    assert files() == 2
    catalog.drop_table("db.served_routes_kept")
    assert client.post(f"{path}/plan", json={}).status_code == 404


def test_statistics_that_pyiceberg_refuses(catalog: Any) -> None:
    """Trino leaves such metadata behind."""
    table = create_with_rows(catalog, "db.served_routes_refused", [ROWS], columns=["s"])
    place = local(table.metadata_location)
    document = json.loads(place.read_text())
    blob = {"type": "unknown-v9", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    document["statistics"][0]["blob-metadata"] = [blob]
    with replaced(place, json.dumps(document).encode()):
        with pytest.raises(ValidationError, match="unknown-v9"):
            catalog.load_table("db.served_routes_refused")
        found = client_of(catalog).post("/v1/namespaces/db/tables/served_routes_refused/plan", json={})
    assert len(found.json()["file-scan-tasks"]) == 1


def test_names_with_slashes_and_levels(catalog: Any, client: TestClient) -> None:
    catalog.create_namespace_if_not_exists("db.inner")
    assert error_of(client.get("/v1/namespaces/db/tables/a%2Fb"), 404)["type"] == "NoSuchTableException"
    assert client.get("/v1/namespaces/db%1Finner").json()["namespace"] == ["db", "inner"]
    assert ["db", "inner"] in client.get("/v1/namespaces?parent=db").json()["namespaces"]


def test_texts_of_foreign_errors_are_not_sent(catalog: Any, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(identifier: Any) -> None:
        raise ConnectionError("postgresql://user:password@host")

    monkeypatch.setattr(catalog, "load_table", fail)
    error = error_of(client_of(catalog).get(TABLE), 500)
    assert "password" not in json.dumps(error)


def register_newest(catalog: Any, name: str, table: Table) -> None:
    """A table of format version 3, which pyiceberg does not write."""
    document = json.loads(local(table.metadata_location).read_text())
    location = table.metadata_location.replace(".metadata.json", "-3.metadata.json")
    local(location).write_text(json.dumps({**document, "format-version": 3, "next-row-id": 0}))
    catalog.register_table(name, location)


def mode_of(client: TestClient, name: str) -> str:
    found = client.get(f"/v1/namespaces/db/tables/{name}").json()["config"]
    assert found in ({}, {"scan-planning-mode": "client"})
    return "client" if found else "server"


def test_which_tables_are_planned_by_the_client(catalog: Any, client: TestClient, table: Table) -> None:
    create_with_rows(catalog, "db.served_mode_bare", [ROWS])
    create_with_rows(catalog, "db.served_mode_asked", [ROWS], **{"sidecar.serve": "true"})
    create_with_rows(catalog, "db.served_mode_refused", [ROWS], columns=["s"], **{"sidecar.serve": "false"})
    schema = Schema(NestedField(1, "d", DoubleType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "d"))
    catalog.create_table("db.served_mode_floats", schema, partition_spec=spec, properties={"sidecar.serve": "true"})
    register_newest(catalog, "db.served_mode_newest", catalog.load_table("db.served_mode_asked"))
    assert {
        name: mode_of(client, name)
        for name in ("served_routes", "served_mode_bare", "served_mode_asked", "served_mode_refused")
    } == {
        "served_routes": "server",
        "served_mode_bare": "client",
        "served_mode_asked": "server",
        "served_mode_refused": "client",
    }
    assert mode_of(client, "served_mode_floats") == "client"  # the protocol has no partition value for NaN
    assert mode_of(client, "served_mode_newest") == "client"  # nor sequence numbers for row lineage
    assert mode_of(client_of(catalog, tables=["db.other_*"]), "served_routes") == "client"
    assert mode_of(client_of(catalog, tables=["other.*", "db.served_r*"]), "served_routes") == "server"
