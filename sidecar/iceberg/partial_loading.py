"""Loads tables whose registered statistics pyiceberg refuses.

pyiceberg 0.12 knows two types of registered statistics blobs and refuses a table whose metadata names any other type.
Trino's OPTIMIZE leaves such metadata behind if the table has a sidecar. This module reads the metadata as JSON,
removes in memory what pyiceberg refuses, and makes a :class:`PartlyLoaded` table of the rest. Such a table can be
read; only a repair writes to it.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from sidecar.dependencies.pyiceberg import hive_client, io_of_sql_table, rest_answer, table_of_answer
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.engine_catalog import EngineCatalog
from sidecar.iceberg.table_names import name_of, shown_name
from sidecar.storage.locations import file_at

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier

Left = dict[str, list[str]]
"""Path of a statistics file -> descriptions of the blobs in its entries that pyiceberg does not load."""


class PartlyLoaded(Table):
    """A table without the registered blobs that pyiceberg refuses; ``left_out`` describes these."""

    left_out: Left
    columns_left_out: tuple[str, ...] = ()
    """Columns of types that pyiceberg does not know, which an engine has left out of the schema."""

    def refresh(self) -> Table:
        """Load the metadata again, without the blobs that pyiceberg refuses. Raises if it is another table by now."""
        fresh = load_partly(self.catalog, self.name())
        if fresh is not None:
            self._check_uuid(self.metadata, fresh.metadata)
            self.metadata, self.io, self.metadata_location = fresh.metadata, fresh.io, fresh.metadata_location
            self.left_out = fresh.left_out
        return self


def left_out(table: Table) -> Left:
    """Return the parts that were left out when the table was loaded; empty for nearly all tables."""
    return table.left_out if isinstance(table, PartlyLoaded) else {}


def check_has_all_columns(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if columns of the table were left out, so that no row is whole."""
    if isinstance(table, PartlyLoaded) and table.columns_left_out:
        raise UnsupportedFeatureError(
            "pyiceberg does not know the type of a column",
            column=", ".join(table.columns_left_out),
            hint="Name the columns that you want, or read the rows with sidecar.spark_read.",
        )


def refuse_partly_loaded(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if pyiceberg cannot load the whole table, and so cannot commit to it."""
    if left_out(table):
        raise UnsupportedFeatureError(
            f"the table '{name_of(table)}' has registered statistics that pyiceberg cannot load",
            hint="Run sidecar care --only repair first.",
        )


def state_of_registrations(table: Table) -> list[str]:
    """Return a warning if pyiceberg alone cannot load the table, else an empty list."""
    found = left_out(table)
    if not found:
        return []
    what = ", ".join(sorted({reason for reasons in found.values() for reason in reasons}))
    return [
        f"the table's metadata registers statistics that pyiceberg alone cannot load ({what}); "
        "sidecar care --only repair fixes that"
    ]


def is_about_statistics(error: ValidationError) -> bool:
    """Return whether statistics entries are the only part of the metadata that pyiceberg refuses."""
    return all("statistics" in fault["loc"] for fault in error.errors())


def loadable_statistics(entries: Any) -> tuple[list[StatisticsFile], Left]:
    """Return the entries of a metadata document without the blobs that pyiceberg does not load, and what was left
    out.

    Raises ``ValueError`` (pydantic's), ``KeyError`` or ``TypeError`` for entries that are invalid for other reasons.
    """
    found: list[StatisticsFile] = []
    left: Left = {}
    for entry in entries or []:
        blobs: list[BlobMetadata] = []
        refused = []
        for blob in entry["blob-metadata"]:
            try:
                blobs.append(BlobMetadata.model_validate(blob))
            except ValidationError:
                refused.append(_named(blob))
        found.append(StatisticsFile.model_validate({**entry, "blob-metadata": blobs}))
        if refused:
            left.setdefault(found[-1].statistics_path, []).extend(refused)
    return found, left


def _named(blob: Any) -> str:
    fields = blob.get("fields") if isinstance(blob, Mapping) else None
    kind = blob.get("type") if isinstance(blob, Mapping) else None
    return f"a {kind} blob of fields {fields}" if kind else "an invalid blob"


def load_partly(catalog: Catalog, name: str | Identifier) -> PartlyLoaded | None:
    """Load a table without the parts that pyiceberg refuses; return ``None`` if the catalog is neither SQL nor REST nor
    an engine's.

    Raises the errors of pyiceberg.
    """
    identifier = Catalog.identifier_to_tuple(name)
    if isinstance(catalog, EngineCatalog):
        return catalog.load_partly(identifier)
    if is_rest(catalog):
        return _from_rest(catalog, identifier)
    if is_sql(catalog):
        return _from_sql(catalog, identifier)
    return None


def is_rest(catalog: Catalog) -> TypeGuard[RestCatalog]:
    """Return whether this is a REST catalog. Its module takes long to import, and is imported if there is one."""
    rest = sys.modules.get("pyiceberg.catalog.rest")
    return rest is not None and isinstance(catalog, rest.RestCatalog)


def is_sql(catalog: Catalog) -> TypeGuard[SqlCatalog]:
    """Return whether this is an SQL catalog. Its module needs a package that other catalogs do not need."""
    sql = sys.modules.get("pyiceberg.catalog.sql")
    return sql is not None and isinstance(catalog, sql.SqlCatalog)


def load_file_partly(path: str, properties: Mapping[str, str]) -> PartlyLoaded:
    """Load the version of a table in a metadata file, without what pyiceberg refuses."""
    from pyiceberg.catalog.noop import NoopCatalog

    io = load_file_io(dict(properties), path)
    metadata, left = parse_metadata(_read_json(io, path))
    table = PartlyLoaded(
        ("static-table", path),
        metadata,
        path,
        load_file_io({**properties, **metadata.properties}, path),
        NoopCatalog("static-table"),
    )
    table.left_out = left
    return table


def _loadable(document: dict[str, Any]) -> tuple[dict[str, Any], Left]:
    """Return a metadata document without what pyiceberg refuses, and what was left out."""
    statistics, left = loadable_statistics(document.get("statistics"))
    plain = [entry.model_dump(mode="json", by_alias=True) for entry in statistics]
    return {**document, "statistics": plain}, left


def parse_metadata(document: dict[str, Any]) -> tuple[TableMetadata, Left]:
    """Return a table's metadata of a JSON document without what pyiceberg refuses, and what was left out.

    Raises ``ValueError`` (pydantic's and pyiceberg's), ``KeyError`` or ``TypeError`` for a document that is invalid.
    """
    loadable, left = _loadable(document)
    return TableMetadataUtil.parse_raw(json.dumps(loadable)), left


def _read_json(io: FileIO, location: str) -> dict[str, Any]:
    file = file_at(io, location)
    with file.open() as stream, Compressor.get_compressor(location).stream_decompressor(stream) as plain:
        document: dict[str, Any] = json.loads(plain.read())
    return document


def names_of_other_formats(catalog: Catalog, namespace: Identifier, listed: Collection[str]) -> list[str]:
    """Return the tables of a namespace that pyiceberg does not list because they are no Iceberg tables.

    Only Hive's metastore, AWS Glue and engines have such tables and leave them out.
    """
    if isinstance(catalog, EngineCatalog):
        return catalog.names_of_other_formats(namespace)
    glue: Any = getattr(catalog, "glue", None)
    hive = hive_client(catalog)
    database = namespace[-1]
    if glue is not None:
        pages = glue.get_paginator("get_tables").paginate(DatabaseName=database)
        names = [table["Name"] for page in pages for table in page["TableList"]]
    elif hive is not None:
        with hive as client:
            names = list(client.get_all_tables(db_name=database))
    else:
        return []
    return sorted(set(names).difference(listed))


def location_in_sql(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the location of a table's metadata from an SQL catalog, without loading the table; ``None`` for other
    catalogs."""
    return _location_of(catalog, identifier) if is_sql(catalog) else None


def _location_of(catalog: SqlCatalog, identifier: Identifier) -> str | None:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    namespace = Catalog.namespace_to_string(identifier[:-1])
    wanted = select(IcebergTables.metadata_location).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == identifier[-1],
    )
    with Session(catalog.engine) as session:
        return session.scalar(wanted)


def _from_sql(catalog: SqlCatalog, identifier: Identifier) -> PartlyLoaded:
    from pyiceberg.exceptions import NoSuchTableError

    location = _location_of(catalog, identifier)
    if not location:
        raise NoSuchTableError(f"Table does not exist: {shown_name(identifier)}")
    metadata, left = parse_metadata(_read_json(load_file_io(catalog.properties, location), location))
    io = io_of_sql_table(catalog, metadata.properties, location)
    table = PartlyLoaded(identifier, metadata, location, io, catalog)
    table.left_out = left
    return table


def _from_rest(catalog: RestCatalog, identifier: Identifier) -> PartlyLoaded:
    from pyiceberg.catalog.rest import Endpoints, TableResponse

    document = rest_answer(catalog, Endpoints.load_table, identifier)
    document["metadata"], left = _loadable(document["metadata"])
    answer = TableResponse.model_validate_json(json.dumps(document))
    loaded = table_of_answer(catalog, identifier, answer)
    table = PartlyLoaded(
        identifier, loaded.metadata, loaded.metadata_location, loaded.io, catalog, config=loaded.config
    )
    table.left_out = left
    return table


def commit(table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> None:
    """Commit to a table that may be partly loaded.

    An SQL catalog builds on exactly the version in ``table``: blobs that were left out are gone afterwards, and the
    commit fails if the table has a newer version.
    """
    catalog = table.catalog
    if is_sql(catalog):
        catalog = copy.copy(catalog)
        vars(catalog)["load_table"] = lambda _: table
    catalog.commit_table(table, requirements, updates)
