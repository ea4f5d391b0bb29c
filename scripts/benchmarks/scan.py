"""Scans beside those of pyiceberg and DuckDB, local files, all peers in turn in one process.

*Needle*: 658 files of 20,000 random longs with Bloom filters of their own (1 %), one key that one file holds. The
sidecar is built from the same files. pyiceberg scans the table, DuckDB the list of its files, whose filters it uses.
Once with the table loaded before, once from the catalog on. Targets: 30 x pyiceberg, 2 x DuckDB.

*Broad*: one table of mixed columns, predicates that leave most rows, as a table and as a stream. Target: at most 1.2 x
pyiceberg.

Imports and one warm-up of each are not timed. Wall time and CPU time (of all threads), least and median.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

import sidecar

Steps = dict[str, Callable[[], Any]]
Times = dict[str, tuple[list[float], list[float]]]
"""Wall and CPU times of each step."""

BROAD = ["k >= 0", "n > 10", "n > 50", "n > 98", "n = 7", "s >= '2' and n > 5", "k >= 400000"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scan", description=__doc__)
    parser.add_argument("--files", type=int, default=658)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", choices=["needle", "broad"])
    options = parser.parse_args(arguments)
    missed = False
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        if options.only != "broad":
            missed |= needle(Path(folder) / "needle", options.files, options.rows, options.runs)
        if options.only != "needle":
            missed |= broad(Path(folder) / "broad", options.runs)
    print(f"targets: {'MISSED' if missed else 'met'}")
    return int(missed)


def needle(folder: Path, files: int, rows: int, runs: int) -> bool:
    """Print the figures of point lookups; whether a target is missed."""
    paths, keys = write_longs(folder, files, rows)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    catalog.create_namespace("db")
    table = catalog.create_table("db.longs", pa.schema([("k", pa.int64())]))
    table.add_files([f"file:{path}" for path in paths])
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table = catalog.load_table("db.longs")
    duck = duckdb.connect()
    key = int(keys[0])
    sql = f"SELECT * FROM read_parquet({paths}) WHERE k = {key}"
    steps: Steps = {
        "sidecar": lambda: sidecar.scan(table, f"k = {key}"),
        "pyiceberg": lambda: table.scan(row_filter=f"k = {key}").to_arrow(),
        "duckdb": lambda: duck.execute(sql).to_arrow_table(),
        "sidecar + load": lambda: sidecar.scan(catalog.load_table("db.longs"), f"k = {key}"),
        "pyiceberg + load": lambda: catalog.load_table("db.longs").scan(row_filter=f"k = {key}").to_arrow(),
    }
    assert all(run().num_rows == 1 for run in steps.values())
    times = timed(steps, runs, {"sidecar": 5, "sidecar + load": 5, "duckdb": 2})
    print(f"needle: one key in {files} files of {rows:,} rows")
    show(times)
    missed = False
    for own, peer, target in (
        ("sidecar", "pyiceberg", 30),
        ("sidecar + load", "pyiceberg + load", 30),
        ("sidecar", "duckdb", 2),
        ("sidecar + load", "duckdb", 2),
    ):
        wall, cpu = (median(times[peer][i]) / median(times[own][i]) for i in (0, 1))
        missed |= wall < target
        print(f"  {peer} / {own}: {wall:.1f} x in wall time, {cpu:.1f} x in CPU time (target {target} x)")
    return missed


def write_longs(folder: Path, files: int, rows: int) -> tuple[list[str], Any]:
    """Files of even numbers, with filters, and one key from every file."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(5)
    paths, keys = [], []
    for number in range(files):
        values = random.integers(-(2**62), 2**62, rows) * 2
        path = folder / f"{number:04}.parquet"
        pq.write_table(
            pa.table({"k": values}),
            path,
            use_dictionary=False,
            compression="none",
            bloom_filter_options={"k": {"ndv": rows, "fpp": 0.01}},
        )
        paths.append(str(path))
        keys.append(values[0])
    return paths, random.permutation(keys)


def broad(folder: Path, runs: int) -> bool:
    """Print the figures of predicates that leave most rows; whether the target is missed."""
    table = mixed_columns(folder)
    print(f"broad: {table.inspect.files().num_rows} files of mixed columns, sidecar with filters and page indexes")
    missed = False
    for predicate in BROAD:
        steps: Steps = {
            "sidecar": lambda p=predicate: sidecar.scan(table, p),
            "pyiceberg": lambda p=predicate: table.scan(row_filter=p).to_arrow(),
            "sidecar stream": lambda p=predicate: sidecar.scan_batches(table, p).read_all(),
            "pyiceberg stream": lambda p=predicate: table.scan(row_filter=p).to_arrow_batch_reader().read_all(),
        }
        counts = {run().num_rows for run in steps.values()}
        assert len(counts) == 1
        times = timed(steps, max(runs, 5), {})
        print(f"  {predicate} ({counts.pop():,} rows)")
        show(times)
        for own, peer in (("sidecar", "pyiceberg"), ("sidecar stream", "pyiceberg stream")):
            least, cpu = (min(times[own][i]) / min(times[peer][i]) for i in (0, 1))
            missed |= least > 1.2 and cpu > 1.2
            print(f"    {own} / {peer}: {least:.2f} in wall time, {cpu:.2f} in CPU time (target 1.2)")
    return missed


def mixed_columns(folder: Path) -> Any:
    """Six files of 150,000 rows: sorted, random and repeating numbers, strings, a struct and a list."""
    folder.mkdir(parents=True)
    random, rows, paths = np.random.default_rng(6), 150_000, []
    for number in range(6):
        start = number * rows
        data = pa.table(
            {
                "k": np.arange(start, start + rows),
                "n": random.integers(0, 100, rows),
                "r": random.integers(0, 2**62, rows),
                "s": pa.array([f"{i:08x}-{i % 97}" for i in random.integers(0, 2**32, rows)]),
                "d": random.random(rows),
                "p": pa.array([{"a": int(i), "b": str(i % 1000)} for i in range(rows)]),
            }
        )
        path = folder / f"{number:04}.parquet"
        pq.write_table(data, path, row_group_size=50_000, write_page_index=True, data_page_size=64 * 1024)
        paths.append(f"file:{path}")
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    catalog.create_namespace("db")
    table = catalog.create_table("db.mixed", data.schema)
    table.add_files(paths)
    sidecar.build(table, ["k", "n", "r", "s"], kinds=["bloom", "page-index"], engine="local")
    return catalog.load_table("db.mixed")


def timed(steps: Steps, runs: int, more: dict[str, int]) -> Times:
    """Each step ``runs`` times, in turn; quick ones ``more`` often each time."""
    times: Times = {name: ([], []) for name in steps}
    for _ in range(runs):
        for name, run in steps.items():
            for _ in range(more.get(name, 1)):
                wall, cpu = perf_counter(), process_time()
                run()
                times[name][0].append(perf_counter() - wall)
                times[name][1].append(process_time() - cpu)
    return times


def show(times: Times) -> None:
    for name, (wall, cpu) in times.items():
        print(
            f"    {name:<17} {min(wall) * 1000:8.1f} ms least {median(wall) * 1000:8.1f} median;"
            f"  CPU {min(cpu) * 1000:8.1f} least {median(cpu) * 1000:8.1f} median"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
