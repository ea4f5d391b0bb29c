"""Tables whose Parquet data files are encrypted: written by pyarrow, the entries of their manifests by hand.

pyarrow 26 ends the process when ``add_files`` asks an encrypted column's statistics, so that is not the way.
"""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from sidecar.crypto.key_material import KmsKeys
from sidecar.crypto.keys import EncryptionKeys
from tests.iceberg.cases import file_in_manifest
from tests.iceberg.mixed_tables import append_files
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("id long, ssn string, v int")
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), True, {"PARQUET:field_id": "1"}),
        pa.field("ssn", pa.string(), True, {"PARQUET:field_id": "2"}),
        pa.field("v", pa.int32(), True, {"PARQUET:field_id": "3"}),
    ]
)
ROWS = 100
MASTER = b"planted-master-1"
METADATA = b"planted-key-metadata"
"""Key metadata of the master key of bundles."""
SECRET = "planted-secret-{}"


class Kms(pe.KmsClient):
    """A key server that wraps keys in base64."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
        return base64.b64decode(wrapped)


class Retriever:
    """The keys of files from the key server, those of bundles from here."""

    def __init__(self, **bundles: bytes) -> None:
        self.kms = KmsKeys(Kms, None)
        self.bundles = {METADATA: MASTER} | {name.encode(): key for name, key in bundles.items()}

    def key(self, key_metadata: bytes) -> bytes | None:
        own = self.bundles.get(key_metadata)
        return own if own is not None else self.kms.key(key_metadata)


def file_keys() -> EncryptionKeys:
    """Keys that open the files, and name none for bundles."""
    return EncryptionKeys(Retriever())


def bundle_keys(*columns: str) -> EncryptionKeys:
    """Keys that open the files, and a master key for bundles of these columns (``ssn``)."""
    return EncryptionKeys(Retriever(), bundle_keys=dict.fromkeys(columns or ("ssn",), METADATA))


def trusting(keys: EncryptionKeys) -> EncryptionKeys:
    """The keys of somebody who believes plaintext indexes."""
    return replace(keys, allow_plaintext_indexes=True)


def rows(number: int, count: int = ROWS) -> pa.Table:
    """The rows of file ``number``: each value of ``ssn`` once in the table."""
    ids = range(number * count, (number + 1) * count)
    columns = [list(ids), [SECRET.format(i) for i in ids], [i % 7 for i in ids]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], schema=ARROW)


def encrypted_table(catalog: Any, name: str, files: int = 4, **options: Any) -> Table:
    """A table of so many files, with the options of :func:`add_encrypted`."""
    table: Table = catalog.create_table(name, SCHEMA)
    add_encrypted(table, range(files), **options)
    return catalog.load_table(name)


def add_encrypted(
    table: Table,
    numbers: Any,
    *,
    encrypted: bool = True,
    plaintext_footer: bool = True,
    bounds: tuple[int, ...] = (),
    row_group_size: int = ROWS,
    key: bytes | None = None,
) -> None:
    """Append files in one commit, with one manifest.

    ``ssn`` is encrypted with a key of its own. ``bounds`` are field ids of which manifests have them. With ``key``,
    footers and all columns are encrypted with that one, and no key server has a part in it.
    """
    made = []
    for number in numbers:
        path = f"{table.location()}/data/part-{number:04}.parquet"
        with table.io.new_output(path).create() as stream:
            stream.write(_file(number, encrypted, plaintext_footer, row_group_size, key))
        made.append(_entry(table, path, rows(number), bounds))
    append_files(table, made)


def file_properties(columns: list[str], plaintext_footer: bool = True) -> Any:
    """Encryption of some columns, with one key of the key server for all of them."""
    config = pe.EncryptionConfiguration(
        "footer", column_keys={"column": columns}, plaintext_footer=plaintext_footer, double_wrapping=False
    )
    return pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)


@cache
def _file(number: int, encrypted: bool, plaintext_footer: bool, row_group_size: int, key: bytes | None) -> bytes:
    """The bytes of a file, which is in many tables of the tests."""
    properties = None
    if encrypted:
        properties = file_properties(["ssn"], plaintext_footer) if key is None else pe.create_encryption_properties(key)
    sink = io.BytesIO()
    pq.write_table(
        rows(number), sink, row_group_size=row_group_size, write_page_index=True, encryption_properties=properties
    )
    return sink.getvalue()


def _entry(table: Table, path: str, content: pa.Table, bounds: tuple[int, ...]) -> DataFile:
    found = {}
    for field_id in bounds:
        field = SCHEMA.find_field(field_id)
        values = content[field.name].to_pylist()
        found[field_id] = to_bytes(field.field_type, min(values)), to_bytes(field.field_type, max(values))
    file = file_in_manifest(
        path,
        content.num_rows,
        len(table.io.new_input(path)),
        lower_bounds={i: low for i, (low, _) in found.items()},
        upper_bounds={i: high for i, (_, high) in found.items()},
    )
    file.spec_id = 0
    return file
