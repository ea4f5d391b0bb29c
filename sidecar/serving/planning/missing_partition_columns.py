"""Refuses pyiceberg's plans of files that lack a partition column whose value pyiceberg cannot be told.

Files that were taken over from Hive lack the columns that divide the table, and pyiceberg takes their values from the
partition of the file. NULL, decimals, UUIDs and bytes cannot be said in its answers, so it gets no partition at all and
would end in an IndexError. Files that have the columns do not need it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from sidecar.serving.protocol.encoding import is_known_to_pyiceberg
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError

_NAME_MAPPING = "schema.name-mapping.default"
"""The property of tables that have files which another format has written."""
_COUNTED_COLUMNS = 100
"""Files of more columns may have no statistics of a column that is there."""


class MissingPartitionColumns:
    """The columns that a request of pyiceberg's reads and that a file may lack. ``select``: ``None`` for all."""

    def __init__(self, table: Table, select: Sequence[str] | None) -> None:
        self._names: dict[int, dict[int, str]] = {}
        self._widths = {spec_id: len(spec.fields) for spec_id, spec in table.specs().items()}
        if _NAME_MAPPING not in table.properties:
            return
        schema, wanted = table.schema(), None if select is None else {name.lower() for name in select}
        for spec_id, spec in table.specs().items():
            sources = {part.source_id for part in spec.fields if isinstance(part.transform, IdentityTransform)}
            names = {one: name for one in sources if (name := schema.find_column_name(one)) is not None}
            self._names[spec_id] = {
                one: name for one, name in names.items() if wanted is None or name.lower() in wanted
            }

    def may_be_of(self, spec_id: int, partition: Sequence[object]) -> bool:
        """Return whether files of such a partition must be looked at. A partition may lack NULL at its end."""
        is_said = len(partition) == self._widths[spec_id] and is_known_to_pyiceberg(partition)
        return bool(self._names.get(spec_id)) and not is_said

    def refuse(self, file: DataFile, spec_id: int) -> None:
        """Raise :class:`RefusedRequestError` if pyiceberg would look for a value that it is not told."""
        known = {*(file.column_sizes or {}), *(file.value_counts or {})}
        if not 0 < len(known) < _COUNTED_COLUMNS:
            return
        for field_id, name in self._names.get(spec_id, {}).items():
            if field_id not in known:
                raise RefusedRequestError(
                    f"the file {file.file_path} has no column {name}, and pyiceberg cannot be told its value by a "
                    "server: set the catalog's property scan-planning-mode to client",
                    ErrorType.UNSUPPORTED,
                )
