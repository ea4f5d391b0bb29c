"""``sidecar scan``: the matching rows, read from the surviving pages of a table's files or of one file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.targets import check_there, one_predicate
from sidecar.cli.options import (
    At,
    KeyPlace,
    Predicate,
    encryption_keys,
    is_path,
    names,
    opened_table,
    refuse_at,
    storage_for,
)
from sidecar.cli.output import Output, console, escaped, facts, output
from sidecar.cli.shell.choices import ROWS_ALONE, OutputFormat
from sidecar.cli.shell.keys import KeyFile, read_keys
from sidecar.errors import UsageError
from sidecar.run_log import quantity

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from sidecar import Plan
    from sidecar.parquet.scan.page_scan import ScanReport
    from sidecar.results import TableScanReport


PathOrTable = Annotated[
    str, typer.Argument(metavar="PATH|TABLE", help="A Parquet or ORC file (path or URL), or a table.")
]
ScannedColumns = Annotated[str | None, typer.Option("--columns", "-c", metavar="A,B", help="Columns to read [all].")]
MostRows = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="Read at most N rows.")]
RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rows to an .arrow, .csv, .jsonl or .parquet file.",
    ),
]
ExplainScan = Annotated[
    bool,
    typer.Option("--explain", help="Read the rows, and print how much was read instead of the rows."),
]


def scan(
    target: PathOrTable,
    predicate: Predicate = None,
    columns: ScannedColumns = None,
    limit: MostRows = None,
    file: RowsFile = None,
    explain: ExplainScan = False,
    keys: KeyFile = None,
    at: At = None,
    encryption: KeyPlace = None,
) -> None:
    """Read the matching rows of a table or a file.

    Only pages that can hold matching rows are read. A path that ends in .metadata.json is a table without a catalog.
    JSON has a line for each row, and no report.

    \b
    Examples:
      sidecar scan db.lineitem "l_partkey = 42" --columns l_orderkey,l_tax
      sidecar scan ./part-0.orc "l_orderkey = 700005" --explain
      sidecar scan db.lineitem "l_tax > 0.07" --limit 10 --output rows.csv
    """
    from sidecar.cli import rows

    out, condition = output(), one_predicate("scan", target, predicate)
    chosen = None if columns is None else names(columns)
    if out.form in ROWS_ALONE and (explain or file is not None):
        raise UsageError(
            f"--format {out.form.value} is for rows", hint="Leave out --explain and --output, or choose --format json."
        )
    if file is not None:
        rows.check_output(file)
    opened: AbstractContextManager[_TableScan | _FileScan]
    if is_path(target) and not target.endswith(".metadata.json"):
        refuse_at(target, at)
        check_there(target)
        opened = _file_scan(target, condition, chosen, limit, keys, encryption)
    else:
        opened = _table_scan(out, target, condition, chosen, limit, at, keys, encryption)
    with opened as found:
        written = 0
        if file is not None:
            written = rows.write_rows(found.rows, file)
        elif explain:
            rows.read_rows(found.rows)
        elif out.form is OutputFormat.table:
            rows.draw_rows(console(), found.rows)
        else:
            out.rows(rows.result_rows(found.rows))
    out.warn(found.report.warnings)
    if explain:
        out.result(found, lambda to, scanned: scanned.draw(to))
    elif file is not None:
        text = f"{written:,} rows written to {file}"
        out.result(
            {"rows": written, "output": str(file), "files": found.files},
            lambda to, _: to.print(text, markup=False, soft_wrap=True),
        )


@dataclass(frozen=True)
class _TableScan:
    """The scan of a table. Its rows can be read once; then its report says what was read of the files in its plan."""

    rows: pa.RecordBatchReader
    plan: Plan
    report: TableScanReport

    @property
    def files(self) -> dict[str, int]:
        """The number of files, as JSON has them."""
        counts: dict[str, int] = self.plan.to_dict()["files"]
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.plan.to_dict(), "scan": self.report.to_dict()}

    def draw(self, to: Console) -> None:
        """Draw the plan, and what was read."""
        from sidecar.cli.plan import draw

        draw(to, self.plan)
        done, whole = self.report, self.report.whole_files
        lines = [("rows", f"[bold]{humanize.count(done.rows_found):>10}[/]")]
        if done.files > sum(whole.values()):
            groups = f"{humanize.count(done.row_groups_read):>10} of {humanize.count(done.row_groups)} in these files"
            lines += [
                ("row groups read", groups),
                ("data pages read", f"{humanize.count(done.data_pages):>10}"),
                ("bytes read", _bytes_read(done, "the files")),
            ]
        if done.sidecar_reads:
            reads = f"{humanize.size(done.sidecar_bytes):>10} more in {quantity(done.sidecar_reads, 'read')}"
            lines.append(("sidecar", reads))
        lines += [("read whole", f"{humanize.count(n):>10} files: {escaped(why)}") for why, n in whole.items()]
        to.print()
        to.print(facts(lines))


@dataclass(frozen=True)
class _FileScan:
    """The scan of a file. Its rows can be read once; then its report says what was read, and what dropped the rest."""

    rows: pa.RecordBatchReader
    report: ScanReport
    started: float
    files: None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.report.to_dict(), "seconds": time.perf_counter() - self.started}

    def draw(self, to: Console) -> None:
        """Draw what was read, and what dropped the rest."""
        report = self.report
        lines = [("row groups", f"{humanize.count(report.row_groups):>10}")]
        for name, reason in (
            ("by statistics", "statistics"),
            ("by page index", "page_index"),
            ("by row index", "row_index"),
            ("by Bloom filter", "filter"),
            ("by dictionary", "dictionary"),
        ):
            if report.dropped.get(reason):
                lines.append((f"dropped {name}", f"{'−' + humanize.count(report.dropped[reason]):>10}"))
        lines += [
            ("rows", f"{humanize.count(report.rows):>10}"),
            ("may match", f"{humanize.count(report.rows_may_match):>10}"),
            ("match", f"[bold]{humanize.count(report.rows_found):>10}[/]"),
        ]
        is_orc = "row_index" in report.dropped
        if not is_orc:
            lines.append(("data pages read", f"{humanize.count(report.data_pages):>10}"))
        lines += [
            ("bytes read", _bytes_read(report, "the file", "streams" if is_orc else "pages")),
            ("time", f"{humanize.duration(time.perf_counter() - self.started):>10}"),
        ]
        to.print(facts(lines))


def _bytes_read(done: ScanReport | TableScanReport, whole: str, values: str = "pages") -> str:
    """The bytes of footers, indexes and values together, and their share of the ``whole``."""
    kinds = {"footer": done.footer_bytes, "indexes": done.index_bytes, values: done.data_bytes}
    total = sum(kinds.values())
    parts = ", ".join(f"{name} {humanize.size(size)}" for name, size in kinds.items())
    return f"{humanize.size(total):>10}  {humanize.percent(total / done.file_bytes)} of {whole}: {parts}"


@contextmanager
def _table_scan(
    out: Output,
    table: str,
    predicate: str,
    columns: list[str] | None,
    limit: int | None,
    at: str | None,
    keys: str | None,
    encryption: str | None,
) -> Iterator[_TableScan]:
    from sidecar import plan
    from sidecar.results import TableScanReport

    opened, report = opened_table(table), TableScanReport()
    found = plan(
        opened,
        predicate,
        at=at,
        keys=read_keys(opened.schema, keys),
        encryption_keys=encryption_keys(encryption),
    )
    out.warn(found.warnings)
    yield _TableScan(found.to_arrow_batch_reader(columns, limit, report=report), found, report)


@contextmanager
def _file_scan(
    path: str,
    predicate: str,
    columns: list[str] | None,
    limit: int | None,
    key_file: str | None,
    encryption: str | None,
) -> Iterator[_FileScan]:
    import pyarrow as pa

    from sidecar.access import Access
    from sidecar.reading.file_scanning import file_schema, open_scan

    started = time.perf_counter()
    access = Access(storage_for(path), encryption_keys(encryption))
    keys = read_keys(lambda: file_schema(access, path), key_file)
    with open_scan(path, predicate, columns, limit, access=access, keys=keys) as opened:
        batches = (batch for found in opened.found() for batch in found.rows.to_batches())
        yield _FileScan(pa.RecordBatchReader.from_batches(opened.schema, batches), opened.report, started)
