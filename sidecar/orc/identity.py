"""Whether two ORC files have the same data, as far as their tails tell, whatever filters stand in their stripes.

The fingerprint is of postscript, footer and metadata (types, stripes, sizes, statistics, user metadata, unknown fields)
without the places and lengths of what filters change: Footer 2 contentLength, StripeInformation 1 offset,
2 indexLength, 4 footerLength, and PostScript 1 footerLength. So embedding and stripping leave it as it was. It is XXH64
with seed 0, then with seed 1, of the three parts, each behind its length (8 bytes), both little-endian.

Files of the same sizes and without statistics have the same fingerprint whatever is in them: ask
:func:`is_distinctive` first. And tails of the same sizes and bounds do not prove that the values between are the same:
that the digest of the data does (:func:`data_digest`).
"""

from __future__ import annotations

import struct

import xxhash

from sidecar.orc.protobuf import Message, decode, encode
from sidecar.orc.tail import OrcTail, read_stripe_statistics
from sidecar.source import Source, digest_ranges

_CONTENT_LENGTH, _STRIPES = 2, 3
_STRIPE_PLACES = {1, 2, 4}
_FOOTER_LENGTH = 1
_WITH_BOUNDS = (2, 3, 4, 6, 7, 9)
"""ColumnStatistics: integers, doubles, texts, decimals, dates, timestamps."""


def data_fingerprint(source: Source, tail: OrcTail) -> bytes:
    """16 bytes that files with the same tail, places aside, have in common. No read where the tail's own had it all."""
    footer = _without(tail.footer, {_CONTENT_LENGTH})
    footer.set_all(_STRIPES, (_without(one, _STRIPE_PLACES) for one in tail.footer.messages(_STRIPES)))
    start = tail.metadata_offset - (tail.size - len(tail.read_bytes))
    if start >= 0:
        metadata = tail.read_bytes[start : start + tail.metadata_length]
    else:
        metadata = source.read(tail.metadata_offset, tail.metadata_length)
    parts = (encode(_without(tail.postscript, {_FOOTER_LENGTH})), encode(footer), metadata)
    data = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return struct.pack("<QQ", xxhash.xxh64_intdigest(data, 0), xxhash.xxh64_intdigest(data, 1))


def data_digest(source: Source, tail: OrcTail) -> bytes:
    """SHA-256 of the stripes' data as it is stored, without indexes and footers: see :func:`digest_ranges`."""
    return digest_ranges(source, [(one.offset + one.index_length, one.data_length) for one in tail.stripes])


def is_distinctive(source: Source, tail: OrcTail) -> bool:
    """Whether the tail says something of the values: bounds of some column in every stripe with rows.

    Raises :class:`sidecar.errors.DamagedFileError` for statistics that cannot be read.
    """
    statistics = read_stripe_statistics(source, tail)
    if len(statistics) != len(tail.stripes):
        return False
    return all(
        any(_has_bounds(decode(column)) for column in statistics.columns(stripe.ordinal))
        for stripe in tail.stripes
        if stripe.num_rows
    )


def _has_bounds(column: Message) -> bool:
    found = (column.message(field) for field in _WITH_BOUNDS)
    return any(one is not None and (one.has(1) or one.has(2)) for one in found)


def _without(message: Message, numbers: set[int]) -> Message:
    return Message([field for field in message.fields if field[0] not in numbers])
