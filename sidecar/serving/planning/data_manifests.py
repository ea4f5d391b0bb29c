"""Keeps what answers need of data manifests: encoded files, bounds as columns, and the entries as Avro bytes.

Manifests are immutable, so all this is kept by path. Python objects of an entry take ten times the memory of its Avro
bytes, so an entry is decoded again in the few cases in which one is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntryStatus, ManifestFile
from pyiceberg.types import IcebergType

from sidecar.iceberg.listing import EntryBounds, entry_bounds, read_checked
from sidecar.iceberg.manifests import LATEST, LatestFields, entry_decoder, first_row_id_of, latest_fields
from sidecar.serving.planning.delete_files import partition_of
from sidecar.serving.protocol.encoding import encode_file

ENTRY_BYTES = 2000
"""About what an entry of a cache takes if nothing is in it. Tables without deletes have an empty entry a snapshot."""
_OVERHEAD = 200
"""Bytes of Python objects for each file beside its pieces."""


class DataManifest:
    """The live data files of a manifest, in its order.

    ``line`` is the manifest's line in a manifest list, read with :data:`LATEST`. ``partition_types`` are those of its
    spec. Raises the errors of :func:`read_checked`.
    """

    def __init__(self, io: FileIO, line: ManifestFile, partition_types: Sequence[IcebergType]) -> None:
        contents = read_checked(io, line, LATEST)
        live = [raw for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED]
        files = [raw.entry.data_file for raw in live]
        self.line = line
        self.spec_id = line.partition_spec_id
        self.paths = [file.file_path for file in files]
        self.sizes = [file.file_size_in_bytes for file in files]
        self.sequence_numbers = [raw.entry.sequence_number or 0 for raw in live]
        self.partitions = [partition_of(file) for file in files]
        self.partition_types = partition_types
        self._raw = [raw.raw for raw in live]
        self._first_row_ids = _first_row_ids(line, files)
        self._avro_schema = contents.avro_schema
        self._bounds = _columns(files)
        self._encoded: dict[bool, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, at: int) -> DataFile:
        """Decode the file at a place of the manifest."""
        return entry_decoder(self._avro_schema, LATEST).decode(self._raw[at], self.line).data_file

    def encoded(self, for_pyiceberg: bool) -> list[bytes]:
        """Return all files as JSON."""
        if for_pyiceberg not in self._encoded:
            self._encoded[for_pyiceberg] = [self._encode(at, for_pyiceberg) for at in range(len(self))]
        return self._encoded[for_pyiceberg]

    def _encode(self, at: int, for_pyiceberg: bool) -> bytes:
        latest = LatestFields(self._first_row_ids[at], None, None, None)
        return encode_file(self.file(at), self.spec_id, self.partition_types, latest, for_pyiceberg=for_pyiceberg)

    def bounds(self, field_id: int) -> pa.Table | None:
        """Return the columns lower, upper, value_count, null_count and nan_count of a field; ``None`` if none are
        known."""
        return self._bounds.get(field_id)

    @property
    def weight(self) -> int:
        """About how many bytes of memory this takes, with encoded files for both kinds of clients."""
        avro = sum(map(len, self._raw))
        # Hexadecimal digits and names make the JSON of an entry about four times as long as its Avro bytes.
        return ENTRY_BYTES + 5 * avro + sum(table.nbytes for table in self._bounds.values()) + _OVERHEAD * len(self)


def _columns(files: Sequence[DataFile]) -> dict[int, pa.Table]:
    nothing = EntryBounds(None, None, None, None, None)
    by_file = [entry_bounds(file) for file in files]
    tables = {}
    for field_id in sorted({field_id for bounds in by_file for field_id in bounds}):
        column = [bounds.get(field_id, nothing) for bounds in by_file]
        tables[field_id] = pa.table(
            {
                "lower": pa.array([one.lower for one in column], pa.binary()),
                "upper": pa.array([one.upper for one in column], pa.binary()),
                "value_count": pa.array([one.value_count for one in column], pa.int64()),
                "null_count": pa.array([one.null_count for one in column], pa.int64()),
                "nan_count": pa.array([one.nan_count for one in column], pa.int64()),
            }
        )
    return tables


def _first_row_ids(line: ManifestFile, files: Sequence[DataFile]) -> list[int | None]:
    """Return the first row id of each live file: its own, or the manifest's plus the rows of files before it.

    Only files without an own id take one from the manifest, and deleted entries take none.
    """
    following = first_row_id_of(line)
    ids: list[int | None] = []
    for file in files:
        own = latest_fields(file).first_row_id
        if own is None and following is not None:
            own, following = following, following + file.record_count
        ids.append(own)
    return ids
