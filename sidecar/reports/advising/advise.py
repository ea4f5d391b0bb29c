"""Advises which columns of a table deserve which index, by the manifests and a sample of row groups.

It knows the data and not the queries: a column that nobody looks up needs no filter, whatever the advice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from sidecar.bundle.kinds.declared import BLOOM, KINDS, PAGE_INDEX
from sidecar.conversion.reuse import GOOD
from sidecar.errors import UsageError
from sidecar.filters.sizing import BLOCK_BYTES, DEFAULT_FPP, HEAVY_SHARE, blocks_for
from sidecar.iceberg.catalog import command_for, is_static
from sidecar.iceberg.listing import Listing, list_snapshot
from sidecar.iceberg.refs import check_readable, is_empty, table_at
from sidecar.iceberg.resolve import TableColumn, encoded_name, primitive_columns, resolve_columns
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.columns import Options
from sidecar.indexing.options import options_of
from sidecar.reports.advising.bounds import AdmittedFiles
from sidecar.reports.advising.estimates import Estimator
from sidecar.reports.advising.report import Advice, AdviceSample, AdvisedColumn, SizeOfParts
from sidecar.reports.advising.sample import Sample, read_sample
from sidecar.reports.advising.sizes import judged_sizes
from sidecar.reports.advising.verdicts import judged, not_judged, refusal
from sidecar.reports.advising.writers import alter_table, enabled_in_vain, filter_properties, invalid
from sidecar.results.choices import NameList
from sidecar.run import report_progress
from sidecar.run_log import log_run, size

log = logging.getLogger(__name__)

ROW_GROUPS = 16
"""Row groups that are sampled by default."""
MOST_BYTES = 256 << 20
"""Bytes of values that are read by default, at most."""


def advise(
    table: Table,
    columns: NameList | None = None,
    *,
    fpp: float | Literal["auto"] = "auto",
    row_groups: int = ROW_GROUPS,
    max_bytes: int = MOST_BYTES,
    at: int | str | None = None,
) -> Advice:
    """Advise which columns of ``table`` deserve which index.

    Example: ``sidecar.advise(table, row_groups=8)``
    ``columns``: the names of the columns to judge; by default all primitive ones.
    ``fpp``: the target false-positive rate of the filters, as :func:`sidecar.build` takes it.
    ``row_groups``: how many row groups are sampled at most.
    ``max_bytes``: how many bytes of their values are read at most. Footers and page indexes are read in addition.
    ``at``: a snapshot id, a branch or a tag; by default the current snapshot.

    Manifests are read whole. Nothing is written. Columns of encrypted files are not judged. A file that cannot be read
    is a warning. Raises :class:`UsageError` for unknown columns and wrong options, and the errors of
    :func:`sidecar.iceberg.listing.list_snapshot`.
    """
    start = time.monotonic()
    table, snapshot_id = table_at(table, at)
    check_readable(table, snapshot_id)
    schema = table.schema()
    wanted = primitive_columns(schema) if columns is None else resolve_columns(schema, columns)
    if row_groups < 1 or max_bytes < 1:
        raise UsageError("the sample is empty", expected="at least one row group and one byte")
    if is_empty(table, snapshot_id):
        return _of_empty(table, start)
    report_progress("listing files")
    listing = list_snapshot(table, snapshot_id)
    common = Options(kinds=frozenset(), fpp=DEFAULT_FPP, max_bits=None, reuse=GOOD)
    options = options_of(listing, {0: ([BLOOM], fpp)}, common)
    refused = {column.field_id: refusal(column, schema, table.spec()) for column in wanted}
    sampled = [column for column in wanted if refused[column.field_id] is None]
    sample = read_sample(table, listing, sampled, row_groups, max_bytes)
    advised = [refused[column.field_id] or _advise(table, listing, sample, column, options) for column in wanted]
    advice = _advice(table, listing, options, sample, advised, start)
    log_run(log, advice.log_line, advice.warnings)
    return advice


def columns_that_deserve_filters(table: Table, at: int | str | None) -> list[str]:
    """Return the names of the columns of a snapshot to which :func:`advise` says yes.

    Raises :class:`UsageError` if there is none, and the errors of :func:`advise`.
    """
    judged_columns = advise(table, at=at).columns
    found = [column.name for column in judged_columns if column.filters == "yes"]
    if not found:
        name = name_of(table)
        raise UsageError(f"no column of {name} deserves filters", hint=f"{command_for(table, 'advise')} says why.")
    return found


def _advise(table: Table, listing: Listing, sample: Sample, column: TableColumn, options: Options) -> AdvisedColumn:
    if reason := sample.not_judged.get(column.field_id):
        return not_judged(column, reason)
    kind = table.schema().find_type(column.field_id)
    assert isinstance(kind, PrimitiveType)
    admitted = AdmittedFiles(listing, table.metadata.specs(), column.field_id, kind)
    evidence = Estimator(listing, sample, column.field_id, admitted, options).evidence()
    sampled = len({chunk.file for chunk in sample.chunks[column.field_id]})
    return judged(column, evidence, len(listing.files), sampled)


def _advice(
    table: Table,
    listing: Listing,
    options: Options,
    sample: Sample,
    columns: list[AdvisedColumn],
    start: float,
) -> Advice:
    filtered = [column for column in columns if column.filters == "yes"]
    files = listing.files
    unsupported = sum(file.not_indexable is not None for file in files)
    skipped = [f"{unsupported:,} files in formats that are not indexed are kept by every lookup"] if unsupported else []
    return Advice(
        table=name_of(table),
        snapshot_id=listing.snapshot_id,
        files=len(files),
        fpp=options.fpp,
        sample=AdviceSample(
            len(sample.files), sum(len(file.sampled) for file in sample.files.values()), sample.reads, sample.bytes_read
        ),
        columns=columns,
        sizes=judged_sizes(
            sample.part_sizes, sample.page_sizes, fmean(file.file_size for file in files) if files else 0
        ),
        properties=filter_properties(table.properties),
        alter_table=None if is_static(table) else alter_table(table, filtered, _distinct(sample, filtered)),
        commands=_commands(table, columns),
        warnings=[
            *sample.warnings,
            *skipped,
            *_heavy(table, sample, columns),
            *enabled_in_vain(table.properties, columns),
            *invalid(table.properties),
        ],
        seconds=time.monotonic() - start,
    )


def _heavy(table: Table, sample: Sample, columns: Sequence[AdvisedColumn]) -> list[str]:
    """Return a warning if writers' own filters are much of the files, and the command that makes them smaller."""
    own = needed = 0
    names = []
    for column in columns:
        stored = [chunk for chunk in sample.chunks.get(column.field_id, ()) if chunk.filter_bytes]
        before = sum(chunk.filter_bytes or 0 for chunk in stored)
        after = sum(blocks_for(max(chunk.values.distinct, 1), DEFAULT_FPP) * BLOCK_BYTES for chunk in stored)
        if before and 2 * after <= before:
            names.append(column.name)
            own, needed = own + before, needed + after
    share = own / (own + sum(sample.part_sizes)) if own else 0
    if share < HEAVY_SHARE or is_static(table):
        return []
    again = command_for(table, "embed", "--bloom", ",".join(map(encoded_name, names)), "--reuse", "never")
    return [
        f"writers' own filters of {', '.join(names)} are {share:.0%} of the sampled row groups, {size(own)}; at a rate "
        f"of {DEFAULT_FPP:.0%} they are {size(needed)}: {again}"
    ]


def _distinct(sample: Sample, columns: Sequence[AdvisedColumn]) -> dict[str, int]:
    """Return the distinct values of the fullest sampled row group by column."""
    return {column.name: max(chunk.values.distinct for chunk in sample.chunks[column.field_id]) for column in columns}


def _commands(table: Table, columns: Sequence[AdvisedColumn]) -> list[str]:
    """Return the builds that make what is advised. Distinct counts come last, so that the last sidecar has them.

    A table that was opened from a metadata file has none: it cannot be changed, and its name in a catalog is not known.
    """
    commands: list[str] = []
    if is_static(table):
        return commands
    for kind in (PAGE_INDEX, BLOOM):
        names = [column.name for column in columns if kind in column.kinds]
        if names:
            words = ["--columns", ",".join(map(encoded_name, names))]
            words += [] if KINDS[kind].usual else ["--kinds", kind]
            commands.append(command_for(table, "build", *words))
    return commands


def _of_empty(table: Table, start: float) -> Advice:
    return Advice(
        table=name_of(table),
        snapshot_id=None,
        files=0,
        fpp=None,
        sample=AdviceSample(0, 0, 0, 0),
        columns=[],
        sizes=SizeOfParts(None, None, []),
        properties=filter_properties(table.properties),
        alter_table=None,
        commands=[],
        warnings=["the table has no snapshot yet: there is nothing to judge"],
        seconds=time.monotonic() - start,
    )
