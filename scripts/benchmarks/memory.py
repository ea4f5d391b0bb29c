"""The memory of a build: the largest resident set of the driver and of each worker, for a bundle of gigabytes.

    scripts/bench memory [--files 8000] [--blocks 8192] [--engine local] [--work build]

The table has FILES small files of two columns. Rates are chosen so low that each filter has BLOCKS blocks of 32 bytes,
so the bundles have 64 * FILES * BLOCKS bytes. The run is a process of its own. Its `VmHWM` and those of its descendants
(a Java virtual machine and Python workers, with `--engine spark`) are read from /proc until it ends: resident pages of
mapped files count. `--work refresh` appends a file to the built table and measures the refresh that copies the bundle,
`--work compact` the merge.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

import sidecar

ROWS = 20
TARGET = 1 << 30
"""Bytes that no process may exceed."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="memory", description=__doc__)
    parser.add_argument("--files", type=int, default=8000)
    parser.add_argument("--blocks", type=int, default=8192)
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--work", choices=["build", "refresh", "compact"], default="build")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        run(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        steps = ["table", *([] if options.work == "build" else ["build", "append"]), options.work]
        for step in steps:
            command = [sys.executable, __file__, *arguments, "--folder", folder, "--run", step]
            start = time.perf_counter()
            process = subprocess.Popen(command)
            peaks = watch(process)
            taken = time.perf_counter() - start
            if process.returncode:
                return process.returncode
        size = max(path.stat().st_size for path in Path(folder).rglob("*.stats"))
    print(f"{options.work}, {options.engine}: {size:,} bytes, {taken:.1f} s")
    for name, peak in sorted(peaks.values(), key=lambda found: -found[1]):
        print(f"  {name:<8} {peak / 1e6:8.0f} MB at most")
    missed = any(peak > TARGET for name, peak in peaks.values() if name != "java")
    print(f"target of 1 GiB for each Python process: {'MISSED' if missed else 'met'}")
    return int(missed)


def watch(process: subprocess.Popen[bytes]) -> dict[int, tuple[str, int]]:
    """Wait for a process; return the name and the largest resident set of it and of each of its descendants."""
    peaks: dict[int, tuple[str, int]] = {}
    while process.poll() is None:
        parents, found = {}, {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            except OSError:  # it ended
                continue
            if "VmHWM" in lines:
                number = int(lines["Pid"])
                parents[number] = int(lines["PPid"])
                found[number] = lines["Name"].strip(), int(lines["VmHWM"].split()[0]) * 1024
        for number, (name, peak) in found.items():
            ancestor = number
            while ancestor not in (0, process.pid):
                ancestor = parents.get(ancestor, 0)
            if ancestor:
                role = "driver" if number == process.pid else "java" if name == "java" else "worker"
                peaks[number] = role, max(peak, peaks.get(number, ("", 0))[1])
        time.sleep(0.1)
    return peaks


def run(options: argparse.Namespace) -> None:
    folder = Path(options.folder)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    if options.run == "table":
        catalog.create_namespace("db")
        make_table(catalog, folder, options.files)
        return
    table = catalog.load_table("db.t")
    if options.run == "append":
        table.append(rows(options.files))
    elif options.run == "build":
        sidecar.build(table, ["k", "m"], kinds=["bloom"], fpp=rate(options.blocks), engine=options.engine)
    elif options.run == "refresh":
        sidecar.refresh(table, min_uncovered=0.0, engine=options.engine)
    else:
        sidecar.refresh(table, min_uncovered=0.0, engine="local")
        sidecar.compact(table)


def make_table(catalog: SqlCatalog, folder: Path, files: int) -> Any:
    """Make the table ``db.t`` of files that are written without its help, which is quicker."""
    (folder / "data").mkdir()
    paths = [f"{folder}/data/{number:05}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        pq.write_table(rows(number), path, compression="none", use_dictionary=False)
    table = catalog.create_table("db.t", rows(0).schema)
    table.add_files(paths, check_duplicate_files=False)
    return table


def rows(number: int) -> pa.Table:
    first = number * ROWS
    ids = np.arange(first, first + ROWS)
    return pa.table({"k": ids, "m": ids * 7})


def rate(blocks: int) -> float:
    """Return the rate for which the filter of a file gets so many blocks.

    With so few values a filter has at most one value in a block, so its rate is that of one block times their share;
    with half the blocks it would be twice as much.
    """
    return 1.5 * ROWS / blocks * 32.0**-8


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1:]))
