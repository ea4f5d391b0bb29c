"""Rules out many files at once by their partition values: asks pyiceberg's partition evaluator once per partition.

A units table records partition tuples as one Arrow table with a row for each file. Files of one spec share few
tuples, so each distinct one is decoded once and shown to pyiceberg's evaluator. A file whose tuple cannot be decoded
is kept here; the evaluator sees its record later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType

MOST = 4096
"""The most distinct partitions that are asked about; with more, all files are kept."""


def may_match(
    partitions: pa.Table, fields: Sequence[NestedField], evaluate: Callable[[Record], bool]
) -> npt.NDArray[np.bool_]:
    """Return bool[files]: False for files whose partition ``evaluate`` refuses.

    ``partitions`` has a column "partition": lists of the serialized values of ``fields``, in order, for files of one
    spec.
    """
    count, width = partitions.num_rows, len(fields)
    everything = np.ones(count, np.bool_)
    tuples: Any = partitions["partition"].combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(tuples), -1).to_numpy(zero_copy_only=False)
    if not count or not width or (lengths != width).any():
        return everything
    # Encode each field as codes, so that distinct tuples are distinct rows of integers.
    values: Any = pc.list_flatten(tuples)
    columns = [values.take(pa.array(np.arange(at, count * width, width))) for at in range(width)]
    encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
    codes = np.stack([column.indices.to_numpy() for column in encoded], axis=1)
    different, places = np.unique(codes, axis=0, return_inverse=True)
    if len(different) > MOST:
        return everything
    kept = []
    for row in different.tolist():
        raw = [column.dictionary[code].as_py() for column, code in zip(encoded, row, strict=True)]
        kept.append(_may_match(raw, fields, evaluate))
    flags: npt.NDArray[np.bool_] = np.array(kept, np.bool_)[places.reshape(-1)]
    return flags


def _may_match(raw: Sequence[bytes | None], fields: Sequence[NestedField], evaluate: Callable[[Record], bool]) -> bool:
    try:
        values = [_decoded(field, value) for field, value in zip(fields, raw, strict=True)]
    except Exception:  # pyiceberg raises many kinds for bytes that are not a value
        return True
    return evaluate(Record(*values))


def _decoded(field: NestedField, value: bytes | None) -> Any:
    if value is None:
        return None
    if not isinstance(field.field_type, PrimitiveType):
        raise ValueError(f"{field.field_type} is not a primitive type")
    return from_bytes(field.field_type, value)
