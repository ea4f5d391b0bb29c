"""Converts a file that is one historical filter: the new filter (XXH64) is built from the column's values.

Such a file does not say which column it belongs to, so the caller names the column. Two checks detect a wrong column.
First, every value of the column is looked up in the old filter: a filter denies none of its own values, so one denied
value refuses the conversion. Second, the values are hashed the old way, and they must set every bit of the old filter:
a bit that no value sets belongs to a value that the new filter would deny, so it refuses the conversion too. The second
check alone proves nothing, because a column with many values sets all bits of a small filter by chance.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sidecar.conversion.parquet_evidence import ParquetEvidence, filter_of
from sidecar.conversion.rebuild import Build, Rebuilt, rebuild
from sidecar.errors import UsageError, enough_memory
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.parquet.bare_filter import read_bare_filter
from sidecar.parquet.bloom import FoundFilter, encode_header
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.results import Summarized
from sidecar.run_log import logged
from sidecar.source import open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class FilterConversion(Summarized):
    """The result of :func:`convert_filter`. Sizes are bytes of the files, headers included."""

    source: str
    """The path of the historical filter."""
    target: str
    """The path of the new filter."""
    values: str
    """The path of the Parquet file with the values."""
    column: str
    """The path of the column."""
    form_before: str
    """The form of the old filter in words."""
    form_after: str
    """The form of the new filter in words."""
    size_before: int
    """The size of the old file."""
    size: int
    """The size of the new file."""
    rebuilt: Rebuilt[BlockFilter]
    """The new filter, and how it was built."""

    def log_line(self) -> str:
        """What was converted, for the log."""
        return f"{self.source} converted to {self.target} ({self.form_before} to {self.form_after})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, including ``way`` and the rates of the rebuild."""
        files = {name: value for name, value in vars(self).items() if name != "rebuilt"}
        return {**files, **self.rebuilt.to_dict()}


@logged(log, FilterConversion.log_line, lambda report: ())
@enough_memory()
def convert_filter(
    source: str,
    target: str,
    *,
    values: str | None,
    fpp: float = DEFAULT_FPP,
    io: FileIO | None = None,
) -> FilterConversion:
    """Convert the historical filter in the file ``source`` to the present form (XXH64), in the new file ``target``.

    ``values`` is ``FILE.parquet:column``: the Parquet file and column (over all row groups) that the filter was built
    from. ``fpp`` is the target rate of the new filter. ``io`` opens and writes files, by default as the paths say.
    Raises :class:`UsageError` if ``values`` is missing, if the old filter denies a value or has bits that no value
    sets, if ``source`` has the present form already, and if ``target`` exists; :class:`DamagedFileError`,
    :class:`UnsupportedFeatureError` and :class:`StorageError` as reading does.
    """
    check_fpp(fpp)
    with closing(open_source(source, io)) as opened:
        old = read_bare_filter(opened)
    if not isinstance(old.filter, HistoricalBloomFilter):
        raise UsageError("the filter already has the present form", file=source)
    path, column = _split(source, values)
    rebuilt = _rebuild(old, path, column, fpp, io)
    data = encode_header(rebuilt.filter.num_bytes) + rebuilt.filter.to_bytes()
    with create_target(target, io) as written:
        written.write(data)
    forms = (old.filter.form, rebuilt.filter.form)
    return FilterConversion(source, target, path, column, *forms, old.length, len(data), rebuilt)


def _split(source: str, values: str | None) -> tuple[str, str]:
    path, _, column = (values or "").rpartition(":")
    if not path or not column:
        raise UsageError(
            "a historical filter can only be rebuilt: its bits say nothing about XXH64",
            file=source,
            found=values,
            hint="Name its column with --values FILE.parquet:column.",
        )
    return path, column


def _rebuild(old: FoundFilter, path: str, column: str, fpp: float, io: FileIO | None) -> Rebuilt[BlockFilter]:
    with closing(open_source(path, io)) as values:
        footer = read_footer(values)
        leaf = find_leaf(footer, column)
        evidence = ParquetEvidence(values, footer, [group.columns[leaf.index] for group in footer.row_groups], old)
        _check_column(old.filter, evidence, leaf)
        build: Build[BlockFilter] = filter_of(SplitBlockBloomFilter, leaf.encoding, fpp)
        return rebuild(evidence, build, rate_before=old.filter.estimated_fpp())


def _check_column(old: BlockFilter, evidence: ParquetEvidence, leaf: Leaf) -> None:
    """Read all values of the column; raise :class:`UsageError` unless ``old`` can be its filter."""
    again = type(old).empty(old.z)
    looked_up = 0
    for array in evidence.values()[0]:
        hashes = hash_arrow(array, leaf.encoding, twins=False, function=old.function)
        looked_up += len(hashes)
        if denied := len(hashes) - int(old.check(hashes).sum()):
            raise UsageError(
                "the filter denies values of the column: it is not the filter of this column",
                file=evidence.name,
                column=leaf.path,
                found=f"{denied} denied among the first {looked_up} values",
            )
        _explain(again, old, array, leaf.encoding)
    entries = evidence.dictionary() if _unexplained(old, again) else ""
    for array in () if isinstance(entries, str) else entries:  # some writers insert entries that no row uses
        _explain(again, old, array, leaf.encoding)
    if missing := _unexplained(old, again):
        raise UsageError(
            "the filter holds values that the column does not have: it is not the filter of this column",
            file=evidence.name,
            column=leaf.path,
            found=f"{missing} bits that no value of the column sets",
        )


def _explain(again: BlockFilter, old: BlockFilter, values: pa.Array[Any], encoding: Encoding) -> None:
    """Insert into ``again`` the values, and the twins of zeros and NaN, that the old filter admits."""
    hashes = hash_arrow(values, encoding, function=old.function)
    again.insert(hashes[old.check(hashes)])


def _unexplained(old: BlockFilter, again: BlockFilter) -> int:
    """Return the number of bits that are set in ``old`` but not in ``again``."""
    return int(np.bitwise_count(old.blocks & ~again.blocks).sum(dtype=np.int64))
