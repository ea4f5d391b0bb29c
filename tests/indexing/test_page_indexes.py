"""Builds of the kind ``page-index``: the file's own as they are, new ones where it has none, reasons else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.indexes.page_indexes import decode_page_index
from sidecar.bundle.sidecar_file import Segment
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import UsageError
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.parquet.single_indexes import read_column_index, read_offset_index
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
COLUMNS = {1: "k", 2: "s", 3: "d"}


def _rows(number: int, count: int = 3000) -> pa.Table:
    doubles = np.arange(count) / 7
    if number == 1:
        doubles[5] = np.nan
    keys = np.arange(count) + number * count
    return pa.table({"k": keys, "s": [f"row {k:09}" for k in keys], "d": doubles}, schema=SCHEMA)


@pytest.fixture
def table(catalog: Any, request: Any, tmp_path: Path) -> Any:
    """Two appended files without page indexes, one file that has its own."""
    name = "db.pages_" + request.node.name.removeprefix("test_")[:40].replace("[", "_").replace("]", "")
    created = create_with_rows(catalog, name, map(_rows, (0, 1)), SCHEMA, **{"write.parquet.row-group-limit": "1000"})
    own = tmp_path / "own.parquet"
    pq.write_table(_rows(2), own, write_page_index=True, data_page_size=2000, row_group_size=1500)
    created.add_files([f"file:{own}"])
    return catalog.load_table(name)


def _segment(table: Any) -> Segment:
    (segment,) = sidecar.open_sidecar(table.refresh()).segments
    return segment


def _path(entry: Any) -> str:
    return local_path(entry.path) or ""


def test_carried_as_they_are_or_built(table: Any) -> None:
    report = sidecar.build(table, list(COLUMNS.values()), kinds=["page-index"], engine="local")
    columns = report.to_dict()["columns"]
    assert columns["k"]["page_indexes"] == {"built": 6, "reused": 2}
    assert columns["k"]["uncovered"] == {"page-index": {}}
    segment = _segment(table)
    assert verify_sidecar(LocalSource(local_path(report.statistics_path or "") or "")) == []
    assert not segment.bundles
    unit = 0
    for entry in segment.files(range(segment.num_files)):
        assert entry is not None
        source = LocalSource(_path(entry))
        footer = read_footer(source)
        for group in footer.row_groups:
            for field_id, name in COLUMNS.items():
                stored = segment.page_index(field_id, unit)
                assert stored is not None
                chunk = group.columns[footer.columns.index(footer.leaf(name))]
                columns_of, offsets = (
                    read_column_index(source, footer, chunk),
                    read_offset_index(source, footer, chunk),
                )
                if offsets is None:
                    columns_of, offsets, _ = build_page_index(source, footer, chunk)
                assert stored.offset_index == offsets.raw
                assert stored.column_index == (columns_of.raw if columns_of else None)
                assert decode_page_index(stored).offset_index.num_pages == offsets.num_pages
            unit += 1
    assert unit == segment.num_units == 8


def test_a_column_with_nan_keeps_its_offset_index_alone(table: Any) -> None:
    sidecar.build(table, ["d"], kinds=["page-index"], engine="local")
    segment = _segment(table)
    without = [u for u in range(segment.num_units) if segment.page_index(3, u).column_index is None]
    assert len(without) == 1


def test_kinds_add_up_and_are_not_built_twice(table: Any) -> None:
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    report = sidecar.build(table.refresh(), ["k"], kinds=["bloom", "page-index"], engine="local")
    assert report.files_carried == 0
    again = sidecar.build(table.refresh(), ["k"], kinds=["bloom", "page-index"], engine="local")
    assert (again.files_carried, again.units) == (3, 0)
    table.append(_rows(5))
    more = sidecar.build(table.refresh(), ["k"], kinds=["bloom", "page-index"], engine="local")
    assert (more.files_carried, more.units) == (3, 3)
    found = sidecar.open_sidecar(table.refresh())
    indexed = sum(len(s.page_indexes(1, range(s.num_units))) for s in found.segments)
    assert (len(found.segments), indexed, found.warnings) == (2, 11, [])
    found.close()


def test_reuse_never_builds_all(table: Any) -> None:
    report = sidecar.build(table, ["k"], kinds=["page-index"], reuse="never", engine="local")
    assert report.columns[0].page_indexes == {"built": 8}


def test_damaged_pages_are_a_reason(table: Any) -> None:
    entry = next(iter(table.scan().plan_files())).file
    path = local_path(entry.file_path) or ""
    data = bytearray(Path(path).read_bytes())
    footer = read_footer(LocalSource(path))
    chunk = footer.row_groups[0].columns[1]
    data[chunk.start : chunk.start + 40] = b"\xff" * 40
    Path(path).write_bytes(data)
    report = sidecar.build(table, ["k", "s"], kinds=["page-index"], engine="local")
    uncovered = {column.name: column.uncovered["page-index"] for column in report.columns}
    if chunk.offset_index_offset is None:
        assert sum(uncovered["s"].values()) == 1
        assert report.files_failed
    assert uncovered["k"] == {}


def test_no_such_kind(table: Any) -> None:
    with pytest.raises(UsageError, match="unknown kind 'pages'"):
        sidecar.build(table, ["k"], kinds=["pages"])
