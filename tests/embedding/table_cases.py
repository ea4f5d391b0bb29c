"""A small table of plain files, what its commits and files hold, and changes that come before its commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

import sidecar
from sidecar.iceberg import replace
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.tables import create_with_rows

ARROW = pa.schema([("k", pa.int64()), ("s", pa.string())])
FILES, ROWS = 4, 300
table_numbers = itertools.count()


def rows(part: int) -> pa.Table:
    numbers = [(part + FILES * row) * 7919 % 100_003 for row in range(ROWS)]
    return pa.table({"k": numbers, "s": [f"text {n}" for n in numbers]}, schema=ARROW)


def create(catalog: Any, files: int = FILES, **properties: str) -> Table:
    name = f"db.embed{next(table_numbers)}"
    return create_with_rows(catalog, name, map(rows, range(files)), ARROW, **properties)


def on_disk(table: Table, ending: str = ".parquet") -> set[Path]:
    return {p for p in Path(local_path(table.location()) or "").rglob(f"*{ending}") if p.is_file()}


def data_files(table: Table) -> list[DataFile]:
    """In the order of partition and first value, which a path does not change."""
    files = [task.file for task in table.scan().plan_files()]
    return sorted(files, key=lambda f: (repr(f.partition), repr(sorted((f.lower_bounds or {}).items()))))


def filters_of(file: DataFile) -> set[str]:
    source = LocalSource(local_path(file.file_path) or "")
    footer = read_footer(source)
    assert footer.row_groups
    return {
        chunk.leaf.path
        for group in footer.row_groups
        for chunk in group.columns
        if read_bloom_filter(source, chunk) is not None
    }


def embed(table: Table, **options: Any) -> Any:
    return sidecar.embed(table, **{"bloom": ["k", "s"], **options})


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Run ``act`` with the number of the attempt when all is written and the commit is about to be sent."""
    attempts: list[int] = []
    commit = replace.ReplaceProducer.commit

    def acting(self: Any) -> None:
        attempts.append(len(attempts))
        act(attempts[-1])
        commit(self)

    monkeypatch.setattr(replace.ReplaceProducer, "commit", acting)
    return attempts


def once(act: Callable[[], Any]) -> Callable[[int], None]:
    return lambda attempt: act() if attempt == 0 else None


def contents(file: DataFile) -> pa.Table:
    return pq.ParquetFile(local_path(file.file_path)).read()


def facts(file: DataFile) -> dict[str, Any]:
    """What a replace must not change of a manifest entry."""
    names = (
        "content file_format partition record_count column_sizes value_counts null_value_counts nan_value_counts "
        "lower_bounds upper_bounds key_metadata equality_ids sort_order_id spec_id"
    )
    return {name: getattr(file, name) for name in names.split()}


def entries(table: Table) -> list[dict[str, Any]]:
    return table.inspect.entries().to_pylist()


def sequence_numbers(table: Table) -> dict[Any, int]:
    """Data sequence numbers by the files' bounds."""
    return {
        repr(sorted(e["readable_metrics"]["k"].items())): e["sequence_number"]
        for e in entries(table)
        if e["status"] != 2
    }
