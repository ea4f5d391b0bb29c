"""Makes pyiceberg's tables of load-table answers of an upstream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table.metadata import TableMetadata

from sidecar.errors import DamagedFileError
from sidecar.iceberg.catalog import foreign_error
from sidecar.iceberg.partial_loading import Left, PartlyLoaded, parse_metadata
from sidecar.serving.catalog_routes import MODE
from sidecar.serving.planning.bounded_cache import BoundedCache
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.proxy.storage import CallersStorage
from sidecar.serving.table_paths import TablePath

MOST_CACHED = 64 << 20
"""Bytes of metadata, as JSON, of the tables whose metadata is kept. In memory it takes a few times as much."""


class LoadAnswer:
    """A load-table answer. ``document`` is the JSON object, and may be changed."""

    def __init__(self, document: dict[str, Any], own_storage: tuple[str, ...]) -> None:
        self.document = document
        self.config: dict[str, str] = {str(name): str(value) for name, value in _object(document, "config").items()}
        self.metadata: dict[str, Any] = _object(document, "metadata")
        location = document.get("metadata-location")
        self.location = location if isinstance(location, str) else ""
        credentials = document.get("storage-credentials") or []
        self.storage = CallersStorage(
            self.config,
            [
                (str(one["prefix"]), {str(name): str(value) for name, value in _object(one, "config").items()})
                for one in credentials
                if isinstance(one, Mapping) and "prefix" in one
            ],
            own_storage,
        )

    @property
    def upstreams_mode(self) -> str | None:
        """The planner of the table's scans by the upstream's answer; ``None`` if it does not say."""
        return self.config.get(MODE)

    def leave_to_clients(self) -> None:
        """Say in the answer that clients plan scans of the table."""
        self.document["config"] = {**_object(self.document, "config"), MODE: "client"}

    def is_readable(self) -> bool:
        """Whether this server may read the table's metadata for the caller."""
        return bool(self.location) and self.storage.may_read(self.location)


class UpstreamTables:
    """Makes tables of answers, and keeps the metadata of the last ones."""

    def __init__(self, own_storage: tuple[str, ...], most_cached: int = MOST_CACHED) -> None:
        self._own_storage = own_storage
        self._metadata: BoundedCache[tuple[str, str, bytes], tuple[TableMetadata, Left, int]] = BoundedCache(
            most_cached, lambda kept: kept[2]
        )

    def read(self, body: bytes) -> LoadAnswer:
        """Return a load-table answer of its JSON text.

        Raises :class:`DamagedFileError` if it is not one.
        """
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DamagedFileError("the upstream's answer is not JSON") from error
        if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
            raise DamagedFileError("the upstream's answer is not that of a table")
        return LoadAnswer(document, self._own_storage)

    def table(self, loaded: LoadAnswer, path: TablePath, length: int) -> PartlyLoaded:
        """Return the table that a caller has loaded. Its files are read with the caller's rights.

        ``length``: the bytes of the answer.

        Raises :class:`RefusedRequestError` if the server may not read the table's metadata for the caller, and
        :class:`DamagedFileError` for metadata that pyiceberg does not understand.
        """
        if not loaded.is_readable():
            raise RefusedRequestError(
                f"the server may not read {loaded.location or 'the metadata of the table'} for you: the catalog gives "
                "no credentials for it, and no --storage of the server has it",
                ErrorType.FORBIDDEN,
            )
        # Answers about one file differ (``?snapshots=refs``), so its path alone does not identify what is kept.
        text = json.dumps(loaded.metadata).encode()
        key = path.table_path, loaded.location, hashlib.sha256(text).digest()
        metadata, left, _ = self._metadata.get(key, lambda: (*_parsed(loaded), length))
        table = PartlyLoaded(path.identifier, metadata, loaded.location, loaded.storage, NoopCatalog("upstream"))
        table.left_out = left
        return table


def _parsed(loaded: LoadAnswer) -> tuple[TableMetadata, Left]:
    try:
        return parse_metadata(loaded.metadata)
    except Exception as error:
        raise foreign_error("cannot read the table's metadata", error, {}, file=loaded.location) from error


def _object(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
