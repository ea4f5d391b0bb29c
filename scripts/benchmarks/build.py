"""How long a whole in-process build takes beside plain decoding of the same columns by pyarrow.

Rows: columns of TPC-H lineitem in an Iceberg table of several files that pyiceberg wrote. Both sides use the
same number of threads over row groups; the build's time includes listing, slicing, writing and registering.
Medians of interleaved runs. Targets: at most 2 x for values that must be scanned, 0.3 x for dictionary-
encoded columns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

import sidecar
from sidecar.source import local_path

CASES = {
    "scanned": ["l_orderkey", "l_partkey", "l_comment"],
    "dictionary": ["l_suppkey", "l_quantity", "l_shipmode"],
}
FILES = 8


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="build", description=__doc__)
    parser.add_argument("--sf", type=float, default=0.5, help="scale factor of lineitem")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", default="bloom,theta")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        table = _lineitem(Path(folder), options.sf)
        print(f"{'columns':<12} {'decode s':>9} {'build s':>9} {'ratio':>7}")
        for name, columns in CASES.items():
            _compare(name, table, columns, options)
    return 0


def _lineitem(folder: Path, scale: float) -> Any:
    program = Path(sys.executable).parent / "tpchgen-cli"
    command = [program, "parquet", "-s", str(scale), "--tables", "lineitem", "--output-dir", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = [name for columns in CASES.values() for name in columns]
    rows = pq.read_table(folder / "lineitem.parquet", columns=names)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    catalog.create_namespace("db")
    plain = pa.schema(
        [(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type) for f in rows.schema]
    )
    table = catalog.create_table("db.lineitem", plain)
    step = -(-rows.num_rows // FILES)
    for first in range(0, rows.num_rows, step):
        table.append(rows.slice(first, step).cast(plain))
    return table


def _compare(name: str, table: Any, columns: list[str], options: argparse.Namespace) -> None:
    paths = [local_path(task.file.file_path) for task in table.scan().plan_files()]
    decode: list[float] = []
    build: list[float] = []
    for run in range(options.runs + 1):
        decoded = _seconds(lambda: _decode(paths, columns, options.threads))
        built = _seconds(
            lambda: sidecar.build(
                table,
                columns,
                kinds=options.kinds.split(","),
                engine="local",
                threads=options.threads,
                full=True,
            )
        )
        if run:  # the first run compiles kernels and fills the page cache
            decode.append(decoded)
            build.append(built)
    ratio = statistics.median(build) / statistics.median(decode)
    print(f"{name:<12} {statistics.median(decode):>9.3f} {statistics.median(build):>9.3f} {ratio:>7.2f}")


def _decode(paths: list[str], columns: list[str], threads: int) -> None:
    def read(path: str) -> None:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            file.read_row_group(group, columns=columns, use_threads=False)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, paths))


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
