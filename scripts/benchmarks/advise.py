"""How good the predictions of ``sidecar advise`` are: files that lookups keep, predicted and measured.

Two tables on local disk: TPC-H's lineitem, clustered by l_orderkey, and a log of events with a constant column. Each is
advised by a sample of its row groups, then filters of all its columns are built, and lookups of random existing and
absent values are planned. A line for each column: files that bounds leave, and that filters leave, each predicted and
measured, for existing and for absent values; and the largest factor between the two.

Means below --least files are taken for --least in the factor: so few files are only seen in very many lookups.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import sidecar

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1] / "tpch")]

from demo_table import make_table  # noqa: E402

from tests.reports.measuring import Lookups, create_events, factor  # noqa: E402


def main() -> None:
    """Make the tables, advise, build, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor")
    parser.add_argument("--files", type=int, default=40, help="data files of each table")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a file of events")
    parser.add_argument("--row-groups", type=int, default=16, help="row groups of the sample")
    parser.add_argument("--lookups", type=int, default=300, help="lookups of each kind for a column")
    parser.add_argument("--least", type=float, default=0.1, help="means below so many files count as so many")
    parser.add_argument("--rows-of-group", type=int, default=1 << 20, help="rows of a row group")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/events.db", warehouse=f"file:{folder}/events")
        catalog.create_namespace("db")
        limit = {"write.parquet.row-group-limit": str(arguments.rows_of_group)}
        report(create_events(catalog, "db.events", arguments.files, arguments.rows, **limit), arguments)
        report(make_table(folder, arguments.scale, arguments.files)[1], arguments)


def report(table: Table, arguments: argparse.Namespace) -> None:
    """Advise, build and measure one table."""
    advice = sidecar.advise(table, row_groups=arguments.row_groups)
    start, names = time.perf_counter(), [column.name for column in advice.columns if column.evidence]
    built = sidecar.build(table, names, kinds=["bloom"], engine="local")
    sizes = {column.name: column.filter_bytes for column in built.columns}
    print(
        f"\n{advice.table}: {advice.files} files, {built.units} row groups; sampled {advice.sample.row_groups} row "
        f"groups of {advice.sample.files} files, {advice.sample.bytes_read:,} bytes in {advice.sample.reads} reads, "
        f"{advice.seconds:.1f} s; all filters: {time.perf_counter() - start:.1f} s"
    )
    print("column           advice  existing: bounds      filters         absent: bounds      filters         factor")
    worst = 1.0
    for column in advice.columns:
        if column.evidence is None:
            print(f"{column.name:16} {column.filters}: {column.reason}")
            continue
        lookups = Lookups(table, column.name).measure(arguments.lookups, 1)
        cells, factors = [], [1.0]
        for predicted, measured in zip((column.evidence.existing, column.evidence.absent), lookups, strict=True):
            if measured is None or predicted is None:
                cells.append(f"{'every value exists' if predicted is None else 'no absent value':35}")
                continue
            for one, other in (
                (predicted.by_bounds, measured.by_bounds),
                (predicted.with_filters, measured.with_filters),
            ):
                cells.append(f"{one:8.3f} {other:8.3f}")
                factors.append(factor(one, other, arguments.least))
        cells.append(f"filters {column.evidence.filter_bytes:,} predicted, {sizes[column.name]:,} built")
        print(f"{column.name:16} {column.filters:6}  {'  '.join(cells)}  {max(factors):.2f}")
        worst = max(worst, *factors)
    print(f"largest factor: {worst:.2f}")


if __name__ == "__main__":
    main()
