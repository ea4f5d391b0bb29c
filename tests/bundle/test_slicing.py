"""Slicing loses nothing, widening changes no answer, and looking up is checking every filter."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.bundle.envelopes.checksum import BlobContext, PieceKind, is_sealed
from sidecar.bundle.envelopes.seals import contexts_of, open_pieces, seal_pieces
from sidecar.bundle.extract import extract_blocks
from sidecar.bundle.filters.layout import Layout
from sidecar.bundle.filters.positions import FREE_BYTES, GroupMember, plan_groups
from sidecar.bundle.filters.slicing import gather_blocks, slice_blocks, tail_piece, unslice_pages, widen_range
from sidecar.errors import UsageError
from sidecar.kernels.transpose import blocks_from_regions, regions_from_blocks
from tests.bundle.cases import (
    SEGMENT,
    extract_filter,
    field_bundle,
    group_filters,
    hash_of,
    open_bytes,
    pages_of,
    probe_for,
    random_filters,
    twin_check,
    units_table,
    write_file,
)

COUNTS = [
    1,
    2,
    7,
    8,
    9,
    17,
    63,
    64,
    65,
    128,
    129,
    255,
    256,
    257,
    511,
    512,
    513,
    658,
    1025,
    2040,
    2041,
    2047,
    2048,
    2049,
]
PLACE = BlobContext(SEGMENT, 1)


def slow_regions(blocks, row_bytes, row_stride, out):
    """Bit b of block i of filter u goes to bit u of row b of region i, by unpacking every bit."""
    members, regions, _ = blocks.shape
    bits = np.unpackbits(blocks.view(np.uint8).reshape(members, regions, 32), axis=2, bitorder="little")
    rows = np.packbits(bits.transpose(1, 2, 0), axis=2, bitorder="little")
    for region in range(regions):
        for row in range(256):
            out[region, row * row_stride : row * row_stride + row_bytes] = rows[region, row]


@pytest.mark.parametrize("members", COUNTS)
@pytest.mark.parametrize("regions", [1, 3, 9])
def test_kernel_equals_its_slow_twin_and_inverts(members, regions):
    rng = np.random.default_rng(members * 10 + regions)
    blocks = rng.integers(0, 2**32, (members, regions, 8), dtype=np.uint32)
    row_bytes = (members + 7) // 8
    for stride in (row_bytes, row_bytes + 8):
        fast = np.full((regions, 256 * stride + 8), 0xA5, np.uint8)
        slow = fast.copy()
        regions_from_blocks(blocks, fast, row_bytes, stride)
        slow_regions(blocks, row_bytes, stride, slow)
        np.testing.assert_array_equal(fast, slow)
        np.testing.assert_array_equal(blocks_from_regions(fast, members, row_bytes, stride), blocks)


@pytest.mark.parametrize("members", COUNTS)
@pytest.mark.parametrize("blocks", [1, 4, 37])
def test_unslice_of_slice_is_the_identity(members, blocks):
    rng = np.random.default_rng(members)
    filters = random_filters(rng, [blocks] * members)
    (group,) = plan_groups(GroupMember(u, "int64", "id", blocks * 32) for u in range(members))
    whole = gather_blocks(group, filters, 0, blocks)
    pages = slice_blocks(group, 0, whole, PLACE)
    assert len(pages) == group.layout.body_bytes(0, blocks) == group.layout.length
    np.testing.assert_array_equal(unslice_pages(group, 0, blocks, pages), whole)


@pytest.mark.parametrize("members", [3, 40, 100, 2100])
def test_slicing_by_steps_gives_the_same_bytes(members):
    blocks = 96
    filters = random_filters(np.random.default_rng(1), [blocks] * members)
    (group,) = plan_groups(GroupMember(u, "int64", "id", blocks * 32) for u in range(members))
    whole = slice_blocks(group, 0, gather_blocks(group, filters, 0, blocks), PLACE)
    step = group.block_step
    parts = [
        slice_blocks(group, first, gather_blocks(group, filters, first, min(step, blocks - first)), PLACE)
        for first in range(0, blocks, step)
    ]
    assert b"".join(parts) == whole


def test_the_calls_of_slicing_do_not_grow_with_the_pages():
    """Each would hold the interpreter's lock, which the threads that slice other parts wait for."""

    def calls_for(pages):
        (group,) = plan_groups(GroupMember(u, "int64", "id", pages * 5 * 32) for u in range(24))
        assert group.block_step == 5
        blocks = np.zeros((24, pages * 5, 8), np.uint32)
        counted = []
        sys.setprofile(lambda frame, event, argument: counted.append(event) if event.endswith("call") else None)
        slice_blocks(group, 0, blocks, PLACE)
        sys.setprofile(None)
        return len(counted)

    calls_for(2)  # loads the kernel
    assert calls_for(2) == calls_for(20)


def test_ranges_that_do_not_fit_are_refused():
    (group,) = plan_groups(GroupMember(u, "int64", "id", 128 * 32) for u in range(10))
    assert group.block_step == 12
    blocks = np.zeros((10, 12, 8), np.uint32)
    for first, wrong in ((1, blocks), (120, blocks), (0, blocks[:, :5]), (0, blocks[:9]), (-12, blocks)):
        with pytest.raises(UsageError):
            slice_blocks(group, first, np.ascontiguousarray(wrong), PLACE)
    for wrong in (blocks.astype(np.int64), blocks[:, ::2], blocks.transpose(1, 0, 2)):
        with pytest.raises(UsageError):
            slice_blocks(group, 0, wrong, PLACE)


@pytest.mark.parametrize("members", [1, 5, 63, 64, 65, 658, 2047, 2048, 2049])
def test_every_row_page_and_region_is_sealed_in_its_place(members):
    blocks = 5
    filters = random_filters(np.random.default_rng(2), [blocks] * members)
    (group,) = plan_groups(GroupMember(u, "int64", "id", blocks * 32) for u in range(members))
    layout = group.layout
    data = slice_blocks(group, 0, gather_blocks(group, filters, 0, blocks), PLACE)
    for page in range(layout.pages):
        piece = data[layout.page_offset(page) : layout.page_offset(page) + layout.page_length(page)]
        if not layout.sliced:
            assert is_sealed(PLACE.context(PieceKind.PAGE, page, 0), piece)
            assert not is_sealed(PLACE.context(PieceKind.PAGE, page + 1, 0), piece)
        elif not layout.rows_sealed:
            assert is_sealed(PLACE.context(PieceKind.REGION, page, 0), piece)
            assert not is_sealed(BlobContext(SEGMENT, 2).context(PieceKind.REGION, page, 0), piece)
        else:
            assert len(data) == layout.blocks * 256 * (layout.row_bytes + 8)
            for row in (0, 1, 255):
                at = layout.row_offset(page, row)
                sealed = data[at : at + layout.row_stride]
                assert is_sealed(PLACE.context(PieceKind.ROW, page, 0, row), sealed)
                assert not is_sealed(PLACE.context(PieceKind.ROW, page, 0, row + 1), sealed)


def test_more_pieces_than_are_hashed_at_once_are_sealed_each_in_its_place():
    """Pieces are hashed in batches of 256 KiB: those of the second batch have places of their own."""
    count, place = 6000, BlobContext(SEGMENT, 1)
    contexts = contexts_of(PieceKind.REGION, count, place, 0)
    contexts["position"] = np.arange(count)
    pieces = np.zeros((count, 16), np.uint8)
    pieces[:, :8] = np.arange(count, dtype="<u8").view(np.uint8).reshape(count, 8)
    seal_pieces(pieces, contexts, place)
    for number in range(count):
        assert is_sealed(place.context(PieceKind.REGION, number), pieces[number].tobytes()), number
    assert open_pieces(pieces, contexts, place)[1] == []


def test_layout_sizes():
    assert Layout(658, 1024).region_stride == 256 * 83 + 8
    assert not Layout(2040, 1).rows_sealed
    assert Layout(2041, 1).rows_sealed
    assert Layout(2041, 2).length == 2 * 256 * (256 + 8)
    assert Layout(63, 1000).page_regions == 2
    assert Layout(1, 1000).page_regions == 128
    assert Layout(1, 1000).length == 32_000 + 8 * 8
    assert Layout(10, 2, tail=7).length == 10 * 64 + 8 + 70 + 8
    assert Layout(10, 2, widened=True).length == 10 * 64 + 8 + 40 + 8


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_lemma_widening_by_an_integer_factor_changes_no_answer(data):
    own = data.draw(st.integers(1, 40))
    factor = data.draw(st.integers(1, 9))
    values = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30))
    (blocks,) = random_filters(np.random.default_rng(own), [own], 0.6)
    wide = widen_range(blocks, own * factor, 0, own * factor)
    for value in values:
        assert twin_check(wide, value) == twin_check(blocks, value)


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_a_range_of_a_widened_filter_may_begin_within_a_repeated_block(factor):
    own = np.arange(4 * 8, dtype=np.uint32).reshape(4, 8)
    whole = np.repeat(own, factor, axis=0)
    for first in range(len(whole)):
        for count in range(1, len(whole) - first + 1):
            found = widen_range(own, len(whole), first, count)
            assert (found == whole[first : first + count]).all()


def test_widening_holds_for_integer_factors_alone():
    with pytest.raises(UsageError):
        widen_range(np.zeros((64, 8), np.uint32), 80, 0, 80)


@given(
    sizes=st.lists(st.sampled_from([1, 2, 4, 8, 16, 3, 5]), min_size=1, max_size=130),
    tail=st.sampled_from([0, 1, 31]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_lookup_is_checking_every_filter_and_extraction_is_exact(sizes, tail, seed):
    rng = np.random.default_rng(seed)
    filters = random_filters(rng, sizes, 0.8)
    tails = [rng.bytes(tail) for _ in sizes]
    data, footer = write_file([field_bundle(1, filters, tails=tails)], units_table(len(sizes)))
    sidecar = open_bytes(data, footer, strict=True)
    (segment,) = sidecar.segments
    for value in rng.integers(-(2**62), 2**62, 5).tolist():
        expected = [twin_check(own, hash_of(value)) for own in filters]
        assert segment.might_match(probe_for(1, value)).tolist() == expected
    found = dict(pair for group in segment.fields[1] for pair in group_filters(segment, 1, group))
    assert found == {unit: own.tobytes() + tails[unit] for unit, own in enumerate(filters)}


@pytest.mark.parametrize(("members", "blocks"), [(63, 64), (64, 64), (658, 16), (2047, 4), (2048, 4), (2049, 4)])
def test_lookup_on_both_sides_of_every_limit(members, blocks):
    rng = np.random.default_rng(members)
    sizes = [blocks if unit % 5 else blocks // 2 for unit in range(members)]
    filters = random_filters(rng, sizes, 0.8)
    data, footer = write_file([field_bundle(1, filters)], units_table(members))
    (segment,) = open_bytes(data, footer, strict=True).segments
    assert len(segment.fields[1]) == 1, "smaller filters are widened into the one group"
    for value in range(12):
        expected = [twin_check(own, hash_of(value)) for own in filters]
        assert segment.might_match(probe_for(1, value)).tolist() == expected
    several = np.logical_or.reduce([segment.might_match(probe_for(1, value)) for value in (1, 2, 3)])
    assert segment.might_match(probe_for(1, 1, 2, 3)).tolist() == several.tolist()
    for unit in (0, members // 2, members - 1):
        assert extract_filter(segment, 1, unit) == filters[unit].tobytes()


def test_blocks_come_out_in_order_and_in_pieces():
    filters = random_filters(np.random.default_rng(0), [64] * 70)
    data, footer = write_file([field_bundle(1, filters)], units_table(70))
    (segment,) = open_bytes(data, footer, strict=True).segments
    (group,) = segment.fields[1]
    pieces = list(extract_blocks(segment.bundles[1], group, piece_bytes=70 * 32 * 10))
    assert [first for first, _ in pieces] == [0, 10, 20, 30, 40, 50, 60]
    np.testing.assert_array_equal(np.concatenate([blocks for _, blocks in pieces], axis=1), np.stack(filters))


def test_missing_filters_are_ones():
    (group,) = plan_groups(GroupMember(u, "int64", "id", 64) for u in range(3))
    blocks = gather_blocks(group, [None, np.zeros((2, 8), np.uint32), None], 0, 2)
    assert (blocks[[0, 2]] == 0xFFFFFFFF).all()
    assert not blocks[1].any()


def test_groups_keep_what_must_not_mix_apart():
    members = [
        GroupMember(0, "int64", "id", 64),
        GroupMember(1, "int32", "id", 64),
        GroupMember(2, "int64", "name:a", 64),
        GroupMember(3, "int64", "id", 65),
        GroupMember(4, "int64", "id", 96),
        GroupMember(5, "int64", "id", 32),
        GroupMember(6, "int64", "id", 96),
    ]
    groups = plan_groups(members)
    assert {tuple(group.units.tolist()) for group in groups} == {(0, 5), (1,), (2,), (3,), (4, 6)}
    assert [group.ordinal for group in groups] == list(range(len(groups)))
    (mixed,) = [group for group in groups if len(group.units) == 2 and group.blocks == 2]
    assert mixed.own_blocks.tolist() == [2, 1]
    assert mixed.widened


def test_widening_stays_within_half_of_the_filters_bytes():
    few = [GroupMember(unit, "int64", "id", 1 << 20) for unit in range(10)]
    many = [GroupMember(unit, "int64", "id", 1 << 15) for unit in range(10, 1000)]
    groups = plan_groups([*few, *many])
    assert [(group.blocks, len(group.units)) for group in groups] == [(1 << 15, 10), (1 << 10, 990)]
    even = [GroupMember(unit, "int64", "id", 1 << (15 + unit % 2)) for unit in range(1000)]
    assert len(plan_groups(even)) == 1
    added = sum((group.blocks - group.own_blocks).sum() * 32 for group in plan_groups(even))
    assert FREE_BYTES < added <= sum(member.num_bytes for member in even) / 2


def test_a_unit_stands_in_one_group():
    for bad in (
        [GroupMember(1, "int64", "id", 32)] * 2,
        [GroupMember(0, "int64", "id", 31)],
        [GroupMember(-1, "int64", "id", 32)],
    ):
        with pytest.raises(UsageError):
            plan_groups(bad)


def test_tails_must_fit():
    (group,) = plan_groups([GroupMember(0, "int64", "id", 35), GroupMember(1, "int64", "id", 35)])
    assert tail_piece(group, [b"abc", None], PLACE)[:-8] == b"abc\xff\xff\xff"
    for tails in ([b"abc"], [b"abc", b"ab"]):
        with pytest.raises(UsageError):
            tail_piece(group, tails, PLACE)


def test_pages_must_fill_their_groups():
    filters = random_filters(np.random.default_rng(0), [2] * 5)
    for change in (lambda pages: pages[:-1], lambda pages: [*pages, b"x"], lambda pages: [pages[0] + b"x"]):
        bundle = field_bundle(1, filters)
        bundle.pages = change(pages_of(bundle.groups, filters, BlobContext(SEGMENT, 1)))
        with pytest.raises(UsageError):
            write_file([bundle], units_table(5))
