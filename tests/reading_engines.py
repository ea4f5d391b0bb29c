"""What engines leave unread: lookups in tables of which all that need not be read is destroyed.

An engine that still finds the row has read nothing else. The table in README says what each engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

import sidecar
from tests.guide_examples import ROOT
from tests.iceberg.cases import local

FILES, GROUPS, ROWS = 4, 4, 20
WANTED = 42
VALUE = f"value-{WANTED:04}"
LOOKUP = f"s = '{VALUE}'"
SPARK_READ, SPARK_SQL = "`sidecar.spark_read`", "Spark SQL 4.1, Iceberg 1.12"
"""The engines of README that need a Spark session."""
PADDING = 5_000
"""Bytes in each row besides, because small files are read whole."""
Lookup = Callable[[Table], list[int]]
"""Asks an engine for the ids of the rows that meet ``LOOKUP``."""
NOT_RUN = "not run"
NO_NEED = "–"


def parts() -> list[pa.Table]:
    """The rows of each file: every row group has small values and large ones, so that no bounds rule it out."""
    found, random = [], Random(1)
    for file in range(FILES):
        numbers = [(n * GROUPS + group) * FILES + file for group in range(GROUPS) for n in range(ROWS)]
        padding = [random.randbytes(PADDING) for _ in numbers]
        found.append(pa.table({"id": numbers, "s": [f"value-{n:04}" for n in numbers], "padding": padding}))
    return found


@dataclass(frozen=True)
class EngineTables:
    """The same rows in tables of which different parts are destroyed."""

    whole: Table
    """With a sidecar, and undamaged."""
    one_file: Table
    """With a sidecar. Only the file with the row exists."""
    one_group: Table
    """With a sidecar. Only the row group with the row can be read, and only its file exists."""
    embedded: Table
    """No sidecar, and filters in the data files. One row group of each file can be read."""
    bare: Table
    """Like ``embedded``, but without filters."""


def make_tables(catalog: Any, prefix: str) -> EngineTables:
    """Create the tables as ``db.PREFIX_whole`` and so on."""

    def made(name: str) -> Table:
        table: Table = catalog.create_table(f"db.{prefix}_{name}", parts()[0].schema)
        places = [f"{table.location()}/data/{number}.parquet" for number in range(FILES)]
        for place, part in zip(places, parts(), strict=True):
            local(place).parent.mkdir(parents=True, exist_ok=True)
            # engines can skip row groups by dictionaries too, so there are none
            pq.write_table(part, local(place), row_group_size=ROWS, use_dictionary=False)
        table.add_files(places)
        return table

    tables = EngineTables(*map(made, ("whole", "file", "group", "embedded", "bare")))
    for table in (tables.whole, tables.one_file, tables.one_group):
        sidecar.build(table, ["s"], kinds=["bloom"], engine="local")
        table.refresh()
    sidecar.embed(tables.embedded, bloom=["s"])
    for table in (tables.one_file, tables.one_group):
        for path in data_files(table):
            if WANTED not in pq.read_table(local(path))["id"].to_pylist():
                local(path).unlink()
    for table in (tables.one_group, tables.embedded, tables.bare):
        for path in data_files(table):
            if local(path).exists():
                destroy_groups(path)
    return tables


def data_files(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


def destroy_groups(path: str) -> None:
    """Overwrite the pages of the row groups that have not the row; footer and filters stay."""
    footer = pq.read_metadata(local(path))
    assert footer.num_row_groups == GROUPS
    with local(path).open("r+b") as file:
        for group in range(GROUPS):
            if WANTED in pq.ParquetFile(local(path)).read_row_group(group)["id"].to_pylist():
                continue
            for column in range(footer.num_columns):
                chunk = footer.row_group(group).column(column)
                file.seek(chunk.data_page_offset)
                file.write(b"\xff" * chunk.total_compressed_size)


def finds_it(lookup: Lookup, table: Table) -> bool:
    """Whether an engine finds the row. If it fails, it has read what is destroyed."""
    try:
        found = lookup(table)
    except Exception:
        return False
    assert found == [WANTED]
    return True


def without_files(lookup: Lookup, tables: EngineTables) -> str:
    """What an engine leaves unread with a sidecar, in the words of README."""
    assert lookup(tables.whole) == [WANTED]
    if not finds_it(lookup, tables.one_file):
        return "reads all files"
    return "skips files, row groups" if finds_it(lookup, tables.one_group) else "skips files"


def without_groups(lookup: Lookup, tables: EngineTables) -> str:
    """What an engine leaves unread in files with filters, in the words of README."""
    assert lookup(tables.whole) == [WANTED]
    assert not finds_it(lookup, tables.bare)
    return "skips row groups" if finds_it(lookup, tables.embedded) else "reads all row groups"


def claims() -> Mapping[str, tuple[str, str, str]]:
    """What README says of each engine: by itself, through the server, and with filters in the data files."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| engine"))
    found = {}
    for line in takewhile(lambda line: line.startswith("|"), lines[start + 2 :]):
        engine, alone, served, embedded = (cell.strip() for cell in line.strip("|").split("|"))
        found[engine] = (alone, served, embedded)
    return found
