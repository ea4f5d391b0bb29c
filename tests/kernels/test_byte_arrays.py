"""PLAIN byte arrays without their lengths, beside a slow twin: values of all lengths, and data that ends anywhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sidecar.kernels.rle import split_byte_arrays, unaligned_words


def split(data: bytes, count: int) -> tuple[int, bytes, list[int]]:
    """What the kernel returns and writes."""
    body = np.frombuffer(data, np.uint8)
    out, offsets = np.empty(len(body), np.uint8), np.zeros(count + 1, np.int32)
    length = split_byte_arrays(body, unaligned_words(body), count, out, unaligned_words(out), offsets)
    return length, out[: max(length, 0)].tobytes(), offsets.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_values_come_out_whole_and_cut_data_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.randbytes(rng.choice((0, 1, 7, 8, 9, 40))) for _ in range(rng.randrange(1, 6))]
    data = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    starts = [sum(map(len, values[:number])) for number in range(len(values) + 1)]
    assert split(data, len(values)) == (starts[-1], b"".join(values), starts)
    for end in range(len(data)):
        assert split(data[:end], len(values))[0] < 0


@pytest.mark.parametrize("length", [-1, 1 << 31, (1 << 32) - 1, 5])
def test_lengths_beyond_the_data_are_refused(length: int) -> None:
    data = (length % (1 << 32)).to_bytes(4, "little") + b"four"
    assert split(data, 1)[0] < 0
