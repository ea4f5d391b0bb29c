"""ORC files taken apart: streams and messages replaced, with all lengths and places made good again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.orc.compression import compress, decompress_stream
from sidecar.orc.protobuf import Message, encode
from sidecar.orc.stripe import INDEX_STREAMS, read_stripe_footer
from sidecar.orc.tail import Stripe, read_tail
from sidecar.storage.source import BytesSource

Change = Callable[[bytes], bytes]


def unchanged(data: bytes) -> bytes:
    return data


@dataclass
class StoredStream:
    """A stream: its description, whether it is in the stripe's index, and its bytes as stored."""

    described: Message
    kind: str
    is_index: bool
    data: bytes


@dataclass
class StoredStripe:
    """A stripe: its entry in the footer, its own footer and its streams; ``change`` is made to its footer's bytes."""

    entry: Message
    footer: Message
    streams: list[StoredStream]
    change: Change = unchanged


class OrcLayout:
    """The parts of an ORC file; the three changes are made to the bytes of messages when the file is put together."""

    def __init__(self, data: bytes) -> None:
        source = BytesSource(data)
        self.tail = read_tail(source)
        self.stripes = [self._stripe(source, stripe) for stripe in self.tail.stripes]
        first = min([stripe.offset for stripe in self.tail.stripes], default=3)
        self.start = data[:first]
        tail = self.tail
        self.metadata = data[tail.metadata_offset : tail.metadata_offset + tail.metadata_length]
        self.change_footer: Change = unchanged
        self.change_postscript: Change = unchanged

    def _stripe(self, source: BytesSource, stripe: Stripe) -> StoredStripe:
        footer = read_stripe_footer(source, self.tail, stripe)
        streams = [
            StoredStream(message, one.kind, one.kind in INDEX_STREAMS, source.read(one.offset, one.length))
            for message, one in zip(footer.raw.messages(1), footer.streams, strict=True)
        ]
        return StoredStripe(stripe.information, footer.raw, streams)

    def streams(self, *, index: bool) -> list[StoredStream]:
        """The streams of all stripes' indexes, or those with data; those without bytes are left out."""
        return [s for stripe in self.stripes for s in stripe.streams if s.is_index == index and s.data]

    def content(self, stream: StoredStream) -> bytes:
        return self.unpacked(stream.data)

    def unpacked(self, data: bytes) -> bytes:
        return bytes(decompress_stream(data, self.tail.compression, self.tail.block_size))

    def packed(self, data: bytes) -> bytes:
        return compress(data, self.tail.compression, self.tail.block_size)

    def file(self) -> bytes:
        """The file."""
        out, entries = bytearray(self.start), []
        for stripe in self.stripes:
            entry, start = stripe.entry, len(out)
            described = []
            for stream in stripe.streams:
                stream.described.set(3, len(stream.data))
                described.append(stream.described)
                out += stream.data
            index = sum(len(stream.data) for stream in stripe.streams if stream.is_index)
            stripe.footer.set_all(1, described)
            footer = self.packed(stripe.change(encode(stripe.footer)))
            lengths = (start, index, len(out) - start - index, len(footer))
            for number, value in enumerate(lengths, 1):
                entry.set(number, value)
            entries.append(entry)
            out += footer
        self.tail.footer.set_all(3, entries)
        self.tail.footer.set(2, len(out))
        footer = self.packed(self.change_footer(encode(self.tail.footer)))
        postscript = self.tail.postscript
        postscript.set(1, len(footer))
        postscript.set(5, len(self.metadata))
        last = self.change_postscript(encode(postscript))[-255:]
        return bytes(out) + self.metadata + footer + last + bytes([len(last)])
