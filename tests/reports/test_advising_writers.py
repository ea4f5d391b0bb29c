"""The table's properties about filters in new files, and the statement that sets them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from typer.testing import CliRunner

import sidecar
from sidecar.cli.app import app
from tests.iceberg.cases import local
from tests.tables import configure, create_with_rows

ENABLED = "write.parquet.bloom-filter-enabled.column."


def rows(number: int) -> pa.Table:
    keys = np.random.default_rng(number).integers(0, 2**40, 300)
    return pa.table({"k": keys, "o'clock": keys * 3, "few": keys % 2})


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest) -> Table:
    name = re.sub(r"\W", "_", request.node.name)
    enabled = {f"{ENABLED}few": "true", f"{ENABLED}k": "true", "write.parquet.bloom-filter-fpp.column.k": "0.001"}
    table = create_with_rows(catalog, f"db.{name}", map(rows, range(6)))
    with table.transaction() as transaction:
        transaction.set_properties(enabled)
    return table


def pairs_of(statement: str) -> dict[str, str]:
    """The properties that a statement sets. Spark's own parser reads it in ``tests/spark/test_statements.py``."""
    found = re.findall(r"'((?:[^'\\]|\\.)*)'='((?:[^'\\]|\\.)*)'", statement)
    return {re.sub(r"\\(.)", r"\1", name): value for name, value in found}


def test_the_statement_has_what_is_missing(table: Table) -> None:
    advice = sidecar.advise(table)
    assert advice.properties == {f"{ENABLED}few": "true", f"{ENABLED}k": "true"} | {
        "write.parquet.bloom-filter-fpp.column.k": "0.001"
    }
    assert advice.alter_table is not None
    assert advice.alter_table.startswith("ALTER TABLE db.test_the_statement_has_what_is_missing SET TBLPROPERTIES (")
    set_by_it = pairs_of(advice.alter_table)
    assert set_by_it == {f"{ENABLED}o'clock": "true", "write.parquet.bloom-filter-ndv.column.o'clock": "300"}
    with table.transaction() as transaction:
        transaction.set_properties(set_by_it)
    assert sidecar.advise(table).alter_table is None


def test_filters_in_new_files_that_nobody_needs_are_a_warning(table: Table) -> None:
    (warning,) = sidecar.advise(table).warnings
    assert "filters of few" in warning
    assert sidecar.advise(table, ["k"]).warnings == []


def test_a_filter_that_is_larger_than_writers_make_it_by_default(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.reports.advising.writers.USUAL_LARGEST", 100)
    statement = sidecar.advise(table, ["o'clock"]).alter_table
    assert statement is not None
    assert pairs_of(statement)["write.parquet.bloom-filter-max-bytes"] == "512"


@pytest.mark.parametrize("rate", ["high", "0", "2", "nan"])
def test_properties_that_make_no_sense_are_warnings(table: Table, rate: str) -> None:
    properties = {"write.parquet.bloom-filter-fpp.column.o'clock": rate, "write.parquet.bloom-filter-max-bytes": "1 MB"}
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    advice = sidecar.advise(table, ["o'clock"])
    assert advice.alter_table is not None
    assert pairs_of(advice.alter_table)[f"{ENABLED}o'clock"] == "true"
    assert len(advice.warnings) == 2
    assert all(any(name in warning for warning in advice.warnings) for name in properties)


def test_a_table_from_a_metadata_file_gets_no_command(table: Table) -> None:
    opened = sidecar.open_table(str(local(table.metadata_location)))
    advice = sidecar.advise(opened, ["o'clock"])
    assert [column.filters for column in advice.columns] == ["yes"]
    assert (advice.commands, advice.alter_table) == ([], None)


def test_a_column_that_was_read_in_one_file_is_not_judged(table: Table) -> None:
    """Nothing shows whether the other files have the same values. A constant and what bounds tell are judged."""
    (column,) = sidecar.advise(table, ["o'clock"], row_groups=1).columns
    assert (column.filters, column.kinds) == ("not judged", [])
    assert "one data file" in column.reason


def test_filters_of_writers_that_are_most_of_a_file_are_made_smaller_by_the_named_command(
    catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, catalog)
    pq.write_table(rows(0), tmp_path / "plain.parquet")
    sidecar.embed(tmp_path / "plain.parquet", into=tmp_path / "fat.parquet", bloom=["k", "few"], fpp=1e-9)
    table = catalog.create_table("db.fat", rows(0).schema)
    table.add_files([str(tmp_path / "fat.parquet")])
    before = {task.file.file_size_in_bytes for task in table.scan().plan_files()}
    (warning,) = sidecar.advise(table).warnings
    assert re.match(r"writers' own filters of k(, few)? are \d\d% of the sampled row groups, [\d.]+ kB; at", warning)
    command = shlex.split(warning.rpartition(": ")[2])
    assert CliRunner().invoke(app, command[1:], catch_exceptions=False).exit_code == 0
    after = {task.file.file_size_in_bytes for task in table.refresh().scan().plan_files()}
    assert 2 * sum(after) < sum(before)
    assert sidecar.advise(table).warnings == []
