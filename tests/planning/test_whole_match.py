"""Whether all rows of a file match, by pyiceberg's private evaluator of bounds and by partitions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.whole_match import WholeMatch
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("p long, n long, s string")


@pytest.fixture(scope="module")
def files(catalog: Any) -> tuple[Any, list[Any]]:
    """The partitions 1 and NULL, with the values 1 to 3 in ``n`` and only ``a`` in ``s``, NULL in one of them."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    no_bounds = {"write.metadata.metrics.column.p": "none"}
    table = catalog.create_table("db.whole_match", SCHEMA, partition_spec=spec, properties=no_bounds)
    rows = {"p": [1, 1, 1, None, None], "n": [1, 2, 3, 1, 3], "s": ["a", "a", "a", "a", None]}
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    found = [task.file for task in table.scan().plan_files()]
    return table.metadata, sorted(found, key=lambda file: file.partition[0] is None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s = 'a'", [True, False]),  # a NULL does not match
        ("n >= 1", [True, True]),
        ("n > 1", [False, False]),
        ("n = 2", [False, False]),
        ("p = 1", [True, False]),
        ("p = 1 and n < 9", [False, False]),  # neither partition nor bounds decide alone
        ("p = 2 or n in (1, 2, 3)", [False, False]),
        ("p is null", [False, True]),
        ("true", [True, True]),
    ],
)
def test_files_of_which_all_rows_match(files: tuple[Any, list[Any]], text: str, wanted: list[bool]) -> None:
    metadata, both = files
    match = WholeMatch(metadata, parse_predicate(text, SCHEMA))
    assert [match.holds(file, file.spec_id) for file in both] == wanted
