"""Writes an ORC file with new Bloom filters: copies every other stream as it is, and writes new footers.

    header | stripe | stripe | ... | metadata | footer | postscript | its length
    stripe:  ROW_INDEX of column 0 | ROW_INDEX of column 1 | BLOOM_FILTER_UTF8 of column 1 | ... | data | footer

Filters must be in the index region of their stripe, before its data. So they cannot be appended to the file: all
stripes move. The filters of a column are one stream after its row index, a BloomFilterIndex in compression chunks with
one BloomFilter for each row group:

| message | fields |
| --- | --- |
| BloomFilterIndex | 1 bloomFilter (repeated) |
| BloomFilter | 1 numHashFunctions; 3 utf8bitset: the words, little-endian |

These fields change:

| message | field | set to |
| --- | --- | --- |
| StripeFooter | 1 streams | the new streams, in the order of their bytes |
| StripeFooter | 2 columns: ColumnEncoding 3 bloomEncoding | 1 (UTF-8 and UTC) with new filters, else absent |
| Footer | 3 stripes: StripeInformation 1 offset, 2 indexLength, 4 footerLength | the new places and lengths |
| Footer | 5 metadata | the columns whose filters are new, see :mod:`sidecar.orc.filter_mark` |
| Footer | 2 contentLength | the old one plus the growth of the stripes |
| PostScript | 1 footerLength | the length of the new footer |

Positions of row indexes count from the start of their stream, so they do not change. Statistics, metadata, types,
versions and unknown fields stay. Bytes between stripes (padding, footers of an earlier flush) are left out.
Specification: orc-v1.md, "Stripes", "Indexes", "File Tail".
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.orc.compression import CPP_ZSTD_LEVEL, JAVA_ZSTD_LEVEL, compress, compress_parts
from sidecar.orc.filter_mark import mark
from sidecar.orc.protobuf import VARINT, Message, bytes_header, encode
from sidecar.orc.stripe import INDEX_STREAMS, STREAMS, Stream, StripeFooter, read_stripe_footer
from sidecar.orc.tail import CPP, MAGIC, OrcTail, Stripe
from sidecar.storage.local import check_unchanged
from sidecar.storage.source import Source
from sidecar.storage.target import Target

FILTER_STREAMS = frozenset({"BLOOM_FILTER", "BLOOM_FILTER_UTF8"})
_UTF8_UTC = 1
_LONGEST_POSTSCRIPT = 255


@dataclass(frozen=True)
class StripeFilters:
    """The filters of one stripe in the new file; a column that is not named here has none.

    ``new`` maps column ids to joined streams of :func:`encode_filters`. ``kept`` has the ids of columns whose filter
    streams, of both kinds, are copied. No column is in both. ``without_legacy`` has those of ``kept`` that lose their
    BLOOM_FILTER.
    """

    new: Mapping[int, bytes] = field(default_factory=dict)
    kept: AbstractSet[int] = frozenset()
    without_legacy: AbstractSet[int] = frozenset()

    def keeps(self, stream: Stream) -> bool:
        """Return whether a filter stream of the old file is copied."""
        is_legacy = stream.kind == "BLOOM_FILTER"
        return stream.column in self.kept and not (is_legacy and stream.column in self.without_legacy)


@dataclass(frozen=True)
class WrittenOrc:
    """The sizes of a written file, its filters and its footer, in bytes."""

    size: int
    """The size of the file."""
    filter_bytes: int
    """The bytes of its filters."""
    footer_bytes: int
    """The bytes of its footer."""
    page_index_bytes: ClassVar[int] = 0
    """An ORC file has no page indexes."""
    dead_bytes: ClassVar[int] = 0
    """Streams are written anew: no old filter stays."""


def check_embeddable(tail: OrcTail) -> None:
    """Raise :class:`UnsupportedFeatureError` for an encrypted file, whose streams are listed in a second place too."""
    if tail.encrypted:
        raise UnsupportedFeatureError("the file is encrypted (ORC column encryption)", file=tail.name)


def encode_filters(filters: Sequence[OrcBloomFilter], tail: OrcTail) -> list[bytes | memoryview]:
    """Return the BLOOM_FILTER_UTF8 stream of a column in a stripe; ``filters`` has one filter for each row group.

    The stream is in parts, of which some are in the memory of the filters.
    """
    parts: list[bytes | memoryview] = []
    for bloom in filters:
        parts += (_filter_header(bloom.k, bloom.num_bytes), bloom.stored_words())
    level = CPP_ZSTD_LEVEL if tail.writer == CPP else JAVA_ZSTD_LEVEL
    return compress_parts(parts, tail.compression, tail.block_size, zstd_level=level)


@lru_cache(16)
def _filter_header(k: int, length: int) -> bytes:
    """Return what is before the words of a BloomFilter in a BloomFilterIndex; ``length`` is that of the words."""
    header = encode(Message([(1, VARINT, k)])) + bytes_header(3, length)
    return bytes_header(1, len(header) + length) + header


def embed(source: Source, tail: OrcTail, target: Target, filters: Iterable[StripeFilters]) -> WrittenOrc:
    """Write the file ``source`` with ``filters``, one entry for each stripe in order, to the empty ``target``.

    ``filters`` is consumed stripe by stripe, so memory holds the filters of one stripe and the footers. Raises as
    :func:`check_embeddable`, :class:`DamagedFileError` if the lengths of streams, stripes and footers contradict each
    other, and :class:`sidecar.errors.StorageError` if the source file changed in the meantime.
    """
    check_embeddable(tail)
    target.copy(source, 0, _header_length(tail))
    places: list[_StripePlace] = []
    ours: set[int] = set()
    for stripe, given in zip(tail.stripes, filters, strict=True):
        ours |= given.new.keys() | given.kept & tail.columns_with_our_filters
        places.append(_write_stripe(source, tail, stripe, target, given))
    grown = target.position - tail.metadata_offset
    target.copy(source, tail.metadata_offset, tail.footer_offset - tail.metadata_offset)
    footer = compress(encode(_footer(tail, places, grown, ours)), tail.compression, tail.block_size)
    postscript = copy.deepcopy(tail.postscript)
    postscript.set(1, len(footer))
    last = encode(postscript)
    if len(last) > _LONGEST_POSTSCRIPT:
        raise UnsupportedFeatureError(
            "the postscript is too long",
            file=tail.name,
            expected=f"at most {_LONGEST_POSTSCRIPT} bytes",
            found=len(last),
        )
    target.write(b"".join((footer, last, bytes([len(last)]))))
    check_unchanged(source)  # otherwise the filters may be those of other values than the copied ones
    return WrittenOrc(target.position, sum(place.filter_bytes for place in places), len(footer))


def _header_length(tail: OrcTail) -> int:
    """Return the length in bytes of the header: that of the magic in all known files."""
    length = tail.footer.varint(1) or len(MAGIC)
    first = min((stripe.offset for stripe in tail.stripes), default=tail.metadata_offset)
    if length > first:
        raise DamagedFileError(
            "the header overlaps the first stripe",
            file=tail.name,
            expected=f"at most {first} bytes",
            found=length,
        )
    return length


@dataclass(frozen=True)
class _StripePlace:
    """The place and the lengths, in bytes, of a stripe in the new file."""

    offset: int
    index_length: int
    footer_length: int
    filter_bytes: int


def _footer(tail: OrcTail, places: Sequence[_StripePlace], grown: int, ours: Collection[int]) -> Message:
    footer = copy.deepcopy(tail.footer)
    stripes = footer.messages(3)
    for stripe, place in zip(stripes, places, strict=True):
        stripe.set(1, place.offset)
        stripe.set(2, place.index_length)
        stripe.set(4, place.footer_length)
    footer.set_all(3, stripes)
    footer.set(2, footer.varint(2) + grown)
    mark(footer, ours)
    return footer


def _write_stripe(source: Source, tail: OrcTail, stripe: Stripe, target: Target, given: StripeFilters) -> _StripePlace:
    footer = read_stripe_footer(source, tail, stripe)
    _check_lengths(tail, stripe, footer)
    start = target.position
    copied = _Run(source, target)
    listed: list[Message] = []
    filter_bytes = dropped = 0
    for stream, message in zip(footer.streams, footer.raw.messages(1), strict=True):
        if stream.kind in FILTER_STREAMS and not given.keeps(stream):
            dropped += stream.length
            continue
        copied.add(stream)
        listed.append(message)
        if stream.kind in FILTER_STREAMS:
            filter_bytes += stream.length
        if stream.kind == "ROW_INDEX" and stream.column in given.new:
            # Readers expect the filter of a column directly behind its row index.
            copied.flush()
            target.write(given.new[stream.column])
            listed.append(_stream(stream.column, len(given.new[stream.column])))
    copied.flush()
    # New filters are written behind row indexes. If a column has none, its filters are missing in the length.
    added = sum(len(data) for data in given.new.values())
    if target.position - start != stripe.index_length + stripe.data_length - dropped + added:
        raise UnsupportedFeatureError(
            f"a column that gets filters has no row index in stripe {stripe.ordinal}",
            file=tail.name,
        )
    data = compress(encode(_stripe_footer(footer, listed, given)), tail.compression, tail.block_size)
    target.write(data)
    return _StripePlace(start, stripe.index_length - dropped + added, len(data), filter_bytes + added)


class _Run:
    """A run of neighbouring streams that is copied as one range."""

    def __init__(self, source: Source, target: Target) -> None:
        self._source = source
        self._target = target
        self._start = self._end = 0

    def add(self, stream: Stream) -> None:
        if stream.offset != self._end:
            self.flush()
            self._start = stream.offset
        self._end = stream.offset + stream.length

    def flush(self) -> None:
        self._target.copy(self._source, self._start, self._end - self._start)
        self._start = self._end


def _stream(column: int, length: int) -> Message:
    message = Message()
    for number, value in ((1, STREAMS.index("BLOOM_FILTER_UTF8")), (2, column), (3, length)):
        message.set(number, value)
    return message


def _stripe_footer(footer: StripeFooter, streams: Sequence[Message], given: StripeFilters) -> Message:
    new = copy.deepcopy(footer.raw)
    new.set_all(1, streams)
    encodings = new.messages(2)
    for column, encoding in enumerate(encodings):
        if column in given.new:
            encoding.set(3, _UTF8_UTC)
        elif column not in given.kept:
            encoding.set(3, None)
    new.set_all(2, encodings)
    return new


def _check_lengths(tail: OrcTail, stripe: Stripe, footer: StripeFooter) -> None:
    """Raise :class:`DamagedFileError` unless streams fill index and data of the stripe: bytes between would be lost."""
    index = sum(stream.length for stream in footer.streams if stream.kind in INDEX_STREAMS)
    data = sum(stream.length for stream in footer.streams) - index
    if (index, data) != (stripe.index_length, stripe.data_length):
        raise DamagedFileError(
            f"the streams of stripe {stripe.ordinal} do not fill its index and data",
            file=tail.name,
            offset=stripe.offset,
            expected=f"{stripe.index_length} and {stripe.data_length} bytes",
            found=f"{index} and {data}",
        )
