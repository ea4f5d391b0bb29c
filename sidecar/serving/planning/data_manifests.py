"""Keeps what answers need of data manifests: encoded files, bounds as columns, and the entries as Avro bytes.

Manifests are immutable, so all this is kept by path. Python objects of an entry take ten times the memory of its Avro
bytes, so an entry is decoded again in the few cases in which one is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.types import IcebergType

from sidecar.bundle.units.fingerprints import FINGERPRINT, FINGERPRINT_BYTES, fingerprint
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.deletes.delete_files import partition_of
from sidecar.iceberg.listing import read_checked
from sidecar.iceberg.manifests import LATEST, LatestFields, entry_decoder, first_row_id_of, identity_of, latest_fields
from sidecar.serving.planning.costs import ENTRY_BYTES, FILE_BYTES
from sidecar.serving.protocol.encoding import encode_file

_BOUNDS = pa.schema(
    [("lower", pa.binary()), ("upper", pa.binary())]
    + [(name, pa.int64()) for name in ("value_count", "null_count", "nan_count")]
)


class DataManifest:
    """The live data files of a manifest, in its order.

    ``line`` is the manifest's line in a manifest list, read with :data:`LATEST`. ``partition_types`` are those of its
    spec. ``for_pyiceberg`` is the kind of client for which files are encoded at once, while they are decoded. Raises
    the errors of :func:`read_checked`.
    """

    def __init__(
        self, io: FileIO, line: ManifestFile, partition_types: Sequence[IcebergType], for_pyiceberg: bool
    ) -> None:
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
        self.fingerprints = np.frombuffer(b"".join(_fingerprint(raw.entry) for raw in live), FINGERPRINT)
        self._encoded: dict[bool, list[bytes | None]] = {
            for_pyiceberg: [self._encode_early(at, file, for_pyiceberg) for at, file in enumerate(files)],
            not for_pyiceberg: [None] * len(live),
        }

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, at: int) -> DataFile:
        """Decode the file at a place of the manifest."""
        return entry_decoder(self._avro_schema, LATEST).decode(self._raw[at], self.line).data_file

    def encoded(self, at: int, for_pyiceberg: bool) -> bytes:
        """Return the file at a place of the manifest as JSON."""
        found = self._encoded[for_pyiceberg][at]
        if found is None:
            found = self._encoded[for_pyiceberg][at] = self._encode(at, self.file(at), for_pyiceberg)
        return found

    def _encode_early(self, at: int, file: DataFile, for_pyiceberg: bool) -> bytes | None:
        try:
            return self._encode(at, file, for_pyiceberg)
        except UnsupportedFeatureError:
            return None  # an error of the plans that have this file

    def _encode(self, at: int, file: DataFile, for_pyiceberg: bool) -> bytes:
        latest = LatestFields(self._first_row_ids[at], None, None, None)
        return encode_file(file, self.spec_id, self.partition_types, latest, for_pyiceberg=for_pyiceberg)

    def bounds(self, field_id: int) -> pa.Table | None:
        """Return the columns lower, upper, value_count, null_count and nan_count of a field; ``None`` if none are
        known."""
        return self._bounds.get(field_id)

    @property
    def weight(self) -> int:
        """About how many bytes of memory this takes, with encoded files for both kinds of clients."""
        avro = sum(map(len, self._raw))
        # Hexadecimal digits and names make the JSON of an entry about four times as long as its Avro bytes.
        return ENTRY_BYTES + 5 * avro + sum(table.nbytes for table in self._bounds.values()) + FILE_BYTES * len(self)


def _fingerprint(entry: ManifestEntry) -> bytes:
    try:
        return fingerprint(identity_of(entry))
    except ValueError:  # no sidecar lists such a file
        return bytes(FINGERPRINT_BYTES)


def _columns(files: Sequence[DataFile]) -> dict[int, pa.Table]:
    """Return the statistics of all files by field id, as :func:`sidecar.iceberg.listing.entry_bounds` has them."""
    maps: dict[str, list[Mapping[int, Any]]] = {
        "lower": [file.lower_bounds or {} for file in files],
        "upper": [file.upper_bounds or {} for file in files],
        "value_count": [file.value_counts or {} for file in files],
        "null_count": [file.null_value_counts or {} for file in files],
        "nan_count": [file.nan_value_counts or {} for file in files],
    }
    field_ids = {field_id for by_file in maps.values() for one in by_file for field_id in one}
    return {
        field_id: pa.table({name: [one.get(field_id) for one in by_file] for name, by_file in maps.items()}, _BOUNDS)
        for field_id in sorted(field_ids)
    }


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
