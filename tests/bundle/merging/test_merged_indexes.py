"""Page indexes and row indexes of a merged segment are the bytes of the newest part that has them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import plan_index_groups
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES, RowIndexKind
from sidecar.bundle.merging import merged_indexes
from sidecar.bundle.verify import verify_sidecar
from sidecar.storage.source import BytesSource
from tests.bundle.merging.lake import Key, Lake, Part, merged, only, opened, write_parts

PAGE_KINDS = PageIndexKind("int64", "id", "signed:8", 1), PageIndexKind("byte_array", "name:a", "bytes", 1, 2, 1)
ROW_KINDS = (
    RowIndexKind("id", "LONG", "DIRECT_V2", False, True, 0, 9, "2.2.2"),
    RowIndexKind("name:a.b", "DECIMAL", "DICTIONARY_V2", True, False, 1, 6, "", "0.11", "unknown", "UTC", 9, 2),
)
Pages = dict[Key, tuple[PageIndexKind, bytes, bytes]]
Rows = dict[Key, tuple[RowIndexKind, bytes]]


def given(pages: dict[int, Pages], rows: dict[int, Rows]):  # type: ignore[no-untyped-def]
    def indexes(units: Mapping[Key, int], segment: bytes) -> Iterable[FieldIndexes]:
        for field_id, own in pages.items():
            keys = {units[key]: key for key in own}
            members = ((u, own[k][0], (len(own[k][1]), len(own[k][2]))) for u, k in keys.items())
            groups = plan_index_groups(PAGE_INDEXES, members)
            entries = [own[keys[unit]][1:] for group in groups for unit in group.units.tolist()]
            yield FieldIndexes(PAGE_INDEXES, field_id, groups, entries)
        for field_id, own_rows in rows.items():
            keys = {units[key]: key for key in own_rows}
            row_groups = plan_index_groups(
                ROW_INDEXES, ((u, own_rows[k][0], (len(own_rows[k][1]),)) for u, k in keys.items())
            )
            yield FieldIndexes(
                ROW_INDEXES,
                field_id,
                row_groups,
                [(own_rows[keys[u]][1],) for g in row_groups for u in g.units.tolist()],
            )

    return indexes


@pytest.mark.parametrize("seed", range(3))
def test_entries_are_the_bytes_of_the_newest_part(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(merged_indexes, "ENTRIES_AT_ONCE", 7)
    lake = Lake([chance.randrange(3) for _ in range(60)])
    parts, pages, rows = [], {}, {}
    for number in range(3):
        files = sorted(chance.sample(range(60), 40))
        own_pages: Pages = {}
        own_rows: Rows = {}
        for unit in lake.units(files):
            if chance.random() < 0.6:
                column = chance.randbytes(chance.randrange(100))
                own_pages[unit] = chance.choice(PAGE_KINDS), column, chance.randbytes(chance.randrange(1, 50))
            elif chance.random() < 0.8:
                own_rows[unit] = chance.choice(ROW_KINDS), chance.randbytes(chance.randrange(80))
        for unit in own_pages:
            rows.pop(unit, None)
        for unit in own_rows:
            pages.pop(unit, None)
        pages |= own_pages
        rows |= own_rows
        parts.append(Part(files, indexes=given({3: own_pages}, {3: own_rows}), number=number))
    data, _ = write_parts(lake, parts)
    live = [file for file in range(60) if chance.random() < 0.8 and any(file in part.files for part in parts)]
    written = merged(lake, opened(data, strict=True), live)
    assert verify_sidecar(BytesSource(written, "merged")) == []
    segment, units = only(opened(written, strict=True)), lake.units(live)
    found = segment.page_indexes(3, units.values())
    expected = {units[unit]: entry for unit, entry in pages.items() if unit in units}
    assert expected.keys() <= found.keys()
    for unit, (kind, column, offset) in expected.items():
        assert (found[unit].kind, found[unit].column_index or b"", found[unit].offset_index) == (kind, column, offset)
    found_rows = segment.row_indexes(3, units.values())
    for unit, (row_kind, entry) in {units[unit]: entry for unit, entry in rows.items() if unit in units}.items():
        assert tuple(found_rows[unit]) == (entry, row_kind)
    # A unit has the entry of its newest part only, though an older one may have the other kind of index.
    assert not found.keys() & found_rows.keys()
