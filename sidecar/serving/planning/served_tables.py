"""Decides whether scans of a table should be planned on the server.

A client that is told ``client`` plans by itself, if it listens to what the table says: Java does, pyiceberg 0.12 asks
the server for every table of the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType

from sidecar.errors import advisory
from sidecar.iceberg.statistics_files.find_sidecar import is_sidecar, registered_for
from sidecar.iceberg.table_names import is_match, parts_of
from sidecar.serving.answers import Identifier
from sidecar.serving.planning.bounded_cache import BoundedCache
from sidecar.serving.protocol.errors import place_of

log = logging.getLogger(__name__)

SERVE = "sidecar.serve"
"""The table property that says ``true`` or ``false``: whether the server should plan scans of the table."""
_KNOWN_FILES = 10_000
"""The most statistics files of which is kept whether they are sidecars."""
_NEWEST = 2
"""The newest format version that is served: the protocol has no sequence numbers, which row lineage of 3 needs."""


class ServedTables:
    """The tables whose scans should be planned on the server.

    ``patterns`` are globs of names (``db.*``), as for :func:`sidecar.find_tables`; ``None`` matches all.
    """

    def __init__(self, patterns: Sequence[str] | None = None) -> None:
        self._patterns = patterns
        self._sidecars: BoundedCache[tuple[Identifier, str], bool | None] = BoundedCache(
            _KNOWN_FILES, lambda known: _KNOWN_FILES + 1 if known is None else 1
        )

    def has(self, table: Table, identifier: Identifier) -> bool:
        """Return whether a plan by the server is right for every use of a table, and its sidecar can help."""
        metadata = table.metadata
        chosen = metadata.properties.get(SERVE, "").lower()
        if chosen == "false" or metadata.format_version > _NEWEST or _has_float_partitions(table):
            return False
        if not is_chosen(identifier, self._patterns):
            return False
        return chosen == "true" or self._has_sidecar(table, identifier)

    def _has_sidecar(self, table: Table, identifier: Identifier) -> bool:
        current = table.metadata.current_snapshot_id
        if current is None:
            return False

        try:
            return any(
                self._sidecars.get((identifier, entry.statistics_path), partial(is_sidecar, table, entry))
                for entry in registered_for(table, current)
            )
        except Exception as error:  # no table fails to load because of its sidecar
            advisory(error)
            log.warning("the sidecar of a table is left out after %s", place_of(error))
            return False


def is_chosen(identifier: Identifier, patterns: Sequence[str] | None) -> bool:
    """Return whether the name of a table matches one of ``patterns``; ``None`` matches all."""
    return patterns is None or any(is_match(tuple(identifier), parts_of(pattern)) for pattern in patterns)


def _has_float_partitions(table: Table) -> bool:
    """Whether partition values can be NaN or infinity, which the protocol cannot say."""
    sources = {
        part.source_id
        for spec in table.specs().values()
        for part in spec.fields
        if isinstance(part.transform, IdentityTransform)
    }
    return any(
        isinstance(schema.find_type(field_id), FloatType | DoubleType)
        for schema in table.schemas().values()
        for field_id in sources & schema.field_ids
    )
