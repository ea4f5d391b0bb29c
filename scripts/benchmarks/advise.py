"""How good the predictions of ``sidecar advise`` are: files that lookups keep, predicted and measured.

Two tables on local disk: TPC-H's lineitem, clustered by l_orderkey, and a log of events with a constant column. Each is
advised by a sample of its row groups, then filters of all its columns are built, and lookups of random existing and
absent values are planned. A row has the largest factor between a prediction and what was measured. Means below a
tenth of a file count as that: so few files are only seen in very many lookups.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.inputs.lineitem import catalog_with_table, generated
from tests.reports.measuring import Lookups, create_events, factor

LEAST = 0.1
ROW_GROUPS = 16
"""Row groups of the sample."""


def measure(bench: Bench) -> None:
    """Measure both tables."""
    import pyarrow.parquet as pq

    files, scale = bench.size(40, quick=8), bench.size(1.0, quick=0.05)
    rows, lookups = bench.size(50_000, quick=2_000), bench.size(300, quick=20)
    limit = {"write.parquet.row-group-limit": str(1 << 20)}

    def make(folder: Path, catalog: Any) -> None:
        create_events(catalog, "db.events", files, rows, **limit)

    events = data.table(f"events-{files}-of-{rows}", make).load_table("db.events")
    lineitem = catalog_with_table(scale, files, pq.read_schema(generated(scale)).names).load_table("db.lineitem")
    for name, table in (("events", events), ("lineitem", lineitem)):
        one_table(bench, name, table, lookups)


def one_table(bench: Bench, name: str, table: Any, lookups: int) -> None:
    advice = sidecar.advise(table, row_groups=ROW_GROUPS)
    built = sidecar.build(
        table, [column.name for column in advice.columns if column.evidence], kinds=["bloom"], engine="local"
    )
    sizes = {column.name: column.filter_bytes for column in built.columns}
    bench.row(
        f"{name}: advice",
        advice.seconds,
        "s",
        note=f"{advice.sample.bytes_read:,} bytes in {advice.sample.reads} reads",
    )
    worst = 1.0
    for column in advice.columns:
        if column.evidence is None:
            continue
        factors = [1.0]
        measured = Lookups(table, column.name).measure(lookups, 1)
        for predicted, found in zip((column.evidence.existing, column.evidence.absent), measured, strict=True):
            if predicted is not None and found is not None:
                factors.append(factor(predicted.by_bounds, found.by_bounds, LEAST))
                factors.append(factor(predicted.with_filters, found.with_filters, LEAST))
        note = f"filters {column.evidence.filter_bytes:,} bytes predicted, {sizes[column.name]:,} built"
        bench.row(f"{name}.{column.name}: predictions off by", max(factors), "x", note=note)
        worst = max(worst, *factors)
    bench.row(f"{name}: predictions off by at most", worst, "x")
