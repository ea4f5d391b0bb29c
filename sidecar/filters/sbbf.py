"""Split-block Bloom filters of the present form: z blocks of eight 32-bit words.

A "no" of a filter is certain, a "yes" is not.

A hash (XXH64, seed 0) chooses block ``((h >> 32) * z) >> 32`` and, by its lower 32 bits, one bit in each word of
it: ``((lower32 * SALT[j]) mod 2^32) >> 27``. The bitset on disk is the blocks in order, words little-endian.
Parquet specification, "Bloom filter".

Sizes change by three lemmas. They hold for integer factors only, because the block of a hash at z is
``floor(upper32 * z / 2^32)``:

*fold*: with z = f * y, the block at y is the block at z divided by f, rounded down. So the OR of each f adjacent
blocks is exactly the filter built at y. Folding loses no value.

*widen*: repeating each block f times, as sliced filters do, gives the same answer to every question as before: the
block at f * z, divided by f, is the block at z. (From 64 to 80 blocks, repeating would deny a third of the values.)

*merge*: the OR of two filters of the same z is the filter of both sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.filters import sizing
from sidecar.filters.block_filter import BlockFilter, bits_of, check_blocks
from sidecar.filters.encoding import Encoding
from sidecar.filters.plain_bytes_hash import XXH64
from sidecar.filters.sizing import DEFAULT_FPP

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SplitBlockBloomFilter", "bits_of", "block_of"]


def block_of(h: int, z: int) -> int:
    """Return the block that hash ``h`` chooses among ``z``."""
    return ((h >> 32) * z) >> 32


class SplitBlockBloomFilter(BlockFilter):
    """A split-block filter of the present form: XXH64, any number of blocks."""

    function = XXH64
    form = "split blocks, XXH64 with seed 0, block (upper 32 bits * z) >> 32"
    check_size = staticmethod(check_blocks)
    block_of = staticmethod(block_of)

    @staticmethod
    def blocks_for(distinct: int, fpp: float) -> int:
        """Return the fewest blocks that reach ``fpp``: a power of two, see :mod:`sidecar.filters.sizing`."""
        return sizing.blocks_for(distinct, fpp)

    @classmethod
    def from_arrow(
        cls,
        values: pa.Array[Any] | pa.ChunkedArray[Any],
        encoding: Encoding,
        fpp: float = DEFAULT_FPP,
        *,
        ndv: int | None = None,
        strict: bool = False,
    ) -> Self:
        """Return the smallest power-of-two filter of ``values`` that reaches ``fpp``.

        The filter is built for as many distinct values as there are rows (or ``ndv``, if given), then folded.
        ``strict`` leaves out the twins of zeros and NaN. The bits are then those that other writers write at the same
        size, but the filter may deny equal values.
        """
        distinct = len(values) - values.null_count if ndv is None else ndv
        made = cls.empty(cls.blocks_for(distinct, fpp))
        made.insert_arrow(values, encoding, strict=strict)
        return made.fold_to(fpp)

    def _insert(self, hashes: NDArray[np.uint64]) -> None:
        from sidecar.kernels import sbbf

        sbbf.insert(self.blocks, hashes)

    def _check(self, hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
        from sidecar.kernels import sbbf

        sbbf.check(self.blocks, hashes, out)

    def _fold(self, factor: int) -> NDArray[np.uint32]:
        from sidecar.kernels import sbbf

        out = np.empty((self.z // factor, 8), np.uint32)
        sbbf.fold(self.blocks, factor, out)
        return out
