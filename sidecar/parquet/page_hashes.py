"""Hashes of a chunk's values, taken from the pages as they are stored.

A filter holds hashes of PLAIN bytes in the file's own encoding, which are those that
:mod:`sidecar.parquet.stored_values` finds.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.filters.leaf import Leaf
from sidecar.filters.plain_bytes_hash import Hashes
from sidecar.parquet.stored_values import StoredValues


class PageHasher(StoredValues):
    """Hands the hashes of one chunk's values to ``take``, those of zeros' and NaN's twins included.

    Those of a dictionary's entries that no row uses too, which do a filter no harm.
    """

    def __init__(self, leaf: Leaf, take: Callable[[Hashes], None]) -> None:
        super().__init__(leaf, lambda values: take(values.hashes(leaf.encoding)))
