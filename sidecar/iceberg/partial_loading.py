"""Tables whose registered statistics pyiceberg cannot load.

pyiceberg 0.12 knows two types of registered statistics blobs, and refuses a whole table whose metadata names another
one, as Trino's OPTIMIZE leaves behind where it finds a sidecar. Here the metadata is read as JSON, what pyiceberg
refuses is left out of it in memory, and the rest becomes a :class:`PartlyLoaded` table: fit for reading, and for
``sidecar repair``, which alone writes to it.

What this needs of pyiceberg's private parts stands here, and is held by ``tests/iceberg/test_repair.py``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from sidecar.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier

Left = dict[int, list[str]]
"""By snapshot id, what of its statistics entry pyiceberg does not load."""


class PartlyLoaded(Table):
    """A table without those registered blobs that pyiceberg refuses; ``left_out`` says which these are."""

    left_out: Left

    def refresh(self) -> Table:
        """Load the metadata again, as this table was loaded."""
        fresh = load_partly(self.catalog, self.name())
        if fresh is not None:
            self.metadata, self.io, self.metadata_location = fresh.metadata, fresh.io, fresh.metadata_location
            self.left_out = fresh.left_out
        return self


def left_out(table: Table) -> Left:
    """What of a table's registered statistics was left out when it was loaded; mostly nothing."""
    return table.left_out if isinstance(table, PartlyLoaded) else {}


def refuse_partly_loaded(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` for a table to which pyiceberg cannot commit, as it cannot load it."""
    if left_out(table):
        raise UnsupportedFeatureError(
            f"the table '{'.'.join(table.name())}' has registered statistics that pyiceberg cannot load",
            hint="Run sidecar repair first.",
        )


def state_of_registrations(table: Table) -> list[str]:
    """A sentence about a table that pyiceberg alone cannot load."""
    found = left_out(table)
    if not found:
        return []
    what = ", ".join(sorted({reason for reasons in found.values() for reason in reasons}))
    return [
        f"the table's metadata registers statistics that pyiceberg alone cannot load ({what}); "
        "sidecar repair mends that"
    ]


def is_about_statistics(error: ValidationError) -> bool:
    """Whether all that pyiceberg refuses about some metadata are its statistics entries."""
    return all("statistics" in fault["loc"] for fault in error.errors())


def loadable_statistics(entries: Any) -> tuple[list[StatisticsFile], Left]:
    """The entries of a metadata document without those blobs that pyiceberg does not load, and what these are.

    Raises a ``ValueError`` (pydantic's), ``KeyError`` or ``TypeError`` for entries that are not valid otherwise.
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
            left[found[-1].snapshot_id] = refused
    return found, left


def _named(blob: Any) -> str:
    fields = blob.get("fields") if isinstance(blob, Mapping) else None
    kind = blob.get("type") if isinstance(blob, Mapping) else None
    return f"a {kind} blob of fields {fields}" if kind else "a blob that is not valid"


def load_partly(catalog: Catalog, name: str | Identifier) -> PartlyLoaded | None:
    """The table without what pyiceberg refuses; ``None`` for a kind of catalog where we do not know how.

    Raises pyiceberg's own errors.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    identifier = Catalog.identifier_to_tuple(name)
    if isinstance(catalog, RestCatalog):
        return _from_rest(catalog, identifier)
    if isinstance(catalog, SqlCatalog):
        return _from_sql(catalog, identifier)
    return None


def load_file_partly(path: str, properties: Mapping[str, str]) -> PartlyLoaded:
    """The one version of a table that a metadata file holds, without what pyiceberg refuses."""
    from pyiceberg.catalog.noop import NoopCatalog

    io = load_file_io(dict(properties), path)
    metadata, left = _parse(_read_json(io, path))
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
    """A metadata document without what pyiceberg refuses."""
    statistics, left = loadable_statistics(document.get("statistics"))
    plain = [entry.model_dump(mode="json", by_alias=True) for entry in statistics]
    return {**document, "statistics": plain}, left


def _parse(document: dict[str, Any]) -> tuple[TableMetadata, Left]:
    loadable, left = _loadable(document)
    return TableMetadataUtil.parse_raw(json.dumps(loadable)), left


def _read_json(io: FileIO, location: str) -> dict[str, Any]:
    file = io.new_input(location)
    with file.open() as stream, Compressor.get_compressor(location).stream_decompressor(stream) as plain:
        document: dict[str, Any] = json.loads(plain.read())
    return document


def _from_sql(catalog: SqlCatalog, identifier: Identifier) -> PartlyLoaded:
    from pyiceberg.catalog.sql import IcebergTables
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    namespace = Catalog.namespace_to_string(identifier[:-1])
    wanted = select(IcebergTables.metadata_location).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == identifier[-1],
    )
    with Session(catalog.engine) as session:
        location = session.scalar(wanted)
    if not location:
        raise NoSuchTableError(f"Table does not exist: {'.'.join(identifier)}")
    metadata, left = _parse(_read_json(load_file_io(catalog.properties, location), location))
    io = catalog._load_file_io(metadata.properties, location)
    table = PartlyLoaded(identifier, metadata, location, io, catalog)
    table.left_out = left
    return table


def _from_rest(catalog: RestCatalog, identifier: Identifier) -> PartlyLoaded:
    from pyiceberg.catalog.rest import Endpoints, TableResponse

    place = catalog._split_identifier_for_path(identifier)
    response = catalog._session.get(catalog.url(Endpoints.load_table, prefixed=True, **place))
    response.raise_for_status()
    document = response.json()
    document["metadata"], left = _loadable(document["metadata"])
    answer = TableResponse.model_validate_json(json.dumps(document))
    loaded = catalog._response_to_table(identifier, answer)
    table = PartlyLoaded(
        identifier, loaded.metadata, loaded.metadata_location, loaded.io, catalog, config=loaded.config
    )
    table.left_out = left
    return table


def commit(
    table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> None:
    """Commit to a table that may be partly loaded: what was left out of it is then no more.

    An SQL catalog starts from the very version that ``table`` is, and fails if it is not the present one.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = table.catalog
    if isinstance(catalog, SqlCatalog):
        catalog = copy.copy(catalog)
        vars(catalog)["load_table"] = lambda _: table
    catalog.commit_table(table, requirements, updates)
