"""The rows among the keys of a plan: a semi-join on what the files gave, then the columns that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from sidecar.errors import UsageError
from sidecar.planning.key_sets import KeySet
from sidecar.reading.table_files import FileRows


class KeyRows:
    """Reads the keys' column along with others, and takes it out again. ``full`` is all that can be read."""

    def __init__(self, keys: KeySet, wanted: Schema, full: Schema) -> None:
        path = _path(full.as_struct(), keys.field_id)
        if path is None:
            raise UsageError("the snapshot has no such column", column=keys.column)
        self._keys, self._path, self._wanted = keys, path, wanted
        ids = {*_leaf_ids(wanted), keys.field_id}
        names = {full.find_column_name(field_id) or "" for field_id in ids}
        self.schema = full.select(*sorted(names))
        self._cut = {*_leaf_ids(self.schema)} != {*_leaf_ids(wanted)}

    def only(self, found: FileRows) -> FileRows:
        """What a file gave, as far as it is among the keys."""
        found.batches = [self._among(batch) for batch in found.batches]
        return found

    def _among(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
    """The fields of a struct that were asked for."""
    if not isinstance(kind, StructType):
        return column
    parts = [_select(pc.struct_field(column, own.name), own.field_type) for own in kind.fields]
    return pa.StructArray.from_arrays(parts, names=[own.name for own in kind.fields], mask=column.is_null())


def _leaf_ids(schema: Schema) -> Sequence[int]:
    """Field ids of all columns below which there is no struct."""
    found, open_ = [], list(schema.fields)
    while open_:
        own = open_.pop()
        if isinstance(own.field_type, StructType) and own.field_type.fields:
            open_ += own.field_type.fields
        else:
            found.append(own.field_id)
    return found


def _path(struct: StructType, field_id: int) -> tuple[str, ...] | None:
    """Names from the top down to a column outside of lists and maps."""
    for own in struct.fields:
        if own.field_id == field_id:
            return (own.name,)
        if isinstance(own.field_type, StructType):
            below = _path(own.field_type, field_id)
            if below is not None:
                return (own.name, *below)
    return None
