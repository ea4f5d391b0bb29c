"""Iceberg tables for tests of all rooms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

import sidecar


def create_with_rows(
    catalog: Any,
    name: str,
    appends: Iterable[pa.Table],
    schema: Any = None,
    columns: Sequence[str] = (),
    kinds: Sequence[str] = ("bloom",),
    **properties: str,
) -> Table:
    """A table with one commit for each of ``appends`` and, if ``columns`` are given, a sidecar of their indexes.

    ``schema`` is that of the first rows if it is not given.
    """
    parts = list(appends)
    table: Table = catalog.create_table(name, schema or parts[0].schema, properties=properties)
    for part in parts:
        table.append(part)
    if columns:
        sidecar.build(table, list(columns), kinds=list(kinds), engine="local")
        table.refresh()
    return table
