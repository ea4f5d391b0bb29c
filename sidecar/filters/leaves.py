"""Nested Arrow arrays to the flat arrays of their leaves: what lists, maps and structs hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def flatten(array: Any) -> list[pa.Array[Any]]:
    """Leaf arrays below ``array`` in the order of the schema; parents' nulls are honoured.

    ``flatten`` of Arrow's list arrays skips what lies under a null list; that of a struct array merges the
    struct's validity into its children.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return flatten(array.storage)
    if pa.types.is_struct(kind):
        return [leaf for child in array.flatten() for leaf in flatten(child)]
    if pa.types.is_map(kind):  # Arrow flattens lists only
        return flatten(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_nested(kind):
        return flatten(array.flatten())
    if pa.types.is_dictionary(kind):
        return [_used_values(array)]
    return [array]


def _used_values(array: Any) -> pa.Array[Any]:
    """The distinct values that a dictionary array uses: entries without a row must not reach a sketch."""
    used: pa.Array[Any] = array.dictionary.take(pc.unique(array.indices).drop_null())
    return used
