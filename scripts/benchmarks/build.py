"""In-process builds beside decoding of the same columns, and beside writing the data again with filters.

Rows are columns of TPC-H's lineitem in an Iceberg table that pyiceberg wrote; all sides use the same number of threads.
The time of a build has everything: listing, indexing, slicing, writing and registering. *Indexing alone* is its first
stage; *the disk not waited for* is a whole build with a disk and a catalog that answer at once. The size of an index is
that of filters at the automatic rate, beside the fewest blocks that keep this rate.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.harness.timing import CLOCKS, Clock, Side, Taken, Times
from scripts.benchmarks.inputs.lineitem import IN_DICTIONARIES, SCANNED, catalog_with_table
from sidecar.filters.sizing import auto_fpp, blocks_for, false_positive_rate
from sidecar.storage.locations import local_path

THREADS = min(os.cpu_count() or 1, 4)
FILES = 24


def measure(bench: Bench) -> None:
    """Measure builds of 6 million rows, of one million rows in dictionaries, and sizes."""
    table = catalog_with_table(bench.size(1.0, quick=0.05), FILES, SCANNED).load_table("db.lineitem")
    rows = table.inspect.files()["record_count"].to_numpy().sum()
    what = f"build of 3 scanned columns, {rows:,} rows"
    times = bench.compare(what, build_sides(table, SCANNED), 9)
    whole(bench, what, times, cpu=1.4, wall=1.1)
    for clock in CLOCKS:
        bench.ratio(f"{what}, indexing alone", times, "sidecar, indexing alone", "pyarrow decodes", clock=clock)
    with data.scratch() as folder:
        builds = {"sidecar builds": build_sides(table, SCANNED)["sidecar builds"]}
        sides = builds | rewriting_sides(table, SCANNED, folder)
        times = bench.compare(f"{what}, or new files", sides, 2, warm_ups=0)
    for peer in ("DuckDB writes filters", "pyarrow writes filters"):
        bench.faster(what, times, "sidecar builds", peer)
    small = catalog_with_table(bench.size(1 / 6, quick=0.05), 8, IN_DICTIONARIES).load_table("db.lineitem")
    rows = small.inspect.files()["record_count"].to_numpy().sum()
    what = f"build of 3 columns with dictionaries, {rows:,} rows"
    times = bench.compare(what, build_sides(small, IN_DICTIONARIES), 9, warm_ups=2)
    whole(bench, what, times, cpu=1.1, wall=1.1)
    bench.ratio(
        f"{what}, indexing alone", times, "sidecar, indexing alone", "pyarrow decodes", at_most(0.3), clock="cpu"
    )
    sizes(bench)


def whole(bench: Bench, what: str, times: Times, *, cpu: float, wall: float) -> None:
    """Keep what builds as a whole cost beside decoding, and what they would without waits for the disk."""
    bench.ratio(what, times, "sidecar builds", "pyarrow decodes", at_most(cpu), clock="cpu")
    bench.ratio(what, times, "sidecar builds", "pyarrow decodes", at_most(wall))
    bench.ratio(f"{what}, the disk not waited for", times, "sidecar, the disk not waited for", "pyarrow decodes")


def build_sides(table: Any, columns: Sequence[str]) -> dict[str, Side]:
    """Return a build, one that waits for no disk, its first stage, and decoding of the same columns."""
    paths = paths_of(table)
    return {
        "sidecar builds": Side(lambda: build(table, columns), before=lambda: forget(table)),
        "sidecar, the disk not waited for": Side(lambda: build_without_waits(table, columns), lambda: forget(table)),
        "sidecar, indexing alone": Side(lambda: indexing_alone(table, columns), before=lambda: forget(table)),
        "pyarrow decodes": Side(lambda: decode(paths, columns)),
    }


def paths_of(table: Any) -> list[str]:
    return [local_path(task.file.file_path) or "" for task in table.scan().plan_files()]


def build(table: Any, columns: Sequence[str]) -> Any:
    return sidecar.build(table, columns, engine="local", threads=THREADS, full=True)


def build_without_waits(table: Any, columns: Sequence[str]) -> Taken:
    """Build with a disk that has everything at once, in the sidecar's files and in SQLite's; return the times."""
    set_waits(table, "OFF")
    sync, os.fsync = os.fsync, lambda fd: None
    try:
        return Clock().time(lambda: build(table, columns))[0]
    finally:
        os.fsync = sync
        set_waits(table, "FULL")


def set_waits(table: Any, waits: str) -> None:
    """Have the connection of the table's catalog wait for the disk, or not."""
    with table.catalog.engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA synchronous={waits}")


def indexing_alone(table: Any, columns: Sequence[str]) -> Taken:
    """Build; return the times between the first and the last report of indexing."""
    clock, marks = Clock(), []

    def mark(what: str, done: int | None = None, total: int | None = None) -> None:
        if what == "indexing" and done in (0, total):
            marks.append(clock.now())

    with sidecar.progress(mark):
        build(table, columns)
    return marks[-1].since(marks[0])


def forget(table: Any) -> None:
    """Take away what the run before registered, which a build would carry over."""
    table.refresh()
    with table.update_statistics() as update:
        for entry in table.metadata.statistics:
            update.remove_statistics(entry.snapshot_id)
            Path(local_path(entry.statistics_path) or "").unlink(missing_ok=True)
    table.refresh()


def decode(paths: Sequence[str], columns: Sequence[str]) -> None:
    def read(path: str) -> None:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, columns=list(columns), use_threads=False)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, paths))


def rewriting_sides(table: Any, columns: Sequence[str], folder: Path) -> dict[str, Side]:
    """Return peers that write these columns into new files with Bloom filters."""
    paths, target = paths_of(table), folder / "target"

    def clear() -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()

    connection = duckdb.connect(config={"threads": THREADS})
    names = ", ".join(columns)

    def by_duckdb() -> None:
        # DuckDB writes filters for columns with dictionaries alone, so every column gets one.
        connection.execute(
            f"COPY (SELECT {names} FROM read_parquet({list(paths)})) TO '{target}' (FORMAT parquet, COMPRESSION zstd, "
            "PER_THREAD_OUTPUT true, DICTIONARY_SIZE_LIMIT 10000000, STRING_DICTIONARY_PAGE_SIZE_LIMIT 1000000000)"
        )

    def by_pyarrow() -> None:
        def write(path: str) -> None:
            rows = pq.read_table(path, columns=list(columns), use_threads=False)
            filters = {name: {"ndv": rows.num_rows, "fpp": 0.01} for name in columns}
            pq.write_table(
                rows, target / Path(path).name, compression="zstd", use_dictionary=False, bloom_filter_options=filters
            )

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, paths))

    clear()
    by_duckdb()
    lengths = connection.execute(
        f"SELECT min(coalesce(bloom_filter_length, 0)) FROM parquet_metadata('{target}/*.parquet')"
    ).fetchone()
    if not lengths or not lengths[0]:
        raise RuntimeError("DuckDB wrote columns without filters")
    return {
        "DuckDB writes filters": Side(by_duckdb, before=clear),
        "pyarrow writes filters": Side(by_pyarrow, before=clear),
    }


def sizes(bench: Bench) -> None:
    """Compare filters with the fewest blocks that keep the rate, over numbers of values evenly spread in logarithms."""
    for units in (24, 658, 100_000):
        rate = auto_fpp(units)
        counts = np.unique(np.geomspace(1_000, 4_000_000, 200).astype(int)).tolist()
        ratios = [blocks_for(n, rate) / fewest_blocks(n, rate) for n in counts]
        what = f"size of filters at the automatic rate for {units:,} units, mean"
        bench.row(what, sum(ratios) / len(ratios), "x", at_most(1.2), against="theory of split-block filters")


def fewest_blocks(distinct: int, rate: float) -> int:
    return 1 + bisect_left(range(1, distinct * 8), True, key=lambda z: false_positive_rate(z, distinct) <= rate)
