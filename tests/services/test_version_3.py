"""A table of format version 3 on the REST catalog: sidecars are built, refreshed and cared for beside deletion vectors.

pyiceberg registers statistics of such tables through a REST server alone. ``scripts/torture life --spark`` lives more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pyiceberg.manifest import FileFormat, ManifestContent

from scripts.servers.services import Service
from sidecar.iceberg.statistics_files import entry_commits
from tests.life import spark_changes
from tests.life.machine import served, spark_lives
from tests.life.sidecar_changes import refresh
from tests.life.spark_changes import by_pyiceberg

pytestmark = [pytest.mark.services, pytest.mark.jvm]


def test_the_life_of_a_table_of_version_3(
    spark: Any, services: dict[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
    machine: Any = spark_lives(spark, [served(spark, services["rest"].catalogs["rest"]["uri"])])()
    machine.begin(0)
    machine.life.do(partial(spark_changes.upgrade_to_3, chance=1.0), 0)  # unless the beginning did it
    doing = (spark_changes.delete, by_pyiceberg(refresh), spark_changes.update, spark_changes.refresh_in_spark)
    for change, seed in zip(doing, (10, 1, 7, 4), strict=True):  # the first deletes beside the files
        machine.step(change, seed)
    assert [machine.grid.done[change.__name__] for change in doing] == [1, 1, 1, 1], machine.life.log
    table = machine.life.table
    head = table.current_snapshot()
    assert table.format_version == 3
    deletes = [line for line in head.manifests(table.io) if line.content == ManifestContent.DELETES]
    formats = {entry.data_file.file_format for line in deletes for entry in line.fetch_manifest_entry(table.io)}
    assert formats == {FileFormat.PUFFIN}, "rows are deleted by vectors"
    assert head.snapshot_id in {entry.snapshot_id for entry in table.metadata.statistics}
    machine.teardown()
