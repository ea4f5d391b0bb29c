"""A driver of Spark is killed while executors write: what they leave does no harm, and the next run ends well.

``scripts/torture kill`` kills drivers at all of their steps.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sidecar.failpoints import observe
from tests.faults.killed_spark import BEGINS, RESULT, kill_at_work, spark_operation

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")]


def test_a_driver_is_killed_while_executors_write(spark: Any, tmp_path: Path) -> None:
    operation, place = spark_operation("embed TABLE, Spark", spark), tmp_path / "place"
    operation.prepare(place)
    steps: list[str] = []
    with observe(steps.append):
        kill_at_work(operation, place)
    next_run = {BEGINS, RESULT, "embed: files written", "embed: committed", "build: index", "build: register"}
    assert next_run <= {*steps}
