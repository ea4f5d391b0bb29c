"""How long an in-process build takes beside plain decoding of the same columns by pyarrow.

Rows: columns of TPC-H lineitem in an Iceberg table of several files that pyiceberg wrote. Both sides use the same
number of threads over row groups. *index* is the first stage (harvest, dictionary or scan), *build* all of it: listing,
slicing, writing and registering too, some 30 ms whatever the table's size. Medians of interleaved runs, in CPU time,
which other work on the machine disturbs less, and in wall time. Targets of the ratio to decoding: at most 2 for values
that must be scanned, 0.3 for dictionary-encoded columns.
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
Times = tuple[float, float]
"""CPU time and wall time."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="build", description=__doc__)
    parser.add_argument("--sf", type=float, default=0.5, help="scale factor of lineitem")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", default="bloom,theta")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        table = _lineitem(Path(folder), options.sf)
        print(f"{'columns':<12} {'clock':<5} {'decode s':>9} {'index s':>9} {'ratio':>6} {'build s':>9} {'ratio':>6}")
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
    plain = pa.schema([(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type) for f in rows.schema])
    table = catalog.create_table("db.lineitem", plain)
    step = -(-rows.num_rows // FILES)
    for first in range(0, rows.num_rows, step):
        table.append(rows.slice(first, step).cast(plain))
    return table


def _compare(name: str, table: Any, columns: list[str], options: argparse.Namespace) -> None:
    paths = [local_path(task.file.file_path) or "" for task in table.scan().plan_files()]
    decode: list[Times] = []
    index: list[Times] = []
    build: list[Times] = []
    for run in range(options.runs + 1):
        marks: list[Times] = []

        def mark(what: str, done: int | None = None, total: int | None = None, at: list[Times] = marks) -> None:
            if what == "indexing" and done in (0, total):
                at.append(_now())

        _forget(table)
        start = _now()
        _decode(paths, columns, options.threads)
        decoded = _now()
        sidecar.build(
            table,
            columns,
            kinds=options.kinds.split(","),
            engine="local",
            threads=options.threads,
            full=True,
            progress=mark,
        )
        if run:  # the first run compiles kernels and fills the page cache
            decode.append(_between(start, decoded))
            index.append(_between(marks[0], marks[-1]))
            build.append(_between(decoded, _now()))
    for clock, kind in enumerate(("cpu", "wall")):
        base, *parts = (statistics.median(t[clock] for t in times) for times in (decode, index, build))
        ratios = " ".join(f"{part:>9.3f} {part / base:>6.2f}" for part in parts)
        print(f"{name:<12} {kind:<5} {base:>9.3f} {ratios}")


def _forget(table: Any) -> None:
    """Take away what the run before registered, which a build would carry over."""
    with table.update_statistics() as update:
        for entry in table.metadata.statistics:
            update.remove_statistics(entry.snapshot_id)
    table.refresh()


def _now() -> Times:
    return time.process_time(), time.perf_counter()


def _between(start: Times, end: Times) -> Times:
    return end[0] - start[0], end[1] - start[1]


def _decode(paths: list[str], columns: list[str], threads: int) -> None:
    def read(path: str) -> None:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            file.read_row_group(group, columns=columns, use_threads=False)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, paths))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
