"""Writing ORC files with other filters: what is copied, what changes, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import pytest

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.orc.compression import compress
from sidecar.orc.embed import FILTER_STREAMS, StripeFilters, WrittenOrc, embed
from sidecar.orc.protobuf import Message, encode
from sidecar.orc.stripe import Stream, StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.storage.source import BytesSource, Source
from sidecar.storage.target import create_target
from tests.orc.files import DATA, FILES

BARE, NATIVE = "java_zlib_2stripes_nofilters.orc", "java_zlib_2stripes_utf8.orc"


def opened(path: Path) -> tuple[BytesSource, OrcTail]:
    source = BytesSource(path.read_bytes(), str(path))
    return source, read_tail(source)


def footers(source: Source, tail: OrcTail) -> list[StripeFooter]:
    return [read_stripe_footer(source, tail, stripe) for stripe in tail.stripes]


def content(source: Source, streams: Iterable[Stream]) -> list[tuple[str, int, bytes]]:
    return [(s.kind, s.column, source.read(s.offset, s.length)) for s in streams]


def metadata(source: Source, tail: OrcTail) -> bytes:
    return source.read(tail.metadata_offset, tail.metadata_length)


def written(source: Source, tail: OrcTail, path: Path, filters: list[StripeFilters]) -> WrittenOrc:
    with create_target(str(path)) as target:
        return embed(source, tail, target, filters)


def filters_of(source: Source, footer: StripeFooter) -> StripeFilters:
    streams = [s for s in footer.streams if s.kind == "BLOOM_FILTER_UTF8"]
    return StripeFilters({s.column: source.read(s.offset, s.length) for s in streams})


def without_filters(footer: StripeFooter) -> Message:
    raw = copy.deepcopy(footer.raw)
    raw.set_all(1, [m for m in raw.messages(1) if m.varint(1) not in (7, 8)])
    encodings = raw.messages(2)
    for encoding in encodings:
        encoding.set(3, None)
    raw.set_all(2, encodings)
    return raw


def without_places(tail: OrcTail) -> tuple[Message, Message]:
    footer, postscript = copy.deepcopy(tail.footer), copy.deepcopy(tail.postscript)
    stripes = footer.messages(3)
    for stripe in stripes:
        for number in (1, 2, 4):
            stripe.set(number, 0)
    footer.set_all(3, stripes)
    footer.set(2, 0)
    postscript.set(1, 0)
    return footer, postscript


@pytest.mark.parametrize("name", FILES)
def test_strip_copies_all_but_the_filters(name: str, tmp_path: Path) -> None:
    before, old = opened(DATA / name)
    report = written(before, old, tmp_path / "bare.orc", [StripeFilters() for _ in old.stripes])
    after, new = opened(tmp_path / "bare.orc")
    assert report.filter_bytes == 0
    assert report.size == after.size
    assert without_places(new) == without_places(old)
    assert metadata(after, new) == metadata(before, old)
    for one, other in zip(footers(before, old), footers(after, new), strict=True):
        kept = [s for s in one.streams if s.kind not in FILTER_STREAMS]
        assert content(after, other.streams) == content(before, kept)
        assert other.raw == without_filters(one)
        assert sum(s.length for s in other.streams) == other.stripe.index_length + other.stripe.data_length
    end = new.stripes[-1].end
    assert new.footer.varint(2) - end == old.footer.varint(2) - old.stripes[-1].end


def test_kept_filters_stay_as_they_are(tmp_path: Path) -> None:
    for name in ("java_none_original.orc", NATIVE):
        before, old = opened(DATA / name)
        everything = frozenset(range(len(old.columns)))
        path = tmp_path / name
        report = written(before, old, path, [StripeFilters(kept=everything) for _ in old.stripes])
        after, new = opened(path)
        assert report.filter_bytes > 0
        for one, other in zip(footers(before, old), footers(after, new), strict=True):
            assert other.raw == one.raw
            assert content(after, other.streams) == content(before, one.streams)


def test_transplanted_filters_give_the_native_layout(tmp_path: Path) -> None:
    """The bare twin of a native file, given its filters, has its streams in its order."""
    (bare, old), (native, theirs) = opened(DATA / BARE), opened(DATA / NATIVE)
    given = [filters_of(native, footer) for footer in footers(native, theirs)]
    written(bare, old, tmp_path / "full.orc", given)
    after, new = opened(tmp_path / "full.orc")
    for one, other in zip(footers(native, theirs), footers(after, new), strict=True):
        assert other.encodings == one.encodings
        theirs_by_place = content(native, one.streams)
        ours_by_place = content(after, other.streams)
        assert [part[:2] for part in ours_by_place] == [part[:2] for part in theirs_by_place]
        different = {part[:2] for part, own in zip(theirs_by_place, ours_by_place, strict=True) if part != own}
        # a statistic's sum is another NaN in the two native files
        assert different <= {("ROW_INDEX", 6), ("ROW_INDEX", 7)}
    written(after, new, tmp_path / "bare.orc", [StripeFilters() for _ in new.stripes])
    again, bare_again = opened(tmp_path / "bare.orc")
    assert without_places(bare_again) == without_places(old)
    for one, other in zip(footers(bare, old), footers(again, bare_again), strict=True):
        assert content(again, other.streams) == content(bare, one.streams)


def test_replacing_drops_both_forms(tmp_path: Path) -> None:
    before, old = opened(DATA / "java_none_original.orc")
    kept = frozenset({4})
    path = tmp_path / "new.orc"
    written(before, old, path, [StripeFilters({5: b"five"}, kept) for _ in old.stripes])
    after, new = opened(path)
    (footer,) = footers(after, new)
    of = {column: [s.kind for s in footer.streams_of(column) if s.kind in FILTER_STREAMS] for column in (4, 5, 6)}
    assert of == {4: ["BLOOM_FILTER", "BLOOM_FILTER_UTF8"], 5: ["BLOOM_FILTER_UTF8"], 6: []}
    assert [footer.encodings[column].bloom_encoding for column in (4, 5, 6)] == [1, 1, None]
    five = footer.stream(5, "BLOOM_FILTER_UTF8")
    index = footer.stream(5, "ROW_INDEX")
    assert five is not None
    assert index is not None
    assert after.read(five.offset, five.length) == b"five"
    assert five.offset == index.offset + index.length


def with_unknown_fields(source: Source, tail: OrcTail) -> bytes:
    """The file with a field 999 in every message that is rewritten."""
    body, stripes, footer = bytearray(b"ORC"), [], copy.deepcopy(tail.footer)
    for stripe, information in zip(tail.stripes, footer.messages(3), strict=True):
        raw = read_stripe_footer(source, tail, stripe).raw
        for number in (1, 2):
            parts = raw.messages(number)
            for part in parts:
                part.set(999, b"part")
            raw.set_all(number, parts)
        raw.set(999, 7)
        data = compress(encode(raw), tail.compression, tail.block_size)
        information.set(1, len(body))
        information.set(4, len(data))
        information.set(999, b"stripe")
        body += source.read(stripe.offset, stripe.index_length + stripe.data_length) + data
        stripes.append(information)
    footer.set_all(3, stripes)
    footer.set(999, b"footer")
    body += source.read(tail.metadata_offset, tail.metadata_length)
    data = compress(encode(footer), tail.compression, tail.block_size)
    postscript = copy.deepcopy(tail.postscript)
    postscript.set(1, len(data))
    postscript.fields.insert(0, (999, 2, b"postscript"))
    last = encode(postscript)
    return bytes(body) + data + last + bytes([len(last)])


def test_unknown_fields_survive(tmp_path: Path) -> None:
    native, theirs = opened(DATA / NATIVE)
    bare = BytesSource(with_unknown_fields(*opened(DATA / BARE)), "unknown")
    old = read_tail(bare)
    written(bare, old, tmp_path / "full.orc", [filters_of(native, f) for f in footers(native, theirs)])
    after, new = opened(tmp_path / "full.orc")
    assert new.footer.bytes_(999) == b"footer"
    assert new.postscript.bytes_(999) == b"postscript"
    assert {m.bytes_(999) for m in new.footer.messages(3)} == {b"stripe"}
    for footer in footers(after, new):
        assert footer.raw.varint(999) == 7
        assert {m.bytes_(999) for m in footer.raw.messages(2)} == {b"part"}
        old_streams = [m for m in footer.raw.messages(1) if m.varint(1) != 8]
        assert {m.bytes_(999) for m in old_streams} == {b"part"}


def altered(tail: OrcTail, stripe: int, **lengths: int) -> OrcTail:
    from dataclasses import replace

    stripes = list(tail.stripes)
    stripes[stripe] = replace(stripes[stripe], **lengths)
    return replace(tail, stripes=stripes)


def test_contradictory_lengths_leave_nothing(tmp_path: Path) -> None:
    source, tail = opened(DATA / BARE)
    second = tail.stripes[1]
    wrong = altered(tail, 1, index_length=second.index_length - 9, data_length=second.data_length + 9)
    path = tmp_path / "x.orc"
    with pytest.raises(DamagedFileError, match="streams of stripe 1 do not fill its index"):
        written(source, wrong, path, [StripeFilters(), StripeFilters()])
    assert not path.exists()
    assert not list(tmp_path.iterdir())


def test_refusals(tmp_path: Path) -> None:
    from dataclasses import replace

    source, tail = opened(DATA / BARE)
    path = tmp_path / "x.orc"
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        written(source, replace(tail, encrypted=True), path, [])
    with pytest.raises(UnsupportedFeatureError, match="a column that gets filters has no row index in stripe 0"):
        written(source, tail, path, [StripeFilters({99: b"x"})] * 2)
    assert not list(tmp_path.iterdir())
