"""Random lives of tables that Spark and pyiceberg write by turns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.life.machine import spark_lives
from tests.life.table_life import SharedCatalog
from tests.life.test_lives import live

pytestmark = pytest.mark.jvm

LIVES, STEPS = 2, 6


def test_lives_of_tables_that_spark_writes(catalog: Any, spark: Any) -> None:
    machine = spark_lives(spark, [SharedCatalog(catalog)])
    live(machine, LIVES, STEPS)
    assert machine.grid.checks["plans"] > 10
