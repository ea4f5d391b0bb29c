"""``sidecar-page-index-v1``: what was written comes back, in few reads, or nothing does."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence

import numpy as np
import pytest

from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import MEMBERS_PER_PIECE, plan_index_groups
from sidecar.bundle.indexes.page_indexes import (
    PAGE_INDEXES,
    PageIndexKind,
    decode_page_index,
    ordering_of,
)
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.segment import Segment
from sidecar.bundle.verify import verify_sidecar
from sidecar.bundle.writer import write_segment
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.parquet.bounds import Ordering
from sidecar.parquet.page_indexes.page_index import encode_column_index, encode_offset_index
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import PAGE_INDEX
from sidecar.puffin.writer import PuffinWriter
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import BytesSource, CountingSource
from tests.bundle.cases import (
    copy_file,
    field_bundle,
    filter_of,
    open_bytes,
    segment_header,
    units_table,
    write_file,
)

LONG, TEXT = (
    PageIndexKind("int64", "id", "signed:8", 1),
    PageIndexKind("byte_array", "name:a", "bytes", 1, 2, 1),
)
Entries = dict[int, tuple[PageIndexKind, bytes, bytes]]


def entries_for(units: Sequence[int], seed: int = 1) -> Entries:
    chance = random.Random(seed)
    found: Entries = {}
    for unit in units:
        column = chance.randbytes(chance.randrange(200)) if unit % 5 else b""
        found[unit] = (TEXT if unit % 11 == 3 else LONG, column, chance.randbytes(1 + chance.randrange(90)))
    return found


def given(field_id: int, entries: Entries) -> FieldIndexes:
    groups = plan_index_groups(
        PAGE_INDEXES, ((unit, kind, (len(column), len(offset))) for unit, (kind, column, offset) in entries.items())
    )
    return FieldIndexes(
        PAGE_INDEXES, field_id, groups, [entries[unit][1:] for group in groups for unit in group.units.tolist()]
    )


def sidecar_bytes(units: int, fields: dict[int, Entries], filters: bool = False) -> bytes:
    bundles = [field_bundle(1, [filter_of([unit], 1) for unit in range(units)])] if filters else []
    blobs = [given(field_id, entries) for field_id, entries in fields.items()]
    return write_file([*blobs, *bundles], units_table(units))[0]


def segment_of(data: bytes, **options: object) -> Segment:
    (segment,) = open_bytes(data, **options).segments
    return segment


def as_given(segment: Segment, field_id: int, units: Sequence[int]) -> Entries:
    return {
        unit: (found.kind, found.column_index or b"", found.offset_index or b"")
        for unit, found in segment.page_indexes(field_id, units).items()
    }


@pytest.mark.parametrize("units", [1, 2, 63, MEMBERS_PER_PIECE, MEMBERS_PER_PIECE + 1, 2500])
def test_what_was_written_comes_back(units: int) -> None:
    first, second = entries_for(range(units)), entries_for(range(units - 1, -1, -7), 2)
    data = sidecar_bytes(units, {1: first, 4: second}, filters=units > 2)
    segment = segment_of(data, strict=True)
    assert as_given(segment, 1, range(units)) == first
    assert as_given(segment, 4, range(units)) == second
    assert segment.page_index(9, 0) is None
    assert segment.page_index(1, units) is None
    assert verify_sidecar(BytesSource(data)) == []


def test_one_unit_costs_two_small_reads() -> None:
    units = 5000
    data = sidecar_bytes(units, {1: {u: (LONG, bytes(300), bytes(100)) for u in range(units)}})
    counting = CountingSource(BytesSource(data))
    from sidecar.bundle.sidecar_file import SidecarFile

    (segment,) = SidecarFile.open(counting).segments
    reads, read = counting.reads, counting.bytes_read
    assert segment.page_index(1, 2500) is not None
    assert counting.reads - reads == 2
    assert counting.bytes_read - read == 8 + 8 * MEMBERS_PER_PIECE + 8 + 408
    reads = counting.reads
    assert len(segment.page_indexes(1, range(2500, 2600))) == 100
    assert counting.reads - reads == 2


def test_the_table_says_where_entries_lie() -> None:
    assert PAGE_INDEXES.table_length(1) == 24
    assert PAGE_INDEXES.table_length(MEMBERS_PER_PIECE + 1) == 8 * (MEMBERS_PER_PIECE + 1) + 32


def test_copied_as_bytes() -> None:
    entries = entries_for(range(70))
    old = open_bytes(sidecar_bytes(70, {1: entries}, filters=True))
    data, _ = copy_file(old, place={"snapshot_id": 9, "sequence_number": 10})
    segment = segment_of(data, strict=True)
    assert as_given(segment, 1, range(70)) == entries
    assert segment.fields.keys() == {1}


def test_any_changed_byte_gives_the_entry_or_nothing() -> None:
    units = 40
    entries = entries_for(range(units))
    data = sidecar_bytes(units, {1: entries})
    (blob,) = [b for b in PuffinReader(BytesSource(data)).metadata.blobs if b.type == PAGE_INDEX]
    changed, chance = bytearray(data), random.Random(5)
    for at in range(blob.offset, blob.offset + blob.length, 7):
        changed[at] ^= 1 << chance.randrange(8)
        opened = open_bytes(bytes(changed))
        (segment,) = opened.segments
        found = as_given(segment, 1, range(units))
        assert found.items() <= entries.items(), at
        if len(found) < units:
            assert opened.warnings
        assert verify_sidecar(BytesSource(bytes(changed))), at
        changed[at] = data[at]


def test_any_changed_byte_anywhere_gives_the_entry_or_nothing() -> None:
    entries = entries_for(range(6))
    data = sidecar_bytes(6, {1: entries})
    changed, chance = bytearray(data), random.Random(6)
    for at in range(0, len(data), 5):
        changed[at] ^= 1 << chance.randrange(8)
        try:
            opened = open_bytes(bytes(changed))
        except SidecarError:
            opened = None
        for segment in opened.segments if opened else ():
            assert as_given(segment, 1, range(6)).items() <= entries.items(), at
        changed[at] = data[at]


@pytest.mark.parametrize("length", range(0, 3000, 211))
def test_truncated(length: int) -> None:
    data = sidecar_bytes(6, {1: entries_for(range(6))})
    with pytest.raises(SidecarError):
        open_bytes(data[: min(length, len(data) - 1)])


def test_an_entry_of_another_unit_or_field_is_refused() -> None:
    """Two entries of equal length change places: each is sound, and neither stands where it belongs."""
    same = {unit: (LONG, bytes([unit]) * 50, bytes([unit]) * 50) for unit in range(4)}
    data = bytearray(sidecar_bytes(4, {1: same}))
    places = [data.index(bytes([unit]) * 100) for unit in (1, 2)]
    one, two = (bytes(data[at : at + 108]) for at in places)
    data[places[0] : places[0] + 108], data[places[1] : places[1] + 108] = two, one
    opened = open_bytes(bytes(data))
    assert as_given(opened.segments[0], 1, range(4)).keys() == {0, 3}
    assert "wrong checksum" in opened.warnings[0]
    with pytest.raises(DamagedFileError, match="unit 1"):
        segment_of(bytes(data), strict=True).page_index(1, 1)


def test_wrong_calls() -> None:
    for member in (
        (-1, LONG, (1, 1)),
        (0, LONG, (1 << 30, 1)),
    ):
        with pytest.raises(UsageError):
            plan_index_groups(PAGE_INDEXES, [member])
    with pytest.raises(UsageError, match="twice"):
        plan_index_groups(PAGE_INDEXES, [(0, LONG, (1, 1)), (0, TEXT, (1, 1))])
    groups = plan_index_groups(PAGE_INDEXES, [(0, LONG, (1, 1))])
    for entries in ([], [(b"", b"x")]):
        puffin, bad = PuffinWriter(io.BytesIO()), FieldIndexes(PAGE_INDEXES, 1, groups, entries)
        with pytest.raises(UsageError, match="stated length"):
            write_segment(puffin, segment_header(), units_table(1), [bad], snapshot_id=1, sequence_number=1)


def test_inspect_names_them() -> None:
    data = sidecar_bytes(20, {1: entries_for(range(20))})
    (segment,) = inspect_sidecar(BytesSource(data)).segments
    (described,) = segment["page_indexes"]
    assert [group["units"] for group in described["groups"]] == [2, 18]
    assert described["groups"][1]["comparison"] == "signed:8"


def test_structures_and_orders_come_out() -> None:
    column = encode_column_index([False], [bytes(8)], [b"\x09" + bytes(7)], 1, [0])
    offset = encode_offset_index([(4, 100, 0)])
    data = sidecar_bytes(1, {1: {0: (LONG, column.raw, offset.raw)}})
    stored = segment_of(data).page_index(1, 0)
    assert stored is not None
    decoded = decode_page_index(stored)
    assert decoded.ordering == Ordering("signed", 8, 1)
    assert decoded.column_index is not None
    assert decoded.offset_index is not None
    assert decoded.ordering.decode(decoded.column_index.max_values[0]) == 9
    assert np.array_equal(decoded.offset_index.offsets, [4])
    assert isinstance(ordering_of(LONG._replace(comparison="")), Unknown)
    assert isinstance(ordering_of(LONG._replace(comparison="sideways:4")), Unknown)
    assert ordering_of(LONG._replace(comparison="bytes")) == Ordering("bytes", None, 1)
