"""Run-length kernels beside their twins, the examples of the ORC specification, and every way to cut a stream."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sidecar.kernels import orc_rle
from tests.kernels import orc_twins

SPEC_V2: list[tuple[str, list[int]]] = [
    ("0a2710", [10000] * 5),
    ("5e035ca1ab1edeadbeef", [23713, 43806, 57005, 48879]),
    (
        "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8",
        [2030, 2000, 2020, 1000000, *range(2040, 2200, 10)],
    ),
    ("c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
]
SPEC_V1 = [("610007", [7] * 100), ("61ff64", list(range(100, 0, -1))), ("fb020304070b", [2, 3, 4, 7, 11])]
SPEC_BYTES = [("6100", [0] * 100), ("fe4445", [0x44, 0x45])]


def array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def decoded(
    decode: Callable[..., int], data: bytes, count: int, *, at: int = 0, skip: int = 0, signed: Any = None
) -> Any:
    beyond = 16
    if signed is None:
        whole: Any = np.full(count + beyond, 0xEE, np.uint8)
        end = decode(array(data), at, skip, whole[:count], np.zeros(2, np.int64))
    else:
        whole = np.full(count + beyond, 0xABAD1DEA, np.int64)
        end = decode(array(data), at, skip, signed, whole[:count], np.zeros(2, np.int64))
    assert len(set(whole[count:].tolist())) == 1, "values were written beyond those that were asked for"
    return None if end < 0 else whole[:count].tolist()


@pytest.mark.parametrize(("text", "values"), SPEC_V2)
def test_examples_of_the_specification_v2(text: str, values: list[int]) -> None:
    assert decoded(orc_rle.integers_v2, bytes.fromhex(text), len(values), signed=False) == values
    assert orc_twins.integers_v2(bytes.fromhex(text), False) == values


@pytest.mark.parametrize(("text", "values"), SPEC_V1)
def test_examples_of_the_specification_v1(text: str, values: list[int]) -> None:
    assert decoded(orc_rle.integers_v1, bytes.fromhex(text), len(values), signed=False) == values
    assert orc_twins.integers_v1(bytes.fromhex(text), False) == values


@pytest.mark.parametrize(("text", "values"), SPEC_BYTES)
def test_examples_of_the_specification_bytes(text: str, values: list[int]) -> None:
    assert decoded(orc_rle.bytes_rle, bytes.fromhex(text), len(values)) == values


STREAMS: list[tuple[str, Callable[..., int], Callable[..., list[int]], Callable[[random.Random], bytes]]] = [
    *(
        (
            f"v2 {name}",
            orc_rle.integers_v2,
            orc_twins.integers_v2,
            lambda rng, k=kind: orc_twins.random_run_v2(rng, k),
        )
        for kind, name in enumerate(["short repeat", "direct", "patched base", "delta"])
    ),
    (
        "v2",
        orc_rle.integers_v2,
        orc_twins.integers_v2,
        lambda rng: orc_twins.random_run_v2(rng, rng.randrange(4)),
    ),
    ("v1", orc_rle.integers_v1, orc_twins.integers_v1, orc_twins.random_run_v1),
]


def stream(make: Callable[[random.Random], bytes], seed: int, runs: int) -> tuple[list[int], bytes]:
    """Where each run begins, and the bytes of all."""
    rng, starts, data = random.Random(seed), [], b""
    for _ in range(runs):
        starts.append(len(data))
        data += make(rng)
    return starts, data


@pytest.mark.parametrize(("name", "decode", "twin", "make"), STREAMS, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("signed", [False, True])
def test_integers_agree_with_the_twin(name: str, decode: Any, twin: Any, make: Any, signed: bool) -> None:
    for seed in range(25):
        _, data = stream(make, seed, 12)
        values = twin(data, signed)
        assert decoded(decode, data, len(values), signed=signed) == values, seed
        assert decoded(decode, data, len(values) + 1, signed=signed) is None


@pytest.mark.parametrize(("name", "decode", "twin", "make"), STREAMS, ids=lambda x: x if isinstance(x, str) else "")
def test_values_are_taken_from_any_run_and_place(name: str, decode: Any, twin: Any, make: Any) -> None:
    starts, data = stream(make, 5, 8)
    rng = random.Random(1)
    for start in starts:
        values = twin(data[start:], True)
        for _ in range(10):
            skip = rng.randrange(min(len(values), 600))
            count = rng.randrange(len(values) - skip + 1)
            found = decoded(decode, data, count, at=start, skip=skip, signed=True)
            assert found == values[skip : skip + count]


def test_short_direct_runs_of_every_width_are_decoded_to_any_count() -> None:
    rng = random.Random(9)
    for code, width in enumerate(orc_twins.WIDTHS):
        runs = [
            (1 << 6 | code << 1, count - 1, rng.randbytes((width * count + 7) // 8)) for count in (1, 2, 3, 4, 5, 9)
        ]
        data = b"".join(bytes(head) + packed for *head, packed in runs) + bytes(40)
        for signed in (False, True):
            values = orc_twins.integers_v2(data[:-40], signed)
            for count in range(len(values) + 1):
                assert decoded(orc_rle.integers_v2, data, count, signed=signed) == values[:count], (width, count)


@pytest.mark.parametrize(("name", "decode", "twin", "make"), STREAMS, ids=lambda x: x if isinstance(x, str) else "")
def test_every_truncation_of_integers_is_seen(name: str, decode: Any, twin: Any, make: Any) -> None:
    _, data = stream(make, 11, 3)
    count = len(twin(data, True))
    for cut in range(0, len(data), max(1, len(data) // 400)):
        assert decoded(decode, data[:cut], count, signed=True) is None


@pytest.mark.parametrize(("name", "decode", "twin", "make"), STREAMS, ids=lambda x: x if isinstance(x, str) else "")
def test_integers_go_on_where_the_last_call_ended(name: str, decode: Any, twin: Any, make: Any) -> None:
    for seed in range(20):
        _, data = stream(make, seed, 8)
        values, found = twin(data, True), []
        rng, place = random.Random(seed), np.zeros(2, np.int64)
        while len(found) < len(values):
            out = np.empty(min(rng.choice((0, 1, 3, 64, 700)), len(values) - len(found)), np.int64)
            at, skip = place.tolist()
            assert decode(array(data), at, skip, True, out, place) >= 0
            found += out.tolist()
        assert found == values
        assert place.tolist() == [len(data), 0]


def test_bytes_go_on_where_the_last_call_ended() -> None:
    for seed in range(20):
        _, data = stream(orc_twins.random_run_bytes, seed, 10)
        values, found = orc_twins.bytes_rle(data), []
        rng, place = random.Random(seed), np.zeros(2, np.int64)
        while len(found) < len(values):
            out = np.empty(min(rng.choice((0, 1, 3, 64, 700)), len(values) - len(found)), np.uint8)
            at, skip = place.tolist()
            assert orc_rle.bytes_rle(array(data), at, skip, out, place) >= 0
            found += out.tolist()
        assert found == values


def test_bytes_agree_with_the_twin() -> None:
    for seed in range(40):
        starts, data = stream(orc_twins.random_run_bytes, seed, 10)
        start = starts[seed % 10]
        values = orc_twins.bytes_rle(data[start:])
        skip = seed % len(values)
        assert decoded(orc_rle.bytes_rle, data, len(values) - skip, at=start, skip=skip) == values[skip:]
        assert decoded(orc_rle.bytes_rle, data, len(values) + 1, at=start) is None
        assert decoded(orc_rle.bytes_rle, data[:-1], len(values), at=start) is None


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes_are_decoded_or_refused(seed: int) -> None:
    data = random.Random(seed).randbytes(random.Random(seed).randrange(200))
    for signed in (False, True):
        for decode in (orc_rle.integers_v1, orc_rle.integers_v2):
            decoded(decode, data, 600, signed=signed)
    decoded(orc_rle.bytes_rle, data, 600)


# --- decimals -----------------------------------------------------------------------------------------------

LIMIT = 10**38


def decimals(
    values: list[int], scales: list[int], scale: int, *, cut: int = 0, most: int = LIMIT - 1
) -> tuple[int, list[int]]:
    data = b"".join(orc_twins.varint(v << 1 if v >= 0 else -v * 2 - 1) for v in values)
    out = np.zeros((len(values), 2), np.uint64)
    halves = np.uint64(most >> 64), np.uint64(most & 2**64 - 1)
    end = orc_rle.decimals(array(data[: len(data) - cut]), 0, np.array(scales, np.int64), scale, *halves, out)
    return end, [int.from_bytes(row.tobytes(), "little", signed=True) for row in out]


EDGES = [
    0,
    1,
    -1,
    2**62,
    -(2**63),
    2**63,
    2**64,
    -(2**64) - 1,
    2**126,
    LIMIT - 1,
    1 - LIMIT,
    10**19,
    -(10**37),
]


def test_decimals_at_their_own_scale() -> None:
    rng = random.Random(3)
    values = [v for v in EDGES if abs(v) < LIMIT] + [
        rng.choice([1, -1]) * rng.getrandbits(rng.randint(1, 126)) for _ in range(500)
    ]
    assert decimals(values, [5] * len(values), 5)[1] == values
    assert decimals(values, [5] * len(values), 5, cut=1)[0] == -1


@pytest.mark.parametrize("scale", [0, 1, 10, 37])
def test_decimals_are_brought_to_the_scale_of_the_column(scale: int) -> None:
    rng = random.Random(scale)
    values, scales = [], []
    for _ in range(300):
        scales.append(rng.randint(0, 38))
        digits = min(38, 38 - (scale - scales[-1]))
        values.append(rng.choice([1, -1]) * rng.randrange(10 ** rng.randint(0, digits)))
    shifted = [
        v * 10 ** (scale - s) if s <= scale else abs(v) // 10 ** (s - scale) * (1 if v >= 0 else -1)
        for v, s in zip(values, scales, strict=True)
    ]
    assert decimals(values, scales, scale)[1] == shifted


@pytest.mark.parametrize(
    ("value", "own", "scale"),
    [
        (LIMIT, 0, 0),
        (-LIMIT, 0, 0),
        (2**127, 0, 0),
        (2**200, 0, 0),
        (10**37, 0, 1),
        (1, 0, 38),
        (1, 39, 0),
        (1, -39, 0),
        (1, -(2**63), 0),
        (1, 2**63 - 1, 0),
    ],
)
def test_decimals_of_more_than_38_digits_are_refused(value: int, own: int, scale: int) -> None:
    assert decimals([value], [own], scale)[0] == -2


@pytest.mark.parametrize("digits", [1, 5, 16, 17, 19, 20, 37, 38])
def test_decimals_of_more_digits_than_the_column_are_refused(digits: int) -> None:
    """Alone a number is read byte by byte. Before eight more bytes, a short one is read as a word."""
    most = 10**digits - 1
    for more in ([], [0] * 8):
        scales = [2] * (1 + len(more))
        for value in (most, -most):
            assert decimals([value, *more], scales, 2, most=most)[1] == [value, *more]
        for value in (most + 1, -most - 1):
            assert decimals([value, *more], scales, 2, most=most)[0] == -2
    if digits < 38:
        assert decimals([most], [2], 3, most=most)[0] == -2


def test_decimals_of_every_length_are_decoded_wherever_the_data_ends() -> None:
    values = [sign * edge for bits in range(0, 126) for edge in (1 << bits, (1 << bits) - 1) for sign in (1, -1)]
    for start in range(len(values) - 12):
        assert decimals(values[start : start + 12], [0] * 12, 0)[1] == values[start : start + 12]
    assert decimals([-1] * 20, [0] * 20, 0, cut=1)[0] == -1


# --- timestamps ---------------------------------------------------------------------------------------------


def stored(nanos: int) -> int:
    """As C++ and Java write nanoseconds: hundreds and more lose their zeros, which the lower bits count."""
    if nanos == 0 or nanos % 100:
        return nanos << 3
    zeros = next(z for z in range(7, 0, -1) if nanos % 10 ** (z + 1) == 0)
    return nanos // 10 ** (zeros + 1) << 3 | zeros


def test_instants() -> None:
    nanos = [
        0,
        1,
        99,
        100,
        1000,
        999_999,
        1_000_000,
        123_456_700,
        500_000_000,
        999_999_999,
        -1,
        -500_000_000,
        -999_999_999,
    ]
    cases = [(second, nano) for second in (-(10**9), -2, -1, 0, 1, 10**10) for nano in nanos]
    seconds = np.array([s - 77 for s, _ in cases], np.int64)
    found = np.array([stored(n) for _, n in cases], np.int64)
    assert orc_rle.instants(seconds, found, 77)
    assert found.tolist() == [n for _, n in cases]
    assert seconds.tolist() == [s - (s < 0 and n > 999_999) for s, n in cases]


@pytest.mark.parametrize("raw", [10**9 << 3, -(10**9) << 3, 1 << 62, -(2**63), 10**8 << 3 | 1, 99 << 3 | 7])
def test_nanoseconds_of_a_second_or_more_are_refused(raw: int) -> None:
    one = np.zeros(1, np.int64)
    assert not orc_rle.instants(one, np.array([raw], np.int64), 0)


@pytest.mark.parametrize("lengths", [[], [0], [3, 0, 5], [2**31 - 1], [2**31 - 2, 1, 0]])
def test_offsets_are_the_sums_of_the_lengths_before(lengths: list[int]) -> None:
    out = np.full(len(lengths) + 1, 77, np.int32)
    assert orc_rle.offsets(np.array(lengths, np.int64), out) == sum(lengths)
    assert out.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]


@pytest.mark.parametrize("lengths", [[-1], [5, -5, 1], [2**31], [2**31 - 1, 1], [2**62, 2**62, -(2**62)], [-(2**63)]])
def test_lengths_that_are_negative_or_too_large_together_have_no_offsets(lengths: list[int]) -> None:
    assert orc_rle.offsets(np.array(lengths, np.int64), np.zeros(len(lengths) + 1, np.int32)) == -1


def test_short_repeats_are_filled_to_the_last_value_and_no_further() -> None:
    """The kernel writes ten values of each where there is room: what is after the wanted ones must stay."""
    data = bytes([0x00, 2, 0x01, 4, 0x02, 6, 0x07, 8]) + bytes(9)
    values = [1] * 3 + [2] * 4 + [3] * 5 + [4] * 10
    for count in range(1, len(values) + 1):
        memory = np.full(count + 12, 99, np.int64)
        orc_rle.integers_v2(array(data), 0, 0, True, memory[:count], np.zeros(2, np.int64))
        assert memory.tolist() == values[:count] + [99] * 12
