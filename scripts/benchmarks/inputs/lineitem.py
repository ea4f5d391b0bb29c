"""lineitem of TPC-H: as generated, as an Iceberg table, as one Parquet file and as one ORC file."""

from __future__ import annotations

import math
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from scripts.benchmarks.harness import data

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SCANNED = ["l_orderkey", "l_partkey", "l_comment"]
"""Columns whose values are not in dictionaries."""
IN_DICTIONARIES = ["l_suppkey", "l_quantity", "l_shipmode"]
ORC_COLUMNS = ["l_orderkey", "l_partkey", "l_extendedprice", "l_comment"]
DICTIONARIES_OF_FILE = ["l_returnflag", "l_linestatus", "l_shipmode"]


def generated(scale: float) -> Path:
    """Return the Parquet file of the generator."""

    def make(folder: Path) -> None:
        tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or shutil.which("tpchgen-cli")
        if tool is None:
            raise RuntimeError("tpchgen-cli is not installed; it is in the extra [bench]")
        command = [tool, "parquet", "-s", f"{scale:g}", "--tables=lineitem", f"--output-dir={folder}"]
        subprocess.run(command, check=True, capture_output=True)

    return data.made(f"lineitem-{scale:g}", make) / "lineitem.parquet"


def rows_of(scale: float, columns: Sequence[str] | None = None) -> pa.Table:
    """Return rows with plain strings; the generator's files ask for views, which few writers take."""
    rows = pq.read_table(generated(scale), columns=None if columns is None else list(columns))
    return rows.cast(_plain_strings(rows.schema))


def _plain_strings(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type) for f in schema])


def catalog_with_table(scale: float, files: int, columns: Sequence[str]) -> SqlCatalog:
    """Return a catalog with the table ``db.lineitem``, of so many files and commits, written by pyiceberg."""

    def make(folder: Path, catalog: SqlCatalog) -> None:
        rows = rows_of(scale, columns)
        table = catalog.create_table("db.lineitem", rows.schema)
        step = math.ceil(rows.num_rows / files)
        for first in range(0, rows.num_rows, step):
            table.append(rows.slice(first, step))

    short = "-".join(name.removeprefix("l_") for name in columns)
    return data.table(f"lineitem-{scale:g}-in-{files}-{short}", make)


def one_file(scale: float) -> Path:
    """Return the table in one file of Arrow C++, without filters and page indexes, dictionaries for three columns."""

    def make(folder: Path) -> None:
        pq.write_table(
            rows_of(scale), folder / "plain.parquet", row_group_size=1 << 17, use_dictionary=DICTIONARIES_OF_FILE
        )

    return data.made(f"lineitem-{scale:g}-one-file", make) / "plain.parquet"


def orc_file(scale: float) -> Path:
    """Return four columns in one ORC file of Arrow C++, zstd, without filters."""

    def make(folder: Path) -> None:
        from pyarrow import orc

        with (
            pq.ParquetFile(generated(scale)) as file,
            (folder / "plain.orc").open("wb") as out,
            orc.ORCWriter(out, compression="zstd", dictionary_key_size_threshold=0.5) as writer,
        ):
            for batch in file.iter_batches(1 << 17, columns=ORC_COLUMNS):
                rows = pa.Table.from_batches([batch])
                writer.write(rows.cast(_plain_strings(rows.schema)))

    return data.made(f"lineitem-{scale:g}-orc", make) / "plain.orc"
