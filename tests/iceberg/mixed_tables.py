"""Iceberg tables of files that pyiceberg does not write, as it can be made to list them: ORC, any partition."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tests.iceberg.cases import SCHEMA, file_in_manifest, local, rows
from tests.orc_cases import write_orc
from tests.orc_writers import write_oddly

UNREADABLE = ("fx", "u", "t")
"""fixed, uuid and time: pyiceberg 0.12 reads them as plain bytes and numbers from ORC, and raises."""

READABLE = Schema(*(field for field in SCHEMA.fields if field.name not in UNREADABLE))


def append_orc(table: Table, data: pa.Table, ids: bool = True, **options: Any) -> Path:
    """One more commit: a data file in ORC; its manifest entry has counts, and no bounds."""
    file = orc_file(table, data, ids, **options)
    append_files(table, [file])
    return Path(file.file_path.removeprefix("file:"))


def append_odd_orc(table: Table, data: pa.Table, rng: random.Random) -> None:
    """The same, by one of the writers of :mod:`tests.orc_writers`."""
    name, folder = _new_file(table)
    append_files(table, [_data_file(table, write_oddly(folder / name, data, table.schema(), rng), data.num_rows)])


def append_files(table: Table, files: Iterable[DataFile], branch: str | None = "main") -> None:
    """One more commit of a branch, with one manifest for all ``files``."""
    with table.transaction() as transaction, transaction.update_snapshot(branch=branch).fast_append() as append:
        for file in files:
            append.append_data_file(file)


def orc_file(table: Table, data: pa.Table, ids: bool = True, **options: Any) -> DataFile:
    """A new file in ORC beside the table's data files."""
    name, folder = _new_file(table)
    schema = Schema(*(field for field in table.schema().fields if field.name in data.column_names))
    return _data_file(table, write_orc(folder / name, data, schema, ids, **options), data.num_rows)


def _new_file(table: Table) -> tuple[str, Path]:
    folder = Path(table.location().removeprefix("file:")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    return f"{uuid.uuid4()}.orc", folder


def _data_file(table: Table, path: Path, rows: int) -> DataFile:
    return file_in_manifest(
        f"{table.location()}/data/{path.name}", rows, path.stat().st_size, file_format=FileFormat.ORC
    )


def parquet_file(table: Table, rows: pa.Table, partition: Record | None = None, **options: Any) -> DataFile:
    """A new file in Parquet with any partition, as others write it; its manifest entry has no bounds.

    ``rows`` may lack columns of the table.
    """
    schema = Schema(*(field for field in table.schema().fields if field.name in rows.column_names))
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(schema_to_pyarrow(schema)), local(path), **options)
    return file_in_manifest(path, len(rows), local(path).stat().st_size, partition=partition or Record())


def append_rows(table: Table, start: int, count: int, orc: bool, **options: Any) -> None:
    """The rows of :func:`tests.iceberg.cases.rows`, in one of the formats."""
    data = rows(start, count, start, table.schema().as_arrow())
    if orc:
        append_orc(table, data, **options)
    else:
        table.append(data)


def create_mixed(catalog: Any, name: str, files: int = 8, count: int = 60, **options: Any) -> Table:
    """A table of all types that pyiceberg reads from ORC; every other file is ORC, in row groups of 20."""
    table: Table = catalog.create_table(name, READABLE, properties={"write.parquet.row-group-limit": "25"})
    settings = {"row_index_stride": 20} | options
    for n in range(files):
        append_rows(table, n * count, count, orc=n % 2 == 0, **settings)
    return table
