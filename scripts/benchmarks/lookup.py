"""A point lookup over a table of 658 files: with the sidecar, and as pyiceberg does it alone.

Files of 20,000 random longs. For absent and for present keys: files kept, index bytes and reads (from the
plan itself), and times: the scan with the sidecar, pyiceberg's own planning of the same predicate, reading the one
file that holds the key, and pyiceberg's own scan. Target: the scan takes at most 1.5 x planning plus reading
one file. Medians of interleaved runs, everything in one process, after one warm-up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

import sidecar


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="lookup", description=__doc__)
    parser.add_argument("--files", type=int, default=658)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=21)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        table, keys = random_longs(Path(folder), options.files, options.rows)
        report = sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
        print(f"built in {report.seconds:.1f} s, sidecar file {report.file_size:,} bytes")
        table = table.catalog.load_table("db.longs")
        compare("present", table, [int(key) for key in keys[: options.keys]])
        compare("absent", table, [int(key) + 1 for key in keys[: options.keys]])
        for count in (1_000, 100_000):
            plan_keys(table, count)
    return 0


def random_longs(folder: Path, files: int, rows: int) -> tuple[Any, Any]:
    """A table of files of random even numbers, and one key from every file."""
    random = np.random.default_rng(5)
    paths, keys = [], []
    for number in range(files):
        values = random.integers(-(2**62), 2**62, rows) * 2
        path = folder / f"{number:04}.parquet"
        pq.write_table(pa.table({"k": values}), path, use_dictionary=False, compression="none")
        paths.append(f"file:{path}")
        keys.append(values[0])
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    catalog.create_namespace("db")
    table = catalog.create_table("db.longs", pa.schema([("k", pa.int64())]))
    table.add_files(paths)
    return catalog.load_table("db.longs"), random.permutation(keys)


def compare(name: str, table: Any, keys: Sequence[int]) -> None:
    """Print one block of figures."""
    times: dict[str, list[float]] = {"sidecar": [], "planning": [], "one file": [], "pyiceberg": []}
    plans = []
    path = table.inspect.files()["file_path"][0].as_py().removeprefix("file:")
    for number, key in enumerate(keys):
        predicate = f"k = {key}"
        plans.append(sidecar.plan(table, predicate))
        steps: dict[str, Callable[[], Any]] = {
            "sidecar": lambda predicate=predicate: sidecar.scan(table, predicate),
            "planning": lambda predicate=predicate: list(table.scan(row_filter=predicate).plan_files()),
            "one file": lambda key=key: pq.read_table(path, filters=[("k", "=", key)]),
        }
        if number < 3:
            steps["pyiceberg"] = lambda predicate=predicate: table.scan(row_filter=predicate).to_arrow()
        for step, run in steps.items():
            start = time.perf_counter()
            run()
            if number:
                times[step].append(time.perf_counter() - start)
    median = {step: statistics.median(values) for step, values in times.items()}
    kept = [plan.files_kept for plan in plans]
    print(f"{name} keys: {statistics.mean(kept):.2f} files kept of {plans[0].files_total}, at most {max(kept)}")
    print(
        f"  index: at most {max(p.index_bytes_read for p in plans):,} bytes, {max(p.index_reads for p in plans)} reads"
    )
    for step, seconds in median.items():
        print(f"  {step:<10} {seconds * 1000:8.1f} ms")
    print(f"  ratio to planning + one file: {median['sidecar'] / (median['planning'] + median['one file']):.2f}")


def plan_keys(table: Any, count: int) -> None:
    """Print what a plan for ``count`` random keys that no file has leaves, and the CPU time of the second such plan."""
    keys = pa.array(np.random.default_rng(count).integers(-(2**62), 2**62, count) * 2 + 1)
    sidecar.plan(table, "true", keys={"k": keys})
    start = time.process_time()
    plan = sidecar.plan(table, "true", keys={"k": keys})
    seconds = time.process_time() - start
    print(f"{count:,} absent keys: {plan.files_kept} of {plan.files_total} files kept, {seconds * 1000:.0f} ms of CPU")
    print(f"  index: {plan.index_bytes_read:,} bytes, {plan.index_reads} reads; {'; '.join(plan.notes)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
