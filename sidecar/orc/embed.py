"""An ORC file with other Bloom filters: every other stream copied as bytes, the footers written anew.

    header | stripe | stripe | ... | metadata | footer | postscript | its length
    stripe:  ROW_INDEX of column 0 | ROW_INDEX of column 1 | BLOOM_FILTER_UTF8 of column 1 | ... | data | footer

Filters must stand in the index region of their stripe, before its data, so nothing can be appended: all stripes
move. A column's filters are one stream behind its row index, a BloomFilterIndex in compression chunks with one
BloomFilter for each row group:

| message | fields |
| --- | --- |
| BloomFilterIndex | 1 bloomFilter (repeated) |
| BloomFilter | 1 numHashFunctions; 3 utf8bitset: the words, little-endian |

What changes beside the stripes' places:

| message | field | set to |
| --- | --- | --- |
| StripeFooter | 1 streams | the new streams, in the order of their bytes |
| StripeFooter | 2 columns: ColumnEncoding 3 bloomEncoding | 1 (UTF-8 and UTC) beside new filters, nothing beside none |
| Footer | 3 stripes: StripeInformation 1 offset, 2 indexLength, 4 footerLength | where things are now |
| Footer | 2 contentLength | as much more as the stripes grew |
| PostScript | 1 footerLength | its length |

Row index positions count from the start of their stream, so none changes. Statistics, metadata, types, versions and
fields that are not known stay. Padding between stripes is left out.
Specification: orc-v1.md, "Stripes", "Indexes", "File Tail".
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.orc_bloom import OrcBloomFilter
from sidecar.orc.compression import compress
from sidecar.orc.protobuf import Message, encode
from sidecar.orc.stripe import Stream, StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.source import Source
from sidecar.target import Target

ROW_INDEX, BLOOM_FILTER, BLOOM_FILTER_UTF8 = "ROW_INDEX", "BLOOM_FILTER", "BLOOM_FILTER_UTF8"
FILTER_KINDS = (BLOOM_FILTER, BLOOM_FILTER_UTF8)
_UTF8_NUMBER = 8
_UTF8_UTC = 1


@dataclass(frozen=True)
class StripeFilters:
    """The filters of one stripe in the new file; those of columns that are not named are left out.

    ``new``: streams as :func:`encode_filters` makes them, by column id. ``kept``: columns whose streams stay as they
    are, of both kinds. No column is in both.
    """

    new: Mapping[int, bytes] = field(default_factory=dict)
    kept: AbstractSet[int] = frozenset()


@dataclass(frozen=True)
class Embedded:
    """What was written, in bytes."""

    size: int
    filter_bytes: int
    footer_bytes: int


def check_embeddable(tail: OrcTail) -> None:
    """Raise :class:`UnsupportedFeatureError` for an encrypted file: its streams are listed elsewhere too."""
    if tail.encrypted:
        raise UnsupportedFeatureError("the file is encrypted (ORC column encryption)", file=tail.name)


def encode_filters(filters: Iterable[OrcBloomFilter], tail: OrcTail) -> bytes:
    """The BLOOM_FILTER_UTF8 stream of one column in one stripe, ``filters`` by row group."""
    index = Message()
    index.set_all(1, (_bloom_filter(one) for one in filters))
    return compress(encode(index), tail.compression, tail.block_size)


def _bloom_filter(one: OrcBloomFilter) -> Message:
    message = Message()
    message.set(1, one.k)
    message.set(3, one.to_bytes())
    return message


def embed(source: Source, tail: OrcTail, target: Target, filters: Iterable[StripeFilters]) -> Embedded:
    """Write the file ``source`` with ``filters``, one for each stripe in order, to the empty ``target``.

    ``filters`` is asked for a stripe when the ones before it are written: memory holds the filters of one stripe
    and the footers. Raises as :func:`check_embeddable`, and :class:`DamagedFileError` where the lengths of
    streams, stripes and footers contradict each other.
    """
    check_embeddable(tail)
    header = tail.footer.varint(1) or len(MAGIC)
    target.copy(source, 0, header)
    stripes: list[Message] = []
    filter_bytes = 0
    for stripe, old, given in zip(tail.stripes, tail.footer.messages(3), filters, strict=True):
        new = _write_stripe(source, tail, stripe, target, given)
        ...
