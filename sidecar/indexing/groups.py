"""Plans the groups of a segment's blobs: the position of each filter and index, fixed once for both engines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import IndexForm, IndexGroup, plan_index_groups, split_entry
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES, RowIndexKind
from sidecar.conversion.protection import properties_of
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.assemble import SegmentUnit, StageResults
from sidecar.indexing.slices import GroupTask, KeptIndexes, part_step
from sidecar.indexing.stage_one.data_file import described

PlannedIndexes = tuple[int, IndexForm[Any], list[IndexGroup[Any]]]
"""A field id, and the groups of its page indexes or of its row indexes."""


def group_tasks(
    indexed: StageResults,
    columns: Sequence[TableColumn],
    segment: bytes,
    keys: Mapping[int, FieldKey] | None = None,
) -> dict[int, list[GroupTask]]:
    """Return the groups of each field that has filters, numbered over all fields. This fixes every position, once.

    ``keys`` has the keys of the fields with encrypted bundles, by field id.
    """
    tasks: dict[int, list[GroupTask]] = {}
    number = 0
    for column in columns:
        own = (keys or {}).get(column.field_id)
        place = BlobContext(segment, column.field_id) if own is None else own.place
        groups = plan_groups(_members(indexed, column.field_id), place.sealing)
        for group in groups:
            filters = [_key(indexed.units[unit], column.field_id) for unit in group.units.tolist()]
            tasks.setdefault(column.field_id, []).append(GroupTask(number, group, place, part_step(group), filters))
            number += 1
    return tasks


def index_groups(indexed: StageResults, columns: Sequence[TableColumn]) -> list[PlannedIndexes]:
    """Return the groups of page indexes and of row indexes of each field that has some."""
    planned: list[PlannedIndexes] = []
    for column in columns:
        pages, rows = [], []
        for ordinal, unit in enumerate(indexed.units):
            record = unit.pages.get(column.field_id)
            if record is None or not record.length:
                continue
            kind = described(record.described)
            if isinstance(kind, RowIndexKind):
                rows.append((ordinal, kind, (record.length,)))
            else:
                pages.append((ordinal, kind, (record.column_length, record.length - record.column_length)))
        if pages:
            planned.append((column.field_id, PAGE_INDEXES, plan_index_groups(PAGE_INDEXES, pages)))
        if rows:
            planned.append((column.field_id, ROW_INDEXES, plan_index_groups(ROW_INDEXES, rows)))
    return planned


def field_indexes(
    groups: Sequence[PlannedIndexes],
    indexed: StageResults,
    kept: KeptIndexes,
    keys: Mapping[int, FieldKey],
    plaintext: Collection[int],
) -> Iterator[FieldIndexes]:
    """Yield the blobs of page indexes and row indexes of each field; ``kept`` has their entries.

    ``keys`` has the keys of fields with encrypted bundles. ``plaintext`` are the fields whose blobs are marked as
    plaintext of encrypted columns.
    """
    for field_id, form, planned in groups:
        entries = _entries(planned, field_id, indexed, kept)
        yield FieldIndexes(form, field_id, planned, entries, keys.get(field_id), properties_of(field_id in plaintext))


def _entries(
    groups: Sequence[IndexGroup[Any]], field_id: int, indexed: StageResults, kept: KeptIndexes
) -> Iterator[list[bytes]]:
    for group in groups:
        keys = [_key(indexed.units[unit], field_id) for unit in group.units.tolist()]
        for data, lengths in zip(kept.page_indexes(keys), group.lengths.tolist(), strict=True):
            yield split_entry(data, lengths)


def tails(task: GroupTask, indexed: StageResults) -> list[bytes]:
    """Return the bytes after the last whole block of each filter of a group, by position."""
    return [indexed.units[unit].columns[task.place.field_id].filter.tail for unit in task.group.units.tolist()]


def expected_false_units(indexed: StageResults, field_id: int) -> float:
    """Return how many units a lookup of an absent value keeps on average, by the rates that filters' bits show."""
    return sum(record.rate for unit in indexed.units if (record := unit.columns[field_id]).filter.blocks)


def _members(indexed: StageResults, field_id: int) -> list[GroupMember]:
    members = []
    for ordinal, unit in enumerate(indexed.units):
        record = unit.columns[field_id]
        if (made := record.filter).blocks:
            members.append(GroupMember(ordinal, made.encoding, record.resolution, made.num_bytes, made.rule))
    return members


def _key(unit: SegmentUnit, field_id: int) -> tuple[int, int, int]:
    return unit.file, unit.entry.row_group, field_id
