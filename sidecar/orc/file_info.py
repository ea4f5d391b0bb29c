"""The typed results of ``inspect`` for an ORC file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sidecar.errors import Problem
from sidecar.orc.statistics.column_statistics import Bound
from sidecar.results.base import Result


@dataclass(frozen=True, repr=False, slots=True)
class OrcStreamInfo(Result):
    """A stream of a stripe."""

    omitted_if_none = ("encrypted",)

    kind: str
    """The kind of the stream, such as ``ROW_INDEX``."""
    column: str
    """The dotted path of the column."""
    offset: int
    """The offset in bytes from the start of the file."""
    length: int
    """The length in bytes."""
    encrypted: Literal[True] | None = None
    """``True`` for a stream of an encrypted column, else ``None``."""


@dataclass(frozen=True, repr=False, slots=True)
class OrcStripeInfo(Result):
    """A stripe with its streams. Offsets and lengths are in bytes."""

    stripe: int
    """The number of the stripe in the file."""
    offset: int
    """The offset of the stripe from the start of the file."""
    rows: int
    """The number of rows."""
    row_groups: int
    """The number of row groups."""
    index_length: int
    """The length of the row indexes and filters."""
    data_length: int
    """The length of the data."""
    footer_length: int
    """The length of the stripe's footer."""
    writer_timezone: str | None
    """The time zone of the writer, if the footer says it."""
    streams: list[OrcStreamInfo]
    """The streams; empty if the footer cannot be read."""
    problem: str
    """Why the stripe cannot be read; empty if it can."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class OrcRowIndexInfo(Result):
    """The entry of one column and row group in the row index. All values are ``None`` if it cannot be read."""

    offset: int
    """The offset in bytes of the stream, which all row groups of the stripe share."""
    length: int
    """The length of the stream in bytes."""
    positions: dict[str, tuple[int, ...]] | None = None
    """Where the row group begins in each stream of the column."""
    values: int | None = None
    """The number of values that are not null."""
    has_null: bool | None = None
    """Whether there are nulls."""
    min: Bound | None = None
    """The smallest value; dates and times are text."""
    max: Bound | None = None
    """The largest value; dates and times are text."""
    reason: str
    """Why bounds are missing; empty if they are not."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class OrcFilterInfo(Result):
    """The Bloom filter of one column and row group. ``None`` stands for what cannot be read."""

    stream: str
    """The kind of its stream: ``BLOOM_FILTER`` or ``BLOOM_FILTER_UTF8``."""
    offset: int
    """The offset in bytes of the stream, which all row groups of the stripe share."""
    length: int
    """The length of the stream in bytes."""
    bytes: int | None = None
    """The length of the bitset in bytes."""
    hash: Literal["orc"] | None = None
    """The hash function."""
    encoding: str | None = None
    """The encoding of the keys that it hashes, if it is known."""
    k: int | None = None
    """The number of hash functions."""
    m: int | None = None
    """The number of bits."""
    fill: float | None = None
    """The share of the bits that are set."""
    estimated_fpp: float | None = None
    """The false-positive rate that the bits show."""
    trusted: bool
    """Whether readers may believe the filter."""
    reason: str
    """Why the filter is not trusted; empty if it is."""
    sha256: str | None = None
    """The SHA-256 of the bitset as hexadecimal digits."""


@dataclass(frozen=True, repr=False, slots=True)
class OrcColumnInfo(Result):
    """The indexes of one column in one row group; ``None`` for each one that is absent."""

    row_index: OrcRowIndexInfo | None
    """The positions and statistics."""
    bloom_filter: OrcFilterInfo | None
    """The filter that readers use."""
    legacy_bloom_filter: OrcFilterInfo | None
    """The filter of the stream ``BLOOM_FILTER``, if there is one in UTF-8 too."""


@dataclass(frozen=True, repr=False, slots=True)
class OrcRowGroupInfo(Result):
    """The indexes of one row group."""

    stripe: int
    """The number of the stripe in the file."""
    row_group: int
    """The number of the row group in its stripe."""
    first_row: int
    """The number of its first row in the file."""
    rows: int
    """The number of rows."""
    columns: dict[str, OrcColumnInfo]
    """The indexes of each column by its dotted path."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class OrcFileInfo(Result):
    """The row indexes and Bloom filters of an ORC file."""

    file: str
    """The path of the file."""
    format: Literal["orc"] = "orc"
    """The format of the file."""
    size: int
    """The size of the file in bytes."""
    created_by: str
    """The program that wrote the file."""
    rows: int
    """The number of rows."""
    file_version: str
    """The version of the format."""
    compression: str
    """The codec."""
    block_size: int
    """The length in bytes of a block that is compressed."""
    row_index_stride: int
    """The rows of a row group."""
    calendar: str
    """The calendar of dates and times."""
    encrypted: bool
    """Whether columns of the file are encrypted."""
    encrypted_columns: list[str]
    """The dotted paths of encrypted columns."""
    stripes: list[OrcStripeInfo]
    """The stripes with their streams."""
    units: list[OrcRowGroupInfo]
    """The row groups with their indexes."""
    not_believed: list[Problem]
    """False statements of the file, with evidence; see :mod:`sidecar.orc.statistics.contradictions`."""
