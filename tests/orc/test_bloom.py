"""Filter streams: one table where filters differ in their bits alone, one by one otherwise; the same filters."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.orc.bloom import decode_filter, decode_filters
from sidecar.orc.protobuf import BYTES, FIXED64, VARINT, Message, encode
from tests.filters.made_filters import orc_filter_of_hashes


def message(k: int, bits: bytes, *, older: bool = False) -> Message:
    if older:
        words = [int.from_bytes(bits[i : i + 8], "little") for i in range(0, len(bits), 8)]
        return Message([(1, VARINT, k), *((2, FIXED64, word) for word in words)])
    return Message([(1, VARINT, k), (3, BYTES, bits)])


def stream(*filters: Message) -> bytes:
    return encode(Message([(1, BYTES, encode(one)) for one in filters]))


@pytest.mark.parametrize("words", [1, 2, 15, 16, 150, 1498, 3000])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("older", [False, True])
def test_filters_come_back(words: int, count: int, older: bool) -> None:
    noise = random.Random(words)
    bits = [noise.randbytes(words * 8) for _ in range(count)]
    found = decode_filters(stream(*(message(7, one, older=older) for one in bits)))
    assert [f.to_bytes() if isinstance(f, OrcBloomFilter) else f for f in found] == bits
    for one in found:
        assert isinstance(one, OrcBloomFilter)
        assert one.k == 7
        assert one.words.flags.c_contiguous


def test_filters_inside_their_stream_take_and_find_values_at_any_address() -> None:
    """Bits begin at odd addresses there. Inserting into a filter does not change the stream, or other filters."""
    made = [orc_filter_of_hashes(np.arange(10, dtype=np.uint64) << np.uint64(i), 960, 7) for i in range(3)]
    data = stream(*(message(7, one.to_bytes()) for one in made))
    found = [one for one in decode_filters(data) if isinstance(one, OrcBloomFilter)]
    assert any(not one.words.flags.aligned for one in found)
    assert found == made
    assert [one.estimated_fpp() for one in found] == [one.estimated_fpp() for one in made]
    assert found[1].check(np.arange(10, dtype=np.uint64) << np.uint64(1)).all()
    found[1].insert(np.array([2**63 + 5], np.uint64))
    assert found[1].check(np.array([2**63 + 5], np.uint64)).all()
    assert found[1] != made[1]
    assert [found[0], found[2]] == [made[0], made[2]]
    assert stream(*(message(7, one.to_bytes()) for one in made)) == data


def test_filters_of_several_sizes_and_hash_counts() -> None:
    noise = random.Random(1)
    made = [(k, noise.randbytes(8 * n)) for k, n in ((7, 150), (4, 150), (7, 151), (100, 1))]
    found = decode_filters(stream(*(message(k, bits) for k, bits in made)))
    assert [(f.k, f.to_bytes()) for f in found if isinstance(f, OrcBloomFilter)] == made


@pytest.mark.parametrize("k", [0, 101, 10_000, 1 << 40])
def test_hash_counts_out_of_range_are_errors_of_their_filter(k: int) -> None:
    found = decode_filters(stream(message(7, bytes(8)), message(k, bytes(8))))
    assert isinstance(found[0], OrcBloomFilter)
    assert isinstance(found[1], SidecarError)
    assert all(isinstance(one, SidecarError) for one in decode_filters(stream(message(k, bytes(16))) * 2))


def test_one_filter_with_a_field_more_is_read_all_the_same() -> None:
    bits = random.Random(2).randbytes(160)
    later = message(7, bits)
    later.fields.append((9, BYTES, b"later"))
    for filters in ([message(7, bits), later], [later, message(7, bits)], [later, later]):
        found = decode_filters(stream(*filters))
        assert [f.to_bytes() for f in found if isinstance(f, OrcBloomFilter)] == [bits] * 2


def test_large_filters_of_several_sizes_are_not_copied() -> None:
    data = stream(*(message(7, bytes(size)) for size in (8, 1 << 24)))
    tracemalloc.start()
    try:
        found = decode_filters(data)
        assert [f.num_bytes for f in found if isinstance(f, OrcBloomFilter)] == [8, 1 << 24]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_both_forms_at_once_and_neither_are_damage() -> None:
    both = Message([(1, VARINT, 7), (2, FIXED64, 1), (3, BYTES, bytes(8))])
    for one in (both, Message([(1, VARINT, 7)]), Message([(1, VARINT, 7), (3, BYTES, bytes(9))])):
        with pytest.raises(DamagedFileError):
            decode_filter(encode(one))


def test_every_truncation_is_damage_or_fewer_filters() -> None:
    whole = stream(*(message(7, random.Random(i).randbytes(64)) for i in range(3)))
    parts = len(whole) // 3
    for end in range(len(whole)):
        if end % parts:
            with pytest.raises(DamagedFileError):
                decode_filters(whole[:end])
        else:
            assert len(decode_filters(whole[:end])) == end // parts


def test_a_table_of_filters_above_the_limit_is_decoded_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = [random.Random(number).randbytes(64) for number in range(3)]
    monkeypatch.setattr("sidecar.orc.bloom.MAX_BYTES", 32)
    found = decode_filters(stream(*(message(7, one) for one in bits)))
    assert [one.to_bytes() if isinstance(one, OrcBloomFilter) else one for one in found] == bits


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (2, 3, 2, 3)], ids=["alike", "unlike"])
def test_filters_that_no_row_group_has_are_counted_only(sizes: tuple[int, ...]) -> None:
    """A few bytes can unfold to more filters than memory holds."""
    filters = [message(7, bytes(range(8 * size))) for size in sizes]
    found = decode_filters(stream(*filters), 2)
    assert [f.to_bytes() for f in found[:2] if isinstance(f, OrcBloomFilter)] == [
        bytes(range(8 * n)) for n in sizes[:2]
    ]
    assert [str(f) for f in found[2:]] == ["the stream has more filters than the stripe has row groups"] * 2


def test_equal_errors_are_kept_once() -> None:
    found = decode_filters(stream(*[message(0, bytes(8)), message(7, b"12345")] * 3))
    assert len(found) == 6
    assert len({id(error) for error in found}) == 2
    assert all(isinstance(error, SidecarError) and error.__traceback__ is None for error in found)
