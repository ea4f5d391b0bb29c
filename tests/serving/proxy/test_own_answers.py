"""What a proxy answers itself: the config, who plans a table, and plans with the rights of whoever asks."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from sidecar.errors import StorageError
from sidecar.serving.answers import PlanFacts
from sidecar.serving.proxy.config_answer import PLAN_ENDPOINTS
from tests.iceberg.cases import local
from tests.serving.proxy.conftest import Proxied

TABLE = "/v1/wh/namespaces/db/tables/t"
MODE = "scan-planning-mode"
PLANNING = {MODE: "server", "rest-scan-planning-enabled": "true"}


def config(proxied: Proxied, **headers: str) -> dict[str, Any]:
    status, _, body = proxied.ask("GET", "/v1/config?warehouse=w", headers)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def loaded(proxied: Proxied, headers: dict[str, str] | None = None) -> dict[str, Any]:
    status, _, body = proxied.ask("GET", TABLE, headers)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def plan(proxied: Proxied, headers: dict[str, str] | None = None, table: str = TABLE) -> tuple[int, dict[str, Any]]:
    status, _, body = proxied.ask("POST", f"{table}/plan", headers, json.dumps({"filter": True}))
    return status, json.loads(body)


def test_clients_stay_with_the_proxy(proxied: Proxied) -> None:
    """Java's client goes to ``uri`` of the config answer, if there is one."""
    kept = {"prefix": "wh", "namespace-separator": "%2E", "oauth2-server-uri": "https://idp.example/token"}
    proxied.upstream.config["defaults"] = {"uri": "http://upstream", "s3.signer.uri": "http://signer"}
    proxied.upstream.config["overrides"] = {"uri": "http://upstream", **kept}
    found = config(proxied)
    assert found["overrides"] == {"uri": proxied.url, **kept}
    assert found["defaults"] == {"uri": proxied.url, "s3.signer.uri": "http://signer", **PLANNING}
    assert proxied.upstream.requests[0][2] == b"warehouse=w"


def test_what_clients_assume_of_a_silent_upstream_is_said_aloud(proxied: Proxied) -> None:
    told = proxied.upstream.config.pop("endpoints")
    proxied.upstream.config["defaults"] = {"view-endpoints-supported": "true"}
    found = config(proxied)["endpoints"]
    assert found[: len(told)] == told
    assert "GET /v1/{prefix}/namespaces/{namespace}/views/{view}" in found
    assert found[-4:] == list(PLAN_ENDPOINTS)


def test_no_address_is_put_where_none_was(proxied: Proxied) -> None:
    assert "uri" not in {**config(proxied)["defaults"], **config(proxied)["overrides"]}


@pytest.mark.parametrize("name", ["rest.sigv4-enabled", "rest.auth.type"])
def test_upstreams_with_signed_requests_are_refused(proxied: Proxied, name: str) -> None:
    proxied.upstream.config["overrides"] = {name: "sigv4" if name.endswith("type") else "true"}
    status, _, body = proxied.ask("GET", "/v1/config")
    assert (status, "--catalog" in json.loads(body)["error"]["message"]) == (406, True)
    status, _, body = proxied.ask("GET", "/v1/odd/x", {"Authorization": "AWS4-HMAC-SHA256 Credential=x"})
    assert (status, "SigV4" in json.loads(body)["error"]["message"]) == (400, True)


def test_a_load_says_who_plans_and_is_otherwise_the_upstreams(proxied: Proxied) -> None:
    proxied.upstream.table_config = {"s3.region": "x"}
    said: Any
    for mode, said in (("server", {}), ("client", {MODE: "client"})):
        proxied.planner.says = mode  # type: ignore[assignment]
        found = loaded(proxied)
        assert found.pop("config") == {"s3.region": "x", **said}
        assert found == {key: value for key, value in proxied.upstream._loaded("t").items() if key != "config"}


def test_where_the_server_may_not_read_clients_plan(proxied: Proxied) -> None:
    proxied.upstream.locations["t"] = proxied.lake.location
    document = proxied.upstream._loaded("t")
    document["metadata-location"] = "s3://other/metadata.json"
    proxied.upstream._loaded = lambda name: document  # type: ignore[method-assign]
    assert loaded(proxied)["config"][MODE] == "client"
    status, answer = plan(proxied)
    assert (status, "--storage" in answer["error"]["message"]) == (403, True)
    del proxied.upstream._loaded


def test_a_new_table_is_planned_by_clients(proxied: Proxied) -> None:
    status, headers, body = proxied.ask("POST", "/v1/wh/namespaces/db/tables", body=b'{"name": "t"}')
    assert (status, json.loads(body)["config"], "etag" in headers) == (200, {MODE: "client"}, False)


def test_entity_tags_cover_the_upstreams_answer_and_ours(proxied: Proxied) -> None:
    _, headers, _ = proxied.ask("GET", TABLE)
    tag = headers["etag"]
    assert tag != proxied.upstream.tag
    status, headers, body = proxied.ask("GET", TABLE, {"If-None-Match": tag})
    assert (status, headers["etag"], body) == (304, tag, b"")
    assert proxied.upstream.requests[-1][3]["if-none-match"] == '"v1"'
    proxied.upstream.tag = '"v2"'
    assert proxied.ask("GET", TABLE, {"If-None-Match": tag})[0] == 200


@pytest.mark.parametrize("tag", ['"v1"', "*", 'W/"sidecar.0000000000000000.InYxIg"', '"sidecar.x.y"'])
def test_tags_that_are_not_ours_are_not_sent_on(proxied: Proxied, tag: str) -> None:
    """Whoever got the upstream's own tag has an answer that does not say who plans."""
    assert proxied.ask("GET", TABLE, {"If-None-Match": tag})[0] == 200
    assert "if-none-match" not in proxied.upstream.requests[-1][3]


def test_a_tag_with_more_in_it_than_a_tag_is_not_sent_on(proxied: Proxied) -> None:
    ours = proxied.ask("GET", TABLE)[1]["etag"]
    made_up = base64.urlsafe_b64encode(b'"v1"\r\nX-Injected: 1').decode().rstrip("=")
    tag = f'{ours.rpartition(".")[0]}.{made_up}"'
    assert proxied.ask("GET", TABLE, {"If-None-Match": tag})[0] == 200
    sent = proxied.upstream.requests[-1][3]
    assert not {"if-none-match", "x-injected"}.intersection(sent)


def test_pyiceberg_plans_through_the_proxy(proxied: Proxied) -> None:
    proxied.upstream.config["overrides"] = {"prefix": "wh", "uri": "http://127.0.0.1:9"}
    table = RestCatalog("any", uri=proxied.url).load_table("db.t")
    assert sorted(table.scan("k < 4").to_arrow()["k"].to_pylist()) == [0, 1, 2, 3]
    ((route, identifier, request, caller),) = proxied.planner.asked
    assert (route, identifier, caller.user_agent[:9]) == ("plan", ("wh", "db", "t"), "PyIceberg")
    assert request["filter"]["type"] == "lt"


def test_no_plan_without_the_right_to_load_the_table(proxied: Proxied) -> None:
    proxied.upstream.readers = {"alice": {"t"}, "bob": set()}
    alice, bob = {"Authorization": "Bearer alice"}, {"Authorization": "Bearer bob"}
    assert plan(proxied, alice)[0] == 200
    for route in ("plan", "tasks"):
        assert proxied.ask("POST", f"{TABLE}/{route}", bob, b"{}")[0] == 403
        assert proxied.ask("POST", f"{TABLE}/{route}", None, b"{}")[0] == 401
    for path in ("", "/report"):
        assert proxied.ask("GET", f"/sidecar{TABLE}{path}", bob)[0] == 403
    assert len(proxied.planner.asked) == 1
    sent = [one[3].get("authorization") for one in proxied.upstream.requests]
    assert sent == ["Bearer alice", *["Bearer bob", None] * 2, *["Bearer bob"] * 2]


def test_who_loads_a_part_of_the_metadata_changes_no_plan_of_others(proxied: Proxied) -> None:
    """The reference server leaves snapshots out for ``?snapshots=refs``; a catalog may show callers different parts."""
    unseen = local(proxied.lake.location).with_name("unseen.metadata.json")
    unseen.write_bytes(local(proxied.lake.location).read_bytes())
    proxied.upstream.locations["t"] = f"file:{unseen}"
    assert proxied.ask("GET", f"{TABLE}?snapshots=refs")[0] == 200
    assert plan(proxied)[0] == 200
    assert len(proxied.planner.tables[-1].metadata.snapshots) == 2


@pytest.mark.parametrize("namespace", ["%1F", "db%1F", "%1Fdb", "a%1F%1Fb"])
def test_empty_levels_of_a_namespace_are_refused(proxied: Proxied, namespace: str) -> None:
    table = f"/v1/wh/namespaces/{namespace}/tables/t"
    assert plan(proxied, table=table)[0] == 400
    assert proxied.ask("GET", f"/sidecar{table}")[0] == 400


def test_the_load_for_a_plan_asks_for_credentials_and_has_nothing_of_the_plan(proxied: Proxied) -> None:
    plan(proxied, {"If-None-Match": '"v1"', "X-Caller": "1", "Content-Type": "application/json"})
    method, path, _, sent, body = proxied.upstream.requests[-1]
    assert (method, path.decode(), body) == ("GET", TABLE, b"")
    assert (sent["x-iceberg-access-delegation"], sent["x-caller"]) == ("vended-credentials", "1")
    assert not {"if-none-match", "content-length", "content-type"}.intersection(sent)


def test_a_table_that_the_upstream_plans_stays_with_it(proxied: Proxied) -> None:
    proxied.upstream.table_config = {MODE: "server"}
    proxied.planner.says = "client"
    assert loaded(proxied)["config"] == {MODE: "server"}
    assert plan(proxied)[1]["planned-by"] == "upstream"
    assert json.loads(proxied.ask("GET", f"{TABLE}/plan/1")[2])["planned-by"] == "upstream"
    assert proxied.planner.asked == []


def test_an_upstream_that_plans_all_tables_keeps_them(proxied: Proxied) -> None:
    overrides = {"prefix": "planned", MODE: "server"}
    proxied.upstream.config |= {"overrides": overrides}
    proxied.upstream.warehouse = "w"
    found = config(proxied)
    assert (found["overrides"], found["defaults"]) == (overrides, {})
    assert PLAN_ENDPOINTS[0] not in found["endpoints"]
    proxied.planner.says = "client"
    table = TABLE.replace("wh", "planned")
    assert MODE not in json.loads(proxied.ask("GET", table)[2])["config"]
    assert plan(proxied, table=table)[1]["planned-by"] == "upstream"
    assert proxied.planner.asked == []


def test_a_worker_that_gave_no_config_asks_whether_the_upstream_plans(proxied: Proxied) -> None:
    proxied.upstream.config |= {"overrides": {"prefix": "unseen", MODE: "server"}}
    for _ in range(2):
        assert plan(proxied, table=TABLE.replace("wh", "unseen"))[1]["planned-by"] == "upstream"
    assert [one[1] for one in proxied.upstream.requests].count(b"/v1/config") == 1


def test_plans_are_complete_at_once_so_none_is_kept(proxied: Proxied) -> None:
    assert proxied.ask("DELETE", f"{TABLE}/plan/1")[0] == 204
    status, _, body = proxied.ask("GET", f"{TABLE}/plan/1")
    assert (status, json.loads(body)["error"]["type"]) == (404, "NoSuchPlanIdException")
    assert proxied.ask("DELETE", "/v1/wh/namespaces/db/tables/none/plan/1")[0] == 404
    asked = len(proxied.upstream.requests)
    assert proxied.ask("DELETE", f"{TABLE}/plan/sidecar-complete")[0] == 204
    assert len(proxied.upstream.requests) == asked


def test_metrics_count_plans(proxied: Proxied) -> None:
    def counts() -> dict[str, float]:
        lines = proxied.ask("GET", "/metrics")[2].decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}

    before = counts()
    proxied.planner.fallback = "no-sidecar"
    plan(proxied)
    proxied.planner.raises = StorageError("no", file="secret")
    assert plan(proxied)[0] == 500
    after = counts()
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown['sidecar_plans_total{route="plan",result="ok"}'] == 1
    assert grown['sidecar_plans_total{route="plan",result="storage"}'] == 1
    assert grown['sidecar_fallbacks_total{reason="no-sidecar"}'] == 1
    assert (grown["sidecar_plan_files_total"], grown["sidecar_plan_files_kept_total"]) == (2, 2)
    assert grown["sidecar_plan_seconds_count"] == grown['sidecar_plan_seconds_bucket{le="+Inf"}'] == 2
    assert PlanFacts().index_bytes_read + 7 == grown["sidecar_index_bytes_total"]
    assert grown['sidecar_upstream_requests_total{answer="2xx"}'] == 2


def test_the_state_of_a_table_is_what_status_prints(proxied: Proxied) -> None:
    status, headers, body = proxied.ask("GET", f"/sidecar{TABLE}")
    assert (status, headers["cache-control"]) == (200, "no-store")
    found = json.loads(body)
    assert found["covered"]["k"]["bloom"]["rows"] == 100
    status, headers, body = proxied.ask("GET", f"/sidecar{TABLE}/report")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"Sidecars of db.t" in body
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert proxied.ask("GET", "/sidecar/v1/nothing")[0] == 404


def test_texts_of_unexpected_errors_are_neither_answered_nor_logged(
    proxied: Proxied, caplog: pytest.LogCaptureFixture
) -> None:
    proxied.planner.raises = ValueError("a secret")
    status, answer = plan(proxied)
    assert (status, answer["error"]["type"]) == (500, "InternalServerError")
    assert "secret" not in caplog.text + json.dumps(answer)
    assert "ValueError at stand_in.py:" in caplog.text
