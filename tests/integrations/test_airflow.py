"""Airflow's own classes make and run the operators."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.errors import StorageError
from tests.iceberg.cases import local
from tests.integrations.lakes import ROWS, make_shop


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A folder for what Airflow writes when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
        pytest.importorskip("airflow.sdk")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return make_shop(tmp_path, monkeypatch)


def test_care_in_a_dag(shop: Any) -> None:
    """Templates are filled in, the result is an XCom of plain JSON, and a second task asks for the limits."""
    from airflow.sdk import DAG

    from sidecar.integrations.airflow import SidecarCareOperator, SidecarStatusOperator

    table = shop.load_table("shop.orders")
    sidecar.build(table, ["id"], save=True)
    table.refresh().append(ROWS)
    with DAG("lake", schedule=None) as dag:
        care = SidecarCareOperator(
            task_id="care", tables="{{ params.namespace }}.*", options={"catalog": "{{ params.catalog }}"}
        )
        covered = SidecarStatusOperator(
            task_id="covered", table="{{ params.namespace }}.orders", catalog="lake", min_coverage=95
        )
        care >> covered
    assert dag.task_ids == ["care", "covered"]
    for task in (care, covered):
        task.render_template_fields({"params": {"namespace": "shop", "catalog": "lake"}})
    done = json.loads(json.dumps(care.execute({})))
    assert (done["tables"], done["failed"]) == (2, 0)
    assert [(row["table"], row["indexed"], row["waiting"]) for row in done["result"]] == [
        ("shop.orders", 1, 0),
        ("shop.refunds", 0, 0),
    ]
    facts = json.loads(json.dumps(covered.execute({})))
    assert (facts["table"], facts["covered"], facts["missed"]) == ("shop.orders", 1, [])


def test_a_limit_that_is_missed(shop: Any) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    from sidecar.integrations.airflow import SidecarCareOperator, SidecarStatusOperator

    sidecar.build(shop.load_table("shop.orders"), ["id"], save=True)
    shop.load_table("shop.orders").append(ROWS)
    with pytest.raises(AirflowException, match=r"95 %[^\n]*\n.*: sidecar refresh shop.orders") as caught:
        SidecarStatusOperator(task_id="s", table="shop.orders", catalog="lake", min_coverage=95).execute({})
    assert not isinstance(caught.value, AirflowFailException)
    options = {"catalog": "lake", "only": ["check"], "max_behind": timedelta(0), "min_coverage": 95}
    with pytest.raises(AirflowFailException, match=r"shop\.orders: .*95 %"):
        SidecarCareOperator(task_id="c", tables=["shop.orders"], options=options).execute({})  # type: ignore[arg-type]


def test_a_lost_data_file_fails_the_task(shop: Any) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from sidecar.integrations.airflow import SidecarCareOperator

    (task,) = shop.load_table("shop.orders").scan().plan_files()
    Path(local(task.file.file_path)).unlink()
    options = {"catalog": "lake", "only": ["check"]}
    with pytest.raises(AirflowFailException, match=r"^shop\.orders: 1 data file is lost: .*\.parquet$"):
        SidecarCareOperator(task_id="c", tables="shop.*", options=options).execute({})  # type: ignore[arg-type]


def test_what_is_tried_again(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong call fails for good; a store that is away is tried again."""
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    from sidecar.integrations.airflow import SidecarCareOperator, SidecarStatusOperator

    with pytest.raises(AirflowFailException, match="unknown step"):
        SidecarCareOperator(task_id="a", tables="shop.*", options={"only": ["x"]}).execute({})  # type: ignore[list-item]
    with pytest.raises(AirflowFailException, match="no table"):
        SidecarStatusOperator(task_id="b", table="shop.nothing", catalog="lake").execute({})

    def away(*_: Any, **__: Any) -> Any:
        raise StorageError("the store is away")

    monkeypatch.setattr("sidecar.reports.caring.refresh_thoroughly", away)
    with pytest.raises(AirflowException, match=r"shop\.orders: refresh: the store is away") as caught:
        SidecarCareOperator(task_id="c", tables="shop.orders", options={"catalog": "lake"}).execute({})
    assert not isinstance(caught.value, AirflowFailException)
