"""embed --from a table's sidecar into its ORC files: ORC filters as they are, split-block filters from the values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

import sidecar
from tests.iceberg.cases import file_in_manifest, local
from tests.iceberg.mixed_tables import append_files
from tests.orc_cases import write_orc
from tests.tables import iceberg_schema, new_catalog

SCHEMA = iceberg_schema("k long, s string")
COUNT = 2_500


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = new_catalog(tmp_path, "local")
    made: Table = catalog.create_table("db.t", SCHEMA)
    data = pa.table({"k": [i * 7 for i in range(COUNT)], "s": [f"v{i}" for i in range(COUNT)]})
    folder = local(made.location()) / "data"
    folder.mkdir(parents=True)
    path = write_orc(folder / "a.orc", data, made.schema())
    file = file_in_manifest(f"{made.location()}/data/a.orc", COUNT, path.stat().st_size, file_format=FileFormat.ORC)
    append_files(made, [file])
    return made


@pytest.mark.parametrize(("kind", "way", "reason"), [("orc", "exact", ""), ("parquet", "values", "split-block")])
def test_from_a_table(kind: str, way: str, reason: str, table: Table, tmp_path: Path) -> None:
    sidecar.build(table, ["k", "s"], as_=kind)
    table.refresh()
    path = str(local(table.location()) / "data/a.orc")
    opened = sidecar.open_sidecar(table)
    try:
        (report,) = sidecar.embed([path], into=str(tmp_path / "out"), from_=opened)
    finally:
        opened.close()
    assert report.ways() == {"bloom": {way: 6}}
    assert all(reason in outcome.reason for outcome in report.outcomes)
    assert sidecar.verify(report.target, data=True).problems == []
    answers = [unit.might_contain for unit in sidecar.probe(report.target, "k", "8400").only.units]
    assert answers == [False, True, False]
