"""The byte layout of a group: arithmetic over (members N, blocks z, tail bytes t). Nothing of it is stored.

A group's bytes are, in this order:

    body    sliced (N >= 64): z regions; region i holds block i of all members as 256 bit rows of
            ceil(N / 8) bytes; row w * 32 + b holds bit b of word w of the block, and member u of the group is
            bit u & 7 of byte u >> 3. Padding bits are 0. Rows of 256 bytes or more (ORC filters: 32) are each
            followed by their own checksum; otherwise one checksum follows the region.
            transposed (N < 64): pages of max(1, 4096 // (32 N)) regions, the last one shorter; region i is
            block i of all members, 32 bytes each, concatenated. A checksum follows each page.
    tail    only if t > 0: the t bytes after the last whole block of each member's filter, then a checksum
    own     only if some member was widened: u32 number of blocks of each member's own filter, then a checksum

All offsets are in bytes from the group's start. In encrypted blobs, a nonce of 12 bytes precedes each piece and a
tag of 16 bytes follows it, instead of the checksum; ``sealing`` has these two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.bundle.envelopes.checksum import CHECKED, PieceOverhead

BLOCK_BYTES = 32
BLOCK_BITS = 256
SLICED_FROM = 64
"""Groups with fewer members are transposed by block, because a bit row would be mostly padding."""
ROW_SEALED_FROM = 256
"""Rows of at least this many bytes have their own checksum, so that a single row can be read and verified."""
PAGE_BYTES = 4096
MAX_BLOCKS = 1 << 22
"""128 MiB: the largest split-block filter that Parquet readers accept."""

SLICED = "sliced"
TRANSPOSED = "transposed"


@dataclass(frozen=True)
class Layout:
    """The layout of a group of ``members`` filters of ``blocks`` blocks and ``tail`` odd bytes.

    A bit row of at least ``rows_sealed_from`` bytes has its own checksum; the index rule decides the number.
    """

    members: int
    blocks: int
    tail: int = 0
    widened: bool = False
    rows_sealed_from: int = ROW_SEALED_FROM
    sealing: PieceOverhead = CHECKED

    @property
    def name(self) -> str:
        """``sliced`` or ``transposed``."""
        return SLICED if self.members >= SLICED_FROM else TRANSPOSED

    @property
    def sliced(self) -> bool:
        """Whether the body is sliced by bit."""
        return self.members >= SLICED_FROM

    @property
    def row_bytes(self) -> int:
        """Bytes of a bit row without checksum (sliced only)."""
        return (self.members + 7) // 8

    @property
    def rows_sealed(self) -> bool:
        """Whether each row has its own checksum (sliced only)."""
        return self.row_bytes >= self.rows_sealed_from

    @property
    def row_stride(self) -> int:
        """Bytes from one row to the next (sliced only)."""
        return self.row_bytes + self.sealing.overhead if self.rows_sealed else self.row_bytes

    @property
    def region_stride(self) -> int:
        """Bytes of a region with its checksums (sliced only)."""
        rows = BLOCK_BITS * self.row_stride
        return rows if self.rows_sealed else rows + self.sealing.overhead

    @property
    def page_regions(self) -> int:
        """Regions in a page, the step in which blocks must be passed (1 if sliced)."""
        return 1 if self.sliced else max(1, PAGE_BYTES // (BLOCK_BYTES * self.members))

    @property
    def pages(self) -> int:
        """Number of pages (regions if sliced)."""
        return -(-self.blocks // self.page_regions)

    def page_length(self, page: int) -> int:
        """Return the bytes of a page (region if sliced) with its checksums."""
        if self.sliced:
            return self.region_stride
        regions = min(self.page_regions, self.blocks - page * self.page_regions)
        return regions * self.members * BLOCK_BYTES + self.sealing.overhead

    def page_offset(self, page: int) -> int:
        """Return the offset of a page (region if sliced)."""
        if self.sliced:
            return page * self.region_stride
        return page * (self.page_regions * self.members * BLOCK_BYTES + self.sealing.overhead)

    def row_offset(self, region: int, row: int) -> int:
        """Return the offset of a bit row (sliced only)."""
        return region * self.region_stride + row * self.row_stride

    def body_bytes(self, first_block: int, count: int) -> int:
        """Return the bytes of the pages with ``count`` blocks from ``first_block``, a multiple of ``page_regions``."""
        first = first_block // self.page_regions
        last = -(-(first_block + count) // self.page_regions)
        end = self.page_offset(last - 1) + self.page_length(last - 1) if last > first else self.page_offset(first)
        return end - self.page_offset(first)

    @property
    def body_length(self) -> int:
        """Bytes of all pages."""
        return self.body_bytes(0, self.blocks)

    @property
    def tail_offset(self) -> int:
        """Offset of the tail piece."""
        return self.body_length

    @property
    def tail_length(self) -> int:
        """Bytes of the tail piece with its checksum; 0 if there is none."""
        return self.members * self.tail + self.sealing.overhead if self.tail else 0

    @property
    def own_offset(self) -> int:
        """Offset of the piece with the members' own numbers of blocks."""
        return self.tail_offset + self.tail_length

    @property
    def own_length(self) -> int:
        """Bytes of the piece with the members' own numbers of blocks, with its checksum; 0 if no member was widened."""
        return self.members * 4 + self.sealing.overhead if self.widened else 0

    @property
    def length(self) -> int:
        """Bytes of the whole group."""
        return self.own_offset + self.own_length
