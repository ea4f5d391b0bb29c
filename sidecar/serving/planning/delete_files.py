"""The delete files of one snapshot, with their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.types import IcebergType

from sidecar.iceberg.deletes.delete_files import DeleteFile, SnapshotDeletes
from sidecar.serving.protocol.encoding import encode_file


class ServedDeletes(SnapshotDeletes):
    """The live delete files of a snapshot. Each is encoded once."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        super().__init__(deletes)
        self._encoded: dict[tuple[int, bool], bytes] = {}

    def encoded(self, delete: DeleteFile, partition_types: Sequence[IcebergType], for_pyiceberg: bool) -> bytes:
        """Return a delete file as JSON."""
        key = id(delete), for_pyiceberg
        if key not in self._encoded:
            self._encoded[key] = encode_file(
                delete.file, delete.spec_id, partition_types, delete.latest, for_pyiceberg=for_pyiceberg
            )
        return self._encoded[key]
