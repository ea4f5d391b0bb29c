"""Projects batches of a file to the requested schema as pyiceberg does, but keeps NULL lists and maps of structs.

pyiceberg makes a list or map of structs anew from its offsets, which do not say which ones are NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import ListType, MapType


def to_requested_schema(
    requested: Schema, projected: Schema, batch: pa.RecordBatch, missing: Mapping[int, Any], downcasts_ns: bool
) -> pa.RecordBatch:
    """Return a batch with the columns of ``projected``, in a file's names and types, as one of ``requested``.

    ``missing`` has values of columns that the file lacks, by field id.
    """
    visitor = _Projection(
        projected,
        downcasts_ns,
        projected_missing_fields=dict(missing),
        allow_timestamp_tz_mismatch=True,
    )
    partner: Any = batch
    rows: Any = visit_with_partner(requested, partner, visitor, ArrowAccessor(projected))
    return pa.RecordBatch.from_struct_array(rows)


class _Projection(ArrowProjectionVisitor):
    def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(self, map_type: MapType, map_array: Any, key_result: Any, value_result: Any) -> Any:
        return _with_nulls_of(map_array, super().map(map_type, map_array, key_result, value_result))


def _with_nulls_of(before: Any, after: Any) -> Any:
    if after is None or before.null_count == after.null_count:
        return after
    rows = pc.if_else(before.is_valid(), pa.array(range(len(before)), pa.int64()), None)
    return after.take(rows)
