"""Iceberg tables for tests of all rooms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.types import NestedField
from pyiceberg.utils.config import Config

import sidecar
from sidecar.puffin.types import THETA


def new_catalog(folder: Path | str, name: str = "cat", *namespaces: str, **properties: str) -> SqlCatalog:
    """The catalog of a folder, which has its SQLite file ``cat.db`` and its warehouse ``wh``.

    Namespaces that it lacks are made: ``db``, if none is named.
    """
    uri, warehouse = f"sqlite:///{folder}/cat.db", f"file:{folder}/wh"
    catalog = SqlCatalog(name, **{"uri": uri, "warehouse": warehouse, **properties})
    for namespace in namespaces or ("db",):
        catalog.create_namespace_if_not_exists(namespace)
    return catalog


def configure(patch: pytest.MonkeyPatch, catalog: Any) -> None:
    """Have pyiceberg find a catalog by its name: it reads its configuration once, when it is imported."""
    for key, value in {"type": "sql", **catalog.properties}.items():
        variable = f"{catalog.name}__{key}".upper().replace("-", "_")
        patch.setenv(f"PYICEBERG_CATALOG__{variable}", value)
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def iceberg_schema(columns: str, *others: NestedField) -> Schema:
    """A schema of optional columns, numbered from 1, by names and types (``id long, price decimal(9, 2)``)."""
    found = re.findall(r"(\w+) (\w+(?:\(\d+, \d+\)|\[\d+\])?)", columns)
    return Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(found, start=1)), *others)


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


def statistics_entry(
    snapshot_id: int, path: str, size: int = 1, footer: int = 1, blobs: Iterable[BlobMetadata] = ()
) -> StatisticsFile:
    """A statistics file as a table's metadata name it."""
    return StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=path,
        file_size_in_bytes=size,
        file_footer_size_in_bytes=footer,
        blob_metadata=list(blobs),
    )


def sketch_metadata(
    snapshot_id: int, fields: Iterable[int], properties: Mapping[str, str], sequence_number: int = 1
) -> BlobMetadata:
    """A theta sketch as a statistics entry names it."""
    return BlobMetadata(
        type=THETA,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        fields=list(fields),
        properties=dict(properties),
    )
