"""What every split-block Bloom filter is, whatever its hash function and its rule for choosing a block.

A filter is z blocks of eight 32-bit words. A hash chooses one block by its upper 32 bits, and by its lower 32
bits one bit in each word of it: ``((lower32 * SALT[j]) mod 2^32) >> 27``. The bitset on disk is the blocks in
order, words little-endian. Two forms exist, and a filter of one denies what it holds if it is asked as the other:

| form | hash | block of upper 32 bits u | z |
| --- | --- | --- | --- |
| :class:`~sidecar.filters.sbbf.SplitBlockBloomFilter` | XXH64 | ``(u * z) >> 32`` | any |
| :class:`~sidecar.filters.historical.HistoricalBloomFilter` | MurmurHash3 | ``u & (z - 1)`` | a power of two |

Sizes change by lemmas of each form; the one that needs no form is *merge*: the OR of two filters of one form and
size is the filter of both sets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.plain_bytes_hash import PlainHash
from sidecar.filters.sizing import BLOCK_BYTES, MAX_BLOCKS, MAX_BYTES, check_fpp

if TYPE_CHECKING:
    from typing_extensions import Self

SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_CHUNK = 8192
"""Hashes a step: they stay in the first-level cache between hashing and probing."""


class BlockFilter(ABC):
    """One filter: ``blocks`` uint32 [z, 8], C-contiguous.

    ``tail`` holds the bytes after the last whole block of a filter of odd size; no hash ever reaches them, but
    they are kept so that the filter goes back as it came.
    """

    function: ClassVar[PlainHash]
    """The hash function of the form."""
    form: ClassVar[str]
    """What the form is, for people."""

    def __init__(self, blocks: NDArray[np.uint32], tail: bytes = b"") -> None:
        if blocks.ndim != 2 or blocks.shape[1] != 8 or blocks.dtype != np.uint32:
            raise UsageError("blocks are uint32 [z, 8]", found=f"{blocks.dtype} {list(blocks.shape)}")
        self.check_size(len(blocks))
        self.blocks = np.ascontiguousarray(blocks)
        self.tail = tail

    # --- the form -------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def check_size(z: int) -> None:
        """Raise :class:`UsageError` unless filters of this form may have ``z`` blocks."""

    @staticmethod
    @abstractmethod
    def block_of(h: int, z: int) -> int:
        """The block that hash ``h`` chooses among ``z``."""

    @staticmethod
    @abstractmethod
    def blocks_for(distinct: int, fpp: float) -> int:
        """Blocks of a new filter of so many distinct values, by the form's own sizing: a power of two."""

    @abstractmethod
    def _insert(self, hashes: NDArray[np.uint64]) -> None:
        """Set the bits of some thousand hashes."""

    @abstractmethod
    def _check(self, hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
        """``out[i]``: whether all eight bits of ``hashes[i]`` are set."""

    @abstractmethod
    def _fold(self, factor: int) -> NDArray[np.uint32]:
        """The blocks of the filter that is smaller by ``factor``, which divides z."""

    @abstractmethod
    def _widen(self, factor: int) -> NDArray[np.uint32]:
        """The blocks of the filter that is larger by ``factor``."""

    # --- making ---------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, z: int) -> Self:
        """A filter of ``z`` blocks that holds nothing."""
        cls.check_size(z)
        return cls(np.zeros((z, 8), np.uint32))

    @classmethod
    def from_hashes(cls, hashes: NDArray[np.uint64], z: int) -> Self:
        """A filter of ``z`` blocks that holds ``hashes`` (uint64 [n], by the form's own function)."""
        made = cls.empty(z)
        made.insert(hashes)
        return made

    @classmethod
    def from_bytes(cls, bitset: bytes | memoryview, name: str | None = None) -> Self:
        """The filter of a bitset as it stands in a file; 32 bytes to 128 MiB.

        A size that is no multiple of 32 has ``floor(n / 32)`` blocks, as parquet-java and arrow-rs read it.
        :class:`DamagedFileError` for a size that the form cannot have.
        """
        z = len(bitset) // BLOCK_BYTES
        try:
            if len(bitset) > MAX_BYTES:
                raise UsageError(f"at most {MAX_BYTES} bytes")
            words = np.frombuffer(bitset, "<u4", z * 8).astype(np.uint32)
            return cls(words.reshape(z, 8), bytes(bitset[z * BLOCK_BYTES :]))
        except UsageError as error:
            raise DamagedFileError(
                "a Bloom filter of impossible size", file=name, expected=error.what, found=len(bitset)
            ) from None

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
        if not isinstance(other, BlockFilter) or type(other) is not type(self):
            return NotImplemented
        return self.tail == other.tail and np.array_equal(self.blocks, other.blocks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(z={self.z}, fill={self.fill():.3f})"

    # --- asking and telling ---------------------------------------------------------------------------------

    def insert(self, hashes: NDArray[np.uint64]) -> None:
        """Add ``hashes`` (uint64 [n])."""
        if not self.blocks.flags.writeable:
            self.blocks = self.blocks.copy()
        for at in range(0, len(hashes), _CHUNK):
            self._insert(hashes[at : at + _CHUNK])

    def insert_arrow(
        self, values: pa.Array[Any] | pa.ChunkedArray[Any], encoding: Encoding, *, strict: bool = False
    ) -> None:
        """Add values of the file's Arrow type; ``strict`` adds no twins of zeros and NaN.

        Raises as :func:`sidecar.filters.array_hash.hash_arrow` does.
        """
        from sidecar.filters.array_hash import hash_arrow

        self.insert(hash_arrow(values, encoding, twins=not strict, function=self.function))

    def check(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of ``hashes`` (uint64 [n]) whether it might be there."""
        out = np.empty(len(hashes), np.bool_)
        for at in range(0, len(hashes), _CHUNK):
            self._check(hashes[at : at + _CHUNK], out[at : at + _CHUNK])
        return out

    def might_contain_hash(self, h: int) -> bool:
        """Whether the hash might be there; one hash, nothing compiled."""
        block = self.blocks[self.block_of(h, self.z)].tolist()
        return all(word >> bit & 1 for word, bit in zip(block, bits_of(h), strict=True))

    def might_contain(self, value: object, iceberg_type: str, encoding: Encoding) -> bool:
        """Whether a value of a column of ``iceberg_type`` might be there; True whenever that is not certain.

        ``value`` as for :func:`sidecar.filters.values.probe_hashes`.
        """
        from sidecar.filters.values import probe_hashes

        probe = probe_hashes(value, iceberg_type, encoding, self.function)
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
        counts = np.bitwise_count(self.blocks)
        product = counts[:, 0].astype(np.float64)
        for word in range(1, 8):
            product *= counts[:, word]  # exact: at most 2^40
        return float(product.mean()) / 2.0**40

    # --- sizes ----------------------------------------------------------------------------------------------

    def fold(self, to_z: int) -> Self:
        """The filter of ``to_z`` blocks, an integer fraction of this one's (lemma *fold* of its form)."""
        if to_z < 1 or self.z % to_z:
            raise UsageError(
                "a filter folds by an integer factor only", expected=f"a divisor of {self.z}", found=to_z
            )
        return self if to_z == self.z else type(self)(self._fold(self.z // to_z))

    def widen(self, to_z: int) -> Self:
        """The filter of ``to_z`` blocks, an integer multiple of this one's (lemma *widen* of its form)."""
        if to_z < 1 or to_z % self.z:
            raise UsageError(
                "a filter widens by an integer factor only", expected=f"a multiple of {self.z}", found=to_z
            )
        self.check_size(to_z)
        return type(self)(self._widen(to_z // self.z))

    def fold_to(self, fpp: float) -> Self:
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

    def merge(self, other: Self) -> Self:
        """The filter of both sets (lemma *merge*); the larger one is folded to the smaller one's size.

        :class:`UsageError` where neither size is an integer multiple of the other, and for filters of two forms.
        """
        if type(other) is not type(self):
            raise UsageError(
                "filters of two forms do not merge", expected=self.function.name, found=other.function.name
            )
        small, large = sorted((self, other), key=lambda f: f.z)
        if large.z % small.z:
            raise UsageError(
                "filters of these sizes do not merge", expected="an integer factor", found=(small.z, large.z)
            )
        return type(self)(small.blocks | large.fold(small.z).blocks)


def check_blocks(z: int) -> None:
    """Raise :class:`UsageError` unless a filter of any form may have ``z`` blocks."""
    if not 1 <= z <= MAX_BLOCKS:
        raise UsageError(f"a filter has 1 to {MAX_BLOCKS} blocks", found=z)


def bits_of(h: int) -> list[int]:
    """The bit that hash ``h`` chooses in each of the eight words of its block."""
    lower32 = h & 0xFFFFFFFF
    return [((lower32 * salt) & 0xFFFFFFFF) >> 27 for salt in SALT]
