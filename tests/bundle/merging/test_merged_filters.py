"""A merged segment gives the answers of the filters in its parts, and gives them back as the same bytes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from sidecar.bundle.filters import positions
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.rules import SPLIT_BLOCK, OrcRule
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.model import UnitState
from sidecar.bundle.segment import Segment
from sidecar.bundle.verify import verify_sidecar
from sidecar.storage.source import BytesSource
from tests.bundle.cases import ask_hash, group_filters
from tests.bundle.merging.lake import Key, Lake, OwnFilter, Part, merged, only, opened, write_parts

Filters = dict[int, dict[Key, OwnFilter]]


def random_filter(rng: np.random.Generator, wide: bool) -> OwnFilter | None:
    """A filter of any size, kind, encoding and resolution that a file may have, or none."""
    resolution = "name:a|b" if rng.random() < 0.2 else "id"
    choice = rng.random()
    if choice < 0.1:
        return None
    if choice < 0.3:
        rule = OrcRule(3, int(rng.choice([64, 192, 576])))
        return OwnFilter(random_bits(rng, rule.bits // 8), rule, "orc/long", resolution)
    if choice < 0.4:  # of an odd size, with bytes after the last block
        return OwnFilter(random_bits(rng, 32 * 3 + 5), SPLIT_BLOCK, "int64", resolution)
    encoding = "int32" if choice < 0.5 else "int64"
    blocks = int(rng.choice([1, 2, 4, 32] if wide else [1, 2]))
    return OwnFilter(random_bits(rng, 32 * blocks), SPLIT_BLOCK, encoding, resolution)


def random_bits(rng: np.random.Generator, size: int) -> bytes:
    return np.packbits(rng.random(8 * size) < 0.85).tobytes()


def random_parts(rng: np.random.Generator, lake: Lake, wide: bool) -> list[Part]:
    parts = []
    for number in range(int(rng.integers(2, 5))):
        files = np.flatnonzero(rng.random(len(lake.counts)) < 0.6).tolist()
        if rng.random() < 0.3:
            files = rng.permutation(files).tolist()
        filters: Filters = {}
        for field_id in (1, 4, 1 << 30):
            if rng.random() < 0.7:
                own = {unit: random_filter(rng, wide) for unit in lake.units(files)}
                filters[field_id] = {unit: found for unit, found in own.items() if found is not None}
        parts.append(Part(files, filters, number=number))
    return parts


def newest(parts: list[Part], field_id: int, unit: Key) -> OwnFilter | None:
    found = [part.filters[field_id][unit] for part in parts if unit in part.filters.get(field_id, {})]
    return found[-1] if found else None


def extracted(segment: Segment, field_id: int) -> dict[int, bytes]:
    return {
        unit: bitset
        for group in segment.fields.get(field_id, ())
        for unit, bitset in group_filters(segment, field_id, group)
    }


def test_a_field_of_two_rates_has_none() -> None:
    """Filters of Parquet and of ORC files are two blobs. Which of them a build asks for decides what is built again."""

    def source(*rates: float | None) -> SourceSegment:
        made = SourceSegment(Mock(), Mock())
        blobs = {(str(number), 1): Mock(FilterBundle, toc=Mock(fpp=rate)) for number, rate in enumerate(rates)}
        made.__dict__["blobs"] = blobs
        return made

    assert [source(*rates).rates for rates in ((0.01,), (0.01, 0.01), (0.2, 0.01), (0.01, 0.2))] == [
        {1: 0.01},
        {1: 0.01},
        {1: None},
        {1: None},
    ]


@pytest.mark.parametrize("seed", range(6))
def test_answers_and_bytes_are_those_of_the_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of all kinds: sliced, transposed, alone, widened in one part and not in another, missing, gone."""
    rng = np.random.default_rng(seed)
    lake = Lake(rng.integers(0, 3, 30 if seed % 2 else 220).tolist())
    parts = random_parts(rng, lake, wide=seed % 3 > 0)
    monkeypatch.setattr(positions, "FREE_BYTES", 1 << 20 if seed % 3 else 0)
    data, _ = write_parts(lake, parts)
    monkeypatch.setattr(positions, "FREE_BYTES", 0 if seed % 3 else 1 << 20)
    live = np.flatnonzero(rng.random(len(lake.counts)) < 0.8).tolist()
    written = merged(lake, opened(data, strict=True), live)
    assert verify_sidecar(BytesSource(written, "merged")) == []
    segment = only(opened(written, strict=True))
    units = lake.units(live)
    known = {file for part in parts for file in part.files}
    units = {unit: at for at, unit in enumerate(u for u in units if u[0] in known)}
    assert segment.num_units == len(units)
    for field_id in (1, 4, 1 << 30):
        own = {unit: newest(parts, field_id, unit) for unit in units}
        kept = extracted(segment, field_id)
        assert kept == {units[unit]: found.bitset for unit, found in own.items() if found is not None}
        for resolution in ("id", "name:a|b"):
            for value in rng.integers(0, 1 << 64, 6, np.uint64).tolist():
                answer = segment.might_match(
                    replace(ask_hash(field_id, value), resolutions=defaultdict(bool, {(field_id, resolution): True}))
                )
                expected = [
                    found is None or found.resolution != resolution or found.holds(value) for found in own.values()
                ]
                assert answer.tolist() == expected
        coverage = segment.coverage(field_id, "bloom")
        if coverage is not None:
            assert coverage.indexed.tolist() == [found is not None for found in own.values()]


def test_large_groups_are_merged_piece_by_piece() -> None:
    """Groups of more than one piece, whose stored and merged forms have different numbers of blocks."""
    rng = np.random.default_rng(1)
    lake = Lake([1] * 90)
    bits = {file: rng.integers(0, 256, 32 * (4096 if file % 7 else 64), np.uint8).tobytes() for file in range(90)}
    filters = [{(file, 0): OwnFilter(bits[file]) for file in files} for files in (range(70), range(70, 90))]
    parts = [Part(sorted(file for file, _ in own), {1: own}) for own in filters]
    data, _ = write_parts(lake, parts)
    segment = only(opened(merged(lake, opened(data), list(range(90))), strict=True))
    assert extracted(segment, 1) == bits
    assert {len(groups) for groups in segment.fields.values()} <= {1, 2}


def test_what_no_part_knows_is_told_apart_from_what_was_refused() -> None:
    lake = Lake([1] * 4)
    own = OwnFilter(b"\1" * 32)
    parts = [Part([0, 1], {1: {(0, 0): own}}), Part([2, 3], {4: {(2, 0): own, (3, 0): own}})]
    data, _ = write_parts(lake, parts)
    segment = only(opened(merged(lake, opened(data), [0, 1, 2, 3]), strict=True))
    not_built = UnitState.NOT_BUILT.value
    for field_id, expected in (
        (1, ["indexed", "too large", not_built, not_built]),
        (4, [not_built] * 2 + ["indexed"] * 2),
    ):
        coverage = segment.coverage(field_id, "bloom")
        assert coverage is not None
        assert [coverage.states[code].state for code in coverage.codes] == expected
    bundle = segment.bundles[4]
    assert (bundle.toc.fpp, bundle.toc.expected_false_units) == (0.01, pytest.approx(0.02))


def test_expected_false_units_are_those_of_the_filters_that_stay() -> None:
    lake = Lake([1] * 4)
    own = OwnFilter(b"\1" * 32)
    data, _ = write_parts(lake, [Part([0, 1, 2, 3], {1: {(file, 0): own for file in range(4)}})])
    segment = only(opened(merged(lake, opened(data), [1]), strict=True))
    assert segment.bundles[1].toc.expected_false_units == pytest.approx(0.01)
    assert segment.num_files == 1
