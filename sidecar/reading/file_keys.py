"""Adds a join's keys to the scan of a plain Parquet file: a condition for indexes and a filter on rows.

Indexes get the range of the keys, and the keys themselves if there are few, and treat them as any other predicate.
The rows that are left are searched for a key by value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In

from sidecar.errors import UnsupportedFeatureError
from sidecar.parquet.scan.page_scan import Residual
from sidecar.planning.keys.key_sets import KeySet
from sidecar.reading.file_columns import FileColumns

FEW = 200
"""Up to this many keys are given to indexes as an IN list; pyiceberg ignores longer lists when it compares bounds."""


def with_keys(expression: BooleanExpression, keys: KeySet) -> BooleanExpression:
    """Return ``expression`` AND a condition that holds for every row with a key: the range, and an IN list if short."""
    within = keys.within()
    if within is None:
        return expression
    in_list: Any = In
    few = in_list(keys.column, keys.literals(np.arange(len(keys)))) if 0 < len(keys) <= FEW else AlwaysTrue()
    return And(expression, And(within, few))


def key_residual(residual: Residual | None, keys: KeySet, known: FileColumns) -> Residual:
    """Return a residual for rows that match ``residual`` and have a key.

    The residual raises :class:`UnsupportedFeatureError` for columns of nanoseconds, which keys cannot express.
    """

    def matching(table: pa.Table) -> npt.NDArray[np.int64]:
        rows = np.arange(table.num_rows) if residual is None else residual(table)
        column: Any = known.columns[keys.field_id].compared_in(table)
        if getattr(column.type, "unit", "us") == "ns":
            raise UnsupportedFeatureError(
                "keys cannot be compared with nanoseconds", column=keys.column, found=str(column.type)
            )
        has_key = keys.matching(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        return rows[has_key[rows]]

    return matching
