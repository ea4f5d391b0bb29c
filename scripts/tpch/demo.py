"""The demo: TPC-H's lineitem as an Iceberg table, a sidecar for it, and lookups with and without.

Started by ``scripts/demo``. Everything is measured in this run: files and bytes are counted at pyiceberg's
own FileIO, and the rows found with the sidecar are compared with those of pyiceberg's own scan.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import demo_engines as engines
import demo_serve as served
import pyarrow as pa
import pyarrow.compute as pc
from demo_table import CountingIO, make_table
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

import sidecar
from sidecar.cli import humanize

WORK = Path(__file__).resolve().parents[2] / ".work" / "demo"
INDEXED = ["l_partkey", "l_comment", "l_orderkey"]
console = Console(highlight=False)


@dataclass
class Read:
    """One way to answer a lookup, measured."""

    rows: pa.Table
    files: int
    data_bytes: int
    seconds: float


def main() -> None:
    options = arguments()
    folder = WORK / f"sf{options.sf:g}"
    shutil.rmtree(folder / "lake", ignore_errors=True)
    console.print(Panel.fit("[bold]sidecar[/]: the indexes that lakehouse tables lack, kept beside them"))

    step("A table that no partition and no sort order helps")
    with console.status("generating TPC-H and writing the table"):
        catalog, table = make_table(folder, options.sf, options.files)
    describe_table(table)

    step("The sidecar: one pass, no data file touched")
    session = start_engine(options.engine, folder)
    with (
        console.status("indexing " + ", ".join(INDEXED)) as status,
        sidecar.progress(lambda *step: status.update(progress_text(*step))),
    ):
        report = sidecar.build(
            table,
            INDEXED,
            engine="spark" if session else "local",
            spark=session,
        ).to_dict()
    table = catalog.load_table("db.lineitem")
    describe_build(report, table)

    step("Lookups: pyiceberg alone, and with the sidecar")
    show_lookups(table)

    step("Distinct values: counted in the same pass")
    show_ndv(table)

    if not options.quick:
        step("Nothing else changed")
        show_engines(table, session)

    step("Engines as they are: `sidecar serve` plans their scans")
    show_served(table, session, folder)
    if session is not None:
        session.stop()
    say_what_to_ask(folder / "lake")


def say_what_to_ask(lake: Path) -> None:
    """Print lines to be pasted: none is folded, and none is longer than 80 columns."""
    lines = [
        f"export PYICEBERG_CATALOG__DEMO__URI=sqlite:///{shown(lake / 'cat.db')}",
        f'{shown(Path(sys.executable).parent / "sidecar")} plan db.lineitem "l_partkey = 4242" --catalog demo',
    ]
    if os.environ.get("OLDPWD", str(Path.cwd())) != str(Path.cwd()):  # scripts/demo was called from another folder
        lines.insert(0, f"cd {shlex.quote(str(Path.cwd()))}")
    console.print(f"\nThe table stays in [bold]{shown(lake)}[/]. Ask it something yourself:\n")
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sf", type=float, default=0.1, help="TPC-H scale factor [0.1: 600,000 rows]")
    parser.add_argument("--files", type=int, default=128, help="data files of the table [128]")
    parser.add_argument("--quick", action="store_true", help="without Java and Spark, in less than a minute")
    parser.add_argument("--engine", choices=["auto", "spark", "local"], default="auto", help="who builds")
    options = parser.parse_args()
    if options.quick:
        options.engine = "local"
    return options


def step(title: str) -> None:
    console.print()
    console.rule(f"[bold]{title}[/]", align="left", style="dim")


def progress_text(what: str, done: int | None, total: int | None) -> str:
    return f"{what} {done:,} of {total:,}" if done is not None and total else what


def shown(path: Path | str) -> str:
    """A path as short as it can be written from here."""
    path = Path(str(path).removeprefix("file:"))
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def describe_table(table: Any) -> None:
    files = table.inspect.files()
    rows, size = pc.sum(files["record_count"]).as_py(), pc.sum(files["file_size_in_bytes"]).as_py()
    console.print(
        f"db.lineitem: {rows:,} rows in [bold]{len(files):,} files[/], {humanize.size(size)}. "
        "l_orderkey is clustered; l_partkey and l_comment are spread over all files."
    )


def start_engine(wanted: str, folder: Path) -> Any:
    """A Spark session, or ``None`` for the in-process engine."""
    if wanted == "local":
        return None
    with console.status("starting Spark (some seconds; the first time it fetches Iceberg's runtime)"):
        session, reason = engines.start_spark(folder)
    if session is None:
        if wanted == "spark":
            sys.exit(f"Spark could not be started: {reason}")
        console.print(f"Spark could not be started ({reason}): the in-process engine builds instead.")
    return session


def describe_build(report: dict[str, Any], table: Any) -> None:
    (entry,) = table.metadata.statistics
    data_size = pc.sum(table.inspect.files()["file_size_in_bytes"]).as_py()
    files = report["files"]
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_row("indexed", f"{files['indexed']:,} of {files['total']:,} files: {', '.join(INDEXED)}")
    grid.add_row("engine", str(report["engine"]))
    grid.add_row("time", humanize.duration(report["seconds"]))
    share = humanize.percent(entry.file_size_in_bytes / data_size)
    grid.add_row("size", f"{humanize.size(entry.file_size_in_bytes)}, {share} of the data")
    grid.add_row("Puffin file", shown(entry.statistics_path))
    console.print(grid)


# --- lookups ------------------------------------------------------------------------------------------


def lookups(table: Any) -> list[tuple[str, str]]:
    """Predicates on values that are there, and on values that are not but lie within the files' bounds."""
    columns = table.scan(selected_fields=tuple(INDEXED)).to_arrow().combine_chunks()
    middle = columns.num_rows // 2
    part, comment = columns["l_partkey"][middle].as_py(), columns["l_comment"][middle].as_py()
    order, absent_order = columns["l_orderkey"][middle].as_py(), absent_key(columns["l_orderkey"])
    return [
        ("a part", f"l_partkey = {part}"),
        ("a comment", f"l_comment = '{comment}'"),
        ("a comment that is not there", f"l_comment = '{comment[:-1]}~'"),
        ("an order (clustered: bounds are enough)", f"l_orderkey = {order}"),
        ("an order that is not there", f"l_orderkey = {absent_order}"),
    ]


def absent_key(column: pa.ChunkedArray) -> int:
    """A number between two keys that is no key itself; order keys have such gaps."""
    keys = pc.unique(column).sort()
    gaps = pc.subtract(keys.slice(1), keys.slice(0, len(keys) - 1))
    position: int = pc.index(pc.greater(gaps, 1), True).as_py()
    return int(keys[position].as_py()) + 1


def show_lookups(table: Any) -> None:
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lookup", "", "files opened", "data read", "index read", "time", "rows"):
        drawn.add_column(heading, justify="left" if heading in ("lookup", "") else "right")
    for name, predicate in lookups(table):
        alone = measured(table, lambda t, _, p=predicate: t.scan(row_filter=p).to_arrow())
        beside = measured(table, lambda t, report, p=predicate: sidecar.plan(t, p).to_arrow(report=report))
        assert same_rows(alone.rows, beside.rows), f"other rows with the sidecar: {predicate}"
        plan = sidecar.plan(table, predicate)
        drawn.add_row(name, "pyiceberg", *cells(alone, "–"))
        drawn.add_row(f"[dim]{predicate}[/]", "[green]sidecar[/]", *cells(beside, humanize.size(plan.index_bytes_read)))
        drawn.add_section()
    console.print(drawn)
    console.print("The rows are identical in every case (compared). Time is planning and reading, best of three.")


def measured(table: Any, read: Callable[[Any, sidecar.results.TableScanReport], pa.Table]) -> Read:
    """Time on the plain table, then files and bytes: of what pyiceberg reads by a FileIO that counts."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        read(table, sidecar.results.TableScanReport())
        best = min(best, time.perf_counter() - started)
    plain, report = table.io, sidecar.results.TableScanReport()
    table.io = counting = CountingIO(plain)
    try:
        rows = read(table, report)
    finally:
        table.io = plain
    own = report.footer_bytes + report.index_bytes + report.data_bytes
    return Read(rows, report.files or len(counting.data_files), counting.data_bytes + own, best)


def cells(found: Read, index: str) -> tuple[str, ...]:
    return (
        f"{found.files:,}",
        humanize.size(found.data_bytes),
        index,
        humanize.duration(found.seconds),
        f"{found.rows.num_rows:,}",
    )


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    order = [("l_orderkey", "ascending"), ("l_linenumber", "ascending")]
    return bool(one.sort_by(order).equals(other.select(one.column_names).cast(one.schema).sort_by(order)))


# --- what engines see ---------------------------------------------------------------------------------


def show_ndv(table: Any) -> None:
    drawn = Table("column", "estimate (theta)", "exact", "error", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in drawn.columns[1:]:
        column.justify = "right"
    drawn.add_column("registered for engines")
    for name, kinds in sidecar.status(table).coverage.items():
        estimate = kinds["theta"].ndv or 0
        exact = pc.count_distinct(table.scan(selected_fields=(name,)).to_arrow()[name]).as_py()
        heard = "yes" if kinds["theta"].registered else "no: Spark would misread it"
        drawn.add_row(name, f"{estimate:,}", f"{exact:,}", f"{(estimate - exact) / exact:+.2%}", heard)
    console.print(drawn)


def show_engines(table: Any, session: Any) -> None:
    drawn = Table("engine", "sees", box=box.SIMPLE_HEAD, pad_edge=False)
    rows = table.scan().count()
    drawn.add_row("pyiceberg", f"{rows:,} rows; loads and scans as before")
    with console.status("asking Spark and DuckDB"):
        drawn.add_row("Spark with Iceberg", engines.spark_sees(session, table))
        drawn.add_row("DuckDB", engines.duckdb_sees(table))
    console.print(drawn)
    console.print("[dim]With their own planning they do not use the filters.[/]")


# --- the server ---------------------------------------------------------------------------------------


def show_served(table: Any, session: Any, folder: Path) -> None:
    """The same lookups by Spark SQL and pyiceberg, which plan by themselves first, and then ask the server."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lookup", "", "files opened", "time", "by the server", "time", "rows"):
        drawn.add_column(heading, justify="left" if heading in ("lookup", "") else "right")
    with served.server(folder / "lake", folder / "serve.log") as address, console.status("asking Spark and pyiceberg"):
        remote = served.served_table(address)
        asking = [("pyiceberg", lambda p: (served.ask_pyiceberg(table, p), served.ask_pyiceberg(remote, p)))]
        if engines.knows_iceberg(session):
            served.spark_catalog(session, address)
            asking.append(("Spark SQL", lambda p: tuple(served.ask_spark(session, c, p) for c in ("demo", "served"))))
        for name, predicate in lookups(table)[:3]:
            for engine, ask in asking:
                alone, beside = ask(predicate)
                assert alone.rows == beside.rows, f"{engine} finds other rows by the server: {predicate}"
                drawn.add_row(name, engine, *served.cells(alone), *served.cells(beside), f"{beside.rows:,}")
                name = f"[dim]{predicate}[/]"
            drawn.add_section()
    console.print(drawn)
    console.print("The engines are unmodified. Their only setting is the server's address.")


if __name__ == "__main__":
    main()
