"""Split-block Bloom filters: z blocks of eight 32-bit words. A "no" is certain, a "yes" is not.

A hash chooses block ``((h >> 32) * z) >> 32`` and, by its lower 32 bits, one bit in each word of it:
``((lower32 * SALT[j]) mod 2^32) >> 27``. The bitset on disk is the blocks in order, words little-endian.
Parquet specification, "Bloom filter".

Three lemmas carry every change of size; all hold for integer factors alone, since the block of a hash at z
is ``floor(upper32 * z / 2^32)``:

*fold*: with z = f * y, the block at y is that at z divided by f, rounded down. So the OR of each f adjacent
blocks is exactly the filter built at y. Folding loses no value.

*widen*: repeating each block f times gives the same answer to every question as before: the block at
f * z, divided by f, is the block at z. (From 64 to 80 blocks, repeating would deny a third of the values.)

*merge*: the OR of two filters of the same z is the filter of both sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.sizing import BLOCK_BYTES, DEFAULT_FPP, MAX_BLOCKS, MAX_BYTES, blocks_for, check_fpp

SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_CHUNK = 8192
"""Hashes a step: they stay in the first-level cache between hashing and probing."""


class SplitBlockBloomFilter:
    """One filter: ``blocks`` uint32 [z, 8], C-contiguous.

    ``tail`` holds the bytes after the last whole block of a filter of odd size; no hash ever reaches them, but
    they are kept so that the filter goes back as it came.
    """

    def __init__(self, blocks: NDArray[np.uint32], tail: bytes = b"") -> None:
        if blocks.ndim != 2 or blocks.shape[1] != 8 or blocks.dtype != np.uint32:
            raise UsageError("blocks are uint32 [z, 8]", found=f"{blocks.dtype} {list(blocks.shape)}")
        if not 1 <= len(blocks) <= MAX_BLOCKS:
            raise UsageError(f"a filter has 1 to {MAX_BLOCKS} blocks", found=len(blocks))
        self.blocks = np.ascontiguousarray(blocks)
        self.tail = tail

    # --- making ---------------------------------------------------------------------------------------------

    @staticmethod
    def empty(z: int) -> SplitBlockBloomFilter:
        """A filter of ``z`` blocks that holds nothing."""
        if not 1 <= z <= MAX_BLOCKS:
            raise UsageError(f"a filter has 1 to {MAX_BLOCKS} blocks", found=z)
        return SplitBlockBloomFilter(np.zeros((z, 8), np.uint32))

    @staticmethod
    def from_hashes(hashes: NDArray[np.uint64], z: int) -> SplitBlockBloomFilter:
        """A filter of ``z`` blocks that holds ``hashes`` (uint64 [n])."""
        made = SplitBlockBloomFilter.empty(z)
        made.insert(hashes)
        return made

    @staticmethod
    def from_arrow(
        values: pa.Array[Any] | pa.ChunkedArray[Any],
        encoding: Encoding,
        fpp: float = DEFAULT_FPP,
        *,
        ndv: int | None = None,
        strict: bool = False,
    ) -> SplitBlockBloomFilter:
        """The smallest power-of-two filter of the values that meets ``fpp``.

        Built at the size that the row count (or ``ndv``, if given) allows, then folded. ``strict`` adds no twins
        of zeros and NaN: bit for bit what other writers build at the same size, but it may deny equal values.
        """
        from sidecar.filters.hashing import hash_arrow

        hashes = hash_arrow(values, encoding, twins=not strict)
        return SplitBlockBloomFilter.from_hashes(
            hashes, blocks_for(len(hashes) if ndv is None else ndv, fpp)
        ).fold_to(fpp)

    @staticmethod
    def from_bytes(bitset: bytes | memoryview, name: str | None = None) -> SplitBlockBloomFilter:
        """The filter of a bitset as it stands in a file; 32 bytes to 128 MiB, of any size between.

        A size that is no multiple of 32 has ``floor(n / 32)`` blocks, as parquet-java and arrow-rs read it.
        :class:`DamagedFileError` for a size out of bounds.
        """
        if not BLOCK_BYTES <= len(bitset) <= MAX_BYTES:
            raise DamagedFileError(
                "a Bloom filter of impossible size",
                file=name,
                expected=f"{BLOCK_BYTES} to {MAX_BYTES} bytes",
                found=len(bitset),
            )
        z = len(bitset) // BLOCK_BYTES
        words = np.frombuffer(bitset, "<u4", z * 8).astype(np.uint32)
        return SplitBlockBloomFilter(words.reshape(z, 8), bytes(bitset[z * BLOCK_BYTES :]))

    def to_bytes(self) -> bytes:
        """The bitset as a file has it, odd tail included."""
        return self.blocks.astype("<u4", copy=False).tobytes() + self.tail

    @property
    def z(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def num_bytes(self) -> int:
        """Length of the bitset in bytes, odd tail included."""
        return self.z * BLOCK_BYTES + len(self.tail)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SplitBlockBloomFilter):
            return NotImplemented
        return self.tail == other.tail and np.array_equal(self.blocks, other.blocks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SplitBlockBloomFilter(z={self.z}, fill={self.fill():.3f})"

    # --- asking and telling ---------------------------------------------------------------------------------

    def insert(self, hashes: NDArray[np.uint64]) -> None:
        """Add ``hashes`` (uint64 [n])."""
        from sidecar.kernels import sbbf

        if not self.blocks.flags.writeable:
            self.blocks = self.blocks.copy()
        for at in range(0, len(hashes), _CHUNK):
            sbbf.insert(self.blocks, hashes[at : at + _CHUNK])

    def check(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of ``hashes`` (uint64 [n]) whether it might be there."""
        from sidecar.kernels import sbbf

        out = np.empty(len(hashes), np.bool_)
        for at in range(0, len(hashes), _CHUNK):
            sbbf.check(self.blocks, hashes[at : at + _CHUNK], out[at : at + _CHUNK])
        return out

    def might_contain_hash(self, h: int) -> bool:
        """Whether the hash might be there; one hash, nothing compiled."""
        block = self.blocks[((h >> 32) * self.z) >> 32].tolist()
        lower32 = h & 0xFFFFFFFF
        return all(
            word >> (((lower32 * salt) & 0xFFFFFFFF) >> 27) & 1
            for word, salt in zip(block, SALT, strict=True)
        )

    def might_contain(self, value: object, iceberg_type: str, encoding: Encoding) -> bool:
        """Whether a value of a column of ``iceberg_type`` might be there; True whenever that is not certain.

        ``value`` as for :func:`sidecar.filters.values.probe_hashes`.
        """
        from sidecar.filters.values import probe_hashes

        probe = probe_hashes(value, iceberg_type, encoding)
        if probe.verdict == "probe":
            return any(self.might_contain_hash(h) for h in probe.hashes)
        return probe.verdict == "unknown"

    # --- rates ----------------------------------------------------------------------------------------------

    def fill(self) -> float:
        """Share of bits that are set."""
        return float(np.bitwise_count(self.blocks).sum(dtype=np.int64)) / (self.z * 256)

    def estimated_fpp(self) -> float:
        """The false-positive rate that the bits themselves show.

        A random hash passes block b if its bit is set in every word: the product of the words' shares of set
        bits. Blocks are equally likely, so the rate is the mean of the products over the blocks.
        """
        shares = np.bitwise_count(self.blocks).astype(np.float64)
        shares /= 32.0
        return float(shares.prod(axis=1).mean())

    # --- sizes ----------------------------------------------------------------------------------------------

    def fold(self, to_z: int) -> SplitBlockBloomFilter:
        """The filter of ``to_z`` blocks, an integer fraction of this one's (lemma *fold*)."""
        if to_z < 1 or self.z % to_z:
            raise UsageError(
                "a filter folds by an integer factor only", expected=f"a divisor of {self.z}", found=to_z
            )
        if to_z == self.z:
            return self
        from sidecar.kernels import sbbf

        out = np.empty((to_z, 8), np.uint32)
        sbbf.fold(self.blocks, self.z // to_z, out)
        return SplitBlockBloomFilter(out)

    def widen(self, to_z: int) -> SplitBlockBloomFilter:
        """The filter of ``to_z`` blocks, an integer multiple of this one's (lemma *widen*)."""
        if to_z < 1 or to_z % self.z:
            raise UsageError(
                "a filter widens by an integer factor only", expected=f"a multiple of {self.z}", found=to_z
            )
        return SplitBlockBloomFilter(np.repeat(self.blocks, to_z // self.z, axis=0))

    def fold_to(self, fpp: float) -> SplitBlockBloomFilter:
        """Folded to the smallest size, by halves, whose own bits show a rate of at most ``fpp``.

        The filter itself if it misses ``fpp`` already, or has an odd size.
        """
        check_fpp(fpp)
        best = self
        while best.z % 2 == 0 and not self.tail:
            half = best.fold(best.z // 2)
            if half.estimated_fpp() > fpp:
                break
            best = half
        return best

    def merge(self, other: SplitBlockBloomFilter) -> SplitBlockBloomFilter:
        """The filter of both sets (lemma *merge*); the larger one is folded to the smaller one's size.

        :class:`UsageError` where neither size is an integer multiple of the other.
        """
        small, large = sorted((self, other), key=lambda f: f.z)
        if large.z % small.z:
            raise UsageError(
                "filters of these sizes do not merge", expected="an integer factor", found=(small.z, large.z)
            )
        return SplitBlockBloomFilter(small.blocks | large.fold(small.z).blocks)


def block_of(h: Any, z: int) -> int:
    """The block that hash ``h`` chooses among ``z``."""
    return ((int(h) >> 32) * z) >> 32
