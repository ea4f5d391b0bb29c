"""Damaged ORC files: our error, or an index that is not used; never a wrong "no", never much memory."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from scripts.fuzzing.orc_layout import OrcLayout
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.orc.compression import CODECS, compress
from sidecar.orc.inspect import inspect_file, probe_file
from sidecar.orc.protobuf import BYTES, VARINT, Message, decode, encode
from sidecar.orc.tail import read_tail
from sidecar.orc.verify.verify import verify_file
from sidecar.storage.source import BytesSource
from tests.orc.files import pack, read_all, source

SMALL = "apache_bad_bloom_filter_1.6.11.orc"
CHUNKED = "java_zlib_chunk1k_utf8.orc"
PLAIN = "java_none_utf8.orc"


def survives(data: bytes) -> None:
    """Any bytes give an answer or our error."""
    with contextlib.suppress(SidecarError):
        inspect_file(BytesSource(data))
    verify_file(BytesSource(data))


def test_every_truncation_of_a_small_file() -> None:
    whole = source(SMALL).read(0, source(SMALL).size)
    for end in range(len(whole)):
        survives(whole[:end])
        assert verify_file(BytesSource(whole[:end])), end


def test_every_changed_byte_of_a_small_file() -> None:
    """717 bytes: tail, stripe footer, streams; each byte to two other values."""
    whole = source(SMALL).read(0, source(SMALL).size)
    for at in range(len(whole)):
        for change in (1 << at % 8, 0xFF):
            damaged = bytearray(whole)
            damaged[at] ^= change
            survives(bytes(damaged))


def places(name: str) -> Iterator[range]:
    """Where tail and stripe footers lie."""
    tail, stripes = read_all(source(name))
    yield range(tail.metadata_offset, tail.size)
    for stripe in stripes:
        yield range(stripe.footer.stripe.footer_offset, stripe.footer.stripe.end)


@pytest.mark.parametrize("name", [CHUNKED, PLAIN])
def test_changed_bytes_of_tail_and_footers(name: str) -> None:
    """A byte can turn a number into another one, which nobody notices; it never raises anything but our error."""
    noise = random.Random(name)
    whole = bytearray(source(name).read(0, source(name).size))
    spots = [at for span in places(name) for at in span]
    for at in noise.sample(spots, 300):
        kept, whole[at] = whole[at], noise.randrange(256)
        with contextlib.suppress(SidecarError):
            read_all(BytesSource(bytes(whole)))
        whole[at] = kept


@pytest.mark.parametrize("name", [CHUNKED, PLAIN])
def test_changed_bytes_of_index_streams_cost_their_stream_alone(name: str) -> None:
    noise = random.Random(name)
    whole = bytearray(source(name).read(0, source(name).size))
    _, (stripe,) = read_all(source(name))
    streams = [s for s in stripe.footer.streams if s.kind in ("ROW_INDEX", "BLOOM_FILTER_UTF8") and s.length]
    for _ in range(60):
        stream = noise.choice(streams)
        at = stream.offset + noise.randrange(min(stream.length, 12))  # headers and lengths, not bits
        kept, whole[at] = whole[at], whole[at] ^ (1 << noise.randrange(8))
        _, (damaged,) = read_all(BytesSource(bytes(whole)))
        for column, index in damaged.indexes.items():
            if column != stream.column:
                assert index.filters == stripe.indexes[column].filters
        whole[at] = kept


def test_one_bit_of_every_kind_of_length() -> None:
    """Lengths of messages inside an uncompressed filter stream, beyond their stream, to the end of numbers."""
    whole = source(PLAIN).read(0, source(PLAIN).size)
    _, (stripe,) = read_all(source(PLAIN))
    stream = stripe.indexes[4].streams["BLOOM_FILTER_UTF8"]
    for value in (b"\xff\x7f", b"\x80\x00", b"\xff\xff", b"\x00\x00", b"\xb6\x09"):
        damaged = whole[: stream.offset + 1] + value + whole[stream.offset + 3 :]
        _, (read,) = read_all(BytesSource(damaged))
        index = read.indexes[4]
        assert index.filters_problem is not None or not any(f.trusted for f in index.filters or ())
        assert all(unit.might_contain is not False or "filter" not in unit.reason
                   for unit in probe_file(BytesSource(damaged), "c_int", 5))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda filters: filters[:-1], "2 filters for 3 row groups"),
        (lambda filters: [*filters, filters[0]], "4 filters for 3 row groups"),
        (lambda filters: [], "0 filters for 3 row groups"),
        (lambda filters: [b"\x08\x00" + filters[0][2:], *filters[1:]], "1 to 100"),
        (lambda filters: [b"\x08\x65" + filters[0][2:], *filters[1:]], "1 to 100"),
        (lambda filters: [b"\x08\x07\x1a\x00", *filters[1:]], "bits"),
        (lambda filters: [b"\x08\x07\x1a\x07abcdefg", *filters[1:]], "multiple of 8"),
        (lambda filters: [b"\x08\x07", *filters[1:]], "bits"),
        (lambda filters: [b"\x08\x07\x1a\xb0\x09" + bytes(1200), *filters[1:]], "the filter is empty"),
    ],
)
def test_filters_that_are_none_are_named_and_unused(change: object, reason: str) -> None:
    """The stream of c_int is made anew; the stripe footer's and all other lengths are those of the file."""
    rebuilt = with_filters("c_int", change)
    tail, (stripe,) = read_all(rebuilt)
    column = tail.column("c_int")
    assert column is not None
    found = stripe.indexes[column.id].filters
    assert found is not None
    assert len(found) == 3
    assert not found[0].trusted
    assert reason in found[0].reason
    problems = [p.problem for p in verify_file(rebuilt) if p.column == "c_int"]
    assert any(reason in problem for problem in problems)
    if "row groups" not in reason:
        assert found[1].trusted
    for unit in probe_file(rebuilt, "c_int", 3)[:1]:
        assert unit.might_contain is not False


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_empty_filter_among_others_is_not_trusted(at: int) -> None:
    """Wherever it stands: its row group has values, and asked, it would deny them all."""
    empty = b"\x08\x07\x1a\xb0\x09" + bytes(1200)
    rebuilt = with_filters("c_int", lambda filters: [*filters[:at], empty, *filters[at + 1 :]])
    tail, (stripe,) = read_all(rebuilt)
    column = tail.column("c_int")
    assert column is not None
    found = stripe.indexes[column.id].filters or []
    assert [one.trusted for one in found] == [i != at for i in range(3)]
    assert "the filter is empty" in found[at].reason


def test_two_filter_streams_of_one_column_are_not_trusted() -> None:
    """Readers differ in which of them they take."""
    rebuilt = with_filters("c_int", lambda filters: filters, twice=True)
    tail, (stripe,) = read_all(rebuilt)
    column = tail.column("c_int")
    assert column is not None
    found = stripe.indexes[column.id].filters or []
    assert [one.reason for one in found] == ["the column has two filter streams of one kind"] * 3


def with_filters(path: str, change: object, *, twice: bool = False) -> BytesSource:
    """The uncompressed file with another stream of filters for one column, all places and lengths made right.

    ``twice``: an empty stream of the same kind is listed in front of it.
    """
    whole = source(PLAIN).read(0, source(PLAIN).size)
    tail, (stripe,) = read_all(source(PLAIN))
    column = tail.column(path)
    assert column is not None
    stream = stripe.indexes[column.id].streams["BLOOM_FILTER_UTF8"]
    filters = Message()
    old = Message()
    old.fields = (
        __import__("sidecar.orc.protobuf", fromlist=["decode"])
        .decode(whole[stream.offset : stream.offset + stream.length])
        .fields
    )
    filters.set_all(1, change(old.all_bytes(1)))  # type: ignore[operator]
    made = encode(filters)
    grown = len(made) - stream.length
    footer = stripe.footer.raw
    streams: list[Message] = []
    for message in footer.messages(1):
        if (message.varint(1), message.varint(2)) == (8, column.id):
            streams += [Message([(1, VARINT, 8), (2, VARINT, column.id), (3, VARINT, 0)])] if twice else []
            message = with_length(message, len(made))
        streams.append(message)
    footer.set_all(1, streams)
    footer_bytes = encode(footer)
    (info,) = tail.footer.messages(3)
    info.set(2, info.varint(2) + grown)
    info.set(4, len(footer_bytes))
    tail.footer.set_all(3, [info])
    tail_bytes = encode(tail.footer)
    tail.postscript.set(1, len(tail_bytes))
    postscript = encode(tail.postscript)
    at = stripe.footer.stripe
    return BytesSource(
        whole[: stream.offset]
        + made
        + whole[stream.offset + stream.length : at.footer_offset]
        + footer_bytes
        + whole[tail.metadata_offset : tail.footer_offset]
        + tail_bytes
        + postscript
        + bytes([len(postscript)])
    )


def with_length(message: Message, length: int) -> Message:
    message.set(3, length)
    return message


def tail_of(footer: Message, codec: str = "NONE", block: int = 1 << 18) -> bytes:
    """A file that is nothing but a tail."""
    data = compress(encode(footer), codec, block)
    postscript = Message([(1, VARINT, len(data)), (2, VARINT, CODECS.index(codec)), (3, VARINT, block),
                          (4, BYTES, pack([0, 12])), (8000, BYTES, b"ORC")])  # fmt: skip
    raw = encode(postscript)
    return b"ORC" + data + raw + bytes([len(raw)])


ROOT = Message([(1, VARINT, 12)])


@pytest.mark.parametrize(
    "footer",
    [
        Message([(4, BYTES, encode(ROOT)), (6, VARINT, 1 << 60), (8, VARINT, 1),
                 (3, BYTES, encode(Message([(1, VARINT, 3), (4, VARINT, 1), (5, VARINT, 1 << 60)])))]),
        Message([(4, BYTES, b"")] * 50_000),
        Message([(4, BYTES, encode(Message([(1, VARINT, 12), (2, BYTES, pack([i + 1])), (3, BYTES, b"x" * 2000)])))
                 for i in range(3000)]),
        Message([(99, BYTES, b"")] * 200_000 + [(4, BYTES, encode(ROOT))]),
        Message([(4, BYTES, encode(Message([(1, VARINT, 12), (2, BYTES, pack([0]))])))]),
        Message([(4, BYTES, encode(Message([(1, VARINT, 12), (2, BYTES, pack([9]))])))]),
    ],
    ids=["rows", "orphans", "long paths", "fields", "own child", "no such child"],
)  # fmt: skip
def test_memory_is_bounded(footer: Message) -> None:
    data = tail_of(footer, "ZSTD")
    tracemalloc.start()
    try:
        with contextlib.suppress(SidecarError):
            inspect_file(BytesSource(data))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused() -> None:
    """A kilobyte that says it is half a gigabyte."""
    chunk = compress(bytes(1 << 18), "ZSTD", 1 << 18)
    raw = encode(Message([(1, VARINT, len(chunk) * 2000), (2, VARINT, 5), (3, VARINT, 1 << 18), (8000, BYTES, b"ORC")]))
    tracemalloc.start()
    try:
        with pytest.raises(SidecarError, match="too large"):
            read_tail(BytesSource(b"ORC" + chunk * 2000 + raw + bytes([len(raw)])))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_nothing_but_our_errors_for_noise() -> None:
    noise = random.Random(5)
    for length in (0, 1, 3, 5, 20, 300, 5000):
        for _ in range(20):
            survives(noise.randbytes(length))
            survives(b"ORC" + noise.randbytes(length) + b"\x08\x05\x82\xf4\x03\x03ORC\x09")


def test_stripes_that_overlap_are_refused_before_they_are_read() -> None:
    """A footer of some kilobytes could have one stripe read any number of times."""
    layout = OrcLayout(source(SMALL).read(0, source(SMALL).size))
    sound = layout.file()
    assert len(read_tail(BytesSource(sound)).stripes) == len(layout.stripes)
    again = [field for field in decode(encode(layout.tail.footer)).fields if field[0] == 3]
    layout.change_footer = lambda data: data + encode(Message(again * 200))
    with pytest.raises(DamagedFileError, match="together are longer than the file"):
        read_tail(BytesSource(layout.file()))
