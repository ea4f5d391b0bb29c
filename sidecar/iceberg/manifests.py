"""Decodes manifests and manifest lists, to records and to the Avro bytes of each record.

An Iceberg manifest is an Avro object container file: magic ``Obj\\x01``, a metadata map (``avro.schema``,
``avro.codec`` and the manifest's own keys), a 16-byte sync marker; then blocks. A block is a record count (zigzag
varint), a byte length, the records (compressed as one piece) and the sync marker again. One record is one manifest
entry. A sidecar stores each record's bytes unchanged, so that a later plan can let pyiceberg decode them to the same
entry without the manifest.

Blocks are walked here because pyiceberg's own loop ends silently at a truncation. Records are decoded with
:mod:`sidecar.iceberg.bytes_decoder`, which raises an error for a wrong length; pyiceberg's compiled one (0.12) reads
beyond the end of the buffer. It takes half of the time, so plans that open a manifest use it, unless partitions have
doubles: it reads these as floats, and 2.222 becomes 2.2219998836517334.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DoubleType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sidecar.bundle.file_identity import UNKNOWN_SEQUENCE, DataFileIdentity
from sidecar.dependencies.pyiceberg import SCHEMA_KEY, inherit_from_manifest
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, foreign_reason
from sidecar.iceberg.bytes_decoder import BlockReader, BytesDecoder
from sidecar.storage.remote import read_file

_DATA_FILE, _PARTITION = 2, 102  # field ids of the Iceberg specification
_ENUMS: dict[int, Callable[..., Any]] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
_TYPES: dict[int, Callable[..., Any]] = {-1: ManifestEntry, _DATA_FILE: DataFile}
_LINE_ENUMS: dict[int, Callable[..., Any]] = {517: ManifestContent}
_LINE_TYPES: dict[int, Callable[..., Any]] = {-1: ManifestFile, 508: PartitionFieldSummary}
R = TypeVar("R")


@dataclass(frozen=True)
class RawEntry:
    """A manifest entry, decoded (with the values inherited from the manifest list) and as Avro bytes."""

    entry: ManifestEntry
    raw: bytes


@dataclass(frozen=True)
class ManifestContents:
    """A decoded manifest: the writer's Avro schema as JSON text, and all entries.

    ``metadata`` is its key-value metadata; it is empty if the live entries were recorded in a sidecar.
    """

    avro_schema: str
    partition_fields: tuple[NestedField, ...]
    entries: tuple[RawEntry, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


def identity_of(entry: ManifestEntry) -> DataFileIdentity:
    """Return the identity under which a sidecar lists the data file of a live entry (with inherited values)."""
    file = entry.data_file
    return DataFileIdentity(
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        entry.snapshot_id,
        entry.file_sequence_number or UNKNOWN_SEQUENCE,
    )


class EntryDecoder:
    """Decodes the Avro records of manifest entries with one writer schema, to entries of one format version."""

    def __init__(self, avro_schema: str, version: TableVersion = DEFAULT_READ_VERSION) -> None:
        try:
            self.schema: Schema = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
            read_schema = MANIFEST_ENTRY_SCHEMAS[version]
            self._reader: Reader = resolve_reader(self.schema, read_schema, _TYPES, _ENUMS)
        except ResolveError:
            raise
        except Exception as error:
            raise DamagedFileError(
                f"the Avro schema of the manifest cannot be read: {foreign_reason(error)}"
            ) from error

    @property
    def partition_fields(self) -> tuple[NestedField, ...]:
        """The fields of the manifest's partition struct, in the order of its records."""
        partition = self.schema.find_type(_PARTITION)
        return partition.fields if isinstance(partition, StructType) else ()

    def read(self, decoder: BinaryDecoder, manifest: ManifestFile) -> ManifestEntry:
        """Read the next entry of ``decoder``; add the values that it inherits from its line in the manifest list."""
        entry: ManifestEntry = self._reader.read(decoder)
        return inherit_from_manifest(entry, manifest)

    def decode(self, raw: bytes, manifest: ManifestFile) -> ManifestEntry:
        """Decode one entry. Raises :class:`DamagedFileError` if ``raw`` is not exactly one record."""
        decoder = BytesDecoder(raw)
        try:
            entry = self.read(decoder, manifest)
        except Exception as error:
            raise DamagedFileError(f"a manifest entry cannot be decoded: {foreign_reason(error)}") from error
        if decoder.tell() != len(raw):
            raise DamagedFileError(
                "a manifest entry is shorter than its bytes", expected=len(raw), found=decoder.tell()
            )
        return entry


@lru_cache(maxsize=64)
def entry_decoder(avro_schema: str, version: TableVersion = DEFAULT_READ_VERSION) -> EntryDecoder:
    """Return a (cached) decoder for a writer schema. Raises :class:`DamagedFileError` if it cannot be used."""
    return EntryDecoder(avro_schema, version)


@dataclass(frozen=True)
class LatestFields:
    """Fields of a data or delete file that only format version 3 has."""

    first_row_id: int | None
    referenced_data_file: str | None
    content_offset: int | None
    content_size: int | None


LATEST: TableVersion = 3
"""The format version whose entries have :class:`LatestFields`."""


def latest_fields(file: DataFile) -> LatestFields:
    """Return the fields of a file; they are ``None`` unless its entry was read with :data:`LATEST`."""
    if len(file) <= max(_LATEST_PLACES):
        return LatestFields(None, None, None, None)
    return LatestFields(*(file[place] for place in _LATEST_PLACES))


def first_row_id_of(line: ManifestFile) -> int | None:
    """Return the first row id of a manifest, from a line that was read with :data:`LATEST`."""
    first: int | None = line[_FIRST_ROW_ID_PLACE]
    return first


_LATEST_PLACES = [
    next(at for at, part in enumerate(DATA_FILE_TYPE[LATEST].fields) if part.field_id == field_id)
    for field_id in (142, 143, 144, 145)
]
_FIRST_ROW_ID_PLACE = next(
    at for at, part in enumerate(MANIFEST_LIST_FILE_SCHEMAS[LATEST].fields) if part.field_id == 520
)


def read_manifests(io: FileIO, manifest_list: str, version: TableVersion = DEFAULT_READ_VERSION) -> list[ManifestFile]:
    """Read the lines of a manifest list, without pyiceberg's cache, which returns lines of other snapshots' lists.

    ``version`` is the format version whose fields the lines have.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError` or :class:`sidecar.errors.StorageError` with
    the path of the manifest list.
    """
    data = read_file(manifest_list, io)
    with _errors_name(manifest_list):
        header, decoder = _decode_header(data)
        reader = _line_reader(header.meta[SCHEMA_KEY], version)
        blocks = _blocks(data, header, decoder)
        return [line for block, count in blocks for line, _ in _records(block, count, reader.read)]


def read_manifest(io: FileIO, manifest: ManifestFile, version: TableVersion = DEFAULT_READ_VERSION) -> ManifestContents:
    """Read all entries of a manifest, including deleted ones, with one read of the whole file.

    ``version`` is the format version whose fields the entries have.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError` or :class:`sidecar.errors.StorageError` with
    the path of the manifest.
    """
    return decode_manifest(read_file(manifest.manifest_path, io), manifest, version)


def decode_manifest(
    data: bytes, manifest: ManifestFile, version: TableVersion = DEFAULT_READ_VERSION
) -> ManifestContents:
    """Decode the bytes of a whole manifest file. Raises the errors of :func:`read_manifest`."""
    with _errors_name(manifest.manifest_path):
        header, decoder = _decode_header(data)
        avro_schema = header.meta[SCHEMA_KEY]
        records = entry_decoder(avro_schema, version)
        entries = tuple(
            RawEntry(entry, raw)
            for block, count in _blocks(data, header, decoder)
            for entry, raw in _records(block, count, lambda d: records.read(d, manifest))
        )
    return ManifestContents(avro_schema, records.partition_fields, entries, header.meta)


def read_live_entries(
    io: FileIO, manifest: ManifestFile, version: TableVersion = DEFAULT_READ_VERSION
) -> list[ManifestEntry]:
    """Read the live entries of a manifest, without the Avro bytes of each. Raises the errors of :func:`read_manifest`.

    This takes half of the time of :func:`read_manifest`.
    """
    data = read_file(manifest.manifest_path, io)
    with _errors_name(manifest.manifest_path):
        header, decoder = _decode_header(data)
        records = entry_decoder(header.meta[SCHEMA_KEY], version)
        has_doubles = any(isinstance(part.field_type, DoubleType) for part in records.partition_fields)
        entries = list[ManifestEntry]()
        for block, count in _blocks(data, header, decoder):
            of_block = BytesDecoder(block) if has_doubles else new_decoder(block)
            entries += [records.read(of_block, manifest) for _ in range(count)]
    return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]


@lru_cache(maxsize=64)
def _line_reader(avro_schema: str, version: TableVersion) -> Reader:
    """Return a (cached) reader of the lines of manifest lists with a writer schema."""
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
    read_schema = MANIFEST_LIST_FILE_SCHEMAS[version]
    return resolve_reader(written, read_schema, _LINE_TYPES, _LINE_ENUMS)


@lru_cache(maxsize=1)
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@contextmanager
def _errors_name(path: str) -> Iterator[None]:
    """Turn foreign errors into :class:`SidecarError` and add the path of the file to all errors."""
    try:
        yield
    except SidecarError as error:
        error.file = path
        raise
    except ImportError as error:  # the package of a codec is not installed
        raise UnsupportedFeatureError(
            f"the Avro blocks cannot be decompressed: {foreign_reason(error)}", file=path
        ) from error
    except ResolveError as error:  # a type that pyiceberg does not know, or no field that only older versions may lack
        raise UnsupportedFeatureError(
            f"pyiceberg does not read the schema of the Avro file: {foreign_reason(error)}", file=path
        ) from error
    except Exception as error:
        raise DamagedFileError(f"the Avro file is broken: {foreign_reason(error)}", file=path) from error


def _decode_header(data: bytes) -> tuple[AvroFileHeader, BinaryDecoder]:
    magic = data[: len(MAGIC)]
    if magic != MAGIC:
        raise DamagedFileError("the file is not an Avro file", offset=0, expected=MAGIC, found=magic)
    decoder = BytesDecoder(data)
    header: AvroFileHeader = _header_reader().read(decoder)
    if SCHEMA_KEY not in header.meta:
        raise DamagedFileError("the Avro file has no schema", offset=len(MAGIC))
    return header, decoder


def _blocks(data: bytes, header: AvroFileHeader, decoder: BinaryDecoder) -> Iterator[tuple[bytes, int]]:
    """Yield the decompressed bytes and record count of each block; check that each ends with the sync marker."""
    blocks = BlockReader(header.meta.get(AVRO_CODEC_KEY, "null"), len(data))
    while (start := decoder.tell()) < len(data):
        count = decoder.read_int()
        length = decoder.read_int()
        body = decoder.tell()
        if count < 0 or length < 0 or body + length + SYNC_SIZE > len(data):
            raise DamagedFileError(
                "an Avro block exceeds the file",
                offset=start,
                expected=f"at most {len(data)} bytes",
                found=f"{count} records in {length} bytes from {body}",
            )
        block = decoder.read(length) if length else b""
        if decoder.read(SYNC_SIZE) != header.sync:
            raise DamagedFileError("an Avro block lacks its sync marker", offset=body + length)
        yield blocks.read(block), count


def _records(block: bytes, count: int, read: Callable[[BinaryDecoder], R]) -> Iterator[tuple[R, bytes]]:
    """Yield each record of a block, decoded and as bytes."""
    decoder = BytesDecoder(block)
    for _ in range(count):
        start = decoder.tell()
        record = read(decoder)
        yield record, block[start : decoder.tell()]
    if decoder.tell() != len(block):
        raise DamagedFileError("an Avro block is longer than its records", expected=decoder.tell(), found=len(block))
