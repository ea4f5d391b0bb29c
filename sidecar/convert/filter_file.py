"""A file that is one historical filter, made into one of the present form: a rebuild from the column's values.

Nothing in such a file says which column it is of, so the caller says where its values stand. Two checks tell a wrong
column. Every value of the column is looked up in the old filter: the filter of a column denies none of its values, so
one denied value refuses the conversion. And hashed the old way, the values must give every bit that the old filter
has: a value that is missing would be denied by the new filter, so a single bit too many refuses the conversion too.
The bits alone prove nothing, because the values of a large column set all bits of a small filter by chance.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sidecar.convert.parquet_evidence import ParquetEvidence, filter_of
from sidecar.convert.rebuild import Build, Rebuilt, rebuild
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
from sidecar.source import open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


@dataclass(frozen=True)
class FilterConversion:
    """What was written, and how it came about. Lengths are those of the files, headers included."""

    source: str
    target: str
    values: str
    column: str
    form_before: str
    form_after: str
    size_before: int
    size: int
    rebuilt: Rebuilt[BlockFilter]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ``way`` and rates among it."""
        files = {name: value for name, value in vars(self).items() if name != "rebuilt"}
        return {**files, **self.rebuilt.to_dict()}


@enough_memory()
def convert_filter(
    source: str, target: str, *, values: str | None, fpp: float = DEFAULT_FPP, io: FileIO | None = None
) -> FilterConversion:
    """Write the historical filter of the file ``source`` in the present form (XXH64) to the new file ``target``.

    ``values`` is ``FILE.parquet:column``, a Parquet file whose column (of all row groups) the filter is of. ``fpp`` is
    the new filter's target rate. Raises :class:`UsageError` where no values are named, where the old filter denies one
    of them or holds more than they are, and if ``source`` is of the present form or something is at ``target``;
    :class:`DamagedFileError`, :class:`UnsupportedFeatureError` and :class:`StorageError` as reading does.
    """
    check_fpp(fpp)
    with closing(open_source(source, io)) as opened:
        old = read_bare_filter(opened)
    if not isinstance(old.filter, HistoricalBloomFilter):
        raise UsageError("the filter is of the present form already", file=source)
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
            hint="Name the column that it is of as --values FILE.parquet:column.",
        )
    return path, column


def _rebuild(old: FoundFilter, path: str, column: str, fpp: float, io: FileIO | None) -> Rebuilt[BlockFilter]:
    with closing(open_source(path, io)) as values:
        footer = read_footer(values)
        leaf = find_leaf(footer, column)
        evidence = ParquetEvidence(
            values, footer, [group.columns[leaf.index] for group in footer.row_groups], old
        )
        _check_column(old.filter, evidence, leaf)
        build: Build[BlockFilter] = filter_of(SplitBlockBloomFilter, leaf.encoding, fpp)
        return rebuild(evidence, build, rate_before=old.filter.estimated_fpp())


def _check_column(old: BlockFilter, evidence: ParquetEvidence, leaf: Leaf) -> None:
    """Raise :class:`UsageError` unless ``old`` can be the filter of this column. Reads all values of the column."""
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
            "the filter holds values that the column has not: it is not the filter of this column",
            file=evidence.name,
            column=leaf.path,
            found=f"{missing} bits that no value of the column sets",
        )


def _explain(again: BlockFilter, old: BlockFilter, values: pa.Array[Any], encoding: Encoding) -> None:
    """Set the bits of the values, and of the twins of zeros and NaN, as far as the old filter admits them."""
    hashes = hash_arrow(values, encoding, function=old.function)
    again.insert(hashes[old.check(hashes)])


def _unexplained(old: BlockFilter, again: BlockFilter) -> int:
    """The number of bits that are set in the old filter and not in ``again``."""
    return int(np.bitwise_count(old.blocks & ~again.blocks).sum(dtype=np.int64))
