"""Routes of the read-only catalog: what is answered, what is refused, and the form of errors."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from starlette.applications import Starlette

from sidecar.errors import UsageError
from sidecar.serving.catalog_routes import catalog_routes
from sidecar.serving.operations import observed
from sidecar.serving.operations.counters import Counters
from sidecar.serving.operations.observed import ObservedPlanner
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.settings import ServeSettings
from tests.iceberg.cases import local, replaced
from tests.serving.asgi import OUR_NAME, Answer, ask
from tests.serving.serving_logs import plan_lines
from tests.tables import create_with_rows, iceberg_schema

ROWS = pa.table({"n": [1, 2], "s": ["a", "b"]})
TABLE = "/v1/namespaces/db/tables/served_routes"


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return create_with_rows(catalog, "db.served_routes", [ROWS], columns=["s"])


class Client:
    """Asks the routes of a catalog."""

    def __init__(self, catalog: Any, **options: Any) -> None:
        self._app = Starlette(routes=catalog_routes(catalog, ScanPlanner(**options)))

    def request(self, method: str, path: str, body: bytes = b"", tag: bytes | None = None) -> Answer:
        headers = [OUR_NAME] if tag is None else [OUR_NAME, (b"if-none-match", tag)]
        return ask(self._app, method, path.encode(), headers, [body])

    def get(self, path: str, tag: bytes | None = None) -> Answer:
        return self.request("GET", path, tag=tag)

    def post(self, path: str, document: Any) -> Answer:
        return self.request("POST", path, json.dumps(document).encode())


@pytest.fixture(scope="module")
def client(catalog: Any, table: Table) -> Client:
    return Client(catalog)


def error_of(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status
    return answer.error


def test_config_lists_nothing_that_writes(client: Client) -> None:
    found = client.get("/v1/config?warehouse=x").document
    # a client's own setting overrules a default; the second is pyiceberg 0.11's
    assert found["defaults"] == {"scan-planning-mode": "server", "rest-scan-planning-enabled": "true"}
    assert found["overrides"] == {}
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan" in found["endpoints"]
    writing = [one for one in found["endpoints"] if not one.startswith(("GET ", "HEAD "))]
    assert {one.rpartition("/")[2] for one in writing} == {"plan", "tasks", "{plan-id}"}


def test_namespaces_and_tables(client: Client) -> None:
    assert ["db"] in client.get("/v1/namespaces").document["namespaces"]
    assert client.get("/v1/namespaces/db").document["namespace"] == ["db"]
    assert {"namespace": ["db"], "name": "served_routes"} in client.get("/v1/namespaces/db/tables").document[
        "identifiers"
    ]
    assert client.request("HEAD", "/v1/namespaces/db").status == 204
    assert client.request("HEAD", TABLE).status == 204
    assert client.request("HEAD", "/v1/namespaces/db/tables/nope").status == 404
    assert client.get("/v1/namespaces/db/views").document == {"identifiers": []}


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
def test_what_is_not_there(client: Client, method: str, path: str, kind: str) -> None:
    assert error_of(client.request(method, path, b"{}" if method == "POST" else b""), 404)["type"] == kind


WRITES = [
    ("POST", "/v1/namespaces"), ("DELETE", "/v1/namespaces/db"), ("POST", "/v1/namespaces/db/properties"),
    ("POST", "/v1/namespaces/db/tables"), ("POST", TABLE), ("DELETE", TABLE), ("POST", "/v1/tables/rename"),
    ("POST", "/v1/namespaces/db/register"), ("POST", "/v1/transactions/commit"), ("POST", "/v1/namespaces/db/views"),
    ("PUT", TABLE), ("PATCH", TABLE),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_writes_are_forbidden(client: Client, method: str, path: str) -> None:
    """Clients repeat commits that are answered with 409 or 5xx."""
    error = error_of(client.request(method, path, b"{}" if method == "POST" else b""), 403)
    assert error["type"] == "ForbiddenException"
    assert "read-only" in error["message"]


def test_plans_need_not_be_cancelled(client: Client) -> None:
    assert client.request("DELETE", f"{TABLE}/plan/7").status == 204


def test_bad_requests(client: Client) -> None:
    assert error_of(client.request("POST", f"{TABLE}/plan", b"no JSON"), 400)["type"] == "BadRequestException"
    assert error_of(client.post(f"{TABLE}/tasks", {"plan-task": "x"}), 404)["type"] == "NoSuchPlanTaskException"
    error_of(client.post(f"{TABLE}/plan", {"snapshot-id": 1}), 400)
    error_of(client.post(f"{TABLE}/plan", {"start-snapshot-id": 1, "end-snapshot-id": 2}), 406)
    error_of(client.get("/v1/namespaces/%ff"), 400)
    error_of(client.get("/v1/namespaces/a%1F"), 400)


def test_a_plan(client: Client) -> None:
    answer = client.post(f"{TABLE}/plan", {"filter": {"type": "eq", "term": "s", "value": "a"}})
    assert answer.headers[b"content-type"] == b"application/json"
    assert int(answer.headers[b"content-length"]) == len(answer.body)
    assert len(answer.document["file-scan-tasks"]) == 1


def test_a_table_is_loaded_as_it_is_written(catalog: Any, client: Client, table: Table) -> None:
    """pyiceberg's model leaves out what it does not know."""
    found = client.get(TABLE).document
    assert found["metadata-location"] == table.metadata_location
    assert found["metadata"] == json.loads(local(table.metadata_location).read_text())
    assert found["config"] == {}  # only "client" is ever said: a client that plans by itself is not overruled


def test_a_compressed_metadata_file(catalog: Any, client: Client, table: Table) -> None:
    packed = table.metadata_location.replace(".metadata.json", ".gz.metadata.json")
    local(packed).write_bytes(gzip.compress(local(table.metadata_location).read_bytes()))
    catalog.register_table("db.served_routes_packed", packed)
    assert client.get("/v1/namespaces/db/tables/served_routes_packed").document["metadata"]["table-uuid"]


def test_an_unchanged_table_is_not_sent_again(catalog: Any, client: Client) -> None:
    table = create_with_rows(catalog, "db.served_routes_tag", [ROWS])
    path = "/v1/namespaces/db/tables/served_routes_tag"
    tag = client.get(path).headers[b"etag"]
    again = client.get(path, tag)
    assert (again.status, again.body, again.headers[b"etag"]) == (304, b"", tag)
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.serve": "true"})
    changed = client.get(path, tag)
    assert changed.status == 200
    assert changed.headers[b"etag"] != tag


def test_each_version_of_a_table_is_parsed_once(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_with_rows(catalog, "db.served_routes_kept", [ROWS])
    loads: list[Any] = []
    real = catalog.load_table
    monkeypatch.setattr(catalog, "load_table", lambda name: (loads.append(name), real(name))[1])
    path, client = "/v1/namespaces/db/tables/served_routes_kept", Client(catalog)

    def files() -> int:
        return len(client.post(f"{path}/plan", {}).document["file-scan-tasks"])

    assert [files(), files()] == [1, 1]
    assert len(loads) == 1
    table.append(ROWS)
    assert files() == 2
    catalog.drop_table("db.served_routes_kept")
    assert client.post(f"{path}/plan", {}).status == 404


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
        found = Client(catalog).post("/v1/namespaces/db/tables/served_routes_refused/plan", {})
    assert len(found.document["file-scan-tasks"]) == 1


def test_names_with_slashes_and_levels(catalog: Any, client: Client) -> None:
    catalog.create_namespace_if_not_exists("db.inner")
    assert error_of(client.get("/v1/namespaces/db/tables/a%2Fb"), 404)["type"] == "NoSuchTableException"
    assert client.get("/v1/namespaces/db%1Finner").document["namespace"] == ["db", "inner"]
    assert ["db", "inner"] in client.get("/v1/namespaces?parent=db").document["namespaces"]


def test_texts_of_foreign_errors_are_not_sent(catalog: Any, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(identifier: Any) -> None:
        raise ConnectionError("postgresql://user:password@host")

    monkeypatch.setattr(catalog, "load_table", fail)
    error = error_of(Client(catalog).get(TABLE), 500)
    assert "password" not in json.dumps(error)


def register_newest(catalog: Any, name: str, table: Table) -> None:
    """A table of format version 3, which pyiceberg does not write."""
    document = json.loads(local(table.metadata_location).read_text())
    location = table.metadata_location.replace(".metadata.json", "-3.metadata.json")
    local(location).write_text(json.dumps({**document, "format-version": 3, "next-row-id": 0}))
    catalog.register_table(name, location)


def mode_of(client: Client, name: str) -> str:
    found = client.get(f"/v1/namespaces/db/tables/{name}").document["config"]
    assert found in ({}, {"scan-planning-mode": "client"})
    return "client" if found else "server"


def test_which_tables_are_planned_by_the_client(catalog: Any, client: Client, table: Table) -> None:
    create_with_rows(catalog, "db.served_mode_bare", [ROWS])
    create_with_rows(catalog, "db.served_mode_asked", [ROWS], **{"sidecar.serve": "true"})
    create_with_rows(catalog, "db.served_mode_refused", [ROWS], columns=["s"], **{"sidecar.serve": "false"})
    schema = iceberg_schema("d double")
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
    assert mode_of(Client(catalog, tables=["db.other_*"]), "served_routes") == "client"
    assert mode_of(Client(catalog, tables=["other.*", "db.served_r*"]), "served_routes") == "server"


def test_patterns_match_names_part_by_part(catalog: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A table ``dot.ted`` in ``served`` is none of ``served.dot``; in the log each has the name that reaches it."""
    dotted, nested = ("served", "dot.ted"), ("served", "dot", "ted")
    for name in (dotted, nested):
        for level in range(1, len(name)):
            catalog.create_namespace_if_not_exists(name[:level])
        create_with_rows(catalog, name, [ROWS], columns=["s"])  # type: ignore[arg-type]
    places = {dotted: "/v1/namespaces/served/tables/dot.ted", nested: "/v1/namespaces/served%1Fdot/tables/ted"}
    for patterns, planned in (
        (["served.*"], {dotted}),
        (["served.dot.*"], {nested}),
        (['served."dot.ted"'], {dotted}),
        (["served.**"], {dotted, nested}),
        (["**"], {dotted, nested}),
    ):
        client = Client(catalog, tables=patterns)
        assert {name for name, place in places.items() if not client.get(place).document["config"]} == planned
    inner = ObservedPlanner(ScanPlanner(), Counters())
    app = Starlette(routes=catalog_routes(catalog, inner))
    with plan_lines() as lines, caplog.at_level("INFO", observed.log.name):
        for place in places.values():
            assert ask(app, "POST", f"{place}/plan".encode(), None, [b"{}"]).status == 200
    assert [line["table"] for line in lines] == ["served.`dot.ted`", "served.dot.ted"]


@pytest.mark.parametrize("pattern", ["orders", "*", "db..t", "db.`t"])
def test_a_pattern_that_no_table_matches_is_refused_at_the_start(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"no table matches|is not a table name"):
        ServeSettings(catalog="demo", tables=["db.*", pattern]).checked()


def test_a_plus_is_a_blank_for_java_clients_alone(catalog: Any, client: Client) -> None:
    """Java's client up to 1.11 writes names into paths as into forms. Go's leaves a plus as it is."""
    create_with_rows(catalog, "db.a b", [ROWS])
    java = (b"x-client-version", b"Apache Iceberg 1.11.0 (commit 1)")
    asked = [ask(client._app, "GET", b"/v1/namespaces/db/tables/a+b", [OUR_NAME, *more]) for more in ([java], [])]
    assert [one.status for one in asked] == [200, 404]
    assert client.get("/v1/namespaces/db/tables/a%20b").status == 200


def test_empty_names_are_no_errors_of_the_server(client: Client) -> None:
    for path in ("/v1/namespaces/db/tables/", "/v1/namespaces//tables/t", "/v1/namespaces/%1F/tables/t"):
        assert client.get(path).status in (400, 404), path
