"""Turns a plan and pyiceberg's view of a Parquet file into a request for its pages.

What the sidecar says of rows and pages is used only if it agrees with the file. If not, the report gets a warning,
and the file's own indexes are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.types import NestedField, StructType

from sidecar.bundle.indexes.page_indexes import decode_page_index, page_index_kind
from sidecar.bundle.model import BY_ID, BY_NAME
from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.filters.leaf import ComparedColumn, Leaf
from sidecar.iceberg.predicates.conditions import condition_of
from sidecar.parquet.footer import Footer, RowGroup
from sidecar.parquet.scan.known_indexes import KnownIndex
from sidecar.parquet.scan.page_scan import PageRequest
from sidecar.parquet.scan.schema_parts import FileShape, read_shape
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.questions.row_ranges import RowRanges
from sidecar.reading.file_view import FileView, column_paths

Path = tuple[str, ...]


class PagePlanner:
    """Makes the request for the pages of one file. Raises :class:`UnsupportedFeatureError` if it is in doubt."""

    def __init__(self, view: FileView, fragment: Any, footer: Footer) -> None:
        self._view = view
        self._fragment = fragment
        self._footer = footer
        self.warnings: list[str] = []
        """Warnings: which part of the plan was not used, and why."""
        self._shape = read_shape(footer)
        if not self._shape.schema.equals(view.physical_schema):
            raise UnsupportedFeatureError("pyiceberg reads columns of the file with different types")
        if not view.projected.fields:
            raise UnsupportedFeatureError("the file has none of the requested columns")
        self._paths = dict(column_paths(view.file_schema))
        self._leaves = {leaf.parts: leaf for leaf in footer.columns if not footer.is_ambiguous(leaf)}

    def request(
        self,
        kept: KeptRowGroups | None,
        deleted: npt.NDArray[np.int64] | None,
        filters: bool,
        too_much: float,
    ) -> PageRequest:
        """Return the request for the rows that the plan keeps of the file.

        ``deleted`` are positions of deleted rows (int64 [n], rising). ``filters`` says whether the file's own filters
        are used. If at least the share ``too_much`` of the rows is left, pages are not read.
        """
        view = self._view
        known, limits = self._known(kept), self._limits(kept)
        # pyiceberg numbers rows before it filters them if rows are deleted, so it reads all row groups then.
        scanned = view.scanned_row_groups(self._fragment) if deleted is None else None

        def unlimited(group: RowGroup) -> RowRanges:
            if scanned is not None and group.ordinal not in scanned:
                return RowRanges()
            rows = RowRanges.all(group.num_rows)
            return rows if deleted is None else rows.without(_within(deleted, group))

        def wanted(group: RowGroup) -> RowRanges:
            rows = unlimited(group)
            return rows & limits[group.ordinal] if group.ordinal in limits else rows

        return PageRequest(
            shape=self._shape.select_paths(list(_leaf_paths(view.projected.fields))),
            condition=condition_of(view.row_filter, self._compared),
            question=self._filter_columns(),
            residual=view.residual(),
            wanted=wanted,
            unlimited=unlimited,
            known=known,
            filters=filters,
            too_much=too_much,
            other_rows=sum(
                group.num_rows for group in self._footer.row_groups if scanned is None or group.ordinal in scanned
            ),
        )

    def _filter_columns(self) -> FileShape | None:
        """Return the columns to read for the filter; for IS NULL on a struct, one leaf of it."""
        paths = [self._paths[field_id] for field_id in sorted(extract_field_ids(self._view.row_filter))]
        return self._shape.select_paths([self._shape.enough(path) for path in paths]) if paths else None

    def _compared(self, field_id: int) -> ComparedColumn | None:
        """Return what bounds of a column outside of lists and maps are compared as, else ``None``."""
        path = self._paths.get(field_id)
        leaf = None if path is None else self._leaves.get(path)
        return None if leaf is None or leaf.max_rep else leaf.compared

    def _limits(self, kept: KeptRowGroups | None) -> dict[int, RowRanges]:
        if kept is None:
            return {}
        groups = self._footer.row_groups
        if [tuple(unit) for unit in kept.units] != [(g.ordinal, g.first_row, g.num_rows) for g in groups]:
            self.warnings.append("the row groups of the file differ from those in the sidecar")
            return {}
        return {unit.row_group: rows for unit, rows in zip(kept.units, kept.rows, strict=True)}

    def _known(self, kept: KeptRowGroups | None) -> dict[tuple[int, int], KnownIndex]:
        """Return the page indexes that the sidecar has of this file, by row group and leaf; stale ones are left out."""
        known: dict[tuple[int, int], KnownIndex] = {}
        for (field_id, row_group), stored in dict(kept.stored if kept else {}).items():
            leaf = self._stored_leaf(field_id, stored.kind.resolution)
            if leaf is None or page_index_kind(self._footer, leaf, stored.kind.resolution) != stored.kind:
                continue
            try:
                decoded = decode_page_index(stored)
            except SidecarError as error:
                self.warnings.append(f"a page index of the sidecar is not used: {leaf.path}: {error.what}")
                continue
            known[row_group, leaf.index] = KnownIndex(decoded.column_index, decoded.offset_index)
        return known

    def _stored_leaf(self, field_id: int, resolution: str) -> Leaf | None:
        if resolution == BY_ID:
            found = [leaf for leaf in self._footer.columns if leaf.field_id == field_id]
        else:
            path = resolution.removeprefix(BY_NAME).partition("|")[0]
            found = [leaf for leaf in self._footer.columns if leaf.path == path]
        return found[0] if len(found) == 1 else None


def _within(positions: npt.NDArray[np.int64], group: RowGroup) -> npt.NDArray[np.int64]:
    """Return the positions that are in a row group, counted from its first row."""
    start, end = np.searchsorted(positions, [group.first_row, group.first_row + group.num_rows])
    return positions[start:end] - group.first_row


def _leaf_paths(fields: Sequence[NestedField], above: Path = ()) -> Iterator[Path]:
    """Yield the paths of the projected columns: fields of structs one by one, lists and maps whole."""
    for column in fields:
        path = (*above, column.name)
        if isinstance(column.field_type, StructType) and column.field_type.fields:
            yield from _leaf_paths(column.field_type.fields, path)
        else:
            yield path
