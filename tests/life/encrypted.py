"""Data files of lives whose columns are encrypted, each file's own choice of them, and the keys of such a table."""

from __future__ import annotations

import random

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from sidecar.crypto.keys import EncryptionKeys
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import Kms, bundle_keys


def encrypt(file: DataFile, rng: random.Random) -> DataFile:
    """A file written anew, with the same name and rows: anybody can read its footer and its ids."""
    path = local(file.file_path)
    rows, footer = pq.read_table(path), pq.read_metadata(path)
    paths = [footer.row_group(0).column(n).path_in_schema for n in range(footer.num_columns)]
    secret = [one for one in paths if one != "id" and rng.random() < 0.4] or [paths[-1]]
    config = pe.EncryptionConfiguration(
        "footer", column_keys={"column": secret}, plaintext_footer=True, double_wrapping=False
    )
    properties = pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)
    path.unlink()
    pq.write_table(
        rows, path, row_group_size=12, data_page_size=64, write_page_index=True, encryption_properties=properties
    )
    file[5], file[13] = path.stat().st_size, None  # the size, and where row groups begin
    return file


def keys_of(table: Table) -> EncryptionKeys:
    """Keys of the files, and one of bundles for each column that the table ever had."""
    names = {name for schema in table.metadata.schemas for name in schema.column_names}
    return bundle_keys(*sorted(names))
