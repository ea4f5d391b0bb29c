"""Pieces of filters for many keys, read with what lies between them: the right bytes, few reads, bounded waste."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sidecar.bundle.filters.filter_bundle import BundlePiece
from sidecar.bundle.filters.key_lookup import READ_COST, KeyRuns, _read, units_with_some_key
from sidecar.filters.probes import FieldQuestion
from sidecar.filters.values import Probe
from tests.bundle.cases import field_bundle, filter_of, hash_of, known_probes, open_bytes, units_table, write_file


@pytest.mark.parametrize("units", [6, 70], ids=["transposed", "sliced"])
@pytest.mark.parametrize("doubt", [Probe("unknown", reason="?"), Probe("probe", ())], ids=["unknown", "no hash"])
def test_a_unit_is_kept_if_one_key_of_its_run_cannot_be_looked_up(units: int, doubt: Probe) -> None:
    """Keys 0 to 9 are nowhere but for key 8, which unit 5 holds; key 4 cannot be told. Others are asked in vain."""
    filters = [filter_of([8] if unit == 5 else [1000 + unit], 8) for unit in range(units)]
    data, footer = write_file([field_bundle(1, filters)], units_table(units))
    (segment,) = open_bytes(data, footer, strict=True).segments
    answers = [doubt if key == 4 else Probe("probe", (hash_of(key),)) for key in range(10)]
    first, end = np.zeros(units, np.int64), np.full(units, 4)  # keys 0 to 3, all of them denied
    first[:6], end[:6] = [3, 4, 5, 0, 4, 7], [5, 5, 8, 4, 4, 10]
    question = FieldQuestion(1, known_probes(*answers))
    found = units_with_some_key(segment.bundles[1], question, np.arange(10), KeyRuns(first, end), 1 << 20)
    assert isinstance(found, np.ndarray)
    # 0 and 1 are asked key 4; 2 and 3 are asked what lies beside it; 4 is asked nothing; 5 holds key 8
    assert found[:6].tolist() == [True, True, False, False, True, True]
    assert not found[6:].any()


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
    pieces = [BundlePiece(at * length, length, b"%d" % at) for at in chosen]
    assert _read(bundle, pieces) == [bundle.data[p.offset : p.offset + p.length] for p in pieces]
    wanted = sum(p.length for p in pieces)
    assert wanted <= sum(size for _, size in bundle.ranges) <= 2 * wanted
    assert len(bundle.ranges) <= reads


def test_distant_pieces_are_not_joined() -> None:
    bundle: Any = Recorded(bytes(10 * READ_COST))
    _read(bundle, [BundlePiece(9 * READ_COST, READ_COST, b""), BundlePiece(0, READ_COST, b"")])
    assert sorted(bundle.ranges) == [(0, READ_COST), (9 * READ_COST, READ_COST)]
    assert _read(bundle, []) == []
