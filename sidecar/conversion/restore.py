"""Finds the indexes of one data file in a sidecar, byte for byte as they were.

For filters it returns where they are; :class:`sidecar.conversion.filter_pool.FilterPool` reads them. Page indexes are
read here, for one file at a time. ORC row indexes are never restored, because an ORC file always has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.kinds.declared import FILE_KINDS
from sidecar.bundle.model import CoverageState
from sidecar.conversion.collection import BY_ID, BY_NAME
from sidecar.conversion.filter_pool import PooledFilters
from sidecar.conversion.matching.match import Match
from sidecar.data_files.open_file import DataLeaf, OpenFile
from sidecar.puffin.types import ORC_BLOOM, SBBF


def every_part(matches: Sequence[Match], file: OpenFile) -> Iterator[PooledFilters]:
    """Yield where the filters of a file are, those of the oldest segment first, of any kind and in any encoding."""
    find = cache(partial(find_leaf, file.leaves))
    for match in matches:
        for field_id in sorted(match.sidecar.fields_with(match.number, SBBF, ORC_BLOOM)):
            filters = match.sidecar.filters_of(field_id, match.number)
            units = [unit - filters.first_unit for unit in match.units]
            for bundle in filters.bundles:
                for group in bundle.toc.groups:
                    leaf = find(field_id, group.resolution)
                    if leaf is not None:
                        members = {row_group: units[row_group] for row_group in _members(group, units)}
                        yield PooledFilters(leaf, bundle, match, group, members)


def newest_parts(parts: Iterable[PooledFilters]) -> list[PooledFilters]:
    """Return ``parts`` without the filters that a later one has for the same column and row group."""
    # Parts come oldest first, so a later part replaces an earlier one, row group by row group.
    places: dict[tuple[int, int], tuple[PooledFilters, int]] = {}
    for part in parts:
        for row_group, unit in part.units.items():
            places[part.column, row_group] = part, unit
    newest: dict[int, PooledFilters] = {}
    for (_, row_group), (part, unit) in places.items():
        newest.setdefault(id(part), replace(part, units={})).units[row_group] = unit
    return list(newest.values())


def _members(group: StoredGroup, units: Sequence[int]) -> list[int]:
    """Return the row groups whose units are members of the group."""
    found = np.flatnonzero(np.isin(np.array(units, np.int64), group.ordinals()))
    return [int(row_group) for row_group in found]


def find_leaf(leaves: Sequence[DataLeaf], field_id: int, resolution: str) -> DataLeaf | None:
    """Return the leaf of a file that a field is resolved to; ``None`` unless it is exactly one."""
    if resolution == BY_ID:
        found = [leaf for leaf in leaves if leaf.field_id == field_id]
    elif resolution.startswith(BY_NAME):
        # In a sidecar of plain files the whole text is the path, in the style of the file's format. In a table's, the
        # path is in Parquet's style and ends at the first bar.
        path = resolution.removeprefix(BY_NAME)
        paths = {path, path.split("|")[0]}
        found = [leaf for leaf in leaves if leaf.path in paths or leaf.own_path in paths]
    else:
        found = []
    return found[0] if len(found) == 1 else None


class StoredEntry(NamedTuple):
    """A page index or row index of a sidecar, and the unit and leaf of a file that it is for."""

    unit: int
    leaf: DataLeaf
    stored: Any
    is_proven: bool
    """Whether the file is certainly the one that was indexed."""


def stored_entries(matches: Sequence[Match], file: OpenFile) -> Iterator[StoredEntry]:
    """Yield the page indexes or row indexes that a sidecar has for a file, those of the oldest segment first."""
    find = cache(partial(find_leaf, file.leaves))
    for match in matches:
        by_unit = {unit: number for number, unit in enumerate(match.units)}
        for field_id in sorted(match.sidecar.fields_with(match.number, file.index_blobs)):
            for unit, stored in match.sidecar.stored_indexes(field_id, match.units, file.index_blobs).items():
                leaf = find(field_id, stored.kind.resolution)
                if leaf is not None and file.fits(leaf, stored.kind):
                    yield StoredEntry(by_unit[unit], leaf, stored, match.is_proven)


def coverage(matches: Sequence[Match], file: OpenFile, kind: str) -> Iterator[tuple[int, DataLeaf, str]]:
    """Yield (row group, leaf, state) of all units for one kind; the state is *indexed* or the reason why not."""
    assert kind in FILE_KINDS
    find = cache(partial(find_leaf, file.leaves))
    for row_group, field_id, state in _states(matches, kind):
        leaf = find(field_id, state.resolution)
        if leaf is not None:
            yield row_group, leaf, state.state


def _states(matches: Sequence[Match], kind: str) -> Iterator[tuple[int, int, CoverageState]]:
    """Yield (row group, field id, state) of all units that the coverage of ``kind`` lists."""
    for match in matches:
        for field_id, states in match.sidecar.states_of(match.number, kind, match.units):
            for row_group, state in enumerate(states):
                yield row_group, field_id, state
