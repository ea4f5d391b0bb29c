"""The keys of a join's other side on one plain Parquet file: what indexes are asked, and the rows that have a key.

Indexes are asked for the range of the keys, and of a few keys for each, by statistics, page indexes, dictionaries and
filters as for every predicate. Of the rows that are left, those whose value is among the keys are found by search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In

from sidecar.errors import UnsupportedFeatureError
from sidecar.parquet.scan.page_scan import Residual
from sidecar.planning.key_sets import KeySet
from sidecar.reading.file_columns import FileColumns, comparable_column

FEW = 200
"""Keys that are asked one by one: as many as pyiceberg compares bounds with."""


def with_keys(expression: BooleanExpression, keys: KeySet) -> BooleanExpression:
    """What indexes are asked besides ``expression``."""
    within = keys.within()
    if within is None:
        return expression
    among: Any = In
    few = among(keys.column, keys.literals(np.arange(len(keys)))) if 0 < len(keys) <= FEW else AlwaysTrue()
    return And(expression, And(within, few))


def key_residual(residual: Residual | None, keys: KeySet, known: FileColumns) -> Residual:
    """``residual``, and of these rows those with a key.

    Raises :class:`UnsupportedFeatureError` where the file's values are finer than keys can be (nanoseconds).
    """

    def matching(table: pa.Table) -> npt.NDArray[np.int64]:
        rows = np.arange(table.num_rows) if residual is None else residual(table)
        column: Any = comparable_column(known.columns[keys.field_id].of(table))
        if getattr(column.type, "unit", "us") == "ns":
            raise UnsupportedFeatureError(
                "keys are not compared with such values", column=keys.column, found=str(column.type)
            )
        among = keys.matching(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        return rows[among[rows]]

    return matching
