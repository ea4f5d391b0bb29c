"""Damaged bundles of ORC filters cost pruning, never a row; verify finds every byte; none passes for another."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.puffin.types import ORC_BLOOM, PAGE_INDEX, SBBF, UNITS
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    ask_hash,
    mixed_bundle,
    open_bytes,
    orc_case,
    random_filters,
    random_orc,
    units_table,
    write_file,
)
from tests.bundle.damage import assemble, blob_bytes, combine, edit_footer, raw_blobs, reword, with_swapped_pieces

VALUES = [0x9E3779B97F4A7C15 * number % 2**64 for number in range(1, 13)]
ABSENT = [0xD1B54A32D192ED03 * number % 2**64 for number in range(1, 9)]
BITS = 320


@cache
def sound(members: int, bits: int = BITS) -> tuple[bytes, int]:
    """Unit u holds the values i with i % members == u in field 1; field 4 has other filters of the same sizes."""
    first = {unit: orc_case(VALUES[unit::members], bits) for unit in range(members)}
    other = {unit: orc_case([value ^ unit for value in VALUES], bits) for unit in range(members)}
    return write_file([mixed_bundle(1, first), mixed_bundle(4, other)], units_table(members))


def ask_everything(data: bytes, members: int, footer: int | None = None) -> tuple[int, list[str]]:
    """Ask for every value that is there and some that are not; returns how often a unit was dropped."""
    try:
        sidecar = open_bytes(data, footer)
    except SidecarError as error:
        return 0, [str(error)]
    dropped = 0
    for segment in sidecar.segments:
        for number, value in enumerate(VALUES):
            keep = segment.might_match(ask_hash(1, value))
            assert keep[number % members], "a unit that holds the value was dropped"
            dropped += int((~keep).sum())
        for unit in range(min(members, 20)):
            assert segment.might_match(ask_hash(4, VALUES[0] ^ unit))[unit]
        dropped += sum(int((~segment.might_match(ask_hash(1, value))).sum()) for value in ABSENT)
    return dropped, sidecar.warnings


@pytest.mark.parametrize("members", [3, 64, 256])
def test_sound_files_drop_and_warn_of_nothing(members):
    data, footer = sound(members)
    dropped, warnings = ask_everything(data, members, footer)
    assert dropped > 15 * (members - 1)
    assert warnings == []


@pytest.mark.parametrize(("members", "step"), [(3, 1), (64, 37), (256, 631)])
def test_no_byte_of_an_orc_bundle_may_change_unseen(members, step):
    """Of header and filters; one checksum covers all of the table of contents, so some bytes of that will do."""
    data, footer = sound(members)
    offset, length = blob_bytes(data)[0]
    toc = offset + int.from_bytes(data[offset + 16 : offset + 24], "little")
    bad = bytearray(data)
    for at in [*range(offset, toc, step), *range(toc - 9, toc), *range(toc, offset + length, 17)]:
        bad[at] ^= 1 << (at % 8)
        if at % 29 == 0:
            ask_everything(bytes(bad), members, footer)
        problems = verify_sidecar(BytesSource(bytes(bad), "bad.stats"))
        assert problems, f"byte {at} may change unseen"
        bad[at] = data[at]


@pytest.mark.parametrize("members", [3, 256])
def test_truncations_never_lose_a_unit(members):
    data, footer = sound(members)
    for length in [*range(0, len(data), len(data) // 20), *range(len(data) - 40, len(data))]:
        dropped, warnings = ask_everything(data[:length], members, footer)
        assert warnings
        assert not dropped


def test_a_damaged_row_is_doubted_by_those_alone_that_read_it():
    members = 256
    data, footer = sound(members)
    (segment,) = open_bytes(data, footer).segments
    (group,) = segment.fields[1]
    read = {value: set(group.rule.rows(value, group.layout.blocks)) for value in VALUES}
    region, row = sorted(read[VALUES[0]])[0]
    blobs = raw_blobs(data)
    blobs[0][group.offset + group.layout.row_offset(region, row) + 3] ^= 8
    sidecar = open_bytes(assemble(data, blobs), footer)
    for value in VALUES:
        keep = sidecar.segments[0].might_match(ask_hash(1, value))
        assert keep.all() == ((region, row) in read[value])
    assert any("wrong checksum" in warning for warning in sidecar.warnings)


@pytest.mark.parametrize(
    ("members", "bits", "what"),
    [(3, 256 * 84, "pages"), (64, 512, "regions"), (249, 512, "regions"), (249, 512, "rows")],
)
def test_pieces_swapped_with_their_checksums_are_noticed(members, bits, what):
    data, footer = sound(members, bits)
    sidecar = open_bytes(with_swapped_pieces(data, footer, what), footer)
    for value in (*VALUES, *ABSENT):
        assert sidecar.segments[0].might_match(ask_hash(1, value)).all()
    assert any("checksum" in warning for warning in sidecar.warnings)


def test_bundles_of_two_fields_are_not_taken_for_each_other():
    data, footer = sound(64)
    first, second, *others = raw_blobs(data)
    assert len(first) == len(second)
    bad = assemble(data, [second, first, *others])
    sidecar = open_bytes(bad, footer)
    for field_id in (1, 4):
        for value in (*VALUES, *ABSENT):
            assert sidecar.segments[0].might_match(ask_hash(field_id, value)).all()
    assert sidecar.warnings
    assert verify_sidecar(BytesSource(bad))


def test_a_region_of_split_blocks_is_not_taken_for_one_of_orc_filters():
    """Same field, group ordinal, region and length: only what the checksum calls the piece tells them apart."""
    rng = np.random.default_rng(4)
    filters = {unit: random_orc(rng, 256) for unit in range(64)}
    filters |= {unit + 64: own for unit, own in enumerate(random_filters(rng, [1] * 64))}
    data, footer = write_file([mixed_bundle(1, filters)], units_table(128))
    (segment,) = open_bytes(data, footer).segments
    split, orc = segment.fields[1]
    assert (split.ordinal, split.layout.length) == (orc.ordinal, orc.layout.length)
    blobs = raw_blobs(data)
    places = [slice(group.offset, group.offset + group.layout.length) for group in (split, orc)]
    one, other = (bytes(blob[at]) for blob, at in zip(blobs, places, strict=False))
    blobs[0][places[0]], blobs[1][places[1]] = other, one
    sidecar = open_bytes(assemble(data, blobs), footer)
    for value in (*VALUES, *ABSENT):
        assert sidecar.segments[0].might_match(ask_hash(1, value)).all()
    assert sidecar.warnings


@pytest.mark.parametrize("blob_type", [SBBF, PAGE_INDEX, UNITS])
def test_a_footer_that_calls_the_blob_something_else_is_noticed(blob_type):
    data, _ = sound(3)

    def rename(payload):
        payload["blobs"][0].update(type=blob_type)

    bad = edit_footer(data, rename)
    dropped, warnings = ask_everything(bad, 3)
    assert not dropped
    assert warnings
    assert verify_sidecar(BytesSource(bad))


def test_an_unknown_type_is_passed_over():
    """As an older reader does with a bundle of ORC filters: the units are kept."""
    data, _ = sound(3)
    bad = edit_footer(data, lambda payload: payload["blobs"][0].update(type="sidecar-orc-bloom-v9"))
    assert open_bytes(bad).segments[0].might_match(ask_hash(1, ABSENT[0])).all()


CHANGES = {
    "version": lambda group: group.update(version=2),
    "layout": lambda group: group.update(layout="woven"),
    "hash": lambda group: group.update(hash="xxh64"),
    "index": lambda group: group.update(index="parquet"),
    "no hash": lambda group: group.pop("hash"),
    "encoding": lambda group: group.update(encoding="orc/quaternion"),
    "encoding of Parquet": lambda group: group.update(encoding="int64"),
    "k 0": lambda group: group.update(k=0),
    "k 101": lambda group: group.update(k=101),
    "k a number with a point": lambda group: group.update(k=3.0),
    "no k": lambda group: group.pop("k"),
    "no bits": lambda group: group.update(bits=0),
    "bits of no word": lambda group: group.update(bits=BITS + 1),
    "another number of blocks": lambda group: group.update(bits=BITS + 256),
    "too many bits": lambda group: group.update(bits=2**40),
    "members": lambda group: group.update(members=2),
    "units": lambda group: group.update(units={"runs": [[0, 2**40]]}),
    "offset": lambda group: group.update(offset=10**15),
    "length": lambda group: group.update(length=group["length"] - 1),
    "resolution": lambda group: group.pop("resolution"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_group_that_is_not_understood_is_stepped_over(change):
    data, _ = sound(3)
    first, other, units, _ = raw_blobs(data)
    strange = reword(first, lambda content: change(content["groups"][0]))
    parts = [(ORC_BLOOM, (4,), SEGMENT, bytes(other)), (UNITS, (), SEGMENT, bytes(units))]
    sidecar = open_bytes(combine([(ORC_BLOOM, (1,), SEGMENT, strange), *parts]))
    (segment,) = sidecar.segments
    for value in (*VALUES, *ABSENT):
        assert segment.might_match(ask_hash(1, value)).all()
    assert not segment.might_match(ask_hash(4, ABSENT[0])).all()
    assert sidecar.warnings


def test_other_versions_and_kinds_of_a_blob_are_unknown():
    data, _ = sound(3)
    first, other, units, _ = raw_blobs(data)
    parts = [(ORC_BLOOM, (4,), SEGMENT, bytes(other)), (UNITS, (), SEGMENT, bytes(units))]
    for change in ({"version": 2}, {"kind": "sbbf"}):
        later = reword(first, lambda content, change=change: content.update(change))
        sidecar = open_bytes(combine([(ORC_BLOOM, (1,), SEGMENT, later), *parts]))
        assert sidecar.segments[0].might_match(ask_hash(1, ABSENT[0])).all()
        assert sidecar.warnings


def test_strict_raises_with_file_and_offset():
    data, footer = sound(3)
    bad = bytearray(data)
    bad[44] ^= 1
    sidecar = open_bytes(bytes(bad), footer, strict=True)
    with pytest.raises(DamagedFileError) as caught:
        sidecar.segments[0].might_match(ask_hash(1, VALUES[0]))
    assert (caught.value.file, caught.value.offset) == ("test.stats", 32)
