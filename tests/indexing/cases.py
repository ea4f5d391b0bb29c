"""Files, tables and oracles that the tests of building share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, create_mapping_from_schema

from sidecar.access import Access
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.theta import ThetaSketch
from sidecar.filters.values import probe_hashes
from sidecar.iceberg.resolve import primitive_columns, resolve_columns
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.indexing.columns import Options
from sidecar.indexing.stage_one.tasks import BuildPlan, FilePiece, StageResult, UnitsTask, index_units
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from sidecar.storage.source import Source
from tests.bundle.cases import group_filters
from tests.tables import iceberg_schema

Filters = dict[tuple[str, int, int], tuple[str, bytes]]
"""(path, row group, field id) -> (encoding, bitset)."""
LONG = iceberg_schema("k long")
"""One column ``k`` of longs."""


def schema_of(arrow: pa.Schema, mapping: NameMapping | None = None) -> Schema:
    """An Iceberg schema with ids in the order of a file without ids."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.schema import assign_fresh_schema_ids

    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(arrow))


def plan_for(schema: Schema, columns: Sequence[str] | None = None, **options: Any) -> BuildPlan:
    """A plan over ``columns`` (all by default) of files without field ids."""
    flags = {"bloom": True, "theta": True, "page_index": False}
    kinds = frozenset(name.replace("_", "-") for name, flag in flags.items() if options.pop(name, flag))
    chosen = {"kinds": kinds, "fpp": 0.01, "max_bits": None, "reuse": "good"} | options
    wanted = primitive_columns(schema) if columns is None else resolve_columns(schema, columns)
    return BuildPlan(tuple(wanted), schema, create_mapping_from_schema(schema), Options(**chosen), Access())


def opened_by(plan: BuildPlan, opener: Callable[[str], Source]) -> BuildPlan:
    """The plan, with a function of their paths that opens the data files."""
    access: Any = SimpleNamespace(open=lambda path, size: opener(path), keys=None)
    return replace(plan, access=access)


def stage_one(
    paths: Iterable[Path],
    plan: BuildPlan,
    cuts: Sequence[float] = (),
) -> list[StageResult]:
    """Records of one task over whole files, or of one task for each piece between ``cuts`` (shares of a
    file)."""
    records: list[StageResult] = []
    for file, path in enumerate(paths):
        size = path.stat().st_size
        bounds = [0, *(int(size * cut) for cut in cuts), size]
        for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
            piece = FilePiece(file, str(path), size, start, stop)
            records += index_units(UnitsTask(number, (piece,)), plan)
    return records


def columns_of(records: Sequence[StageResult], field_id: int) -> list[StageResult]:
    """Records of one column, by file and row group."""
    found = [r for r in records if r.kind == "column" and r.field_id == field_id]
    return sorted(found, key=lambda r: (r.file, r.row_group))


def sketch_of(records: Sequence[StageResult], field_id: int) -> ThetaSketch:
    """The union of all tasks' sketches of one column."""
    parts = [r.data for r in records if r.kind == "sketch" and r.field_id == field_id]
    return ThetaSketch.union([ThetaSketch.from_bytes(part or b"") for part in parts])


def filter_of(record: StageResult) -> SplitBlockBloomFilter:
    assert record.data is not None, record
    return SplitBlockBloomFilter.from_bytes(record.data + record.filter.tail)


def misses(found: SplitBlockBloomFilter, encoding: str, iceberg_type: str, values: Iterable[Any]) -> list[Any]:
    """Values that the filter denies: must be empty. Values that are never certain are not asked."""
    denied = []
    for value in values:
        probe = probe_hashes(value, iceberg_type, Encoding.parse(encoding))
        assert probe.verdict != "cannot-exist", (value, encoding)
        if probe.verdict == "probe" and not any(found.might_contain_hash(h) for h in probe.hashes):
            denied.append(value)
    return denied


def sidecar_of(table: Any) -> SidecarFile:
    """The sidecar of the table's current snapshot, every doubt an error."""
    found = find_sidecar(table, Access())
    assert found is not None
    entry = found.statistics
    return SidecarFile.open(
        LocalSource(local_path(entry.statistics_path) or ""),
        file_size=entry.file_size_in_bytes,
        footer_length=entry.file_footer_size_in_bytes,
        table_uuid=str(table.metadata.table_uuid),
        strict=True,
    )


def filters_in(segment: Segment) -> Filters:
    """All filters of a segment, taken out of its bundles."""
    files = segment.files(range(segment.num_files))
    units = [(file.path, unit.row_group) for file in files if file for unit in file.units]
    return {
        (*units[unit], field_id): (group.encoding, bitset)
        for field_id, groups in segment.fields.items()
        for group in groups
        for unit, bitset in group_filters(segment, field_id, group)
    }


def filters_of(table: Any) -> Filters:
    """All filters of a table's sidecar."""
    sidecar = sidecar_of(table)
    try:
        return {key: value for segment in sidecar.segments for key, value in filters_in(segment).items()}
    finally:
        sidecar.close()


def sketches_of(table: Any) -> dict[int, bytes]:
    """Theta blobs of a table's statistics file by field id."""
    sidecar = sidecar_of(table)
    try:
        blobs = [b for b in sidecar.puffin.metadata.blobs if b.type == "apache-datasketches-theta-v1"]
        return {blob.fields[0]: sidecar.puffin.read_blob(blob) for blob in blobs}
    finally:
        sidecar.close()


def group_sketches_of(table: Any) -> dict[int, list[tuple[frozenset[str], int, bytes]]]:
    """The groups of a table's sidecar by field id: paths of the files, rows, sketch."""
    sidecar = sidecar_of(table)
    found: dict[int, list[tuple[frozenset[str], int, bytes]]] = {}
    try:
        for segment in sidecar.segments:
            paths = [file.path for file in segment.files(range(segment.num_files)) if file]
            for field_id, blob in segment.sketch_blobs.items():
                found.setdefault(field_id, []).extend(
                    (frozenset(paths[file] for file in group.files), group.rows, group.sketch) for group in blob.load()
                )
    finally:
        sidecar.close()
    return found


def bound_value(value: Any, iceberg_type: str) -> Any:
    """A Python value as Arrow gives it, as pyiceberg binds it: dates, times and timestamps as integers."""
    if value is None:
        return None
    unit = {"date": pa.date32(), "time": pa.time64("us"), "timestamp": pa.timestamp("us")}
    if iceberg_type == "timestamptz":
        return pa.scalar(value, pa.timestamp("us", "UTC")).value
    return pa.scalar(value, unit[iceberg_type]).value if iceberg_type in unit else value


def file_values(path: str, row_group: int, column: str, iceberg_type: str) -> Iterator[Any]:
    """Every non-null value of a top-level column of a row group, by a plain read."""
    table = pq.ParquetFile(path).read_row_group(row_group, columns=[column])
    for value in table[column].to_pylist():
        if value is not None:
            yield bound_value(value, iceberg_type)


def rng() -> np.random.Generator:
    return np.random.default_rng(20_26)


def write_parquet(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def ints_file(path: Path, values: Any, **options: Any) -> Path:
    return write_parquet(path, pa.table({"k": pa.array(values, pa.int64())}), **options)
