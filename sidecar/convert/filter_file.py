"""A file that is one historical filter, made into one of the present form: a rebuild from the column's values.

Nothing in such a file says which column it is of, so the caller says where its values stand. That they are all
there is checked: hashed the old way, they must give every bit that the old filter has. A value that is missing
would be denied by the new filter, so a single bit too many refuses the conversion.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sidecar.convert.parquet_evidence import ParquetEvidence, filter_of
from sidecar.convert.rebuild import Build, Rebuilt, rebuild
from sidecar.errors import UsageError, enough_memory
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
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
        told = {name: value for name, value in vars(self).items() if name != "rebuilt"}
        return {**told, **self.rebuilt.to_dict()}


@enough_memory()
def convert_filter(
    source: str, target: str, *, values: str | None, fpp: float = DEFAULT_FPP, io: FileIO | None = None
) -> FilterConversion:
    """Write the historical filter of the file ``source`` in the present form (XXH64) to the new file ``target``.

    ``values`` is ``FILE.parquet:column``, a Parquet file whose column (of all row groups) the filter is of. ``fpp`` is
    the new filter's target rate. Raises :class:`UsageError` where no values are named or where the old filter
    holds more than they are, and if ``source`` is of the present form or something is at ``target``;
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
        chunks = [group.columns[leaf.index] for group in footer.row_groups]
        witness = _Witness(old.filter, leaf.encoding)
        build: Build[BlockFilter] = filter_of(SplitBlockBloomFilter, leaf.encoding, fpp)
        rebuilt = rebuild(
            ParquetEvidence(values, footer, chunks, old),
            lambda arrays, distinct: build(witness.watch(arrays), distinct),
            rate_before=old.filter.estimated_fpp(),
        )
    if missing := witness.missing_bits():
        raise UsageError(
            "the filter holds values that the column has not: it is not the filter of this column",
            file=path,
            column=column,
            found=f"{missing} bits that no value of the column sets",
        )
    return rebuilt


class _Witness:
    """Builds the old filter again from the values that go into the new one."""

    def __init__(self, old: BlockFilter, encoding: Encoding) -> None:
        self._old = old
        self._again = type(old).empty(old.z)
        self._encoding = encoding

    def watch(self, arrays: Iterable[pa.Array[Any]]) -> Iterable[pa.Array[Any]]:
        """The same arrays, seen."""
        for array in arrays:
            self._again.insert_arrow(array, self._encoding)
            yield array

    def missing_bits(self) -> int:
        """How many bits the old filter has that the values do not explain."""
        return int(np.bitwise_count(self._old.blocks & ~self._again.blocks).sum(dtype=np.int64))
