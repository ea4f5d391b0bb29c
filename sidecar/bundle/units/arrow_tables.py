"""Converts the model of a units blob to Arrow IPC streams and back.

Each piece is one Arrow IPC stream, with zstd-compressed buffers unless it is small. Pass only verified bytes to the
decoders, because Arrow decodes most bit flips to wrong values without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sidecar.bundle.envelopes.envelope import kept
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import FieldBounds, FileEntry, ListedManifest, UnitEntry
from sidecar.errors import DamagedFileError


def _required(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False)


def _optional(name: str, kind: Any) -> Any:
    return pa.field(name, kind)


_UNIT = pa.struct(
    [
        _required("row_group", pa.int32()),
        _required("first_row", pa.int64()),
        _required("rows", pa.int64()),
    ]
)
FILE_SCHEMA = pa.schema(
    [
        _required("file_path", pa.string()),
        _required("file_size_in_bytes", pa.int64()),
        _required("record_count", pa.int64()),
        _required("spec_id", pa.int32()),
        _required("manifest", pa.int32()),
        _required("entry", pa.binary()),
        _required("units", pa.list_(_UNIT)),
        _optional("added_snapshot_id", pa.int64()),
        _required("file_sequence_number", pa.int64()),
    ]
)
BOUNDS_SCHEMA = pa.schema(
    [
        *(_optional(name, pa.binary()) for name in ("lower", "upper")),
        *(_optional(name, pa.int64()) for name in ("value_count", "null_count", "nan_count")),
    ]
)
PARTITION_SCHEMA = pa.schema([_required("spec_id", pa.int32()), _required("partition", pa.list_(pa.binary()))])
SCHEMAS_SCHEMA = pa.schema([_required("avro_schema", pa.string())])
_MANIFEST_NUMBERS = (
    "manifest_length",
    "partition_spec_id",
    "sequence_number",
    "min_sequence_number",
    "added_snapshot_id",
    "live_files_count",
    "live_rows_count",
    "first_file",
    "avro_schema",
    "content",
)
MANIFEST_SCHEMA = pa.schema(
    [_required("manifest_path", pa.string()), *(_required(name, pa.int64()) for name in _MANIFEST_NUMBERS)]
)

SMALL = 4096
"""Bytes of a batch that is not compressed. For each buffer zstd needs 10 microseconds to begin, and adds some bytes."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
_PLAIN = pa.ipc.IpcWriteOptions()
# Without threads: pieces are small, and handing them over costs more.
_READING = pa.ipc.IpcReadOptions(use_threads=False)


def encode_table(schema: pa.Schema, columns: dict[str, Any]) -> bytes:
    """Return an Arrow IPC stream with one batch."""
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_PLAIN if batch.nbytes <= SMALL else _COMPRESSED) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_table(data: bytes, schema: pa.Schema) -> pa.Table:
    """Decode a piece whose seal is good, which proves nothing of its writer: anybody can seal bytes.

    Arrow does not check offsets when it reads a stream, and follows them out of its memory later, so all of the table
    is checked here. Raises :class:`DamagedFileError` unless it is sound and has exactly the columns of ``schema``.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(data), options=_READING) as reader:
            if not reader.schema.equals(schema):
                names = reader.schema.names
                raise DamagedFileError("a piece has the wrong columns", expected=schema.names, found=str(names)[:100])
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DamagedFileError("a piece is not an Arrow stream", found=str(error)[:100]) from error
    for field, array in (pair for batch in table.to_batches() for pair in zip(schema, batch.columns, strict=True)):
        if _lacks_values(field, array):
            raise DamagedFileError("a piece has nulls in a column that must not have any", found=field.name)
    return table


def _lacks_values(field: pa.Field[Any], array: Any) -> bool:
    """Return whether a required field, or one in it, has nulls. No structure is optional here."""
    kind: Any = field.type
    if array.null_count and (isinstance(kind, pa.StructType) or not field.nullable):
        return True
    if isinstance(kind, pa.StructType):
        return any(_lacks_values(inner, array.field(at)) for at, inner in enumerate(kind))
    return isinstance(kind, pa.ListType) and _lacks_values(kind.value_field, array.values)


def encode_files(files: Sequence[FileEntry]) -> bytes:
    """Encode a batch of files."""
    return encode_table(
        FILE_SCHEMA,
        {
            "file_path": [file.path for file in files],
            "file_size_in_bytes": [file.identity.file_size for file in files],
            "record_count": [file.identity.record_count for file in files],
            "spec_id": [file.spec_id for file in files],
            "manifest": [file.manifest for file in files],
            "entry": [file.entry for file in files],
            "units": [[unit._asdict() for unit in file.units] for file in files],
            "added_snapshot_id": [file.identity.added_snapshot_id for file in files],
            "file_sequence_number": [file.identity.file_sequence_number for file in files],
        },
    )


def decode_file_table(data: bytes) -> pa.Table:
    """Decode a batch of files to its stored table. Raises :class:`DamagedFileError`."""
    return decode_table(data, FILE_SCHEMA)


def files_of(batch: pa.Table, rows: Sequence[int] | None = None) -> list[FileEntry]:
    """Return files of a batch (default: all), without bounds and partitions, which have their own sections."""
    if rows is not None:  # of one file, as a lookup asks for it, no column is copied
        batch = batch.slice(rows[0], 1) if len(rows) == 1 else batch.take(pa.array(rows, pa.int64()))
    return [
        FileEntry(
            DataFileIdentity(
                row["file_path"],
                row["file_size_in_bytes"],
                row["record_count"],
                row["added_snapshot_id"],
                row["file_sequence_number"],
            ),
            spec_id=row["spec_id"],
            manifest=row["manifest"],
            entry=row["entry"],
            units=tuple(UnitEntry(**unit) for unit in row["units"]),
        )
        for row in batch.to_pylist()
    ]


def encode_bounds(bounds: Sequence[FieldBounds]) -> bytes:
    """Encode the bounds of one field, one row for each file."""
    columns = zip(*bounds, strict=True)
    return encode_table(BOUNDS_SCHEMA, dict(zip(FieldBounds._fields, map(list, columns), strict=True)))


def encode_partitions(files: Sequence[FileEntry]) -> bytes:
    """Encode the partition tuples, one row for each file."""
    return encode_table(
        PARTITION_SCHEMA,
        {"spec_id": [file.spec_id for file in files], "partition": [list(file.partition) for file in files]},
    )


def encode_schemas(schemas: Sequence[str]) -> bytes:
    """Encode Avro schemas, which are JSON texts."""
    return encode_table(SCHEMAS_SCHEMA, {"avro_schema": list(schemas)})


@kept
def decode_schemas(data: bytes) -> tuple[str, ...]:
    """Decode Avro schemas. Raises :class:`DamagedFileError`."""
    return tuple(map(str, decode_table(data, SCHEMAS_SCHEMA)["avro_schema"].to_pylist()))


def encode_manifests(manifests: Sequence[ListedManifest]) -> bytes:
    """Encode the listed manifests."""
    return encode_table(
        MANIFEST_SCHEMA,
        {
            "manifest_path": [manifest.path for manifest in manifests],
            "manifest_length": [manifest.length for manifest in manifests],
            "partition_spec_id": [manifest.spec_id for manifest in manifests],
            "sequence_number": [manifest.sequence_number for manifest in manifests],
            "min_sequence_number": [manifest.min_sequence_number for manifest in manifests],
            "added_snapshot_id": [manifest.added_snapshot_id for manifest in manifests],
            "live_files_count": [manifest.live_files for manifest in manifests],
            "live_rows_count": [manifest.live_rows for manifest in manifests],
            "first_file": [manifest.first_file for manifest in manifests],
            "avro_schema": [manifest.schema for manifest in manifests],
            "content": [manifest.content for manifest in manifests],
        },
    )


@kept
def decode_manifests(data: bytes) -> tuple[ListedManifest, ...]:
    """Decode the listed manifests. Raises :class:`DamagedFileError`."""
    rows = decode_table(data, MANIFEST_SCHEMA).to_pydict()
    columns = (rows[name] for name in MANIFEST_SCHEMA.names)
    return tuple(ListedManifest(*row) for row in zip(*columns, strict=True))
