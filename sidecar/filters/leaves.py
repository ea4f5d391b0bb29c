"""Flatten nested Arrow arrays (structs, lists, maps) to the arrays of their leaves."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def flatten(array: Any) -> list[pa.Array[Any]]:
    """Return the leaf arrays below ``array`` in the order of the schema, without values whose parent is null.

    Arrow's ``flatten`` skips the elements of null lists, and for structs it makes the children of a null struct null.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return flatten(array.storage)
    if pa.types.is_struct(kind):
        return [leaf for child in array.flatten() for leaf in flatten(child)]
    if pa.types.is_map(kind):  # Arrow flattens lists, but not maps
        return flatten(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_nested(kind):
        return flatten(array.flatten())
    if pa.types.is_dictionary(kind):
        return [_used_values(array)]
    return [array]


def _used_values(array: Any) -> pa.Array[Any]:
    """Return the distinct values that a dictionary array uses: a sketch must not count entries without a row."""
    used: pa.Array[Any] = array.dictionary.take(pc.unique(array.indices).drop_null())
    return used
