"""Loads the tables of a catalog, each version of one once where the catalog can say which version is the present one.

An SQL catalog answers this by a query. Other catalogs have to load the table for it, so nothing is kept for them.
"""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from sidecar.iceberg.catalog import load_identified
from sidecar.iceberg.partial_loading import location_in_sql
from sidecar.serving.answers import Identifier
from sidecar.serving.planning.bounded_cache import BoundedCache

_MOST_BYTES = 64 << 20
_TABLE_BYTES, _SNAPSHOT_BYTES = 50_000, 5_000
"""About what a table takes in memory, and each snapshot, statistics entry or entry of the metadata log of it."""


class CatalogTables:
    """The tables of one catalog. Callers do not change them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: BoundedCache[tuple[Identifier, str], Table] = BoundedCache(_MOST_BYTES, _weight)

    def load(self, identifier: Identifier) -> Table:
        """Return the present version of a table. Raises pyiceberg's errors."""
        load = partial(load_identified, self._catalog, identifier)
        location = location_in_sql(self._catalog, identifier)
        return load() if location is None else self._tables.get((identifier, location), load)


def _weight(table: Table) -> int:
    metadata = table.metadata
    parts = len(metadata.snapshots) + len(metadata.statistics) + len(metadata.metadata_log)
    return _TABLE_BYTES + _SNAPSHOT_BYTES * parts
