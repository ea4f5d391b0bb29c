"""The common part of split-block Bloom filters, for every hash function and every rule to choose a block.

A filter is z blocks of eight 32-bit words. A hash chooses one block by its upper 32 bits, and by its lower 32
bits one bit in each word of it: ``((lower32 * SALT[j]) mod 2^32) >> 27``. The bitset on disk is the blocks in
order, words little-endian. There are two forms. A filter that is probed in the wrong form denies values that it holds:

| form | hash | block of upper 32 bits u | z |
| --- | --- | --- | --- |
| :class:`~sidecar.filters.sbbf.SplitBlockBloomFilter` | XXH64 | ``(u * z) >> 32`` | any |
| :class:`~sidecar.filters.historical.HistoricalBloomFilter` | MurmurHash3 | ``u & (z - 1)`` | a power of two |

Each form has its own lemmas for changes of size. One lemma holds for both, *merge*: the OR of two filters of the same
form and size is the filter of both sets.
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


class BlockFilter(ABC):
    """A split-block Bloom filter: ``blocks`` is uint32 [z, 8], C-contiguous.

    ``tail`` holds the bytes after the last whole block of a filter of odd size. No hash reaches them; they are kept so
    that the filter is written back byte for byte.
    """

    function: ClassVar[PlainHash]
    """The hash function of the form."""
    form: ClassVar[str]
    """A description of the form for people."""

    def __init__(self, blocks: NDArray[np.uint32], tail: bytes = b"") -> None:
        if blocks.ndim != 2 or blocks.shape[1] != 8 or blocks.dtype != np.uint32:
            raise UsageError(
                "the blocks of a filter have the wrong type or shape",
                expected="uint32 [z, 8]",
                found=f"{blocks.dtype} {list(blocks.shape)}",
            )
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
        """Return the block that hash ``h`` chooses among ``z``."""

    @staticmethod
    @abstractmethod
    def blocks_for(distinct: int, fpp: float) -> int:
        """Return the blocks of a new filter for ``distinct`` values and the rate ``fpp``: a power of two."""

    @abstractmethod
    def _insert(self, hashes: NDArray[np.uint64]) -> None:
        """Set the bits of all hashes."""

    @abstractmethod
    def _check(self, hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
        """Set ``out[i]`` to whether all eight bits of ``hashes[i]`` are set."""

    @abstractmethod
    def _fold(self, factor: int) -> NDArray[np.uint32]:
        """Return the blocks of the filter that is smaller by ``factor``, which divides z."""

    # --- making ---------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, z: int) -> Self:
        """Return a filter of ``z`` blocks that holds nothing."""
        cls.check_size(z)
        return cls(np.zeros((z, 8), np.uint32))

    @classmethod
    def from_hashes(cls, hashes: NDArray[np.uint64], z: int) -> Self:
        """Return a filter of ``z`` blocks that holds ``hashes``: uint64 [n], made with :attr:`function`."""
        made = cls.empty(z)
        made.insert(hashes)
        return made

    @classmethod
    def from_bytes(cls, bitset: bytes | memoryview, name: str | None = None) -> Self:
        """Return the filter of a bitset in a file, 32 bytes to 128 MiB; ``name`` is the file, for errors.

        A size that is not a multiple of 32 has ``floor(n / 32)`` blocks, as parquet-java and arrow-rs read it.
        Raises :class:`DamagedFileError` for a size that the form cannot have.
        """
        z = len(bitset) // BLOCK_BYTES
        try:
            if len(bitset) > MAX_BYTES:
                raise UsageError("a filter is too large", expected=f"at most {MAX_BYTES} bytes")
            words = np.frombuffer(bitset, "<u4", z * 8).astype(np.uint32)
            return cls(words.reshape(z, 8), bytes(bitset[z * BLOCK_BYTES :]))
        except UsageError as error:
            raise DamagedFileError(
                "the Bloom filter has an impossible size",
                file=name,
                expected=error.expected,
                found=len(bitset),
            ) from None

    def to_bytes(self) -> bytes:
        """Return the bitset as it is stored in a file, with the odd tail."""
        return self.blocks.astype("<u4", copy=False).tobytes() + self.tail

    @property
    def z(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def num_bytes(self) -> int:
        """Length of the bitset in bytes, with the odd tail."""
        return self.z * BLOCK_BYTES + len(self.tail)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockFilter) or type(other) is not type(self):
            return NotImplemented
        return self.tail == other.tail and np.array_equal(self.blocks, other.blocks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(z={self.z}, fill={self.fill():.3f})"

    # --- inserting and probing ------------------------------------------------------------------------------

    def insert(self, hashes: NDArray[np.uint64]) -> None:
        """Add ``hashes`` (uint64 [n])."""
        if not self.blocks.flags.writeable:
            self.blocks = self.blocks.copy()
        self._insert(hashes)

    def insert_arrow(
        self, values: pa.Array[Any] | pa.ChunkedArray[Any], encoding: Encoding, *, strict: bool = False
    ) -> None:
        """Add values of the file's Arrow type; ``strict`` leaves out the twins of zeros and NaN.

        Raises as :func:`sidecar.filters.array_hash.hash_arrow` does.
        """
        from sidecar.filters.array_hash import hash_arrow

        self.insert(hash_arrow(values, encoding, twins=not strict, function=self.function))

    def check(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each of ``hashes`` (uint64 [n]) whether the filter might hold it: bool [n]."""
        out = np.empty(len(hashes), np.bool_)
        self._check(hashes, out)
        return out

    def might_contain_hash(self, h: int) -> bool:
        """Return whether the filter might hold the hash ``h``; needs no compiled code."""
        block = self.blocks[self.block_of(h, self.z)].tolist()
        return all(word >> bit & 1 for word, bit in zip(block, bits_of(h), strict=True))

    def might_contain(self, value: object, iceberg_type: str, encoding: Encoding) -> bool:
        """Return whether the filter might hold ``value``, a literal of ``iceberg_type``; True if that is not certain.

        ``value`` is as for :func:`sidecar.filters.values.probe_hashes`.
        """
        from sidecar.filters.values import probe_hashes

        probe = probe_hashes(value, iceberg_type, encoding, self.function)
        if probe.verdict == "probe":
            return any(self.might_contain_hash(h) for h in probe.hashes)
        return probe.verdict == "unknown"

    # --- rates ----------------------------------------------------------------------------------------------

    def fill(self) -> float:
        """Return the share of bits that are set, 0 to 1."""
        return float(np.bitwise_count(self.blocks).sum(dtype=np.int64)) / (self.z * 256)

    def estimated_fpp(self) -> float:
        """Return the false-positive rate from the bits.

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
        """Return the filter of ``to_z`` blocks, an integer fraction of this one's (lemma *fold* of its form)."""
        if to_z < 1 or self.z % to_z:
            raise UsageError(
                "a filter can be folded only by an integer factor",
                expected=f"a divisor of {self.z}",
                found=to_z,
            )
        return self if to_z == self.z else type(self)(self._fold(self.z // to_z))

    def fold_to(self, fpp: float) -> Self:
        """Return the filter halved as often as the rate from its bits stays at most ``fpp``.

        A filter above ``fpp``, or of odd size, is returned as it is.
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
        """Return the filter of both sets (lemma *merge*); the larger one is folded to the smaller one's size.

        Raises :class:`UsageError` if neither size is an integer multiple of the other, or if the forms differ.
        """
        if type(other) is not type(self):
            raise UsageError(
                "filters of two forms do not merge",
                expected=self.function.name,
                found=other.function.name,
            )
        small, large = sorted((self, other), key=lambda f: f.z)
        if large.z % small.z:
            raise UsageError(
                "filters of these sizes do not merge",
                expected="a multiple of the smaller size",
                found=f"{small.z} and {large.z} blocks",
            )
        return type(self)(small.blocks | large.fold(small.z).blocks)


def check_blocks(z: int) -> None:
    """Raise :class:`UsageError` unless a filter of any form may have ``z`` blocks."""
    if not 1 <= z <= MAX_BLOCKS:
        raise UsageError("the number of blocks of a filter is out of range", expected=f"1 to {MAX_BLOCKS}", found=z)


def bits_of(h: int) -> list[int]:
    """Return the bit that hash ``h`` chooses in each of the eight words of its block."""
    lower32 = h & 0xFFFFFFFF
    return [((lower32 * salt) & 0xFFFFFFFF) >> 27 for salt in SALT]
