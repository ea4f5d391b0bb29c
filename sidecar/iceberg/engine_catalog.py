"""The protocol of a catalog that an engine lends: the engine reads and writes the metadata, not pyiceberg."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.noop import NoopCatalog

from sidecar.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.typedef import Identifier

    from sidecar.iceberg.partial_loading import PartlyLoaded


class EngineCatalog(NoopCatalog):
    """A catalog whose tables are loaded and committed by an engine, whatever format version they have.

    A commit sends the changes alone, so parts that pyiceberg does not know stay in the metadata.
    """

    cannot_commit: str | None = None
    """Why no table can be changed through this catalog; ``None`` if tables can be."""
    options: Sequence[str] = ()
    """The options that name this catalog on a command line."""

    @abstractmethod
    def load_partly(self, identifier: Identifier) -> PartlyLoaded:
        """Load a table without the registered statistics that pyiceberg refuses. Raises pyiceberg's errors."""

    def names_of_other_formats(self, namespace: Identifier) -> list[str]:
        """Return the tables of a namespace that are no Iceberg tables."""
        return []

    @staticmethod
    def _delete_old_metadata(*_: Any) -> None:
        """Do nothing: the engine itself deletes old versions of the metadata, as properties of the table say."""


def refuse_read_only(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` for a table of a catalog through which nothing can be changed."""
    if isinstance(table.catalog, EngineCatalog) and table.catalog.cannot_commit is not None:
        raise UnsupportedFeatureError(table.catalog.cannot_commit)
