"""Dagster's own package runs the asset and the check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.errors import CommitConflictError, UsageError
from tests.integrations.lakes import ROWS, make_shop

dagster = pytest.importorskip("dagster")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
    return make_shop(tmp_path, monkeypatch)


def run(assets: list[Any], checks: list[Any], **options: Any) -> Any:
    """Run the assets and checks as one job in this process."""
    definitions = dagster.Definitions(assets=assets, asset_checks=checks)
    return definitions.resolve_implicit_global_asset_job_def().execute_in_process(**options)


def test_an_asset_and_its_check(shop: Any, tmp_path: Path) -> None:
    from sidecar.integrations.dagster import care_asset, status_check

    table = shop.load_table("shop.orders")
    sidecar.build(table, ["id"], save=True)
    table.refresh().append(ROWS)

    @dagster.asset
    def orders() -> None:
        """What writes the table."""

    page = tmp_path / "lake.html"
    sidecars = care_asset("shop.*", catalog="lake", deps=[orders], group_name="lake", min_coverage=95, report=page)
    covered = status_check("shop.orders", asset=sidecars, catalog="lake", min_coverage=95)
    result = run([orders, sidecars], [covered])

    (done,) = result.asset_materializations_for_node("sidecars")
    facts = {name: value.value for name, value in done.metadata.items()}
    rows = {row.data["table"]: row.data for row in done.metadata["result"].records}
    assert (facts["tables"], facts["failed"], facts["under_a_limit"], facts["page"]) == (2, 0, 0, str(page))
    assert (rows["shop.orders"]["indexed"], rows["shop.orders"]["covered"], rows["shop.orders"]["waiting"]) == (1, 1, 0)
    assert rows["shop.refunds"]["covered"] is None
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.check_name, check.metadata["waiting"].value) == (True, "sidecar_of_shop_orders", 0)
    assert page.exists()


def test_a_check_says_what_is_missed(shop: Any) -> None:
    from sidecar.integrations.dagster import care_asset, status_check

    sidecar.build(shop.load_table("shop.orders"), ["id"], save=True)
    shop.load_table("shop.orders").append(ROWS)
    sidecars = care_asset(["shop.orders"], catalog="lake", only=["gc"])
    covered = status_check("shop.orders", asset=sidecars, catalog="lake", min_coverage=95, name="covered")
    result = run([sidecars], [covered])
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert "95 %" in (check.description or "")
    assert check.metadata["to_do"].value == ["sidecar refresh shop.orders --catalog lake"]


@pytest.mark.parametrize(("error", "may_retry"), [(CommitConflictError("too late"), True), (UsageError("no"), False)])
def test_a_failure_of_a_table(shop: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, may_retry: bool) -> None:
    from sidecar.integrations.dagster import care_asset

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("sidecar.reports.caring.refresh_thoroughly", fail)
    sidecars = care_asset("shop.orders", catalog="lake", only=["refresh"])
    with pytest.raises(dagster.Failure) as caught:
        run([sidecars], [])
    assert f"shop.orders: refresh: {error}" in (caught.value.description or "")
    assert caught.value.allow_retries is may_retry
    assert caught.value.metadata["failed"].value == 1
