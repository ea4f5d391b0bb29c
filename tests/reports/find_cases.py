"""A slow search in tables with a past: pyarrow reads every data file whole, Python compares."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import FloatType

from sidecar.reports.finding.results import FindReport
from tests.iceberg.cases import LITERALS, SPECIAL, _value, local

NAMES = (
    "id", "part", "i", "l", "f", "d", "dec9", "dec18", "dec38", "s", "b", "day", "ts", "tz", "bo", "st.x", "st.y",
)  # fmt: skip
"""Columns of :data:`tests.iceberg.mixed_tables.READABLE`."""


def leaves(table: Table) -> dict[int, str]:
    """The columns of the first schema by field id, with the names by which ``tests.iceberg.cases`` makes values."""
    first = table.schemas()[0]
    return {first.find_field(name).field_id: name.rpartition(".")[2] for name in NAMES}


def name_of(table: Table, field_id: int) -> str:
    """The name of a column today, or the last one that it had."""
    schemas = sorted(table.schemas().values(), key=lambda schema: schema.schema_id)
    names = [schema.find_column_name(field_id) for schema in [*schemas, table.schema()]]
    return [name for name in names if name is not None][-1]


def random_value(rng: random.Random, leaf: str, rows: int) -> Any:
    """A value that some row may have, or an absent or a special one."""
    special = SPECIAL.get(leaf, [])
    if special and rng.random() < 0.25:
        return rng.choice(special)
    return _value(leaf, rng.randrange(int(rows * 1.2)))


def as_text(leaf: str, value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    text = str(LITERALS[leaf](value))
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


@cache
def _columns_of(path: str) -> dict[int, list[Any]]:
    """All values of a data file by field id, as pyarrow reads them."""
    if path.endswith(".orc"):
        found, key = po.ORCFile(str(local(path))).read(), b"iceberg.id"
    else:
        found, key = pq.read_table(str(local(path)), partitioning=None), b"PARQUET:field_id"
    columns: dict[int, list[Any]] = {}
    for field in found.schema:
        values = found[field.name].to_pylist()
        columns[int(field.metadata[key])] = values
        if pa.types.is_struct(field.type):
            for inner in field.type:
                inner_values = [None if value is None else value[inner.name] for value in values]
                columns[int(inner.metadata[key])] = inner_values
    return columns


def _equal(found: Any, value: Any) -> bool:
    if isinstance(found, float) and isinstance(value, float) and math.isnan(value):
        return math.isnan(found)
    return bool(found is not None and found == value)


def positions(table: Table, path: str, field_id: int, value: Any) -> set[int]:
    """The rows of a data file with a value."""
    if isinstance(schema_of(table, field_id).find_type(field_id), FloatType) and isinstance(value, float):
        value = float(np.float32(value))
    return {at for at, found in enumerate(_columns_of(path).get(field_id, [])) if _equal(found, value)}


def schema_of(table: Table, field_id: int) -> Schema:
    """The schema in which a column is read: today's, or the newest that has it."""
    schemas = [schema for schema in table.schemas().values() if field_id in schema.field_ids]
    current = table.schema()
    return current if current in schemas else max(schemas, key=lambda schema: schema.schema_id)


def slow_search(
    table: Table, field_id: int, value: Any, snapshot_ids: list[int]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Live and deleted rows with a value, by the path of the data file and the snapshot."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for snapshot_id in snapshot_ids:
        snapshot = table.snapshot_by_id(snapshot_id)
        manifests = snapshot.manifests(table.io)
        entries = [entry for one in manifests for entry in one.fetch_manifest_entry(table.io, discard_deleted=True)]
        deletes = [entry for entry in entries if entry.data_file.content == DataFileContent.POSITION_DELETES]
        for entry in entries:
            path = entry.data_file.file_path
            if entry.data_file.content != DataFileContent.DATA:
                continue
            rows = positions(table, path, field_id, value)
            gone = {
                at
                for delete in deletes
                if delete.sequence_number >= entry.sequence_number
                for at in _deleted(delete.data_file.file_path).get(path, ())
            }
            if rows:
                found.setdefault(path, {})[snapshot_id] = len(rows - gone), len(rows & gone)
    return found


@cache
def _deleted(path: str) -> dict[str, list[int]]:
    by_path: dict[str, list[int]] = {}
    read = pq.read_table(str(local(path)))
    for file, at in zip(read["file_path"].to_pylist(), read["pos"].to_pylist(), strict=True):
        by_path.setdefault(file, []).append(at)
    return by_path


def found_by(report: FindReport, field_id: int, text: str) -> dict[str, dict[int, tuple[int, int]]]:
    """What a report says, as :func:`slow_search` does."""
    return {
        file.file: {one.snapshot_id: (one.live, one.deleted) for one in file.snapshots}
        for file in report.files
        if (file.field_id, file.value) == (field_id, text)
    }


def asked_once(report: FindReport) -> bool:
    """Whether no file was read or ruled out twice for a column, nor both."""
    asked = Counter((one.file, one.field_id) for one in (*report.files_read, *report.files_ruled_out))
    return max(asked.values(), default=0) <= 1
