"""The classes of ORC Java as an oracle: sizes, hashes and bits of random keys."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sidecar.filters.orc.bloom import size_for
from sidecar.filters.orc.encoding import OrcEncoding
from tests.filters.made_filters import orc_filter

pytestmark = pytest.mark.jvm


def java_bits(java: Any) -> bytes:
    return b"".join(struct.pack("<q", word) for word in java.getBitSet())


@pytest.mark.parametrize(("entries", "fpp"), [(1, 0.5), (60, 0.05), (1000, 0.01), (333, 0.0003)])
def test_bits_are_those_of_the_java_classes(spark: Any, entries: int, fpp: float) -> None:
    rng = random.Random(entries)
    longs = [rng.choice([1, -1]) * rng.getrandbits(rng.randint(1, 63)) for _ in range(40)]
    doubles = [0.0, -0.0, *(rng.gauss(0, 10.0 ** rng.randrange(-300, 300)) for _ in range(20))]
    texts = ["", "é", *("".join(rng.choice("aé日𝄞") for _ in range(rng.randrange(40))) for _ in range(40))]
    classes = spark._jvm.org.apache.orc.util
    keys: list[tuple[str, list[Any], str]] = [
        ("addLong", longs, "orc/long"),
        ("addDouble", doubles, "orc/double"),
        ("addString", texts, "orc/bytes"),
    ]
    for method, values, name in keys:
        java = classes.BloomFilterUtf8(entries, fpp)
        for value in values:
            getattr(java, method)(value)
        made = orc_filter(pa.array(values), OrcEncoding.parse(name), entries, fpp, strict=True)
        assert (made.m, made.k) == (java.getBitSize(), java.getNumHashFunctions()) == size_for(entries, fpp)
        assert made.to_bytes() == java_bits(java)
        assert made.to_bytes() != np.zeros(len(made.words), np.uint64).tobytes()
