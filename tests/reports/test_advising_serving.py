"""The statement that leaves a table's planning to engines, and the one that takes it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.serving.planning.served_tables import ServedTables
from tests.tables import create_with_rows

LEAVE = "ALTER TABLE db.{} SET TBLPROPERTIES ('sidecar.serve'='false')"
TAKE = "ALTER TABLE db.{} UNSET TBLPROPERTIES ('sidecar.serve')"


def rows(number: int, *, has_keys: bool = False) -> pa.Table:
    """The column ``few`` has the same values in all files; ``k`` has other ones in each."""
    keys = np.random.default_rng(number).integers(0, 2**40, 200)
    return pa.table({"few": keys % 2} | ({"k": keys} if has_keys else {}))


def make(catalog: Any, name: str, *, has_keys: bool, has_sidecar: bool = True) -> Table:
    parts = [rows(number, has_keys=has_keys) for number in range(4)]
    return create_with_rows(catalog, f"db.{name}", parts, columns=["few"] if has_sidecar else ())


def test_a_table_that_gains_nothing_is_left_to_engines(catalog: Any) -> None:
    table = make(catalog, "gains_nothing", has_keys=False)
    served = ServedTables()
    assert served.has(table, table.name())
    assert sidecar.advise(table).serving == LEAVE.format("gains_nothing")
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.serve": "false"})
    assert not served.has(table, table.name())
    assert sidecar.advise(table).serving is None


def test_a_table_that_gains_is_taken_back(catalog: Any) -> None:
    table = make(catalog, "gains", has_keys=True)
    assert sidecar.advise(table).serving is None
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.serve": "false"})
    assert sidecar.advise(table).serving == TAKE.format("gains")


@pytest.mark.parametrize(
    ("name", "has_sidecar", "columns", "said"),
    [("no_sidecar", False, None, None), ("one_column", True, ["few"], None), ("said", True, None, "true")],
)
def test_nothing_is_said(
    catalog: Any, name: str, has_sidecar: bool, columns: list[str] | None, said: str | None
) -> None:
    """Without a sidecar the server leaves the table; other columns could gain; the owner has decided."""
    table = make(catalog, name, has_keys=False, has_sidecar=has_sidecar)
    if said:
        with table.transaction() as transaction:
            transaction.set_properties({"sidecar.serve": said})
    assert sidecar.advise(table, columns).serving is None
