"""Pieces of filters for many keys, read with what lies between them: the right bytes, few reads, bounded waste."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sidecar.bundle.filter_bundle import Piece
from sidecar.bundle.key_lookup import READ_COST, _read


class Recorded:
    """A bundle that is bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        self.ranges += ranges
        return [self.data[start : start + length] for start, length in ranges]


@pytest.mark.parametrize(("share", "reads"), [(0.01, 80), (0.1, 90), (0.7, 12), (1.0, 1)])
def test_every_piece_has_its_bytes_and_waste_is_bounded(share: float, reads: int) -> None:
    random, length, count = np.random.default_rng(4), 21_000, 1_000
    bundle: Any = Recorded(random.bytes(length * count))
    chosen = random.permutation(count)[: int(share * count)].tolist()
    pieces = [Piece(at * length, length, b"%d" % at) for at in chosen]
    assert _read(bundle, pieces) == [bundle.data[p.offset : p.offset + p.length] for p in pieces]
    wanted = sum(p.length for p in pieces)
    assert wanted <= sum(size for _, size in bundle.ranges) <= 2 * wanted
    assert len(bundle.ranges) <= reads


def test_distant_pieces_are_not_joined() -> None:
    bundle: Any = Recorded(bytes(10 * READ_COST))
    _read(bundle, [Piece(9 * READ_COST, READ_COST, b""), Piece(0, READ_COST, b"")])
    assert sorted(bundle.ranges) == [(0, READ_COST), (9 * READ_COST, READ_COST)]
    assert _read(bundle, []) == []
