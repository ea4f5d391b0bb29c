"""Data files of lives whose columns are encrypted, each file's own choice of them, and the keys of such a table."""

from __future__ import annotations

import random

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from sidecar.crypto.keys import EncryptionKeys
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import bundle_keys, file_properties


def encrypt(file: DataFile, rng: random.Random) -> DataFile:
    """A file written anew, with the same name and rows: anybody can read its footer and its ids."""
    path = local(file.file_path)
    rows, footer = pq.read_table(path), pq.read_metadata(path)
    paths = [footer.row_group(0).column(n).path_in_schema for n in range(footer.num_columns)]
    secret = [one for one in paths if one != "id" and rng.random() < 0.4] or [paths[-1]]
    path.unlink()
    sizes = {"row_group_size": 12, "data_page_size": 64, "write_page_index": True}
    pq.write_table(rows, path, **sizes, encryption_properties=file_properties(secret))
    file[5], file[13] = path.stat().st_size, None  # the size, and where row groups begin
    return file


def keys_of(table: Table) -> EncryptionKeys:
    """Keys of the files, and one of bundles for each column that the table ever had."""
    names = {name for schema in table.metadata.schemas for name in schema.column_names}
    return bundle_keys(*sorted(names))
