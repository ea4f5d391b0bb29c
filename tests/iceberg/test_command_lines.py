"""The command lines that reports print can be typed as they stand: they name the catalog unless it is the default."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable, Table

import sidecar
from sidecar.iceberg.catalog import command_for
from tests.tables import new_catalog

ROWS = pa.table({"k": list(range(10))})


def made(folder: Path, catalog: str, name: str = "db.t") -> Table:
    return new_catalog(folder, catalog).create_table(name, ROWS.schema)


def test_a_catalog_is_named_unless_a_bare_command_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default, lake = made(tmp_path, "default"), made(tmp_path, "lake", "db.odd name")
    assert command_for(default, "refresh", "--at", "a b") == "sidecar refresh db.t --at 'a b'"
    assert command_for(lake, "care") == "sidecar care 'db.odd name' --catalog lake"
    monkeypatch.setenv("SIDECAR_CATALOG", "lake")
    assert shlex.split(command_for(default, "care"))[-2:] == ["--catalog", "default"]
    assert shlex.split(command_for(lake, "care"))[-2:] == [
        "--catalog",
        "lake",
    ]


def test_status_prints_such_lines(tmp_path: Path) -> None:
    table = made(tmp_path, "lake")
    table.append(ROWS)
    sidecar.build(table, ["k"], engine="local", save=True)
    table.append(ROWS)
    (step,) = sidecar.status(table).to_do
    assert step.command == "sidecar refresh db.t --catalog lake"
    metadata_file = StaticTable.from_metadata(table.metadata_location)
    assert sidecar.status(metadata_file).to_do == []
