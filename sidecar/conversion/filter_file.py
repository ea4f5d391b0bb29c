"""Converts a file that is one historical filter: the new filter (XXH64) is built from the column's values.

Such a file does not say which column it belongs to, so the caller names the column. Two checks detect a wrong column.
First, every value of the column is looked up in the old filter: a filter denies none of its own values, so one denied
value refuses the conversion. Second, the values are hashed the old way, and they must set every bit of the old filter:
a bit that no value sets belongs to a value that the new filter would deny, so it refuses the conversion too. The second
check alone proves nothing, because a column with many values sets all bits of a small filter by chance.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.outcome import Outcome
from sidecar.conversion.rebuild import FilterFromArrays, ParquetEvidence, filter_of, rebuild
from sidecar.errors import UsageError
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.bare_filter import read_bare_filter
from sidecar.parquet.bloom import encode_header
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.questions.bounds import Unknown


def convert_filter(
    access: Access, source: str, values: str, column: str, target: str, fpp: float
) -> tuple[int, Outcome]:
    """Convert the historical filter in the file ``source`` to the present form (XXH64), in the new file ``target``.

    ``values`` is the Parquet file, and ``column`` the column over all its row groups, that the filter was built from.
    Returns the size of the new file in bytes, and what became of the filter. Raises :class:`UsageError` if the old
    filter denies a value or has bits that no value sets, and if ``source`` has the present form already.
    """
    with closing(access.open(source)) as opened:
        old = read_bare_filter(opened)
    if not isinstance(old.filter, HistoricalBloomFilter):
        raise UsageError("the filter already has the present form", file=source)
    with closing(access.open(values)) as opened:
        footer = read_footer(opened)
        leaf = find_leaf(footer, column)
        evidence = ParquetEvidence(opened, footer, [group.columns[leaf.index] for group in footer.row_groups])
        _check_column(old.filter, evidence, leaf)
        build: FilterFromArrays[SplitBlockBloomFilter] = filter_of(SplitBlockBloomFilter, leaf.encoding, fpp)
        made, way = rebuild(evidence, build)
    data = encode_header(made.num_bytes) + made.to_bytes()
    with access.create(target) as written:
        written.write(data)
    rates = old.filter.estimated_fpp(), made.estimated_fpp()
    outcome = Outcome(source, -1, column, BLOOM, way, made.num_bytes, *rates, f"rebuilt from {values}")
    return len(data), outcome


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
    entries = evidence.dictionary() if _unexplained(old, again) else []
    for array in () if isinstance(entries, Unknown) else entries:  # some writers insert entries that no row uses
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
