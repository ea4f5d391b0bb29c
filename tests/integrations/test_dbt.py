"""Artifacts that dbt wrote name the tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.integrations import dbt
from tests.integrations.lakes import make_shop

ARTIFACTS = Path(__file__).resolve().parents[1] / "data" / "dbt"


def test_tables_of_a_run() -> None:
    assert dbt.tables_of_run(ARTIFACTS) == [
        dbt.DbtTable("shop.orders", ("id", "customer")),
        dbt.DbtTable("shop.refunds", ()),
    ]


def test_after_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The declaration of the model becomes the table's; a second run has nothing to do."""
    catalog = make_shop(tmp_path, monkeypatch)
    line = ["--target", str(ARTIFACTS), "--catalog", "lake", "--min-coverage", "95"]
    assert dbt.main([*line, "--dry-run"]) == 0
    assert not catalog.load_table("shop.orders").metadata.statistics
    capsys.readouterr()
    for _ in range(2):
        assert dbt.main(line) == 0
        orders, refunds, facts = map(json.loads, capsys.readouterr().out.splitlines())
        assert (orders["table"], orders["covered"], refunds["covered"], facts["tables"]) == ("shop.orders", 1, None, 2)
        table = catalog.load_table("shop.orders")
        assert len(table.metadata.statistics) == 1
        assert table.properties["sidecar.columns"] == "id:1,customer:2"


def test_a_run_that_wrote_no_table_with_a_declaration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = Path(shutil.copytree(ARTIFACTS, tmp_path / "target"))
    change(target / "run_results.json", lambda found: found.update(results=[]))
    assert dbt.main(["--target", str(target), "--catalog", "lake"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] == 0


def test_a_column_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a build is in the result, and the other table is cared for."""
    make_shop(tmp_path, monkeypatch)
    target = Path(shutil.copytree(ARTIFACTS, tmp_path / "target"))
    change(target / "manifest.json", lambda found: meta(found).update(sidecar={"columns": "nothing"}))
    report = dbt.care_for_run(target, catalog="lake")
    orders, refunds = report.tables
    assert isinstance(orders.errors["build"], UsageError)
    assert (refunds.errors, report.exit_code) == ({}, 1)


def meta(manifest: Any) -> Any:
    return manifest["nodes"]["model.shop.orders"]["config"]["meta"]


def change(path: Path, how: Any) -> None:
    found = json.loads(path.read_text())
    how(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    "declared", [3, "id", {"columns": [3]}, {"columns": {"id": 1}}, [], {"columns": [""]}, {"column": ["id"]}]
)
def test_declarations_that_make_no_sense(tmp_path: Path, declared: object) -> None:
    target = Path(shutil.copytree(ARTIFACTS, tmp_path / "target"))
    change(target / "manifest.json", lambda found: meta(found).update(sidecar=declared))
    with pytest.raises(UsageError, match="the model 'orders' declares no columns"):
        dbt.tables_of_run(target)


def test_artifacts_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StorageError, match="Run dbt first"):
        dbt.tables_of_run(tmp_path)
    assert dbt.main(["--target", str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "storage"
    (tmp_path / "run_results.json").write_text('{"results": ["x"]}')
    for text in ('{"nodes": {}}', "[" * 100_000, "{", "[]", '{"nodes": []}'):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DamagedFileError, match="dbt"):
            dbt.tables_of_run(tmp_path)
