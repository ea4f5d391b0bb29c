"""Sound pieces and blobs in the place of others: of other blobs, builds, tables and versions. No unit is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.bundle.verify import verify_sidecar
from sidecar.puffin.types import SBBF, UNITS
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    field_bundle,
    filter_of,
    open_bytes,
    probe_for,
    units_table,
    write_file,
)
from tests.bundle.damage import assemble, combine, raw_blobs, reword, with_swapped_pieces
from tests.bundle.damage_cases import ABSENT, VALUES, sound


@pytest.mark.parametrize(
    ("members", "blocks", "what"),
    [(3, 84, "pages"), (64, 2, "regions"), (2048 + 9, 2, "regions"), (2048 + 9, 2, "rows")],
)
def test_pieces_swapped_with_their_checksums_are_noticed(members, blocks, what):
    data, footer = sound(members, blocks)
    assert not open_bytes(data, footer).segments[0].might_match(probe_for(1, 1000)).all()
    sidecar = open_bytes(with_swapped_pieces(data, footer, what), footer)
    for value in (0, 1, 39, 1000):
        assert sidecar.segments[0].might_match(probe_for(1, value)).all()
    assert any("checksum" in warning for warning in sidecar.warnings)


def test_swapped_blobs_of_the_same_length_are_noticed():
    fields = [filter_of([unit], 2) for unit in range(3)], [filter_of([unit + 50], 2) for unit in range(3)]
    data, footer = write_file([field_bundle(1, fields[0]), field_bundle(2, fields[1])], units_table(3))
    first, second, *others = raw_blobs(data)
    assert len(first) == len(second)
    bad = assemble(data, [second, first, *others])
    sidecar = open_bytes(bad, footer)
    for field_id, values in ((1, range(3)), (2, range(50, 53))):
        for value in values:
            assert sidecar.segments[0].might_match(probe_for(field_id, value)).all()
    assert sidecar.warnings
    assert verify_sidecar(BytesSource(bad))


def assert_first_bundle_keeps_everything(foreign, other, units):
    """That of field 1 does not belong to the units; that of field 4 does."""
    blobs = [(SBBF, (1,), foreign), (SBBF, (4,), other), (UNITS, (), units)]
    sidecar = open_bytes(combine([(kind, fields, SEGMENT, bytes(data)) for kind, fields, data in blobs]))
    assert sidecar.segments[0].might_match(probe_for(1, 5)).all()
    assert not sidecar.segments[0].might_match(probe_for(4, 5000)).all()
    assert any("does not belong" in warning for warning in sidecar.warnings)


def test_a_bundle_of_another_build_keeps_everything():
    """Same segment id and number of units, but not the same units: the digest tells them apart."""
    ours, _ = sound(3)
    theirs, _ = write_file(
        [field_bundle(1, [filter_of([9000], 2)] * 3)],
        replace(units_table(3), schemas=["another"]),
    )
    (_, other, units, _), (foreign, _, _) = raw_blobs(ours), raw_blobs(theirs)
    assert_first_bundle_keeps_everything(foreign, other, units)


def test_a_bundle_that_names_another_table_keeps_everything():
    """Its segment and the digest of its units may be right."""
    data, _ = sound(3)
    first, other, units, _ = raw_blobs(data)
    foreign = reword(first, lambda toc: toc.update(table="00000000-0000-0000-0000-00000000000f"))
    assert_first_bundle_keeps_everything(foreign, other, units)


def test_a_bundle_without_its_units_and_a_segment_of_another_table_are_unknown():
    data, footer = sound(3)
    first, *_ = raw_blobs(data)
    sidecar = open_bytes(combine([(SBBF, (1,), SEGMENT, bytes(first))]))
    assert not sidecar.segments
    assert any("the units blob of an index is missing" in warning for warning in sidecar.warnings)
    other = open_bytes(data, footer, table_uuid="another")
    assert not other.segments
    assert any("another table" in warning for warning in other.warnings)


@pytest.mark.parametrize(
    "change",
    [
        lambda group: group.update(version=2),
        lambda group: group.update(layout="woven"),
        lambda group: group.update(hash="murmur3"),
        lambda group: group.update(index="mask"),
        lambda group: group.update(encoding="int128"),
        lambda group: group.update(units={"ranges": []}),
        lambda group: group.update(units={"runs": [[0, 2**40]]}),
        lambda group: group.update(units={"bitmap": "/////w=="}),
        lambda group: group.update(units={"bitmap": "not base64"}),
        lambda group: group.update(blocks=3),
        lambda group: group.update(blocks=-1),
        lambda group: group.update(blocks=2**70),
        lambda group: group.update(offset=10**15),
        lambda group: group.update(members=2),
        lambda group: group.pop("resolution"),
    ],
)
def test_a_group_that_is_not_understood_is_stepped_over(change):
    data, _ = sound(3)
    first, other, units, _ = raw_blobs(data)
    strange = reword(first, lambda content: change(content["groups"][0]))
    sidecar = open_bytes(
        combine(
            [
                (SBBF, (1,), SEGMENT, strange),
                (SBBF, (4,), SEGMENT, bytes(other)),
                (UNITS, (), SEGMENT, bytes(units)),
            ]
        )
    )
    (segment,) = sidecar.segments
    for value in (*VALUES, *ABSENT):
        assert segment.might_match(probe_for(1, value)).all()
    assert not segment.might_match(probe_for(4, 5000)).all()
    assert sidecar.warnings


def test_other_versions_of_a_blob_are_unknown():
    data, _ = sound(3)
    first, other, units, _ = raw_blobs(data)
    later = reword(first, lambda content: content.update(version=2))
    parts = [(SBBF, (4,), SEGMENT, bytes(other)), (UNITS, (), SEGMENT, bytes(units))]
    sidecar = open_bytes(combine([(SBBF, (1,), SEGMENT, later), *parts]))
    assert sidecar.segments[0].might_match(probe_for(1, 1000)).all()
    assert sidecar.warnings
