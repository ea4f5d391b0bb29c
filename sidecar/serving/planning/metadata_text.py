"""Reads the metadata file of a table as it is written.

pyiceberg's model of it leaves out what pyiceberg does not know, and clients may know more.
"""

from __future__ import annotations

import gzip
import zlib

from pyiceberg.table import Table

from sidecar.errors import DamagedFileError
from sidecar.storage.remote import read_file


def read_metadata(table: Table) -> bytes:
    """Return the JSON text of a table's metadata.

    Raises :class:`DamagedFileError` or :class:`sidecar.errors.StorageError` if it cannot be read.
    """
    location = table.metadata_location
    data = read_file(location, table.io)
    if not location.endswith((".gz.metadata.json", ".metadata.json.gz")):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFileError("the metadata of the table cannot be decompressed", file=location) from error
