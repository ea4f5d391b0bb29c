"""The index rules: the bits that a hash tests in a filter, and the differences between Parquet and ORC bundles.

A filter of either kind is cut into blocks of 256 bits. Bit p of its bytes (bit p & 7 of byte p >> 3) is row p % 256
of region p // 256. A value in the filter has set every bit that its hash tests. So one layout and one way to
slice, verify and AND serve both kinds. The rule has the rest:

    "parquet"  split-block filters of z blocks: block ((h >> 32) * z) >> 32 and one bit in each of its eight words,
               so the eight rows of a lookup are in one region. Odd bytes after the last block are stored separately.
    "orc"      ORC filters of m bits, of which k are tested: h1 = int32(h), h2 = int32(h >>> 32), and for i = 1..k
               c = int32(h1 + i * h2), bit (c < 0 ? ~c : c) % m. They are in up to k regions, so rows have
               their own checksums from 32 bytes on. The last of ceil(m / 256) blocks is padded with zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from sidecar.bundle.envelopes.checksum import CHECKED, PieceKind, PieceOverhead
from sidecar.bundle.envelopes.envelope import ORC_BLOOM_MAGIC, SBBF_MAGIC, integer, member
from sidecar.bundle.filters.layout import BLOCK_BITS, BLOCK_BYTES, MAX_BLOCKS, ROW_SEALED_FROM, Layout
from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.bloom import MAX_HASHES, OrcBloomFilter, positions
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.probes import AnyEncoding
from sidecar.filters.sbbf import SplitBlockBloomFilter, bits_of, block_of
from sidecar.puffin.types import ORC_BLOOM, SBBF

AnyFilter = SplitBlockBloomFilter | OrcBloomFilter

WORD_BITS = 64
"""The number of bits of an ORC filter is a multiple of this."""
MAX_BITS = MAX_BLOCKS * BLOCK_BITS


@dataclass(frozen=True)
class IndexRule(ABC):
    """How a hash becomes bits in the filters of one group. The class describes a type of bundle.

    ``name`` is the ``kind`` in a bundle's table of contents. ``hash`` and ``index`` are in the descriptions of its
    groups. ``page``, ``region`` and ``row`` are the piece kinds in checksums, so pieces of other bundle types never
    verify. Rows of at least ``rows_sealed_from`` bytes have their own checksum (encrypted: ``rows_encrypted_from``,
    because a module costs 28 bytes).
    """

    name: ClassVar[str]
    blob_type: ClassVar[str]
    magic: ClassVar[bytes]
    hash: ClassVar[str]
    index: ClassVar[str]
    page: ClassVar[PieceKind]
    region: ClassVar[PieceKind]
    row: ClassVar[PieceKind]
    rows_sealed_from: ClassVar[int]
    rows_encrypted_from: ClassVar[int]

    @classmethod
    def rows_alone_from(cls, sealing: PieceOverhead) -> int:
        """Return the bytes from which a bit row is a piece of its own."""
        return cls.rows_sealed_from if sealing == CHECKED else cls.rows_encrypted_from

    @staticmethod
    @abstractmethod
    def parse_encoding(name: str) -> AnyEncoding:
        """Return the encoding with this name. Raises :class:`UnsupportedFeatureError` for unknown names."""

    @classmethod
    @abstractmethod
    def decode(
        cls, content: dict[str, Any], members: int, sealing: PieceOverhead = CHECKED
    ) -> tuple[IndexRule, Layout]:
        """Return rule and layout of ``members`` filters from a description. Raises :class:`DamagedFileError`."""

    @abstractmethod
    def describe(self, layout: Layout) -> dict[str, Any]:
        """Return the filter size as a group's description has it, the inverse of :meth:`decode`."""

    @abstractmethod
    def rows(self, value: int, blocks: int) -> list[tuple[int, int]]:
        """Return (region, row in it) of each bit that a hash tests in filters of ``blocks`` blocks."""

    @abstractmethod
    def spread(self, layout: Layout) -> tuple[int, int]:
        """Return the most rows that a hash tests, and the most regions that they are in."""

    @abstractmethod
    def num_bytes(self, blocks: int, tail: int) -> int:
        """Return the bytes of a filter of so many own blocks and odd bytes after them, as data files have it."""

    @abstractmethod
    def size(self, num_bytes: int) -> tuple[int, int]:
        """Return (blocks, odd bytes after them) of a filter of ``num_bytes``. Raises :class:`UsageError`."""

    @abstractmethod
    def split(self, bitset: bytes) -> tuple[bytes, bytes]:
        """Split a filter into the whole blocks, which are sliced, and the odd bytes, which are stored separately."""

    @abstractmethod
    def join(self, blocks: bytes, tail: bytes) -> bytes:
        """Return the original filter, the inverse of :meth:`split`."""

    @abstractmethod
    def filter_from(self, bitset: bytes) -> AnyFilter:
        """The filter that is all of ``bitset``."""


@dataclass(frozen=True)
class SplitBlockRule(IndexRule):
    """The rule of Parquet split-block filters."""

    name = "sbbf"
    blob_type = SBBF
    magic = SBBF_MAGIC
    hash = "xxh64"
    index = "parquet"
    page, region, row = PieceKind.PAGE, PieceKind.REGION, PieceKind.ROW
    rows_sealed_from = rows_encrypted_from = ROW_SEALED_FROM

    @staticmethod
    def parse_encoding(name: str) -> Encoding:
        """Return how a value becomes PLAIN bytes."""
        return Encoding.parse(name)

    @classmethod
    def decode(
        cls, content: dict[str, Any], members: int, sealing: PieceOverhead = CHECKED
    ) -> tuple[IndexRule, Layout]:
        """Read ``blocks``, ``tail`` and ``widened``."""
        blocks = integer(content, "blocks", 1, MAX_BLOCKS)
        tail = integer(content, "tail", 0, BLOCK_BYTES - 1)
        widened, alone = member(content, "widened", bool), cls.rows_alone_from(sealing)
        return SPLIT_BLOCK, Layout(members, blocks, tail, widened, alone, sealing)

    def describe(self, layout: Layout) -> dict[str, Any]:
        """Return ``blocks``, ``tail`` and ``widened``."""
        return {"blocks": layout.blocks, "tail": layout.tail, "widened": layout.widened}

    def rows(self, value: int, blocks: int) -> list[tuple[int, int]]:
        """Return one row for each of the eight words, all in one region."""
        region = block_of(value, blocks)
        return [(region, 32 * word + bit) for word, bit in enumerate(bits_of(value))]

    def spread(self, layout: Layout) -> tuple[int, int]:
        """Return eight rows and one region."""
        return 8, 1

    def num_bytes(self, blocks: int, tail: int) -> int:
        """Return the bytes of blocks and tail."""
        return blocks * BLOCK_BYTES + tail

    def size(self, num_bytes: int) -> tuple[int, int]:
        """Return the number of whole blocks, and the remaining bytes."""
        blocks, tail = divmod(num_bytes, BLOCK_BYTES)
        if not 1 <= blocks <= MAX_BLOCKS:
            raise UsageError("a filter has an impossible size", found=f"{num_bytes} bytes")
        return blocks, tail

    def split(self, bitset: bytes) -> tuple[bytes, bytes]:
        """Split into whole blocks and the remaining bytes."""
        end = len(bitset) // BLOCK_BYTES * BLOCK_BYTES
        return bitset[:end], bitset[end:]

    def join(self, blocks: bytes, tail: bytes) -> bytes:
        """Concatenate blocks and tail."""
        return blocks + tail

    def filter_from(self, bitset: bytes) -> SplitBlockBloomFilter:
        """See :meth:`IndexRule.filter_from`."""
        return SplitBlockBloomFilter.from_bytes(bitset)


SPLIT_BLOCK = SplitBlockRule()


@dataclass(frozen=True)
class OrcRule(IndexRule):
    """The rule of ORC filters: ``k`` of ``bits`` bits are tested. Raises :class:`UsageError` for impossible numbers."""

    name = "orc-bloom"
    blob_type = ORC_BLOOM
    magic = ORC_BLOOM_MAGIC
    hash = "orc"
    index = "orc"
    page, region, row = PieceKind.ORC_PAGE, PieceKind.ORC_REGION, PieceKind.ORC_ROW
    rows_sealed_from = 32
    rows_encrypted_from = 64

    k: int
    bits: int

    def __post_init__(self) -> None:
        fits = WORD_BITS <= self.bits <= MAX_BITS and self.bits % WORD_BITS == 0
        if not (fits and 1 <= self.k <= MAX_HASHES):
            raise UsageError("an ORC filter has an impossible size", found=f"k {self.k}, {self.bits} bits")

    @staticmethod
    def parse_encoding(name: str) -> OrcEncoding:
        """Return how a value becomes a key."""
        return OrcEncoding.parse(name)

    @classmethod
    def decode(
        cls, content: dict[str, Any], members: int, sealing: PieceOverhead = CHECKED
    ) -> tuple[IndexRule, Layout]:
        """Read ``k`` and ``bits``."""
        bits = integer(content, "bits", WORD_BITS, MAX_BITS)
        if bits % WORD_BITS:
            raise DamagedFileError("an ORC filter's number of bits is not a multiple of 64", found=f"{bits} bits")
        rule = cls(integer(content, "k", 1, MAX_HASHES), bits)
        alone = cls.rows_alone_from(sealing)
        return rule, Layout(members, rule.blocks, rows_sealed_from=alone, sealing=sealing)

    def describe(self, layout: Layout) -> dict[str, Any]:
        """Return ``k`` and ``bits``."""
        return {"k": self.k, "bits": self.bits}

    @property
    def blocks(self) -> int:
        """Blocks of a filter. The last one is padded with zeros."""
        return -(-self.bits // BLOCK_BITS)

    def rows(self, value: int, blocks: int) -> list[tuple[int, int]]:
        """Return one row for each of k positions, anywhere in the filter."""
        return [divmod(position, BLOCK_BITS) for position in positions(value, self.k, self.bits)]

    def spread(self, layout: Layout) -> tuple[int, int]:
        """Return k rows, each in its own region."""
        return self.k, min(self.k, self.blocks)

    def num_bytes(self, blocks: int, tail: int) -> int:
        """Return the bytes without padding."""
        return self.bits // 8

    def size(self, num_bytes: int) -> tuple[int, int]:
        """Return the number of blocks. There are no odd bytes, because the last block is padded."""
        if num_bytes * 8 != self.bits:
            raise UsageError("an ORC filter has the wrong size", expected=self.bits // 8, found=num_bytes)
        return self.blocks, 0

    def split(self, bitset: bytes) -> tuple[bytes, bytes]:
        """Return the blocks, padded with zeros, and no odd bytes."""
        return bitset.ljust(self.blocks * BLOCK_BYTES, b"\0"), b""

    def join(self, blocks: bytes, tail: bytes) -> bytes:
        """Remove the padding."""
        return blocks[: self.bits // 8]

    def filter_from(self, bitset: bytes) -> OrcBloomFilter:
        """See :meth:`IndexRule.filter_from`."""
        return OrcBloomFilter.from_bytes(bitset, self.k)


def rule_of(found: AnyFilter) -> IndexRule:
    """The rule that chooses the bits of a hash in a filter."""
    return OrcRule(found.k, found.m) if isinstance(found, OrcBloomFilter) else SPLIT_BLOCK


RULES: tuple[type[IndexRule], ...] = (SplitBlockRule, OrcRule)
