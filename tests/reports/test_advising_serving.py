"""The statement that leaves a table's planning to engines, and the one that takes it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

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


def test_a_column_that_its_owner_may_look_up_is_no_reason_to_leave(catalog: Any) -> None:
    """Floating-point numbers get no advice to index them, but whoever has built their filters gains by them."""
    parts = [pa.table({"f": np.random.default_rng(number).random(200)}) for number in range(4)]
    advice = sidecar.advise(create_with_rows(catalog, "db.floats_looked_up", parts, columns=["f"]))
    assert [column.filters for column in advice.columns] == ["no"]
    assert advice.serving is None


def test_statistics_of_others_are_no_sidecar(catalog: Any, tmp_path: Path) -> None:
    table = make(catalog, "others_statistics", has_keys=False, has_sidecar=False)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    statistics = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=str(tmp_path / "others.stats"),
        file_size_in_bytes=4,
        file_footer_size_in_bytes=4,
        blob_metadata=[],
    )
    with table.update_statistics() as update:
        update.set_statistics(statistics)
    assert not ServedTables().has(table, table.name())
    assert sidecar.advise(table).serving is None
