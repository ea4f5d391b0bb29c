"""``sidecar-row-index-v1``: RowIndexEntry messages come back as they were, in few reads, or not at all."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import MEMBERS_PER_PIECE, plan_index_groups
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.bundle.indexes.row_indexes import (
    ROW_INDEXES,
    RowIndexKind,
    StoredRowIndex,
    decode_row_index,
    row_index_kind,
)
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.bundle.writer import write_segment
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.row_index import take_apart
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import PAGE_INDEX, ROW_INDEX, UNITS
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource
from tests.bundle.cases import PLACE, copy_file, open_bytes, segment_header, units_table, write_file
from tests.bundle.damage import combine, raw_blobs, reword

DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
LONG = RowIndexKind("id", "LONG", "DIRECT_V2", False, True, 0, 9, "2.2.2", calendar="proleptic_gregorian")
TEXT = RowIndexKind("name:a.b", "DECIMAL", "DICTIONARY_V2", True, False, 1, 6, "", "0.11", "unknown", "UTC", 9, 2)
Entries = dict[int, tuple[RowIndexKind, bytes]]


def entries_for(units: Iterable[int], seed: int = 1) -> Entries:
    chance = random.Random(seed)
    return {unit: (TEXT if unit % 11 == 3 else LONG, chance.randbytes(chance.randrange(120))) for unit in units}


def given_rows(field_id: int, entries: Entries) -> FieldIndexes:
    groups = plan_index_groups(ROW_INDEXES, ((unit, kind, (len(data),)) for unit, (kind, data) in entries.items()))
    return FieldIndexes(ROW_INDEXES, field_id, groups, [(entries[u][1],) for g in groups for u in g.units.tolist()])


def sidecar_bytes(units: int, fields: dict[int, Entries], more: Sequence[FieldIndexes] = ()) -> bytes:
    indexes = [*more, *(given_rows(field_id, entries) for field_id, entries in fields.items())]
    return write_file(indexes, units_table(units))[0]


def segment_of(data: bytes, **options: object) -> Segment:
    (segment,) = open_bytes(data, **options).segments
    return segment


def as_given(segment: Segment, field_id: int, units: Iterable[int]) -> Entries:
    return {unit: (one.kind, one.entry) for unit, one in segment.row_indexes(field_id, units).items()}


@pytest.mark.parametrize("units", [1, 63, MEMBERS_PER_PIECE, MEMBERS_PER_PIECE + 1, 2500])
def test_what_was_written_comes_back(units: int) -> None:
    first, second = entries_for(range(units)), entries_for(range(units - 1, -1, -7), 2)
    data = sidecar_bytes(units, {1: first, 4: second})
    segment = segment_of(data, strict=True)
    assert as_given(segment, 1, range(units)) == first
    assert as_given(segment, 4, range(units)) == second
    assert segment.row_indexes(9, [0]) == {}
    assert segment.page_indexes(1, [0]) == {}
    assert verify_sidecar(BytesSource(data)) == []


@given(st.dictionaries(st.integers(0, 40), st.tuples(st.booleans(), st.binary(max_size=30))))
@settings(max_examples=25, deadline=None)
def test_any_entries_come_back(drawn: dict[int, tuple[bool, bytes]]) -> None:
    entries = {unit: (LONG if long else TEXT, data) for unit, (long, data) in drawn.items()}
    segment = segment_of(sidecar_bytes(41, {1: entries}), strict=True)
    assert as_given(segment, 1, range(41)) == entries


def test_one_unit_costs_two_small_reads() -> None:
    units = 5000
    data = sidecar_bytes(units, {1: {unit: (LONG, bytes(60)) for unit in range(units)}})
    counting = CountingSource(BytesSource(data))
    (segment,) = SidecarFile.open(counting).segments
    reads, read = counting.reads, counting.bytes_read
    assert len(segment.row_indexes(1, [2500])) == 1
    assert counting.reads - reads == 2
    assert counting.bytes_read - read == 8 + 4 * MEMBERS_PER_PIECE + 8 + 68
    assert ROW_INDEXES.table_length(MEMBERS_PER_PIECE + 1) == 4 * (MEMBERS_PER_PIECE + 1) + 32


def test_copied_as_bytes_beside_page_indexes() -> None:
    kind = PageIndexKind("int64", "id")
    pages = FieldIndexes(PAGE_INDEXES, 1, plan_index_groups(PAGE_INDEXES, [(0, kind, (1, 1))]), [(b"c", b"o")])
    entries = entries_for(range(70))
    data, _ = copy_file(open_bytes(sidecar_bytes(70, {1: entries}, [pages])))
    segment = segment_of(data, strict=True)
    assert as_given(segment, 1, range(70)) == entries
    found = segment.page_index(1, 0)
    assert found is not None
    assert found.column_index == b"c"
    blobs = PuffinReader(BytesSource(data)).metadata.blobs
    assert [blob.type for blob in blobs[:3]] == [PAGE_INDEX, ROW_INDEX, UNITS]


def test_no_byte_of_the_blob_may_change_unseen() -> None:
    """Of header, entries and tables; one checksum covers all of the table of contents."""
    units = 5
    entries = entries_for(range(units))
    data = sidecar_bytes(units, {1: entries})
    (blob,) = [b for b in PuffinReader(BytesSource(data)).metadata.blobs if b.type == ROW_INDEX]
    changed, chance = bytearray(data), random.Random(5)
    toc = blob.offset + int.from_bytes(data[blob.offset + 16 : blob.offset + 24], "little")
    for at in [*range(blob.offset, toc), *range(toc, blob.offset + blob.length, 17)]:
        changed[at] ^= 1 << chance.randrange(8)
        opened = open_bytes(bytes(changed))
        (segment,) = opened.segments
        found = as_given(segment, 1, range(units))
        assert found.items() <= entries.items(), at
        assert opened.warnings or len(found) == units
        assert verify_sidecar(BytesSource(bytes(changed))), at
        changed[at] = data[at]


@pytest.mark.parametrize("length", range(0, 1600, 211))
def test_truncated(length: int) -> None:
    data = sidecar_bytes(6, {1: entries_for(range(6))})
    with pytest.raises(SidecarError):
        open_bytes(data[: min(length, len(data) - 1)])


def test_an_entry_of_another_unit_is_refused() -> None:
    """Two entries of equal length change places: each is sound, and neither stands where it belongs."""
    data = bytearray(sidecar_bytes(4, {1: {unit: (LONG, bytes([unit]) * 50) for unit in range(4)}}))
    places = [data.index(bytes([unit]) * 50) for unit in (1, 2)]
    one, two = (bytes(data[at : at + 58]) for at in places)
    data[places[0] : places[0] + 58], data[places[1] : places[1] + 58] = two, one
    opened = open_bytes(bytes(data))
    assert as_given(opened.segments[0], 1, range(4)).keys() == {0, 3}
    assert "the row index of unit 1 has a wrong checksum" in opened.warnings[0]
    assert "column field 1" in opened.warnings[0]


def test_an_entry_is_not_taken_for_a_page_index() -> None:
    """Same field, group, unit and bytes: only what the checksum calls the entry tells them apart."""
    kind = PageIndexKind("int64", "id")
    pages = FieldIndexes(
        PAGE_INDEXES, 1, plan_index_groups(PAGE_INDEXES, [(0, kind, (25, 25))]), [(b"x" * 25, b"y" * 25)]
    )
    data = bytearray(sidecar_bytes(1, {1: {0: (LONG, b"z" * 50)}}, [pages]))
    at, other = data.index(b"x" * 25), data.index(b"z" * 50)
    one, two = bytes(data[at : at + 58]), bytes(data[other : other + 58])
    data[at : at + 58], data[other : other + 58] = two, one
    (segment,) = open_bytes(bytes(data)).segments
    assert segment.row_indexes(1, [0]) == {}
    assert segment.page_indexes(1, [0]) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"type": 3},
        {"has_present": 1},
        {"writer": -1},
        {"writer_version": None},
        {"units": {}},
        {"members": 5},
        {"length": 10},
        {"offset": 1 << 40},
    ],
)
def test_a_group_that_is_not_understood_is_stepped_over(change: dict[str, object]) -> None:
    entries = {unit: (TEXT if unit % 2 else LONG, b"entry") for unit in range(4)}
    rows, units, _ = raw_blobs(sidecar_bytes(4, {1: entries}))
    strange = reword(rows, lambda content: content["groups"][0].update(change))
    segment_id = segment_header().segment_id
    opened = open_bytes(combine([(ROW_INDEX, (1,), segment_id, strange), (UNITS, (), segment_id, bytes(units))]))
    assert as_given(opened.segments[0], 1, range(4)).keys() == {1, 3}
    assert any("not understood" in warning for warning in opened.warnings)


def test_wrong_calls() -> None:
    for member in ((-1, LONG, (1,)), (0, LONG, (1 << 30,))):
        with pytest.raises(UsageError):
            plan_index_groups(ROW_INDEXES, [member])
    with pytest.raises(UsageError, match="twice among the row indexes"):
        plan_index_groups(ROW_INDEXES, [(0, LONG, (1,)), (0, TEXT, (1,))])
    groups = plan_index_groups(ROW_INDEXES, [(0, LONG, (1,))])
    for entries in ([], [(b"xx",)], [(b"x", b"")]):
        puffin, bad = PuffinWriter(io.BytesIO()), FieldIndexes(ROW_INDEXES, 1, groups, entries)
        with pytest.raises(UsageError, match="stated length"):
            write_segment(puffin, segment_header(), units_table(1), [bad], **PLACE)


def test_inspect_names_them() -> None:
    data = sidecar_bytes(20, {1: entries_for(range(20))})
    (segment,) = inspect_sidecar(BytesSource(data)).segments
    (described,) = segment["row_indexes"]
    assert {group["type"]: group["units"] for group in described["groups"]} == {"LONG": 18, "DECIMAL": 2}


@pytest.mark.parametrize("name", ["java_zlib_2stripes_utf8.orc", "java_none_utf8.orc", "pyarrow_zlib_utf8.orc"])
def test_entries_of_a_file_say_in_a_sidecar_what_they_say_in_it(name: str) -> None:
    """Every primitive column of every stripe: bytes, positions and statistics."""
    source = LocalSource(str(DATA / name))
    tail = read_tail(source)
    columns = [column for column in tail.columns if not column.is_compound]
    given: dict[int, Entries] = {column.id: {} for column in columns}
    said, rows = {}, [group.rows for stripe in tail.stripes for group in stripe.row_groups]
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        indexes = read_indexes(source, tail, footer, [column.id for column in columns], FileStatistics(source, tail))
        first = sum(one.num_row_groups for one in tail.stripes[: stripe.ordinal])
        for column in columns:
            kind = row_index_kind(tail, footer, column, f"name:{column.path}")
            row_index = indexes[column.id].row_index
            assert row_index is not None
            raws = row_index.parts
            for unit, (entry, raw) in enumerate(zip(row_index.entries, raws, strict=True), first):
                given[column.id][unit] = kind, bytes(raw)
                positions = take_apart(
                    entry,
                    column,
                    footer.encodings[column.id],
                    has_present=kind.has_present,
                    compressed=kind.compressed,
                    file_version=tail.file_version,
                )
                assert entry.statistics is not None
                said[column.id, unit] = (
                    positions,
                    indexes[column.id].statistics(unit - first),
                )
    units = tail.num_row_groups
    segment = segment_of(sidecar_bytes(units, given), strict=True)
    for column in columns:
        stored = segment.row_indexes(column.id, range(units))
        assert {unit: (one.kind, one.entry) for unit, one in stored.items()} == given[column.id]
        for unit, one in stored.items():
            assert decode_row_index(one, rows[unit]) == said[column.id, unit]
    source.close()


def test_any_bytes_are_an_entry_or_our_error() -> None:
    chance = random.Random(7)
    for _ in range(500):
        stored = StoredRowIndex(chance.randbytes(chance.randrange(12)), LONG)
        try:
            decode_row_index(stored, 1000)
        except SidecarError:
            continue
    for version in ("", "x", "0.12.1", "0." + "1" * 30):
        with pytest.raises(DamagedFileError, match="file version"):
            decode_row_index(StoredRowIndex(b"", LONG._replace(file_version=version)), 1000)
