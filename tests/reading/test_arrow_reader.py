"""pyiceberg's reader, taken apart: fails when a new version does it otherwise."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import pyarrow as theirs
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table

from sidecar.iceberg.predicate import parse_predicate
from sidecar.parquet.footer import read_footer
from sidecar.parquet.scan.schema_parts import finish_file, read_shape
from sidecar.reading import arrow_reader
from sidecar.reading.arrow_reader import TableReader
from sidecar.source import BytesSource


def test_pyicebergs_private_api_is_as_it_was() -> None:
    """Read arrow_reader.py beside ``_task_to_record_batches`` again when this fails, then adapt both."""
    parameters = {
        "_get_column_projection_values": "file projected_schema table_schema partition_spec file_project_field_ids",
        "_read_deletes": "io data_file",
        "_to_requested_schema": (
            "requested_schema file_schema batch downcast_ns_timestamp_to_us include_field_ids "
            "projected_missing_fields allow_timestamp_tz_mismatch format_model"
        ),
        "expression_to_pyarrow": "expr schema",
        "pyarrow_to_schema": "schema name_mapping downcast_ns_timestamp_to_us format_version",
        "_task_to_record_batches": (
            "io task bound_row_filter projected_schema table_schema projected_field_ids positional_deletes "
            "case_sensitive name_mapping partition_spec format_version downcast_ns_timestamp_to_us dictionary_columns"
        ),
    }
    for name, expected in parameters.items():
        assert list(inspect.signature(getattr(theirs, name)).parameters) == expected.split(), name
    source = inspect.getsource(theirs._task_to_record_batches)
    steps = [
        "fragment.physical_schema",
        "pyarrow_to_schema(",
        "_get_column_projection_values(",
        "bound_row_filter is not AlwaysTrue()",
        "translate_column_names(",
        "expression_to_pyarrow(bound_file_filter, file_schema)",
        "prune_columns(file_schema, projected_field_ids, select_full_types=False)",
        "filter=pyarrow_filter if not positional_deletes else None",
        "_combine_positional_deletes(",
        "_to_requested_schema(",
        "allow_timestamp_tz_mismatch=True",
    ]
    places = [source.find(step) for step in steps]
    assert -1 not in places, steps[places.index(-1)]
    assert places == sorted(places)
    members = ["_bound_row_filter", "_projected_field_ids", "_downcast_ns_timestamp_to_us"]
    text = inspect.getsource(ArrowScan)
    assert all(member in text for member in members)
    assert "self._record_batches_from_scan_tasks_and_deletes([task], deletes_per_file)" in text


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    made: Table = catalog.create_table(
        "db.arrow_reader",
        pa.schema([("k", pa.int64()), ("st", pa.struct([("x", pa.int32()), ("y", pa.string())]))]),
        properties={"write.parquet.row-group-limit": "100"},
    )
    k = np.arange(500)
    made.append(pa.table({"k": k, "st": [{"x": n, "y": str(n)} for n in range(500)]}, schema=made.schema().as_arrow()))
    return made


def test_a_view_of_the_footer_alone_is_that_of_the_file(table: Table) -> None:
    row_filter = parse_predicate("k >= 120 and k < 310 and st.x > 0", table.schema())
    [task] = table.scan(row_filter=row_filter).plan_files()
    with table.io.new_input(task.file.file_path).open() as stream:
        data = stream.read()
    footer = read_footer(BytesSource(data))
    reader = TableReader(table, table.schema().select("st.x"), row_filter)
    view, fragment = reader.view(task, finish_file(b"", footer.raw))
    assert view.physical_schema.equals(read_shape(footer).schema)
    assert view.scanned_row_groups(fragment) == {1, 2, 3}
    assert view.projected.column_names == ["k", "st.x", "st"]
    theirs = pa.Table.from_batches(reader.read_whole(task, {})).combine_chunks()
    rows = pa.table({"k": pa.array(range(120, 310)), "st": [{"x": n} for n in range(120, 310)]})
    [ours] = view.project(rows.cast(pa.schema([("k", pa.int64()), ("st", pa.struct([("x", pa.int32())]))])))
    assert pa.Table.from_batches([ours]).equals(theirs)


@pytest.mark.parametrize("most", [arrow_reader.SMALL, 0])
@pytest.mark.parametrize("other", ["k", "a.b"])
def test_a_small_file_gives_the_columns_of_a_scan_by_arrow(
    other: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are the same with and without Arrow's scanner, also if a name has a dot."""
    rows = pa.table({other: np.arange(120) * 2, "s": ["x", None, "z"] * 40, "a": np.arange(120)})
    path = tmp_path / "small.parquet"
    pq.write_table(rows, path, row_group_size=50)
    given = {"file_path": str(path), "file_format": FileFormat.PARQUET, "file_size_in_bytes": path.stat().st_size}
    chosen: Any = SimpleNamespace(columns=[SimpleNamespace(name="a"), SimpleNamespace(name="s")])
    view: Any = SimpleNamespace(physical_schema=rows.schema, projected=chosen)
    monkeypatch.setattr(arrow_reader, "SMALL", most)
    with path.open("rb") as file:
        fragment = ds.ParquetFileFormat().make_fragment(pa.PythonFile(file, "r"))
        found = arrow_reader._batches_of(DataFile.from_args(**given), pa.PythonFile(file, "r"), fragment, view, None)
        assert pa.Table.from_batches(found).equals(rows.select(["a", "s"]))


def test_rows_that_match_come_in_their_order_however_many_chunks_there_are() -> None:
    keys = np.random.default_rng(3).integers(0, 4, 300_000)
    values = pa.chunked_array([pa.array(part, mask=part == 3) for part in np.array_split(keys, 7)])
    for expression, wanted in (
        (pc.field("k") == 1, keys == 1),
        (~(pc.field("k") == 1), (keys != 1) & (keys != 3)),
        (pc.scalar(True), keys >= 0),
        (pc.scalar(False), keys < 0),
    ):
        assert np.array_equal(arrow_reader._matching(expression, pa.table({"k": values})), np.flatnonzero(wanted))
