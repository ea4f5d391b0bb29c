"""Makes filters for a data file from those of a file of the other format, or from a legacy ORC stream.

Two files may seem to hold the same rows, but nothing proves it. So a file never gets the bits of a different file. It
only takes over which columns have filters and at which rates; the filters are built from its own values.

Java's older stream BLOOM_FILTER, which C++ readers ignore, becomes BLOOM_FILTER_UTF8. The bits stay where both streams
use the same keys (integers, floats, dates, binary). The older stream hashes text and decimals in the writer's charset,
and timestamps by a different key, so those filters are rebuilt from the values. (Text that is all ASCII has the same
keys, but proving that takes the values, too.)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.outcome import IndexPlace, Outcome
from sidecar.conversion.reuse import ALWAYS, NEVER, FilterRules
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_file import OpenFile, unique_leaves
from sidecar.data_files.open_orc import OpenOrc
from sidecar.embedding.file import NewIndexes, write_anew
from sidecar.embedding.orc_file import embed_orc
from sidecar.embedding.report import EmbedReport
from sidecar.errors import UsageError
from sidecar.files import ORC, PARQUET
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.orc.index_streams import BLOOM_FILTER, BLOOM_FILTER_UTF8
from sidecar.orc.inspect import find_column
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail

_NO_COLUMN = "the data file has no such column"
LEAST_RATE, MOST_RATE = 1e-4, 0.5
"""Limits of rates that are taken over: a nearly empty filter shows a rate far below its target."""


def filters_like(
    access: Access,
    source: str,
    data: str,
    target: str,
    columns: Sequence[str] | None = None,
    fpp: float | None = None,
) -> tuple[EmbedReport, list[Outcome]]:
    """Write the file ``data`` to the new file ``target``, with filters on the columns that have some in ``source``.

    The rate of each column is the worst rate of its trusted filters in ``source``, or ``fpp``. Returns the report, and
    an outcome for each column that ``data`` does not have. Raises :class:`UsageError` if ``source`` has no trusted
    filter or if ``data`` and ``target`` have different formats, and the errors of
    :class:`sidecar.embedding.file.IndexedFileWriter`.
    """
    with opened_file(access, source) as like:
        rates = _rates(like)
    if columns is not None:
        rates = {path: rate for path, rate in rates.items() if path in columns}
    if fpp is not None:
        rates = dict.fromkeys(rates, check_fpp(fpp))
    if not rates:
        raise UsageError("the file has no trusted filter on these columns", file=source)
    with opened_file(access, data) as file:
        if file.format != (ORC if target.lower().endswith(".orc") else PARQUET):
            raise UsageError("the data file and the target have different formats", file=data)
        leaves = unique_leaves(file.leaves)
        by_number = {leaves[path].index: rate for path, rate in rates.items() if path in leaves}
        missing = [
            IndexPlace(file.name, -1, path, BLOOM).without_index(_NO_COLUMN) for path in rates if path not in leaves
        ]
        rules = FilterRules(tuple(by_number), DEFAULT_FPP, NEVER, by_number)
        return write_anew(access, file, target, rules, NewIndexes((), page_index=False)), missing


def _rates(file: OpenFile) -> dict[str, float]:
    """Return the worst rate of each column's filters, by its path."""
    rates: dict[str, float] = {}
    for part in range(file.parts):
        having = [leaf for leaf in file.leaves if file.has_index(part, leaf, BLOOM)]
        for found in file.own_indexes(part, having, [BLOOM]):
            if found.is_sound and found.filter is not None:
                path = found.leaf.own_path
                rates[path] = max(found.filter.estimated_fpp(), rates.get(path, LEAST_RATE))
    return {path: min(rate, MOST_RATE) for path, rate in rates.items()}


def convert_legacy(access: Access, source: str, target: str, columns: Sequence[str] | None = None) -> EmbedReport:
    """Write the ORC file ``source`` to the new file ``target``, its BLOOM_FILTER streams as BLOOM_FILTER_UTF8 ones.

    Raises :class:`UsageError` if no column has only the older stream, and the errors of
    :class:`sidecar.embedding.file.IndexedFileWriter`.
    """
    with closing(access.open(source)) as opened:
        tail = read_tail(opened)
        older: set[int] = set()
        for stripe in tail.stripes:
            if stripe.num_rows:
                streams = read_stripe_footer(opened, tail, stripe).streams
                new = {stream.column for stream in streams if stream.kind == BLOOM_FILTER_UTF8}
                older |= {stream.column for stream in streams if stream.kind == BLOOM_FILTER} - new
        if columns is not None:
            older &= {find_column(tail, name).id for name in columns}
        numbers = tuple(i for i in sorted(older) if not tail.columns[i].is_compound)
        if not numbers:
            raise UsageError("nothing to convert: no column has filters in a BLOOM_FILTER stream alone", file=source)
        with access.create(target) as sink:
            return embed_orc(OpenOrc(opened, tail), sink, FilterRules(numbers, DEFAULT_FPP, ALWAYS), threads=1)
