"""Reads stripe footers: which streams a stripe has, where they are, and how each column is encoded.

A stripe has its index streams, then its data streams, then its StripeFooter. The footer lists the streams in the order
of the file with their lengths only: a stream starts where the one before it ends.

| StripeFooter | |
| --- | --- |
| 1 | streams: 1 kind, 2 column, 3 length |
| 2 | one ColumnEncoding for each column: 1 kind, 2 dictionarySize, 3 bloomEncoding |
| 3 | writerTimezone |
| 4 | one StripeEncryptionVariant for each variant: 1 streams, 2 encodings |

Streams of encrypted columns are listed in their variant. The plain list has one placeholder for all of them in the
index (ENCRYPTED_INDEX) and one in the data (ENCRYPTED_DATA). Specification: orc-v1.md, "Stripes".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sidecar.errors import DamagedFileError, located
from sidecar.orc.compression import bound
from sidecar.orc.protobuf import Message, decode
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.storage.source import Source

MAX_STRIPE_FOOTER = 64 << 20
"""Bytes of the longest stripe footer that is read, decompressed."""

# fmt: off
STREAMS = (
    "PRESENT", "DATA", "LENGTH", "DICTIONARY_DATA", "DICTIONARY_COUNT", "SECONDARY", "ROW_INDEX", "BLOOM_FILTER",
    "BLOOM_FILTER_UTF8", "ENCRYPTED_INDEX", "ENCRYPTED_DATA",
)
# fmt: on
"""Stream.Kind, by number."""

INDEX_STREAMS = frozenset({"DICTIONARY_COUNT", "ROW_INDEX", "BLOOM_FILTER", "BLOOM_FILTER_UTF8", "ENCRYPTED_INDEX"})
"""Kinds of streams in a stripe's index."""

ENCODINGS = ("DIRECT", "DICTIONARY", "DIRECT_V2", "DICTIONARY_V2")
"""ColumnEncoding.Kind, by number."""


class Stream(NamedTuple):
    """A stream; ``offset`` counts from the start of the file, ``length`` is in bytes."""

    kind: str
    """A name of :data:`STREAMS`, or the number of an unknown kind."""
    column: int
    offset: int
    length: int


class ColumnEncoding(NamedTuple):
    """The encoding of a column in a stripe."""

    kind: str
    """A name of :data:`ENCODINGS`, or the number of an unknown kind."""
    dictionary_size: int
    bloom_encoding: int | None
    """1 if filters hash text as UTF-8 and timestamps in UTC; ``None`` or 0 without filters, or with the oldest keys."""

    @property
    def is_dictionary(self) -> bool:
        """Whether values are indexes into a dictionary."""
        return self.kind.startswith("DICTIONARY")


@dataclass(frozen=True)
class StripeFooter:
    """A decoded stripe footer; ``raw`` is the whole message, with unknown fields."""

    stripe: Stripe
    streams: list[Stream]
    """The streams as listed, with placeholders of encrypted streams."""
    encodings: list[ColumnEncoding]
    writer_timezone: str | None
    encrypted_streams: list[list[Stream]]
    """The streams of each encryption variant; column ids are those of the file."""
    raw: Message

    @cached_property
    def _of_column(self) -> dict[int, list[Stream]]:
        streams: dict[int, list[Stream]] = {}
        for stream in self.streams:
            streams.setdefault(stream.column, []).append(stream)
        return streams

    def streams_of(self, column: int) -> list[Stream]:
        """Return the plain streams of a column in order, without placeholders."""
        return [s for s in self._of_column.get(column, ()) if not s.kind.startswith("ENCRYPTED")]

    def stream(self, column: int, kind: str) -> Stream | None:
        """Return the last listed stream of that kind, as readers do; ``None`` if there is none."""
        return next((s for s in reversed(self._of_column.get(column, ())) if s.kind == kind), None)

    @cached_property
    def doubt(self) -> str:
        """The reason why readers may disagree on the places of index streams; empty if they agree."""
        end = self.stripe.offset + self.stripe.index_length
        for stream in self.streams:
            if stream.kind in INDEX_STREAMS and stream.length and stream.offset + stream.length > end:
                return f"an index stream ({stream.kind} of column {stream.column}) is listed after the stripe's index"
        return ""


def read_stripe_footer(source: Source, tail: OrcTail, stripe: Stripe) -> StripeFooter:
    """Read and decode the footer of a stripe: one read.

    Raises :class:`DamagedFileError` for anything that contradicts the format, such as streams that do not fit into the
    stripe, or a number of encodings that differs from the number of columns.
    """
    with located(tail.name, offset=stripe.footer_offset):
        return decode_stripe_footer(source.read(stripe.footer_offset, stripe.footer_length), tail, stripe)


def decode_stripe_footer(data: bytes, tail: OrcTail, stripe: Stripe) -> StripeFooter:
    """Decode a stripe footer from ``data``, its bytes in the file. Raises as :func:`read_stripe_footer`."""
    message = decode(bytes(tail.content(data, stripe.footer_offset, bound(len(data), MAX_STRIPE_FOOTER))))
    encodings = [_encoding(entry) for entry in message.messages(2)]
    if len(encodings) != len(tail.columns):
        raise DamagedFileError(
            f"the number of encodings in the footer of stripe {stripe.ordinal} differs from the number of columns",
            expected=len(tail.columns),
            found=len(encodings),
        )
    streams = _streams(message.messages(1), stripe, len(tail.columns))
    encrypted = _encrypted(message.messages(4), streams, stripe, len(tail.columns))
    return StripeFooter(stripe, streams, encodings, message.text(3), encrypted, message)


def _encoding(message: Message) -> ColumnEncoding:
    kind = message.varint(1)
    return ColumnEncoding(
        ENCODINGS[kind] if kind < len(ENCODINGS) else str(kind),
        message.varint(2),
        message.varint(3) if message.has(3) else None,
    )


def _named(message: Message, columns: int) -> tuple[str, int, int]:
    kind, column, length = message.varint(1), message.varint(2), message.varint(3)
    if column >= columns:
        raise DamagedFileError("a stream belongs to an unknown column", expected=f"less than {columns}", found=column)
    return STREAMS[kind] if kind < len(STREAMS) else str(kind), column, length


def _streams(messages: Iterable[Message], stripe: Stripe, columns: int) -> list[Stream]:
    streams: list[Stream] = []
    at = stripe.offset
    for message in messages:
        kind, column, length = _named(message, columns)
        if length > stripe.footer_offset - at:
            raise DamagedFileError(
                f"the streams of stripe {stripe.ordinal} do not fit into it",
                expected=f"at most {stripe.footer_offset - at} bytes from {at}",
                found=f"{length} ({kind} of column {column})",
            )
        streams.append(Stream(kind, column, at, length))
        at += length
    return streams


def _encrypted(
    variants: Iterable[Message], streams: Iterable[Stream], stripe: Stripe, columns: int
) -> list[list[Stream]]:
    """Return the streams of each variant; variants follow each other in the placeholders of index and data."""
    places = {stream.kind: stream for stream in streams if stream.kind in ("ENCRYPTED_INDEX", "ENCRYPTED_DATA")}
    at = {kind: stream.offset for kind, stream in places.items()}
    out: list[list[Stream]] = []
    for variant in variants:
        out.append([])
        for message in variant.messages(1):
            kind, column, length = _named(message, columns)
            area = "ENCRYPTED_INDEX" if kind in INDEX_STREAMS else "ENCRYPTED_DATA"
            place = places.get(area)
            if place is None or length > place.offset + place.length - at[area]:
                raise DamagedFileError(
                    f"the encrypted streams of stripe {stripe.ordinal} do not fit into their placeholder",
                    found=f"{length} bytes ({kind} of column {column})",
                )
            out[-1].append(Stream(kind, column, at[area], length))
            at[area] += length
    return out
