"""Index rules: which bits of a filter a hash tests, and what tells bundles of one kind of filter from the other.

A filter of either kind is cut into blocks of 256 bits. Bit p of its bytes (bit p & 7 of byte p >> 3) is row p % 256
of region p // 256, and a value that a filter holds has set every bit that its hash tests. So one layout, one way to
slice, to verify and to AND serves both; a rule says the rest:

    "parquet"  split-block filters of z blocks: block ((h >> 32) * z) >> 32 and one bit in each of its eight words,
               so the eight rows of a lookup stand in one region. Odd bytes after the last block are carried apart.
    "orc"      ORC filters of m bits, of which k are tested: h1 = int32(h), h2 = int32(h >>> 32), and for i = 1..k
               c = int32(h1 + i * h2), bit (c < 0 ? ~c : c) % m. They stand in up to k regions, so rows carry
               checksums of their own from 32 bytes on. The last of ceil(m / 256) blocks is filled up with zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from sidecar.bundle.checksum import CHECKED, PieceKind, PieceOverhead
from sidecar.bundle.envelope import ORC_BLOOM_MAGIC, SBBF_MAGIC, integer, member
from sidecar.bundle.layout import BLOCK_BITS, BLOCK_BYTES, MAX_BLOCKS, ROW_SEALED_FROM, Layout
from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc_bloom import MAX_HASHES, OrcBloomFilter, positions
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.probes import AnyEncoding
from sidecar.filters.sbbf import SplitBlockBloomFilter, bits_of, block_of
from sidecar.puffin.types import ORC_BLOOM, SBBF

AnyFilter = SplitBlockBloomFilter | OrcBloomFilter

WORD_BITS = 64
"""The bits of an ORC filter are a multiple of this."""
MAX_BITS = MAX_BLOCKS * BLOCK_BITS


@dataclass(frozen=True)
class IndexRule(ABC):
    """How a hash becomes bits in the filters of one group; the class says what its bundles are.

    ``name`` is a bundle's ``kind`` in its table of contents; ``hash`` and ``index`` stand in its groups. ``page``,
    ``region`` and ``row`` are what checksums call the pieces, so that one of another kind of bundle never fits; rows
    of ``rows_sealed_from`` bytes have one each (encrypted: ``rows_encrypted_from``, as a module costs 28 bytes).
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
        """Bytes from which a bit row is a piece of its own."""
        return cls.rows_sealed_from if sealing == CHECKED else cls.rows_encrypted_from

    @staticmethod
    @abstractmethod
    def parse_encoding(name: str) -> AnyEncoding:
        """The encoding of a name; :class:`UnsupportedFeatureError` for one that is not registered."""

    @classmethod
    @abstractmethod
    def decode(
        cls, content: dict[str, Any], members: int, sealing: PieceOverhead = CHECKED
    ) -> tuple[IndexRule, Layout]:
        """Rule and layout of so many members, from a group's description. Raises :class:`DamagedFileError`."""

    @abstractmethod
    def describe(self, layout: Layout) -> dict[str, Any]:
        """Inverse of :meth:`decode`: the size of a group's filters as its description has it."""

    @abstractmethod
    def rows(self, value: int, blocks: int) -> list[tuple[int, int]]:
        """(region, row in it) of each bit that a hash tests in filters of ``blocks`` blocks."""

    @abstractmethod
    def spread(self, layout: Layout) -> tuple[int, int]:
        """How many rows a hash tests, and in how many regions they stand, at most."""

    @abstractmethod
    def num_bytes(self, layout: Layout) -> int:
        """Bytes of a filter that is not widened."""

    @abstractmethod
    def size(self, num_bytes: int) -> tuple[int, int]:
        """(blocks, odd bytes behind them) of a filter of so many bytes. Raises :class:`UsageError` if impossible."""

    @abstractmethod
    def split(self, bitset: bytes) -> tuple[bytes, bytes]:
        """(whole blocks, odd bytes behind them) of a filter: what is sliced, and what is carried apart."""

    @abstractmethod
    def join(self, blocks: bytes, tail: bytes) -> bytes:
        """Inverse of :meth:`split`: the filter, bit for bit."""

    @abstractmethod
    def filter_from(self, bitset: bytes) -> AnyFilter:
        """The filter that is all of ``bitset``."""


@dataclass(frozen=True)
class SplitBlockRule(IndexRule):
    """Parquet split-block filters."""

    name = "sbbf"
    blob_type = SBBF
    magic = SBBF_MAGIC
    hash = "xxh64"
    index = "parquet"
    page, region, row = PieceKind.PAGE, PieceKind.REGION, PieceKind.ROW
    rows_sealed_from = rows_encrypted_from = ROW_SEALED_FROM

    @staticmethod
    def parse_encoding(name: str) -> Encoding:
        """How a value becomes PLAIN bytes."""
        return Encoding.parse(name)

    @classmethod
    def decode(
        cls, content: dict[str, Any], members: int, sealing: PieceOverhead = CHECKED
    ) -> tuple[IndexRule, Layout]:
        """``blocks``, ``tail``, ``widened``."""
        blocks = integer(content, "blocks", 1, MAX_BLOCKS)
        tail = integer(content, "tail", 0, BLOCK_BYTES - 1)
        widened, alone = member(content, "widened", bool), cls.rows_alone_from(sealing)
        return SPLIT_BLOCK, Layout(members, blocks, tail, widened, alone, sealing)

    def describe(self, layout: Layout) -> dict[str, Any]:
        """``blocks``, ``tail``, ``widened``."""
        return {"blocks": layout.blocks, "tail": layout.tail, "widened": layout.widened}

    def rows(self, value: int, blocks: int) -> list[tuple[int, int]]:
        """One row for each word, all in one region."""
        region = block_of(value, blocks)
        return [(region, 32 * word + bit) for word, bit in enumerate(bits_of(value))]

    def spread(self, layout: Layout) -> tuple[int, int]:
        """Eight rows, one region."""
        return 8, 1

    def num_bytes(self, layout: Layout) -> int:
        """Blocks and odd bytes."""
        return layout.blocks * BLOCK_BYTES + layout.tail

    def size(self, num_bytes: int) -> tuple[int, int]:
        """Whole blocks, and what is left."""
        blocks, tail = divmod(num_bytes, BLOCK_BYTES)
        if not 1 <= blocks <= MAX_BLOCKS:
            raise UsageError("a filter has an impossible size", found=f"{num_bytes} bytes")
        return blocks, tail

    def split(self, bitset: bytes) -> tuple[bytes, bytes]:
        """Whole blocks, and what is left."""
        end = len(bitset) // BLOCK_BYTES * BLOCK_BYTES
        return bitset[:end], bitset[end:]

    def join(self, blocks: bytes, tail: bytes) -> bytes:
        """One behind the other."""
        return blocks + tail

    def filter_from(self, bitset: bytes) -> SplitBlockBloomFilter:
        """See :meth:`IndexRule.filter_from`."""
        return SplitBlockBloomFilter.from_bytes(bitset)


SPLIT_BLOCK = SplitBlockRule()


@dataclass(frozen=True)
class OrcRule(IndexRule):
    """ORC filters of ``bits`` bits that test ``k`` of them. Raises :class:`UsageError` for impossible numbers."""

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
        """How a value becomes a key."""
        return OrcEncoding.parse(name)

    @classmethod
    def decode(
        cls, content: dict[str, Any], members: int, sealing: PieceOverhead = CHECKED
    ) -> tuple[IndexRule, Layout]:
        """``k``, ``bits``."""
        bits = integer(content, "bits", WORD_BITS, MAX_BITS)
        if bits % WORD_BITS:
            raise DamagedFileError("an ORC filter of no whole number of words", found=f"{bits} bits")
        rule = cls(integer(content, "k", 1, MAX_HASHES), bits)
        alone = cls.rows_alone_from(sealing)
        return rule, Layout(members, rule.blocks, rows_sealed_from=alone, sealing=sealing)

    def describe(self, layout: Layout) -> dict[str, Any]:
        """``k``, ``bits``."""
        return {"k": self.k, "bits": self.bits}

    @property
    def blocks(self) -> int:
        """Blocks of a filter, the last one filled up with zeros."""
        return -(-self.bits // BLOCK_BITS)

    def rows(self, value: int, blocks: int) -> list[tuple[int, int]]:
        """One row for each of k positions, anywhere."""
        return [divmod(position, BLOCK_BITS) for position in positions(value, self.k, self.bits)]

    def spread(self, layout: Layout) -> tuple[int, int]:
        """k rows, each in a region of its own."""
        return self.k, min(self.k, self.blocks)

    def num_bytes(self, layout: Layout) -> int:
        """Those that a file has."""
        return self.bits // 8

    def size(self, num_bytes: int) -> tuple[int, int]:
        """Blocks alone: the last one is filled up."""
        if num_bytes * 8 != self.bits:
            raise UsageError("an ORC filter has another size", expected=self.bits // 8, found=num_bytes)
        return self.blocks, 0

    def split(self, bitset: bytes) -> tuple[bytes, bytes]:
        """Blocks alone, filled up with zeros."""
        return bitset.ljust(self.blocks * BLOCK_BYTES, b"\0"), b""

    def join(self, blocks: bytes, tail: bytes) -> bytes:
        """As many bytes as a file has."""
        return blocks[: self.bits // 8]

    def filter_from(self, bitset: bytes) -> OrcBloomFilter:
        """See :meth:`IndexRule.filter_from`."""
        return OrcBloomFilter.from_bytes(bitset, self.k)


def rule_of(found: AnyFilter) -> IndexRule:
    """By which rule a filter's bits are chosen."""
    return OrcRule(found.k, found.m) if isinstance(found, OrcBloomFilter) else SPLIT_BLOCK


RULES: tuple[type[IndexRule], ...] = (SplitBlockRule, OrcRule)
