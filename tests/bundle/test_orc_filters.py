"""``sidecar-orc-bloom-v1``: looking up is checking every filter, extraction is exact, k rows are read."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.bundle.envelopes.checksum import BlobContext, PieceKind, is_sealed
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import OrcRule, SplitBlockRule
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.model import UNLISTED, UnitsTable
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.verify import verify_sidecar
from sidecar.bundle.writer import write_segment
from sidecar.errors import UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.filters.probes import FieldQuestion, ValueProbes
from sidecar.filters.values import Probe
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import ORC_BLOOM, SBBF
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource
from tests.bundle.cases import (
    PLACE,
    SEGMENT,
    OneProbe,
    OrcCase,
    ask_hash,
    copy_file,
    extract_filter,
    filter_of,
    group_filters,
    hash_of,
    mixed_bundle,
    open_bytes,
    orc_case,
    random_filters,
    random_orc,
    segment_header,
    twin_check,
    twin_positions,
    units_table,
    write_file,
)

HASHES = [0, 1, -1, 1 << 63, (1 << 64) - 1, 0x5BCA7C69B794F8CE, 0x8000000080000000, 0x7FFFFFFF7FFFFFFF]
Filters = dict[int, "np.ndarray | OrcCase"]


def segment_of(filters: Filters, units: int | None = None) -> Segment:
    data, footer = write_file([mixed_bundle(1, filters)], units_table(units or len(filters)))
    assert verify_sidecar(BytesSource(data)) == []
    (segment,) = open_bytes(data, footer, strict=True).segments
    return segment


def might_hold(own: np.ndarray | OrcCase | None, value: int) -> bool:
    if own is None:
        return True
    return own.holds(value) if isinstance(own, OrcCase) else twin_check(own, value)


def bytes_of(own: np.ndarray | OrcCase) -> bytes:
    return own.bitset if isinstance(own, OrcCase) else own.tobytes()


def extracted(segment: Segment, field_id: int = 1) -> dict[int, bytes]:
    groups = segment.fields[field_id]
    return dict(pair for group in groups for pair in group_filters(segment, field_id, group))


@pytest.mark.parametrize("members", [1, 2, 17, 63, 64, 65, 248, 249, 256, 2040, 2049])
@pytest.mark.parametrize(("bits", "k"), [(64, 1), (320, 7)])
def test_lookup_on_both_sides_of_every_limit(members, bits, k):
    rng = np.random.default_rng(members)
    filters: Filters = {unit: random_orc(rng, bits, k) for unit in range(members)}
    segment = segment_of(filters)
    (group,) = segment.fields[1]
    assert group.layout.rows_sealed == (members > 248)
    for value in [*HASHES, *rng.integers(-(2**63), 2**63, 8).tolist()]:
        found = segment.might_match(ask_hash(1, value))
        assert found.tolist() == [own.holds(value) for own in filters.values()], value
    for unit in (0, members // 2, members - 1):
        assert extract_filter(segment, 1, unit) == filters[unit].bitset


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_lookup_is_checking_every_filter_of_either_kind_and_extraction_is_exact(data, seed):
    """Units with a split-block filter, an ORC filter of one of several k and m and encodings, or none."""
    rng = np.random.default_rng(seed)
    units = data.draw(st.integers(1, 150))
    sizes = data.draw(st.lists(st.integers(1, 20).map(lambda words: 64 * words), min_size=1, max_size=3))
    filters: Filters = {}
    for unit in range(units):
        if kind := rng.integers(6):
            filters[unit] = (
                random_filters(rng, [int(rng.choice([1, 2, 3]))])[0]
                if kind == 1
                else replace(
                    random_orc(rng, int(rng.choice(sizes)), int(rng.integers(1, 9))),
                    encoding=str(rng.choice(["orc/long", "orc/bytes"])),
                )
            )
    segment = segment_of(filters, units)
    for value in rng.integers(0, 2**64, 4, dtype=np.uint64).tolist():
        expected = [might_hold(filters.get(unit), value) for unit in range(units)]
        assert segment.might_match(ask_hash(1, value)).tolist() == expected
    assert not filters or extracted(segment) == {unit: bytes_of(own) for unit, own in filters.items()}


def test_positions_are_those_of_the_published_hashes():
    """The index rule, on values whose positions were taken from the Java classes, and on those that wrap."""
    for value in HASHES:
        for k, bits in ((1, 64), (7, 95_872), (13, 1_048_576)):
            rows = OrcRule(k, bits).rows(value, 0)
            assert [region * 256 + row for region, row in rows] == twin_positions(value, k, bits)


def test_filters_of_the_filters_room_come_out_as_they_went_in():
    values = [[unit * 1000 + i for i in range(50)] for unit in range(70)]
    encoding = OrcEncoding.parse("orc/long")
    made = []
    for held in values:
        one = OrcBloomFilter.empty(960, 7)
        hashes = [probe_orc(value, "long", encoding).hashes[0] for value in held]
        one.insert(np.array(hashes, np.uint64))
        made.append(one)
    segment = segment_of({u: OrcCase(one.to_bytes(), one.k) for u, one in enumerate(made)})
    for unit, held in enumerate(values):
        for value in held[::10]:
            keep = segment.might_match(FieldQuestion(1, ValueProbes([value], "long")))
            assert keep[unit]
            assert keep.tolist() == [one.might_contain(value, "long", encoding) for one in made]
    assert extracted(segment) == {unit: one.to_bytes() for unit, one in enumerate(made)}


def test_a_field_with_both_kinds_has_a_blob_of_each():
    filters: Filters = {
        0: filter_of([5], 2),
        1: orc_case([hash_of(5)], 640),
        3: orc_case([hash_of(6)], 640),
        4: filter_of([6], 2),
    }
    data, footer = write_file([mixed_bundle(1, filters)], units_table(5))
    blobs = PuffinReader(BytesSource(data), footer_length=footer).metadata.blobs
    assert [(blob.type, blob.fields) for blob in blobs[:2]] == [(SBBF, (1,)), (ORC_BLOOM, (1,))]
    (segment,) = open_bytes(data, footer, strict=True).segments
    assert [bundle.toc.rule_type for bundle in segment.bundles_of(1)] == [SplitBlockRule, OrcRule]
    assert [group.ordinal for group in segment.fields[1]] == [0, 0]
    asked: list[Encoding | OrcEncoding] = []

    def probe(encoding: Encoding | OrcEncoding) -> Probe:
        asked.append(encoding)
        return Probe("probe", (hash_of(5),))

    assert segment.might_match(FieldQuestion(1, OneProbe(probe))).tolist() == [True, True, True, False, False]
    assert [type(encoding) for encoding in asked] == [Encoding, OrcEncoding]
    in_orc = OneProbe(lambda e: Probe("cannot-exist") if isinstance(e, OrcEncoding) else Probe("unknown"))
    only_orc = segment.might_match(FieldQuestion(1, in_orc))
    assert only_orc.tolist() == [True, False, True, False, True]
    assert extracted(segment) == {unit: bytes_of(own) for unit, own in filters.items()}


def test_groups_keep_what_must_not_mix_apart():
    members = [
        GroupMember(0, "orc/long", "id", 80, rule=OrcRule(3, 640)),
        GroupMember(1, "orc/long", "id", 80, rule=OrcRule(4, 640)),
        GroupMember(2, "orc/long", "id", 88, rule=OrcRule(3, 704)),
        GroupMember(3, "orc/bytes", "id", 80, rule=OrcRule(3, 640)),
        GroupMember(4, "orc/long", "name:a", 80, rule=OrcRule(3, 640)),
        GroupMember(5, "orc/long", "id", 80, rule=OrcRule(3, 640)),
        GroupMember(6, "int64", "id", 64),
        GroupMember(7, "int64", "id", 96),
    ]
    groups = plan_groups(reversed(members))
    assert [(type(group.rule), group.ordinal) for group in groups] == [
        *[(SplitBlockRule, ordinal) for ordinal in range(2)],
        *[(OrcRule, ordinal) for ordinal in range(5)],
    ]
    assert {tuple(group.units.tolist()) for group in groups} == {(0, 5), (1,), (2,), (3,), (4,), (6,), (7,)}
    assert not any(group.widened or group.tail for group in groups)
    for bits in (0, 63, 65, 96, 1 << 31):
        with pytest.raises(UsageError):
            OrcRule(3, bits)
    for k in (0, -1, 101):
        with pytest.raises(UsageError):
            OrcRule(k, 64)
    with pytest.raises(UsageError):
        plan_groups([GroupMember(0, "orc/long", "id", 88, rule=OrcRule(3, 640))])


def test_groups_must_stand_as_they_were_planned():
    bundle = mixed_bundle(1, {0: filter_of([5], 2), 1: orc_case([5], 640), 2: orc_case([5], 704)})
    split, first, second = bundle.groups
    for groups in ([first, split, second], [split, second, first], [first, second, split, split]):
        with pytest.raises(UsageError, match="planned"):
            write_file([FieldBundle(1, groups, bundle.pages)], units_table(3))


@pytest.mark.parametrize("members", [3, 64, 249])
def test_pieces_are_sealed_as_those_of_orc_bundles(members):
    rng = np.random.default_rng(1)
    (group,) = plan_groups(GroupMember(u, "orc/long", "id", 64, rule=OrcRule(3, 512)) for u in range(members))
    place = BlobContext(SEGMENT, 1)
    data = slice_blocks(group, 0, rng.integers(0, 2**32, (members, 2, 8), dtype=np.uint32), place)
    layout = group.layout
    if not layout.sliced:
        assert is_sealed(place.context(PieceKind.ORC_PAGE), data)
    elif not layout.rows_sealed:
        assert is_sealed(place.context(PieceKind.ORC_REGION, 1), data[layout.page_offset(1) :])
    else:
        at = layout.row_offset(1, 255)
        assert is_sealed(place.context(PieceKind.ORC_ROW, 1, 0, 255), data[at : at + layout.row_stride])
        assert layout.length == 2 * 256 * (32 + 8)


def test_inspect_shows_them():
    data, _footer = write_file([mixed_bundle(1, {0: filter_of([5], 2), 1: orc_case([5], 640)})], units_table(2))
    (segment,) = inspect_sidecar(BytesSource(data)).segments
    split, orc = segment["bundles"]
    assert (split["kind"], orc["kind"]) == ("sbbf", "orc-bloom")
    (group,) = orc["groups"]
    assert (group["k"], group["bits"], group["filter_bytes"]) == (3, 640, 80)
    assert (group["encoding"], group["layout"], group["lookup_bytes"]) == ("orc/long", "transposed", 104)
    assert split["groups"][0]["blocks"] == 2


def test_copied_as_bytes():
    filters: Filters = {unit: orc_case([unit], 640) for unit in range(70)}
    old = open_bytes(*write_file([mixed_bundle(1, filters)], units_table(70)))
    (segment,) = open_bytes(*copy_file(old), strict=True).segments
    assert extracted(segment) == {unit: own.bitset for unit, own in filters.items()}
    assert segment.might_match(ask_hash(1, 33))[33]


def many_units(path, units: int, rule: OrcRule) -> None:
    """A sidecar of one file of so many units with filters that hold nothing, written region by region."""
    (group,) = plan_groups(GroupMember(unit, "orc/long", "id", rule.bits // 8, rule=rule) for unit in range(units))
    (file,) = units_table(1).files
    table = UnitsTable([replace(file, manifest=UNLISTED, units=file.units * units)])
    with path.open("wb") as sink:
        puffin = PuffinWriter(sink)
        bundle = FieldBundle(1, [group], regions_of(group))
        write_toc(puffin, write_segment(puffin, segment_header(), table, [bundle], **PLACE), **PLACE)
        puffin.finish()


def regions_of(group: BundleGroup):
    empty = np.zeros((len(group.units), 1, 8), np.uint32)
    return (slice_blocks(group, region, empty, BlobContext(SEGMENT, 1)) for region in range(group.blocks))


def test_a_lookup_over_100_000_row_groups_reads_k_rows(tmp_path):
    """At most k x 12.5 KB and 64 KB, opening included, in the reads of k rows and the tail; under 5 ms of compute."""
    rule, path = OrcRule(7, 4800), tmp_path / "many.stats"
    many_units(path, 100_000, rule)
    rng = np.random.default_rng(3)
    times = []
    for value in rng.integers(0, 2**63, 12).tolist():
        counting = CountingSource(LocalSource(str(path)))
        sidecar = SidecarFile.open(counting)
        (segment,) = sidecar.segments
        start = time.thread_time()
        keep = segment.might_match(ask_hash(1, value))
        times.append(time.thread_time() - start)
        assert len(keep) == 100_000
        assert not keep.any()
        assert counting.bytes_read <= rule.k * 12_500 + 64 * 1024
        assert counting.reads <= rule.k + 2
        assert sidecar.warnings == []
        sidecar.close()
    assert min(times) < 0.005
