"""Computes fingerprints that tell whether two ORC files have the same data, with or without filters.

The fingerprint covers postscript, footer and metadata (types, stripes, sizes, statistics, user metadata, unknown
fields) without what filters change: Footer 2 contentLength, StripeInformation 1 offset, 2 indexLength, 4 footerLength,
PostScript 1 footerLength, and the mark of embedded filters in the user metadata. So embedding and stripping filters do
not change it. It is XXH64 with seed 0, then with seed 1, of the three parts, each after its length (8 bytes); all
numbers are little-endian.

Files of the same sizes without statistics have the same fingerprint for any data: call :func:`is_distinctive` first.
Tails with the same sizes and bounds do not prove that the values are the same; :func:`data_digest` does.
"""

from __future__ import annotations

import struct

import xxhash

from sidecar.orc.filter_mark import mark
from sidecar.orc.protobuf import Message, decode, encode
from sidecar.orc.tail import OrcTail, read_stripe_statistics
from sidecar.storage.ranges import digest_ranges
from sidecar.storage.source import Source

_CONTENT_LENGTH, _STRIPES = 2, 3
_STRIPE_PLACES = {1, 2, 4}
_FOOTER_LENGTH = 1
_WITH_BOUNDS = (2, 3, 4, 6, 7, 9)
"""Fields of ColumnStatistics with bounds: integers, doubles, texts, decimals, dates, timestamps."""


def data_fingerprint(source: Source, tail: OrcTail) -> bytes:
    """Return the 16-byte fingerprint of a file. Reads the metadata only if the read of the tail did not have it."""
    footer = _without(tail.footer, {_CONTENT_LENGTH})
    footer.set_all(_STRIPES, (_without(stripe, _STRIPE_PLACES) for stripe in tail.footer.messages(_STRIPES)))
    mark(footer, ())
    start = tail.metadata_offset - (tail.size - len(tail.read_bytes))
    if start >= 0:
        metadata = tail.read_bytes[start : start + tail.metadata_length]
    else:
        metadata = source.read(tail.metadata_offset, tail.metadata_length)
    parts = (encode(_without(tail.postscript, {_FOOTER_LENGTH})), encode(footer), metadata)
    data = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return struct.pack("<QQ", xxhash.xxh64_intdigest(data, 0), xxhash.xxh64_intdigest(data, 1))


def data_digest(source: Source, tail: OrcTail) -> bytes:
    """Return the SHA-256 of the stored data of all stripes, without indexes and footers: see :func:`digest_ranges`."""
    return digest_ranges(source, [(stripe.offset + stripe.index_length, stripe.data_length) for stripe in tail.stripes])


def is_distinctive(source: Source, tail: OrcTail) -> bool:
    """Return whether the tail has bounds of some column in every stripe with rows.

    Raises :class:`sidecar.errors.DamagedFileError` if the statistics cannot be read.
    """
    statistics = read_stripe_statistics(source, tail)
    if len(statistics) != len(tail.stripes):
        return False
    return all(
        any(_has_bounds(decode(column)) for column in decode(statistics[stripe.ordinal]).all_bytes(1))
        for stripe in tail.stripes
        if stripe.num_rows
    )


def _has_bounds(column: Message) -> bool:
    found = (column.message(field) for field in _WITH_BOUNDS)
    return any(bounds is not None and (bounds.has(1) or bounds.has(2)) for bounds in found)


def _without(message: Message, numbers: set[int]) -> Message:
    return Message([field for field in message.fields if field[0] not in numbers])
