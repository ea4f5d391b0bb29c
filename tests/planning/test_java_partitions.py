"""The partition values that tests know are those that Iceberg's library for Java computes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planning.java_partitions import FILE, computed_by_java, partitions_of_java


@pytest.mark.jvm
def test_the_partition_values_are_those_of_java(spark: Any) -> None:
    assert list(computed_by_java(spark._jvm)) == partitions_of_java(), f"write {FILE.name} anew"
