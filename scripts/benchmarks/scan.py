"""Scans beside those of pyiceberg, DuckDB, polars and DataFusion, local files, all in one process.

*Needle*: 658 files of 20,000 random longs with Bloom filters of their own (1 %), four keys that one file each has, one
after the other. One sidecar has the filters of the files, as builds take them over, the other filters at the automatic
rate (``--reuse never``). pyiceberg scans the table, the engines read the list of its files, whose filters they use
where they can. *Broad*: one table of mixed columns, predicates that leave most rows, and one that 1 % of rows meet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars
import pyarrow.parquet as pq

import sidecar
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import Target, at_least, at_most
from scripts.benchmarks.harness.timing import Side
from scripts.benchmarks.inputs.longs import catalog_of_longs, files_of_longs, keys_of
from scripts.benchmarks.inputs.mixed import FILES, catalog_with_mixed_columns

KEYS = 4
BROAD: dict[str, tuple[Target, Target | None]] = {
    "k >= 0": (at_most(1.03), None),
    "n > 10": (at_most(1.05), None),
    "n > 50": (at_most(1.05), None),
    "k >= {half}": (at_most(1.03), None),
    "s >= '2' and n > 5": (at_most(1.05), None),
    "n = 7": (at_most(1.1), at_most(1.1)),
    "n > 98": (at_most(1.1), at_most(1.1)),
}
"""Predicates with the targets of CPU and of wall time. ``n`` has 100 values, on every page all of them."""


def measure(bench: Bench) -> None:
    """Measure needles and broad scans."""
    needle(bench, bench.size(658, quick=60), bench.size(20_000, quick=2_000))
    rows = bench.size(150_000, quick=20_000, large=1_500_000)
    table = catalog_with_mixed_columns(rows).load_table("db.mixed")
    sidecar.build(table, ["k", "n", "r", "s"], kinds=["bloom", "page-index"], engine="local")
    table = table.catalog.load_table("db.mixed")
    for predicate, (cpu, wall) in BROAD.items():
        broad(bench, table, predicate.format(half=rows * FILES // 2), cpu, wall)


def needle(bench: Bench, files: int, rows: int) -> None:
    paths = files_of_longs(files, rows, with_filters=True)
    catalog = catalog_of_longs(files, rows, with_filters=True)
    build = partial(sidecar.build, columns=["k"], kinds=["bloom"], engine="local", full=True)
    build(catalog.load_table("db.longs"))
    build(catalog.load_table("db.rated"), reuse="never")
    table, rated = catalog.load_table("db.longs"), catalog.load_table("db.rated")
    duck, context, keys = duckdb.connect(), datafusion.SessionContext(), keys_of(files, rows)[:KEYS]
    context.sql("SET datafusion.execution.parquet.bloom_filter_on_read = true").collect()

    def by_datafusion(key: int) -> Any:
        frame = context.read_parquet(str(Path(paths[0]).parent)).filter(datafusion.col("k") == datafusion.lit(key))
        return frame.to_arrow_table()

    def all_keys(scan: Callable[[int], Any]) -> Callable[[], list[int]]:
        return lambda: [scan(key).num_rows for key in keys]

    sides: dict[str, Callable[[int], Any]] = {
        "sidecar": lambda key: sidecar.scan(table, f"k = {key}"),
        "sidecar, automatic rate": lambda key: sidecar.scan(rated, f"k = {key}"),
        "sidecar, table loaded": lambda key: sidecar.scan(catalog.load_table("db.longs"), f"k = {key}"),
        "pyiceberg": lambda key: table.scan(row_filter=f"k = {key}").to_arrow(),
        "pyiceberg, table loaded": lambda key: catalog.load_table("db.longs").scan(row_filter=f"k = {key}").to_arrow(),
        "DuckDB": lambda key: duck.execute(f"SELECT * FROM read_parquet({paths}) WHERE k = {key}").to_arrow_table(),
        "polars": lambda key: polars.scan_parquet(paths).filter(polars.col("k") == key).collect().to_arrow(),
        "DataFusion": by_datafusion,
        "pyarrow dataset": lambda key: pq.read_table(paths, filters=[("k", "=", key)]),
    }
    quick = {name: 3 for name in sides if name.startswith("sidecar")}
    what = f"{KEYS} keys in {files} files"
    repeated = {name: Side(all_keys(scan), repeat=quick.get(name, 1)) for name, scan in sides.items()}
    times = bench.compare(what, repeated)
    wrong = [name for name, found in times.results.items() if found != [1] * KEYS]
    if wrong:
        raise RuntimeError(f"not one row: {', '.join(wrong)}")
    for peer, target in (("DuckDB", at_least(6)), ("pyiceberg", at_least(100))):
        for side, label in (("sidecar", "filters of the files"), ("sidecar, automatic rate", "automatic rate")):
            bench.faster(f"{what}, {label}", times, side, peer, target)
            bench.faster(f"{what}, {label}", times, side, peer, clock="cpu")
    for peer in ("polars", "DataFusion", "pyarrow dataset"):
        bench.faster(what, times, "sidecar", peer)
        bench.faster(what, times, "sidecar", peer, clock="cpu")
    bench.faster(f"{what}, table loaded", times, "sidecar, table loaded", "pyiceberg, table loaded", at_least(30))


def broad(bench: Bench, table: Any, predicate: str, cpu: Target, wall: Target | None) -> None:
    sides: dict[str, Callable[[], Any]] = {
        "sidecar": partial(sidecar.scan, table, predicate),
        "pyiceberg": lambda: table.scan(row_filter=predicate).to_arrow(),
        "sidecar stream": lambda: sidecar.scan_batches(table, predicate).read_all(),
        "pyiceberg stream": lambda: table.scan(row_filter=predicate).to_arrow_batch_reader().read_all(),
    }
    times = bench.compare(f"scan for {predicate}", sides, 7)
    counts = {found.num_rows for found in times.results.values()}
    if len(counts) != 1:
        raise RuntimeError(f"the sides disagree on {predicate}: {counts}")
    share = counts.pop() / sum(table.inspect.files()["record_count"].to_pylist())
    for suffix in ("", " stream"):
        what = f"scan{suffix} for {predicate} ({share:.0%} of rows)"
        bench.ratio(what, times, f"sidecar{suffix}", f"pyiceberg{suffix}", cpu, clock="cpu")
        bench.ratio(what, times, f"sidecar{suffix}", f"pyiceberg{suffix}", wall)
