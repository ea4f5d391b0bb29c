"""Damage in a part costs the filters that it hits: their units are kept, and the states say why."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sidecar.bundle.filters import positions
from sidecar.bundle.merging.checking import check_segment
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.model import UnitState
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError
from sidecar.storage.source import BytesSource
from tests.bundle.cases import ask_hash, filter_of, hash_of
from tests.bundle.merging.lake import Key, Lake, OwnFilter, Part, merged, only, opened, write_parts
from tests.bundle.merging.test_merged_indexes import PAGE_KINDS, given

VALUES = 20


def values_of(unit: Key) -> list[int]:
    return [1000 * unit[0] + 100 * unit[1] + n for n in range(VALUES)]


def parts_of(lake: Lake, split: int) -> list[Part]:
    """Two parts whose filters hold known values: sizes that are widened, and some with odd bytes after the blocks."""
    parts = []
    for number, files in enumerate((range(split), range(split, len(lake.counts)))):
        own = {}
        for unit in lake.units(files):
            blocks = filter_of(values_of(unit), 4 if unit[0] % 3 else 2)
            tail = b"tail!" if unit[0] % 5 == 0 else b""
            own[unit] = OwnFilter(blocks.tobytes() + tail)
        parts.append(Part(list(files), {1: own}, number=number))
    return parts


@pytest.mark.parametrize("files", [20, 140])
def test_no_flipped_bit_of_filters_makes_a_filter_deny_what_it_holds(files: int) -> None:
    """Pages, regions, tails and sizes of widened filters: each piece of the first part is hit in some round."""
    lake = Lake([1] * files)
    parts = parts_of(lake, files - 6)
    data, _ = write_parts(lake, parts)
    stored = opened(data)
    groups = stored.segments[0].bundles[1].toc.groups
    entry = next(entry for entry in stored.segments[0].entries if entry.fields == (1,))
    units = lake.units(range(files))
    chance = random.Random(files)
    for group in groups:
        layout = group.layout
        places = [chance.randrange(layout.body_length) for _ in range(4)]
        places += [layout.tail_offset + 3] * bool(layout.tail) + [layout.own_offset + 3] * layout.widened
        for place in places:
            damaged = bytearray(data)
            damaged[entry.offset + group.offset + place] ^= 1 << chance.randrange(8)
            segment = only(opened(merged(lake, opened(bytes(damaged)), list(range(files))), strict=True))
            hit = set(group.ordinals().tolist())
            coverage = segment.coverage(1, "bloom")
            assert coverage is not None
            states = [coverage.states[code].state for code in coverage.codes]
            for unit, at in units.items():
                own = parts[0 if unit[0] < files - 6 else 1].filters[1][unit]
                is_hit = unit[0] < files - 6 and at in hit
                assert states[at] == (UnitState.DAMAGED if is_hit else UnitState.INDEXED)
                if at % 7 == 0 or is_hit:
                    value = hash_of(values_of(unit)[0])
                    assert segment.might_match(ask_hash(1, value))[at], (unit, place)
                    absent = hash_of(-1 - unit[0])
                    assert segment.might_match(ask_hash(1, absent))[at] == (is_hit or own.holds(absent))


def test_a_damaged_entry_of_page_indexes_costs_one_unit() -> None:
    lake = Lake([1] * 5)
    entries = {(file, 0): (PAGE_KINDS[0], b"column %d" % file, b"offset %d" % file) for file in range(5)}
    data, _ = write_parts(lake, [Part(range(5), indexes=given({3: entries}, {}))])
    damaged = data.replace(b"column 2", b"column X")
    segment = only(opened(merged(lake, opened(damaged), list(range(5))), strict=True))
    assert sorted(segment.page_indexes(3, range(5))) == [0, 1, 3, 4]


def test_a_segment_with_a_damaged_units_table_is_not_merged() -> None:
    lake = Lake([1] * 3)
    data, _ = write_parts(lake, [Part(range(3), {1: {(0, 0): OwnFilter(b"\1" * 32)}})])
    stored = opened(data)
    section = next(s for s in stored.segments[0].units.toc.sections if s.name == "files")
    at = stored.segments[0].entry.offset + section.offset + 100
    changed = opened(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(DamagedFileError, match="wrong checksum"):
        check_segment(SourceSegment(changed, changed.segments[0]))


def test_a_group_that_is_not_understood_keeps_its_segment_from_being_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be of a later version: merging would lose it."""
    lake = Lake([1] * 3)
    data, _ = write_parts(lake, [Part(range(3), {1: {(0, 0): OwnFilter(b"\1" * 32)}})])
    stored = opened(data)
    bundle = stored.segments[0].bundles[1]
    object.__setattr__(bundle.toc, "damage", ("group 1 is of a later kind",))
    with pytest.raises(UnsupportedFeatureError, match="later kind"):
        check_segment(SourceSegment(stored, stored.segments[0]))


def test_a_read_that_fails_is_no_damage() -> None:
    """Otherwise a storage that is down for a moment would cost all indexes for good."""
    lake = Lake([1] * 200)
    rng = np.random.default_rng(1)
    entries = {(file, 0): (PAGE_KINDS[0], rng.bytes(900), b"o") for file in range(200)}
    data, _ = write_parts(lake, [Part(range(200), indexes=given({3: entries}, {}))])

    class Failing(BytesSource):
        down = False

        def read(self, offset: int, length: int) -> bytes:
            if self.down and offset < 100_000:
                raise StorageError("the storage is down")
            return super().read(offset, length)

    stored = opened(data)
    source = Failing(data, "test.stats")
    stored.reopen(source)
    source.down = True
    with pytest.raises(StorageError, match="down"):
        check_segment(SourceSegment(stored, stored.segments[0]))


def test_whatever_read_of_a_merge_brings_a_flipped_bit_the_error_names_the_file() -> None:
    """Parts are read twice, to be checked and to be merged. What is damaged only the second time fails the merge."""
    lake = Lake([1] * 3)
    noise = np.random.default_rng(1).bytes(10_000)
    entries = {(file, 0): (PAGE_KINDS[0], noise, b"offset %d" % file) for file in range(3)}
    filters = {1: {unit: OwnFilter(filter_of(values_of(unit), 1024).tobytes()) for unit in lake.units(range(3))}}
    data, _ = write_parts(lake, [Part(range(3), filters, indexes=given({3: entries}, {}))])

    class Flipping(BytesSource):
        reads, flipped = 0, -1

        def read(self, offset: int, length: int) -> bytes:
            self.reads += 1
            found = super().read(offset, length)
            return found[:-1] + bytes([found[-1] ^ 1]) if self.reads == self.flipped + 1 else found

    named, number = [], 0
    while True:
        source = Flipping(data, "test.stats")
        stored = SidecarFile.open(source)
        source.flipped = source.reads + number
        try:
            merged(lake, stored, list(range(3)))
        except DamagedFileError as error:
            named.append((number, error.file, error.what.partition(" came ")[0]))
        if source.reads <= source.flipped:
            break
        number += 1
    assert {file for _, file, _ in named} == {"test.stats"}
    assert {what.split()[0] for _, _, what in named} >= {"page", "the"}


def test_sizes_that_are_widened_are_in_the_test() -> None:
    parts = parts_of(Lake([1] * 20), 14)
    assert {len(own.bitset) for own in parts[0].filters[1].values()} == {64, 69, 128, 133}
    assert positions.FREE_BYTES > 0
