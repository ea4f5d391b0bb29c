"""Finds the indexes of one data file in a sidecar, byte for byte as they were.

For filters it returns where they are; :class:`sidecar.conversion.filter_pool.FilterPool` reads them. Page indexes are
read here, for one file at a time. ORC row indexes are never restored, because an ORC file always has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.rules import SplitBlockRule
from sidecar.bundle.indexes.page_indexes import StoredPageIndex, decode_page_index
from sidecar.bundle.indexes.row_indexes import StoredRowIndex
from sidecar.bundle.kinds.declared import BLOOM, FILE_KINDS
from sidecar.bundle.model import CoverageState
from sidecar.conversion.collection import BY_ID, BY_NAME
from sidecar.conversion.filter_pool import PooledFilters
from sidecar.conversion.matching.match import Match
from sidecar.errors import SidecarError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.leaf import Leaf
from sidecar.orc.schema import OrcColumn
from sidecar.orc.tail import OrcTail
from sidecar.parquet.footer import LOCKED, ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems


@dataclass(frozen=True)
class RestoredPages:
    """The page index of one chunk, ready for the file. ``reason`` says what is missing and why."""

    column_index: bytes | None
    offset_index: bytes | None
    reason: str = ""


Locate = Callable[[int, StoredGroup], tuple[int, str] | None]
"""Finds a file's column (number and path) for a group of a field; ``None`` if the file has no such column."""


def filter_parts(
    matches: Sequence[Match], footer: Footer, wanted: Collection[int] | None = None
) -> list[PooledFilters]:
    """Return where the filters of a Parquet file are, for the leaf indexes ``wanted`` (all by default).

    If several segments have a filter for the same column and row group, the newest counts. Only split-block filters
    are returned, because a Parquet file cannot hold others.
    """

    def locate(field_id: int, group: StoredGroup) -> tuple[int, str] | None:
        if not isinstance(group.rule, SplitBlockRule):
            return None
        leaf = find_leaf(footer, field_id, group.resolution, group.encoding)
        return None if leaf is None or (wanted is not None and leaf.index not in wanted) else (leaf.index, leaf.path)

    return located_parts(matches, locate)


def other_filter_parts(matches: Sequence[Match], footer: Footer) -> list[PooledFilters]:
    """Return where the ORC filters of a Parquet file are, which ``convert --as orc`` makes."""

    def locate(field_id: int, group: StoredGroup) -> tuple[int, str] | None:
        leaf = None if isinstance(group.rule, SplitBlockRule) else _only_leaf(footer, field_id, group.resolution)
        has_encoding = leaf is not None and ColumnType.parse(leaf.iceberg_type).orc_encoding == group.encoding
        return (leaf.index, leaf.path) if leaf is not None and has_encoding else None

    return located_parts(matches, locate)


def orc_filter_parts(
    matches: Sequence[Match], tail: OrcTail, wanted: Collection[int] | None = None
) -> list[PooledFilters]:
    """Return where the filters of an ORC file are, for the column ids ``wanted``: either kind, in any encoding."""
    return located_parts(matches, locate_orc(tail, wanted))


def locate_orc(tail: OrcTail, wanted: Collection[int] | None = None) -> Locate:
    """Return a function that finds columns of an ORC file, only those with ids in ``wanted`` (all by default)."""

    def locate(field_id: int, group: StoredGroup) -> tuple[int, str] | None:
        column = find_orc_column(tail, field_id, group.resolution)
        return None if column is None or (wanted is not None and column.id not in wanted) else (column.id, column.path)

    return locate


def located_parts(matches: Sequence[Match], locate: Locate) -> list[PooledFilters]:
    """Return the parts that ``locate`` finds, the newest if several have the same column and row group."""
    # Parts come oldest first, so a later part replaces an earlier one, row group by row group.
    places: dict[tuple[int, int], tuple[PooledFilters, int]] = {}
    for part in every_part(matches, locate):
        for row_group, unit in part.units.items():
            places[part.column, row_group] = part, unit
    parts: dict[int, PooledFilters] = {}
    for (_, row_group), (part, unit) in places.items():
        newest = parts.setdefault(id(part), replace(part, units={}))
        newest.units[row_group] = unit
    return list(parts.values())


def every_part(matches: Sequence[Match], locate: Locate) -> Iterator[PooledFilters]:
    """Yield all parts that ``locate`` finds, those of the oldest segment first."""
    for match in matches:
        for field_id in sorted(match.segment.fields):
            for bundle in match.segment.bundles_of(field_id):
                for group in bundle.toc.groups:
                    found = locate(field_id, group)
                    if found is not None:
                        units = {row_group: match.units[row_group] for row_group in _members(group, match.units)}
                        yield PooledFilters(*found, bundle, match, group, units)


def stored_row_indexes(matches: Sequence[Match], tail: OrcTail) -> dict[tuple[int, int], StoredRowIndex]:
    """Return the sidecar's row indexes of an ORC file by (row group, column id); the newest of several."""
    found: dict[tuple[int, int], StoredRowIndex] = {}
    for match in matches:
        by_unit = {unit: row_group for row_group, unit in enumerate(match.units)}
        for field_id, blob in sorted(match.segment.row_index_blobs.items()):
            for unit, stored in blob.read(match.units).items():
                column = find_orc_column(tail, field_id, stored.kind.resolution)
                if column is not None:
                    found[by_unit[unit], column.id] = stored
    return found


def _members(group: StoredGroup, units: Sequence[int]) -> list[int]:
    """Return the row groups whose units are members of the group."""
    found = np.flatnonzero(np.isin(np.array(units, np.int64), group.ordinals()))
    return [int(row_group) for row_group in found]


def find_leaf(footer: Footer, field_id: int, resolution: str, encoding: str) -> Leaf | None:
    """Return the leaf that a group belongs to; ``None`` unless exactly one leaf matches and has the encoding."""
    leaf = _only_leaf(footer, field_id, resolution)
    return leaf if leaf is not None and leaf.encoding.name == encoding else None


def _only_leaf(footer: Footer, field_id: int, resolution: str) -> Leaf | None:
    """Return the leaf that a field is resolved to; ``None`` unless it is exactly one."""
    if resolution == BY_ID:
        found = [leaf for leaf in footer.columns if leaf.field_id == field_id]
    elif resolution.startswith(BY_NAME):
        # In a sidecar of plain files the whole text is the path; in a table's, the path ends at the first bar.
        path = resolution.removeprefix(BY_NAME)
        found = [leaf for leaf in footer.columns if leaf.path in (path, path.split("|")[0])]
    else:
        found = []
    return found[0] if len(found) == 1 else None


def find_orc_column(tail: OrcTail, field_id: int, resolution: str) -> OrcColumn | None:
    """Return the ORC leaf column that a group belongs to; ``None`` unless exactly one matches."""
    leaves = [column for column in tail.columns if not column.is_compound]
    if resolution == BY_ID:
        found = [column for column in leaves if column.field_id == field_id]
    elif resolution.startswith(BY_NAME):
        path = resolution.removeprefix(BY_NAME)
        found = [column for column in leaves if column.path in (path, path.split("|")[0])]
    else:
        found = []
    return found[0] if len(found) == 1 else None


def restore_pages(
    matches: Sequence[Match], footer: Footer, wanted: Collection[int] | None = None
) -> dict[tuple[int, int], RestoredPages]:
    """Return the page indexes of a file by (row group, leaf index), checked against its footer.

    A page index that is damaged or contradicts the footer is replaced by a reason.
    """
    found: dict[tuple[int, int], RestoredPages] = {}
    leaf_of = cache(partial(find_leaf, footer))
    for match in matches:
        by_unit = {unit: row_group for row_group, unit in enumerate(match.units)}
        for field_id, blob in sorted(match.segment.page_index_blobs.items()):
            for unit, stored in blob.read(match.units).items():
                leaf = leaf_of(field_id, stored.kind.resolution, stored.kind.encoding)
                if leaf is not None and (wanted is None or leaf.index in wanted):
                    chunk = footer.row_groups[by_unit[unit]].columns.get(leaf.index)
                    if chunk is None:
                        found[by_unit[unit], leaf.index] = RestoredPages(None, None, LOCKED)
                        continue
                    # A proven file has the indexed pages, so a page index is right if the first page is at the same
                    # offset. Then the full check, which decodes the page index, is not needed.
                    known = match.is_proven and first_page(stored.offset_index) == chunk.data_page_offset
                    found[chunk.row_group, leaf.index] = (
                        RestoredPages(stored.column_index, stored.offset_index)
                        if known
                        else _checked(footer, chunk, stored)
                    )
    return found


def first_page(offset_index: bytes | None) -> int | None:
    """Return the offset of the first page in an OffsetIndex; ``None`` if its bytes do not begin as all writers begin.

    Reads only the first bytes of the Thrift structure: field 1 is a list of structs, and field 1 of its first struct is
    an i64. If the pages are known to be the indexed ones, this offset tells whether they are still at the same place.
    """
    data = offset_index or b""
    if data[:1] != b"\x19" or data[1:2] == b"" or data[1] & 15 != 12 or data[1] < 16:
        return None
    at = 2
    if data[1] >> 4 == 15:  # the number of pages follows
        while data[at : at + 1] >= b"\x80":
            at += 1
        at += 1
    if data[at : at + 1] != b"\x16":
        return None
    number = shift = 0
    for byte in data[at + 1 : at + 11]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number >> 1 if number & 1 == 0 else None
    return None


def _checked(footer: Footer, chunk: ColumnChunk, stored: StoredPageIndex) -> RestoredPages:
    try:
        column, offset, _ = decode_page_index(stored)
    except SidecarError as error:
        return RestoredPages(None, None, error.what)
    if offset is None:
        return RestoredPages(None, None, "no offset index")
    problem = next(offset_index_problems(footer, chunk, offset), "")
    if problem:
        return RestoredPages(None, None, f"it belongs to other pages: {problem}")
    problem = "" if column is None else next(column_index_problems(footer, chunk, column, offset), "")
    if problem:
        return RestoredPages(None, stored.offset_index, f"no column index: {problem}")
    return RestoredPages(stored.column_index, stored.offset_index)


def coverage(matches: Sequence[Match], footer: Footer, kind: str) -> Iterator[tuple[int, Leaf, str]]:
    """Yield (row group, leaf, state) of all units for one kind; the state is *indexed* or the reason why not."""
    assert kind in FILE_KINDS
    leaf_of = cache(partial(_only_leaf, footer))
    for row_group, field_id, state in _states(matches, kind):
        leaf = leaf_of(field_id, state.resolution)
        if leaf is not None:
            yield row_group, leaf, state.state


def leaves_with_orc_filters(matches: Sequence[Match], footer: Footer) -> set[int]:
    """Return the indexes of the leaves that the sidecar has ORC filters for, which a Parquet file cannot hold."""
    found = (
        _only_leaf(footer, bundle.toc.field_id, group.resolution)
        for match in matches
        for bundle in match.segment.orc_bundles.values()
        for group in bundle.toc.groups
        if _members(group, match.units)
    )
    return {leaf.index for leaf in found if leaf is not None}


def orc_coverage(matches: Sequence[Match], tail: OrcTail) -> Iterator[tuple[int, OrcColumn, str]]:
    """Yield (row group, column, state) of all units of an ORC file for filters; see :func:`coverage` for Parquet."""
    for row_group, field_id, state in _states(matches, BLOOM):
        column = find_orc_column(tail, field_id, state.resolution)
        if column is not None:
            yield row_group, column, state.state


def _states(matches: Sequence[Match], kind: str) -> Iterator[tuple[int, int, CoverageState]]:
    """Yield (row group, field id, state) of all units that the coverage of ``kind`` lists."""
    for match in matches:
        for covered in match.segment.coverages:
            if covered.kind == kind:
                for row_group, unit in enumerate(match.units):
                    yield row_group, covered.field_id, covered.states[covered.codes[unit]]
