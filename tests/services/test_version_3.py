"""A table of format version 3 on the REST catalog: sidecars are built, refreshed and cared for beside deletion vectors.

pyiceberg registers statistics of such tables through a REST server alone. ``scripts/torture life --spark`` lives more.
"""

from __future__ import annotations

from typing import Any

import pytest

from scripts.servers.services import Service
from sidecar.iceberg import entry_commits
from tests.life import spark_changes
from tests.life.machine import served, spark_lives
from tests.life.sidecar_changes import compact, expire_registrations, refresh
from tests.life.spark_changes import by_pyiceberg

pytestmark = [pytest.mark.services, pytest.mark.jvm]


def test_the_life_of_a_table_of_version_3(
    spark: Any, services: dict[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
    machine: Any = spark_lives(spark, [served(spark, services["rest"].catalogs["rest"]["uri"])])()
    machine.begin(2)
    seeds = iter(range(100))
    while machine.life.table.format_version < 3:
        machine.step(spark_changes.upgrade_to_3, next(seeds))
    indexed = machine.life.table.metadata.statistics
    for change in (
        spark_changes.delete, by_pyiceberg(refresh), spark_changes.insert, spark_changes.refresh_in_spark,
        spark_changes.update, spark_changes.build_in_spark, spark_changes.rewrite_data_files, by_pyiceberg(refresh),
        by_pyiceberg(compact), by_pyiceberg(expire_registrations),
    ):  # fmt: skip
        machine.step(change, next(seeds))
    table = machine.life.table
    assert machine.grid.done["refresh"] == 2
    assert machine.grid.done["refresh_in_spark"] == machine.grid.done["build_in_spark"] == 1
    assert {entry.statistics_path for entry in table.metadata.statistics}.isdisjoint(
        entry.statistics_path for entry in indexed
    )
    machine.teardown()
