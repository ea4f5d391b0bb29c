"""``sidecar advise``: which columns of a table deserve which index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.options import At, TableArgument, names, opened_table, rate
from sidecar.cli.output import escaped, facts, output
from sidecar.cli.output import table as table_of

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import Advice, ColumnEvidence, PredictedLookup


def advise(
    table: TableArgument,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", "-c", metavar="A,B", help="Columns to judge [all that are not structs, lists, maps]."
        ),
    ] = None,
    fpp: Annotated[
        str,
        typer.Option("--fpp", metavar="RATE", help="False-positive rate of the filters, as for sidecar build."),
    ] = "auto",
    row_groups: Annotated[
        int, typer.Option("--row-groups", metavar="N", min=1, help="Read at most so many row groups.")
    ] = 16,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", metavar="N", min=1, help="Read at most so many bytes of their values.")
    ] = 256 << 20,
    at: At = None,
) -> None:
    """Say which columns of a table deserve which index, and why.

    It reads the bounds in the manifests and the values of a few row groups. It writes nothing. It knows the data and
    not the queries: build only what is looked up. The last lines are the commands to type.

    \b
    Examples:
      sidecar advise db.lineitem
      sidecar advise db.lineitem --columns l_partkey,l_comment --row-groups 64
    """
    out = output()
    wanted, target_rate = None if columns is None else names(columns), rate(fpp)
    from sidecar import advise as advise_on

    found = advise_on(
        opened_table(table),
        wanted,
        fpp=target_rate,
        row_groups=row_groups,
        max_bytes=max_bytes,
        at=at,
    )
    out.warn(found.warnings)
    out.result(found, draw)


def draw(to: Console, found: Advice) -> None:
    """Draw the sample, a line for each column, the reasons, the sizes, and what to type."""
    if found.snapshot_id is None:
        return
    to.print(facts(_summary(found)))
    drawn = table_of(
        "column",
        "filters",
        "size",
        "values a file",
        "of the table",
        "existing value",
        "absent value",
        right=(2, 3, 4, 5, 6),
    )
    for column in found.columns:
        drawn.add_row(escaped(column.name), column.filters, *_numbers(column.evidence))
    to.print(drawn)
    for column in found.columns:
        to.print(f"{column.name}: {column.reason}", markup=False)
    for heading, lines in _parts(found):
        to.print()
        to.print(heading)
        for line in lines:
            to.print(line, markup=False, soft_wrap=True)


def _summary(found: Advice) -> list[tuple[str, str]]:
    sample = found.sample
    files = f"{humanize.count(sample.files)} of {humanize.count(found.files)} files"
    return [
        ("snapshot", str(found.snapshot_id)),
        ("sample", f"{humanize.count(sample.row_groups)} row groups of {files}"),
        ("read", f"{humanize.size(sample.bytes_read)} in {humanize.count(sample.reads)} reads"),
        ("rate", humanize.percent(found.fpp)),
        ("lookups", f"files of {humanize.count(found.files)} that stay: bounds alone → with filters"),
    ]


def _numbers(evidence: ColumnEvidence | None) -> tuple[str, ...]:
    """The evidence: size, distinct values, and the files that lookups keep: with bounds alone, and with filters."""
    if evidence is None:
        return ("–",) * 5
    return (
        humanize.size(evidence.filter_bytes),
        humanize.count(evidence.distinct_per_file),
        humanize.count(evidence.distinct_in_table),
        _lookup(evidence.existing),
        _lookup(evidence.absent),
    )


def _lookup(predicted: PredictedLookup | None) -> str:
    if predicted is None:
        return "–"
    from sidecar.reports.advising.verdicts import amount

    return f"{amount(predicted.by_bounds)} → {amount(predicted.with_filters)}"


def _parts(found: Advice) -> Iterator[tuple[str, list[str]]]:
    if found.sizes.remarks:
        yield "sizes", found.sizes.remarks
    if found.properties:
        yield "the table says of new files", [f"{name} = {value}" for name, value in found.properties.items()]
    if found.alter_table:
        yield "new files bring these filters after", [found.alter_table]
    yield "to type", found.commands or ["nothing: no column deserves an index"]
