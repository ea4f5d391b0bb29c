"""Keeps the rows that have one of a plan's keys: a semi-join on the rows of each file, then the projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from sidecar.errors import UsageError
from sidecar.planning.keys.key_sets import KeySet
from sidecar.reading.table_files import FileRows


class KeyRows:
    """Adds the key column to the columns to read and removes it from the result if it was not requested.

    ``wanted`` is the requested schema, ``full`` that of the snapshot. Raises :class:`UsageError` if the snapshot has
    no such column.
    """

    def __init__(self, keys: KeySet, wanted: Schema, full: Schema) -> None:
        path = _path(full.as_struct(), keys.field_id)
        if path is None:
            raise UsageError("the snapshot does not have the column of the keys", column=keys.column)
        self._keys, self._path, self._wanted = keys, path, wanted
        ids = {*_leaf_ids(wanted), keys.field_id}
        names = {full.find_column_name(field_id) or "" for field_id in ids}
        self.schema = full.select(*sorted(names))
        self._cut = {*_leaf_ids(self.schema)} != {*_leaf_ids(wanted)}

    def only(self, found: FileRows) -> FileRows:
        """Remove the rows of a file that have none of the keys; changes ``found`` and returns it."""
        found.batches = [self._with_key(batch) for batch in found.batches]
        return found

    def _with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        column: Any = batch.column(self._path[0])
        for name in self._path[1:]:
            column = pc.struct_field(column, name)
        rows = batch.take(np.flatnonzero(self._keys.matching(column)))
        if not self._cut:
            return rows
        fields = self._wanted.fields
        columns = [_select(rows.column(own.name), own.field_type) for own in fields]
        return pa.RecordBatch.from_arrays(columns, names=[own.name for own in fields])


def _select(column: Any, kind: object) -> Any:
    """Cut a struct column down to the fields of ``kind``."""
    if not isinstance(kind, StructType):
        return column
    parts = [_select(pc.struct_field(column, own.name), own.field_type) for own in kind.fields]
    return pa.StructArray.from_arrays(parts, names=[own.name for own in kind.fields], mask=column.is_null())


def _leaf_ids(schema: Schema) -> Sequence[int]:
    """Return the field ids of all columns that are not structs with fields; lists and maps count as one column."""
    found, open_ = [], list(schema.fields)
    while open_:
        own = open_.pop()
        if isinstance(own.field_type, StructType) and own.field_type.fields:
            open_ += own.field_type.fields
        else:
            found.append(own.field_id)
    return found


def _path(struct: StructType, field_id: int) -> tuple[str, ...] | None:
    """Return the names from the top down to a column outside of lists and maps; ``None`` if it is not there."""
    for own in struct.fields:
        if own.field_id == field_id:
            return (own.name,)
        if isinstance(own.field_type, StructType):
            below = _path(own.field_type, field_id)
            if below is not None:
                return (own.name, *below)
    return None
