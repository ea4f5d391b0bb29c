"""One data file as pyiceberg sees it: its schema with the table's field ids, the filter in its types, its rows.

Files with equal columns, and equal values of partitions, share a view. :mod:`sidecar.reading.arrow_reader` makes views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import ListType, MapType, NestedField, StructType, UUIDType

from sidecar.parquet.scan.page_scan import Residual
from sidecar.reading.arrow_statistics import may_mislead
from sidecar.reading.file_columns import FileColumn, FileColumns
from sidecar.reading.file_predicate import for_statistics
from sidecar.reading.projection import to_requested_schema
from sidecar.reading.residual import residual_of


@dataclass(frozen=True, eq=False)
class FileView:
    """A data file as pyiceberg reads it, or all data files with the same columns.

    ``file_schema`` has the file's column names and the table's field ids.
    """

    physical_schema: Any
    file_schema: Schema
    projected: Schema
    """The part of ``file_schema`` that is read: the requested columns and those of the filter."""
    row_filter: BooleanExpression
    """The filter with the file's names and literals in the file's types; predicates on absent columns are resolved."""
    arrow_filter: Any
    """``row_filter`` as an Arrow expression; ``None`` if every row matches."""
    requested: Schema
    """The schema of the rows that are returned."""
    missing: Mapping[int, Any]
    downcasts_ns: bool
    """Whether the file has nanosecond timestamps that are read as microseconds."""
    _changes: list[tuple[pa.Schema, pa.Schema | None]] = field(default_factory=list, repr=False)
    """Schemas of batches, each with what it becomes; ``None`` if values change too."""

    def scanned_row_groups(self, fragment: Any) -> set[int]:
        """Return the ordinals of the row groups of Arrow's ``fragment`` of the file whose statistics allow a match.

        These are all row groups if the statistics are not to be believed.
        """
        if self.statistics_filter is None or self.may_mislead(fragment.metadata):
            return set(range(fragment.num_row_groups))
        subset = fragment.subset(filter=self.statistics_filter, schema=self.physical_schema)
        return {group.id for group in subset.row_groups}

    def may_mislead(self, metadata: Any) -> bool:
        """Return whether Arrow would skip row groups by statistics of the file that are not to be believed.

        ``metadata`` is that of Arrow's fragment of the file, which is a Parquet file.
        """
        if self.arrow_filter is None:
            return False
        paths = dict(column_paths(self.file_schema))
        return may_mislead(metadata, [paths[i] for i in extract_field_ids(self.row_filter) if i in paths])

    @cached_property
    def statistics_filter(self) -> Any:
        """An Arrow expression that all matching rows meet and statistics can be asked; ``None`` if there is none."""
        if self.arrow_filter is None or self.asks_uuid:
            return None
        wide = for_statistics(self.row_filter)
        return None if wide == AlwaysTrue() else expression_to_pyarrow(wide, self.file_schema)

    @property
    def asks_uuid(self) -> bool:
        """Whether the filter compares UUIDs, for which Arrow has no function."""
        fields = map(self.file_schema.find_field, extract_field_ids(self.row_filter))
        return any(isinstance(field.field_type, UUIDType) for field in fields)

    def residual(self) -> Residual | None:
        """Return the filter on rows as pyiceberg evaluates it in Arrow; UUIDs are compared as bytes.

        ``None`` if every row matches.
        """
        if self.arrow_filter is None:
            return None
        if not self.asks_uuid:
            return partial(_matching, self.arrow_filter)
        columns = {i: FileColumn(path, path, None) for i, path in column_paths(self.file_schema)}
        ids = sorted(extract_field_ids(self.row_filter))
        return residual_of(self.row_filter, FileColumns(self.file_schema, columns), ids, zeros_are_equal=False)

    def project(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Convert rows of the projected columns to the requested schema."""
        yield from map(self.project_batch, rows.combine_chunks().to_batches())

    def project_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of the projected columns to the requested schema.

        pyiceberg's conversion takes long for a small batch. If it changed no value of a batch, only the schema is
        changed of others like that one.
        """
        known = [schema for seen, schema in self._changes if seen.equals(batch.schema)]
        if known and known[0] is not None:
            columns = [column.cast(field.type) for column, field in zip(batch.columns, known[0], strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=known[0])
        converted = to_requested_schema(self.requested, self.projected, batch, self.missing, self.downcasts_ns)
        if not known:
            self._changes.append((batch.schema, converted.schema if self._keeps_values(batch, converted) else None))
        return converted

    def _keeps_values(self, batch: pa.RecordBatch, converted: pa.RecordBatch) -> bool:
        """Return whether the conversion of a batch, and of others like it, changes no value.

        It does not if there are the same columns in the same order with the same Arrow types. Lists and maps are in
        doubt, because pyiceberg builds them anew.
        """
        ours, theirs = index_by_id(self.projected), index_by_id(self.requested)
        return (
            batch.schema.types == converted.schema.types
            and batch.schema.names == [column.name for column in self.projected.columns]
            and list(ours) == list(theirs)
            and not any(isinstance(column.field_type, ListType | MapType) for column in ours.values())
        )


def _matching(expression: Any, table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the positions (int64 [n], rising) of the rows for which an Arrow expression is true."""
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["matches"])),
    ]
    # Without threads the rows stay in their order, and the caller need not wait until Arrow's threads are free.
    matches: Any = acero.Declaration.from_sequence(steps).to_table(use_threads=False)["matches"]
    found: npt.NDArray[np.int64] = pc.indices_nonzero(matches).to_numpy().astype(np.int64)  # a null is none
    return found


def column_paths(schema: Schema) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the field id and the path of names of each column outside of lists and maps."""
    open_: list[tuple[tuple[str, ...], Sequence[NestedField]]] = [((), schema.fields)]
    while open_:
        above, fields = open_.pop()
        for column in fields:
            path = (*above, column.name)
            yield column.field_id, path
            if isinstance(column.field_type, StructType):
                open_.append((path, column.field_type.fields))
